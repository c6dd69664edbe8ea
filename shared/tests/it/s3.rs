//! A bucket, played by a small server that checks what it is sent: signatures of the right shape over the right bytes, no redirects, few
//! repeats.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, Response};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use relevo_shared::ids::{Partition, TaskId};
use relevo_shared::objects::{Digest, Objects, ObjectsError, Wanted};
use relevo_shared::platform::config::Loader;
use relevo_testkit::tls::{AUTHORITY, Identity, TlsFront};

const SECRET: &str = "hunter2hunter2";

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    /// The pieces of the upload that is under way.
    pieces: BTreeMap<u32, Vec<u8>>,
    requests: Vec<String>,
    /// The status of every answer, if it is one.
    broken: Option<u16>,
}

type Shared = Arc<Mutex<Bucket>>;

/// Serves a bucket on a port of its own.
async fn serve() -> (Shared, String) {
    let bucket = Shared::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&bucket));
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    tokio::spawn(async move { axum::serve(listener, router).await });
    (bucket, format!("http://{address}"))
}

async fn answer(State(bucket): State<Shared>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    check_signature(&parts.headers, &body);
    let query = parts.uri.query().unwrap_or_default();
    let key = parts
        .uri
        .path()
        .strip_prefix("/bucket")
        .unwrap()
        .trim_start_matches('/');
    let mut bucket = bucket.lock().unwrap();
    bucket.requests.push(format!("{} {key} {query}", parts.method));
    if let Some(status) = bucket.broken {
        return reply(status, "<Error><Code>Broken</Code></Error>");
    }
    match (parts.method, query) {
        (Method::PUT, "") => {
            let mut stored = reply(200, "");
            let mark = format!("\"{}\"", Digest::of(&body));
            stored.headers_mut().insert("etag", mark.parse().unwrap());
            bucket.objects.insert(key.to_owned(), body.to_vec());
            stored
        }
        (Method::POST, "uploads=") => reply(200, "<R><UploadId>u1</UploadId></R>"),
        (Method::PUT, query) if query.contains("uploadId=u1") => {
            let number = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("partNumber="))
                .unwrap();
            bucket.pieces.insert(number.parse().unwrap(), body.to_vec());
            let mut stored = reply(200, "");
            stored.headers_mut().insert("etag", "\"piece\"".parse().unwrap());
            stored
        }
        (Method::POST, "uploadId=u1") => {
            let whole = std::mem::take(&mut bucket.pieces).into_values().flatten().collect();
            bucket.objects.insert(key.to_owned(), whole);
            reply(200, "<R><ETag>whole</ETag></R>")
        }
        (Method::DELETE, "uploadId=u1") => {
            bucket.pieces.clear();
            reply(204, "")
        }
        (Method::GET, query) if query.contains("list-type=2") => reply(200, list(&bucket, query)),
        (Method::POST, "delete") => {
            let text = String::from_utf8(body.to_vec()).unwrap();
            let keys = text
                .split("<Key>")
                .skip(1)
                .map(|rest| rest.split('<').next().unwrap().to_owned());
            let mut answer = String::from("<DeleteResult>");
            for key in keys {
                bucket.objects.remove(&key);
                write!(answer, "<Deleted><Key>{key}</Key></Deleted>").unwrap();
            }
            reply(200, answer + "</DeleteResult>")
        }
        (Method::GET | Method::HEAD, "") => get(&bucket, key, &parts.headers),
        other => panic!("{other:?}"),
    }
}

fn check_signature(headers: &HeaderMap, body: &[u8]) {
    let text = |name: &str| headers[name].to_str().unwrap();
    let rest = text("authorization")
        .strip_prefix("AWS4-HMAC-SHA256 Credential=key/")
        .unwrap();
    let signature = rest.rsplit_once("Signature=").unwrap().1;
    assert!(rest.contains("/eu-test-1/s3/aws4_request, SignedHeaders="), "{rest}");
    // Others, such as `range`, may be between them.
    for name in ["host;", "x-amz-content-sha256;x-amz-date"] {
        assert!(rest.contains(name), "{rest}");
    }
    assert!(
        signature.len() == 64 && signature.bytes().all(|c| c.is_ascii_hexdigit()),
        "{rest}"
    );
    assert_eq!(text("x-amz-content-sha256"), Digest::of(body).to_string());
}

fn list(bucket: &Bucket, query: &str) -> String {
    let prefix = url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "prefix")
        .unwrap()
        .1;
    let mut answer = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (key, content) in bucket.objects.iter().filter(|(key, _)| key.starts_with(&*prefix)) {
        let size = content.len();
        write!(
            answer,
            "<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>2026-11-30T00:00:00Z</LastModified></Contents>"
        )
        .unwrap();
    }
    answer + "</ListBucketResult>"
}

fn get(bucket: &Bucket, key: &str, headers: &HeaderMap) -> Response<Body> {
    let Some(content) = bucket.objects.get(key) else {
        return reply(404, "<Error><Code>NoSuchKey</Code></Error>");
    };
    let range = headers.get("range").map(|range| {
        let (first, last) = range
            .to_str()
            .unwrap()
            .strip_prefix("bytes=")
            .unwrap()
            .split_once('-')
            .unwrap();
        first.parse::<usize>().unwrap()..last.parse::<usize>().unwrap() + 1
    });
    let (status, body) = match &range {
        Some(range) => (206, content[range.clone()].to_vec()),
        None => (200, content.clone()),
    };
    let mut response = reply(status, body);
    let headers = response.headers_mut();
    headers.insert("last-modified", "Mon, 30 Nov 2026 00:00:00 GMT".parse().unwrap());
    headers.insert("etag", "\"x\"".parse().unwrap());
    if let Some(range) = range {
        let text = format!("bytes {}-{}/{}", range.start, range.end - 1, content.len());
        headers.insert("content-range", text.parse().unwrap());
    }
    response
}

fn reply(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

fn open(endpoint: &str) -> Objects {
    open_with(endpoint, None).unwrap()
}

/// With authorities that are trusted beside the public ones.
fn open_with(endpoint: &str, authorities: Option<&Path>) -> Result<Objects, ObjectsError> {
    let loader = Loader::new()
        .set("artifacts.store", "s3://bucket/team/files")
        .set("artifacts.s3_endpoint", endpoint)
        .set("artifacts.s3_allow_http", "true")
        .set("artifacts.s3_region", "eu-test-1")
        .set("artifacts.s3_access_key_id", "key")
        .set("artifacts.s3_secret_access_key", SECRET);
    let loader = match authorities {
        Some(path) => loader.set("artifacts.s3_ca_file", path.display().to_string()),
        None => loader,
    };
    let settings = loader.load().unwrap();
    assert!(!format!("{:?} {}", settings.artifacts, settings.to_toml()).contains(SECRET));
    Objects::open_shared(&settings.artifacts).map(Option::unwrap)
}

fn task(n: u64) -> TaskId {
    TaskId::new(1_700_000_000_000, Partition(3), n)
}

async fn put(objects: &Objects, task: TaskId, content: &[u8]) -> Result<Digest, ObjectsError> {
    let digest = Digest::of(content);
    objects
        .put(task, digest, Bytes::copy_from_slice(content))
        .await
        .map(|()| digest)
}

async fn read(objects: &Objects, task: TaskId, digest: Digest, wanted: Wanted) -> Option<Vec<u8>> {
    let object = objects.get(task, digest, wanted).await.unwrap()?;
    Some(object.bytes.try_collect::<Vec<_>>().await.unwrap().concat())
}

#[tokio::test]
async fn a_bucket_does_what_a_directory_does() {
    let (bucket, endpoint) = serve().await;
    let objects = open(&endpoint);
    let digest = put(&objects, task(1), b"0123456789").await.unwrap();
    let empty = put(&objects, task(1), b"").await.unwrap();
    put(&objects, task(2), b"0123456789").await.unwrap();
    let keys: Vec<String> = bucket.lock().unwrap().objects.keys().cloned().collect();
    assert!(keys.contains(&format!("team/files/{}/{digest}", task(1))), "{keys:?}");

    assert_eq!(
        read(&objects, task(1), digest, Wanted::All).await.unwrap(),
        b"0123456789"
    );
    assert_eq!(
        read(&objects, task(1), digest, Wanted::Bytes(3..5)).await.unwrap(),
        b"34"
    );
    assert_eq!(read(&objects, task(1), empty, Wanted::All).await.unwrap(), b"");
    let known = objects.get(task(1), digest, Wanted::Nothing).await.unwrap().unwrap();
    assert_eq!(known.size, 10);
    assert_eq!(read(&objects, task(3), digest, Wanted::All).await, None);
    let mut listed = objects.list(task(1)).await.unwrap();
    listed.sort_unstable_by_key(|(_, size)| *size);
    assert_eq!(listed, [(empty, 0), (digest, 10)]);

    objects.delete_all(task(1)).await.unwrap();
    objects.delete_all(task(1)).await.unwrap();
    assert_eq!(objects.list(task(1)).await.unwrap(), []);
    assert_eq!(
        read(&objects, task(2), digest, Wanted::All).await.unwrap(),
        b"0123456789"
    );
}

#[tokio::test]
async fn what_is_written_in_pieces_is_there_when_it_is_finished_and_else_never() {
    let (bucket, endpoint) = serve().await;
    let objects = open(&endpoint);
    let digest = Digest::of(b"0123456789");
    for finished in [false, true] {
        let mut upload = objects.upload(task(1), digest).await.unwrap();
        for piece in [&b"01234"[..], b"56789"] {
            upload.write(Bytes::from_static(piece)).await.unwrap();
        }
        assert_eq!(bucket.lock().unwrap().pieces.len(), 2);
        assert_eq!(read(&objects, task(1), digest, Wanted::All).await, None);
        if finished {
            upload.finish().await.unwrap();
        } else {
            upload.give_up().await.unwrap();
            assert_eq!(objects.list(task(1)).await.unwrap(), []);
        }
        assert!(bucket.lock().unwrap().pieces.is_empty());
    }
    assert_eq!(
        read(&objects, task(1), digest, Wanted::All).await.unwrap(),
        b"0123456789"
    );
}

#[tokio::test]
async fn a_bucket_that_fails_is_asked_a_few_times_and_says_no_secret() {
    let (bucket, endpoint) = serve().await;
    let objects = open(&endpoint);
    for (status, requests) in [(503, 3), (403, 1), (301, 1)] {
        bucket.lock().unwrap().broken = Some(status);
        bucket.lock().unwrap().requests.clear();
        let error = put(&objects, task(1), b"x").await.unwrap_err();
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
        let seen = bucket.lock().unwrap().requests.clone();
        assert_eq!(seen.len(), requests, "{status}: {seen:?}");
        assert!(objects.delete_all(task(1)).await.is_err(), "{status}");
    }
    bucket.lock().unwrap().broken = None;
    let digest = put(&objects, task(1), b"x").await.unwrap();
    assert_eq!(read(&objects, task(1), digest, Wanted::All).await.unwrap(), b"x");
}

#[tokio::test]
async fn a_bucket_behind_tls_is_trusted_by_the_authorities_that_are_named() {
    let (bucket, endpoint) = serve().await;
    let behind = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
    let file = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    };
    let named = file(AUTHORITY);
    for (identity, authorities, trusted) in [
        (Identity::Issued, Some(named.path()), true),
        (Identity::Issued, None, false),
        (Identity::Stranger, Some(named.path()), false),
        (Identity::OtherAddress, Some(named.path()), false),
        (Identity::Expired, Some(named.path()), false),
    ] {
        let front = TlsFront::bind();
        front.serve(identity, behind);
        let objects = open_with(&format!("https://127.0.0.1:{}", front.port()), authorities).unwrap();
        bucket.lock().unwrap().requests.clear();
        assert_eq!(put(&objects, task(1), b"x").await.is_ok(), trusted, "{identity:?}");
        assert_eq!(bucket.lock().unwrap().requests.is_empty(), !trusted, "{identity:?}");
    }
    let nothing = file("");
    for (path, part) in [
        (nothing.path(), "holds no certificate"),
        (Path::new("/nowhere/ca.pem"), "cannot be read"),
    ] {
        let error = open_with("https://127.0.0.1:1", Some(path)).unwrap_err().to_string();
        assert!(
            error.contains("artifacts.s3_ca_file") && error.contains(part),
            "{error}"
        );
    }
}

#[tokio::test]
async fn plain_http_is_only_spoken_where_it_is_allowed() {
    let settings = [
        ("artifacts.store", "s3://bucket"),
        ("artifacts.s3_endpoint", "http://127.0.0.1:1"),
    ];
    let loader = settings
        .iter()
        .fold(Loader::new(), |loader, (key, value)| loader.set(*key, *value));
    let errors = loader.load().unwrap_err().to_string();
    assert!(errors.contains("artifacts.s3_allow_http"), "{errors}");
}
