use serde_json::json;

use super::*;
use crate::fixture::record;

fn raw(length: usize) -> Part {
    Part {
        content: PartContent::Raw(vec![7; length]),
        ..Part::text("")
    }
}

#[test]
fn a_part_with_more_than_fits_inside_goes_to_the_store() {
    assert!(!takes(&raw(100), 100, false));
    assert!(takes(&raw(101), 100, false));
    assert!(!takes(&raw(0), 0, false));
    assert!(takes(&raw(1), 0, false));
    // Whatever the bound says, an event has one of its own.
    assert!(takes(&raw(100), 100, true));
    let text = Part::text("x".repeat(1_000));
    assert!(!takes(&text, 100, false) && takes(&text, 100, true));
    let url = Part {
        content: PartContent::Url("https://h".to_owned()),
        ..Part::text("")
    };
    assert!(!takes(&url, 0, true));
}

#[test]
fn what_is_stored_is_what_the_part_holds() {
    for (mut part, bytes, media_type) in [
        (raw(2), &[7, 7][..], "application/octet-stream"),
        (Part::text("é"), "é".as_bytes(), "text/plain; charset=utf-8"),
        (
            Part {
                content: PartContent::Data(json!({ "a": [1] })),
                ..Part::text("")
            },
            br#"{"a":[1]}"#,
            "application/json",
        ),
    ] {
        let stored = content(&mut part.clone(), bytes.len() as u64).unwrap();
        assert_eq!((&stored.bytes[..], stored.media_type.as_str()), (bytes, media_type));
        assert!(content(&mut part.clone(), bytes.len() as u64 - 1).is_none());
        part.media_type = Some("x/y".to_owned());
        assert_eq!(content(&mut part, 100).unwrap().media_type, "x/y");
    }
}

#[test]
fn the_part_that_is_left_says_where_its_content_is() {
    let mut part = Part {
        filename: Some("a.bin".to_owned()),
        metadata: Some([("sha256".to_owned(), json!("forged")), ("mine".to_owned(), json!(1))].into()),
        ..raw(3)
    };
    let (digest, base) = (Digest::of(&[7; 3]), "https://h");
    let place = |seed| Place {
        url: url(base, &record(), digest),
        media_type: "x/y".to_owned(),
        digest,
        size: 3,
        seed,
    };
    let task = record().task;
    place(false).put_into(&mut part);
    assert_eq!(
        serde_json::to_value(&part).unwrap(),
        json!({
            "url": format!("https://h/artifacts/{task}/{digest}"), "filename": "a.bin", "mediaType": "x/y",
            "metadata": { "byteSize": 3, "sha256": digest.to_string(), "mine": 1 },
        })
    );
    place(true).put_into(&mut part);
    let metadata = part.metadata.unwrap();
    assert_eq!(metadata["uri"], json!(format!("https://h/artifacts/{task}/{digest}")));
    assert_eq!(metadata["mediaType"], "x/y");
}

#[test]
fn a_tenant_is_one_segment_of_the_url() {
    let mut record = record();
    record.sender.tenant = "a/b ..é".to_owned();
    let digest = Digest::of(b"");
    assert_eq!(
        url("https://h", &record, digest),
        format!("https://h/a%2Fb%20%2E%2E%C3%A9/artifacts/{}/{digest}", record.task)
    );
}
