use super::*;

fn label(media_type: &str) -> String {
    let part = StoredPart {
        size: 1,
        media_type: Some(media_type.to_owned()),
        filename: None,
    };
    let mut headers = HeaderMap::new();
    dress(&mut headers, &part);
    headers[CONTENT_TYPE].to_str().unwrap().to_owned()
}

#[test]
fn a_label_is_the_agents_or_none() {
    for good in [
        "text/html",
        "text/plain; charset=utf-8",
        "image/svg+xml",
        "x/y;a=\"b c\"",
    ] {
        assert_eq!(label(good), good);
    }
    for bad in [
        "",
        "text",
        "text/",
        "/html",
        "a b/c",
        "text/html\r\nx: y",
        "text/h\u{e9}",
        "text/html, x/y",
    ] {
        assert_eq!(label(bad), "application/octet-stream", "{bad:?}");
    }
}

#[test]
fn a_file_is_saved_under_a_name_that_is_only_a_name() {
    for (name, expected) in [
        (
            "vpc.yml",
            "attachment; filename=\"vpc.yml\"; filename*=UTF-8''vpc%2Eyml",
        ),
        (
            "../../etc/passwd",
            "attachment; filename=\"passwd\"; filename*=UTF-8''passwd",
        ),
        (
            "C:\\x\\a\"; x=y.html",
            "attachment; filename=\"a__ x_y.html\"; filename*=UTF-8''a%22%3B%20x%3Dy%2Ehtml",
        ),
        (
            "\u{202e}b\r\n\0",
            "attachment; filename=\"_b\"; filename*=UTF-8''%E2%80%AEb",
        ),
        ("é", "attachment; filename=\"_\"; filename*=UTF-8''%C3%A9"),
        ("..", "attachment"),
        ("a/", "attachment"),
        ("", "attachment"),
    ] {
        assert_eq!(disposition(Some(name)), expected, "{name:?}");
    }
    assert_eq!(disposition(None), "attachment");
    let long = disposition(Some(&"é".repeat(10_000)));
    assert!(
        HeaderValue::from_str(&long).is_ok() && long.len() < 2_000,
        "{}",
        long.len()
    );
}

#[test]
fn every_answer_with_content_forbids_to_show_it() {
    let part = StoredPart {
        size: 1,
        media_type: Some("text/html".to_owned()),
        filename: Some("x.html".to_owned()),
    };
    let mut headers = HeaderMap::new();
    dress(&mut headers, &part);
    assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert!(headers[CONTENT_DISPOSITION].to_str().unwrap().starts_with("attachment"));
    assert!(headers[CONTENT_SECURITY_POLICY].to_str().unwrap().contains("sandbox"));
    assert!(headers[CACHE_CONTROL].to_str().unwrap().starts_with("private"));
}
