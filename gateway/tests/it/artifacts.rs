//! Contents of parts in the artifact store: who gets them, whole and in pieces, and what is said when they are not there.

use std::path::Path;

use a2a::{Artifact, Part, PartContent, StreamResponse, TaskArtifactUpdateEvent};
use bytes::Bytes;
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event::Event;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Partition, TaskId};
use relevo_shared::objects::{Digest, Objects};
use relevo_shared::platform::config::{ArtifactSettings, ArtifactStore};
use relevo_shared::platform::entropy;
use relevo_testkit::poll;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, message_in};
use crate::gateway::{World, world_with};
use crate::hand::Turn;
use crate::http::Reply;

const PRINCIPALS: &str = "[principals.ann]\ntoken = \"ann\"\n[principals.bob]\ntoken = \"bob\"\n";
const CONTENT: &[u8] = b"0123456789";

struct Served {
    world: World,
    objects: Objects,
    folder: TempDir,
}

fn objects(path: &Path) -> Objects {
    let settings = ArtifactSettings {
        store: ArtifactStore::Directory(path.to_owned()),
        ..ArtifactSettings::default()
    };
    Objects::open_shared(&settings).unwrap().unwrap()
}

async fn served() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file://{}", folder.path().display());
    let settings = [
        ("artifacts.store", store.as_str()),
        ("artifacts.url_base", "http://files.example"),
        ("gateway.request_timeout", "5s"),
    ];
    Served {
        world: world_with(PRINCIPALS, &settings).await,
        objects: objects(folder.path()),
        folder,
    }
}

/// A part that says what a worker's says.
fn part(task: TaskId, content: &[u8], media_type: &str, filename: &str) -> Part {
    let digest = Digest::of(content);
    Part {
        content: PartContent::Url(format!("http://files.example/artifacts/{task}/{digest}")),
        media_type: Some(media_type.to_owned()),
        filename: Some(filename.to_owned()),
        metadata: Some(
            [
                ("sha256".to_owned(), json!(digest.to_string())),
                ("byteSize".to_owned(), json!(content.len())),
            ]
            .into(),
        ),
    }
}

fn event(turn: &Turn, part: Part) -> Event {
    let record = &turn.taken.record;
    Event {
        body: StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: record.task.to_string(),
            context_id: record.context_id.clone(),
            artifact: Artifact {
                artifact_id: "a".to_owned(),
                name: None,
                description: None,
                parts: vec![part],
                metadata: None,
                extensions: None,
            },
            append: None,
            last_chunk: Some(true),
            metadata: None,
        }),
        class: Class::Normal,
    }
}

impl Served {
    fn as_who(&self, token: &str) -> Client {
        self.world
            .gateway
            .client_with(&[("authorization", &format!("Bearer {token}"))])
    }

    /// A task of ann's in this tenant, at work.
    async fn turn(&self, tenant: &str) -> Turn {
        let mut params = message_in("c-1", "hi");
        params["tenant"] = tenant.into();
        params["configuration"] = json!({ "returnImmediately": true });
        self.as_who("ann").call("SendMessage", params).await;
        self.world.hand.take().await
    }

    /// The same with a part of this content, which is in the store.
    async fn stored(&self, content: &[u8], media_type: &str, filename: &str) -> String {
        let mut turn = self.turn("").await;
        let task = turn.taken.record.task;
        let digest = self.put(task, content).await;
        let event = event(&turn, part(task, content, media_type, filename));
        turn.emit(vec![event]).await;
        turn.finish(End::Completed, "").await;
        format!("artifacts/{task}/{digest}")
    }

    async fn put(&self, task: TaskId, content: &[u8]) -> Digest {
        let digest = Digest::of(content);
        let bytes = Bytes::copy_from_slice(content);
        self.objects.put(task, digest, bytes).await.unwrap();
        digest
    }
}

/// Status and body, with these headers sent.
async fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> Reply {
    let request = client.unversioned(Method::GET, path);
    let request = headers
        .iter()
        .fold(request, |request, (name, value)| request.header(name, value));
    request.send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_gets_what_the_agent_made_and_is_told_what_it_is() {
    let served = served().await;
    let path = served.stored(CONTENT, "text/html", "../x.html").await;
    let reply = get(&served.as_who("ann"), &path, &[]).await;
    assert_eq!(reply.status(), 200);
    let digest = Digest::of(CONTENT);
    for (name, value) in [
        ("content-type", "text/html"),
        ("content-length", "10"),
        ("etag", &format!("\"{digest}\"")),
        ("accept-ranges", "bytes"),
        ("cache-control", "private, no-cache"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        (
            "content-disposition",
            "attachment; filename=\"x.html\"; filename*=UTF-8''x%2Ehtml",
        ),
    ] {
        assert_eq!(reply.headers()[name], value, "{name}");
    }
    assert!(reply.headers().contains_key("last-modified"));
    assert_eq!(reply.bytes().await.unwrap(), CONTENT);
    let head = served
        .as_who("ann")
        .unversioned(Method::HEAD, &path)
        .send()
        .await
        .unwrap();
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-length"]),
        (200, &"10".parse().unwrap())
    );
    let known = get(
        &served.as_who("ann"),
        &path,
        &[("if-none-match", &format!("\"{digest}\""))],
    )
    .await;
    assert_eq!(known.status(), 304);
    for method in [Method::POST, Method::DELETE, Method::PUT] {
        let reply = served.as_who("ann").unversioned(method, &path).send().await.unwrap();
        assert_eq!(
            (reply.status().as_u16(), &reply.headers()["allow"]),
            (405, &"GET, HEAD".parse().unwrap())
        );
    }
    let empty = served.stored(b"", "text/plain", "empty").await;
    let reply = get(&served.as_who("ann"), &empty, &[]).await;
    assert_eq!((reply.status().as_u16(), reply.bytes().await.unwrap().len()), (200, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_to_its_end_is_counted_as_answered() {
    let served = served().await;
    let ann = served.as_who("ann");
    let large = vec![7; 1 << 20];
    for (content, range) in [
        (&b""[..], "bytes=0-"),
        (CONTENT, "bytes=0-"),
        (CONTENT, "bytes=3-4"),
        (&large, "bytes=0-"),
    ] {
        let path = served.stored(content, "text/plain", "x").await;
        get(&ann, &path, &[("range", range)]).await.bytes().await.unwrap();
    }
    let counted = async |outcome: &str| {
        let sample = format!("relevo_gateway_requests_total{{method=\"artifact\",outcome=\"{outcome}\"}}");
        served.world.gateway.metric(&sample).await
    };
    assert_eq!((counted("ok").await, counted("abandoned").await), (4.0, 0.0));
    // One who goes away in the middle of it.
    let path = served.stored(&vec![8; 100 << 20], "text/plain", "x").await;
    drop(get(&ann, &path, &[]).await);
    poll::until("it is noticed", async || match counted("abandoned").await {
        0.0 => Err("nobody is missed"),
        _ => Ok(()),
    })
    .await;
    assert_eq!((counted("ok").await, counted("abandoned").await), (4.0, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_is_sent_as_a_piece() {
    let served = served().await;
    let path = served.stored(CONTENT, "text/plain", "x").await;
    let ann = served.as_who("ann");
    let mark = format!("\"{}\"", Digest::of(CONTENT));
    for (headers, status, range, body) in [
        (&[("range", "bytes=0-0")][..], 206, Some("bytes 0-0/10"), "0"),
        (&[("range", "bytes=7-99")], 206, Some("bytes 7-9/10"), "789"),
        (&[("range", "bytes=-2")], 206, Some("bytes 8-9/10"), "89"),
        (&[("range", "bytes=10-")], 416, Some("bytes */10"), ""),
        (&[("range", "bytes=0-1,4-5")], 200, None, "0123456789"),
        (
            &[("range", "bytes=3-4"), ("if-range", &mark)],
            206,
            Some("bytes 3-4/10"),
            "34",
        ),
        (
            &[("range", "bytes=3-4"), ("if-range", "\"x\"")],
            200,
            None,
            "0123456789",
        ),
    ] {
        let reply = get(&ann, &path, headers).await;
        assert_eq!(reply.status(), status, "{headers:?}");
        let found = reply
            .headers()
            .get("content-range")
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(found.as_deref(), range, "{headers:?}");
        assert_eq!(reply.bytes().await.unwrap(), body.as_bytes(), "{headers:?}");
    }
}

/// Everything that an answer shows.
async fn told(client: &Client, method: Method, path: &str) -> String {
    let reply = client.unversioned(method, path).send().await.unwrap();
    let mut headers: Vec<String> = reply
        .headers()
        .iter()
        .filter(|(name, _)| *name != "date")
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    headers.sort();
    format!("{} {headers:?} {:?}", reply.status(), reply.bytes().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_anothers_cannot_be_told_from_what_does_not_exist() {
    let served = served().await;
    let path = served.stored(CONTENT, "text/plain", "x").await;
    let (ann, bob) = (served.as_who("ann"), served.as_who("bob"));
    let missing = TaskId::new(1_700_000_000_000, Partition(3), entropy::u64());
    let digest = Digest::of(CONTENT);
    let task = path.split('/').nth(1).unwrap().to_owned();
    for method in [Method::GET, Method::HEAD] {
        let nothing = told(&bob, method.clone(), &format!("artifacts/{missing}/{digest}")).await;
        assert!(nothing.starts_with("404"), "{nothing}");
        for (who, path) in [
            (&bob, path.clone()),
            (&bob, format!("other/{path}")),
            (&ann, format!("other/{path}")),
            (&ann, format!("artifacts/{task}/{}", Digest::of(b"other"))),
            (&ann, format!("artifacts/{task}/{digest}0")),
            (&ann, format!("artifacts/{task}/{}", digest.to_string().to_uppercase())),
            (&ann, format!("artifacts/{}/{digest}", task.to_uppercase())),
            (&ann, format!("artifacts/%2e%2e%2f{task}/{digest}")),
            (&ann, format!("%ff/artifacts/{task}/{digest}")),
            (&ann, format!("artifacts/{task}/..%2f..%2fetc%2fpasswd")),
        ] {
            assert_eq!(told(who, method.clone(), &path).await, nothing, "{path}");
        }
    }
    let nobody = served.world.gateway.client();
    let unknown = told(&nobody, Method::GET, &path).await;
    assert!(unknown.starts_with("401"), "{unknown}");
    assert_eq!(
        unknown,
        told(&nobody, Method::GET, &format!("artifacts/{missing}/{digest}")).await
    );
    assert_eq!(get(&ann, &path, &[]).await.status(), 200, "it is the owner's as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_a_path_of_its_own() {
    let served = served().await;
    let mut turn = served.turn("a b").await;
    let task = turn.taken.record.task;
    let digest = served.put(task, CONTENT).await;
    let event = event(&turn, part(task, CONTENT, "text/plain", "x"));
    turn.emit(vec![event]).await;
    let ann = served.as_who("ann");
    // While the turn still runs, too.
    for (path, status) in [("a%20b/artifacts", 200), ("artifacts", 404), ("c/artifacts", 404)] {
        let reply = get(&ann, &format!("{path}/{task}/{digest}"), &[]).await;
        assert_eq!(reply.status(), status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_task_names_is_served() {
    let served = served().await;
    let ann = served.as_who("ann");
    let mut turn = served.turn("").await;
    let task = turn.taken.record.task;
    let (void, said) = (served.put(task, b"void").await, served.put(task, b"said").await);
    let event = event(&turn, part(task, b"void", "text/plain", "x"));
    turn.emit(vec![event]).await;
    let path = |digest: Digest| format!("artifacts/{task}/{digest}");
    assert_eq!(get(&ann, &path(void), &[]).await.status(), 200);
    // The attempt crashes: what it said is void.
    turn.begin_anew().await;
    assert_eq!(get(&ann, &path(void), &[]).await.status(), 404);
    // In a message, and in the messages of earlier turns.
    let mut message = relevo_shared::domain::event::agent_message(&turn.taken.record, "0", "");
    message.parts = vec![part(task, b"said", "text/plain", "x")];
    let event = turn.status(a2a::TaskState::Working, Some(message), Class::Normal);
    turn.emit(vec![event]).await;
    assert_eq!(get(&ann, &path(said), &[]).await.status(), 200);
    turn.finish(End::InputRequired, "more?").await;
    assert_eq!(get(&ann, &path(said), &[]).await.status(), 200);
    let mut params = crate::client::message_to(&task.to_string(), "more");
    params["configuration"] = json!({ "returnImmediately": true });
    ann.call("SendMessage", params).await;
    let turn = served.world.hand.take().await;
    turn.finish(End::Completed, "done").await;
    assert_eq!(get(&ann, &path(said), &[]).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_or_damaged_is_no_answer() {
    let served = served().await;
    let ann = served.as_who("ann");
    let path = served.stored(CONTENT, "text/plain", "x").await;
    let (root, aside) = (served.folder.path(), served.folder.path().with_extension("aside"));
    std::fs::rename(root, &aside).unwrap();
    std::fs::write(root, "no directory").unwrap();
    let reply = get(&ann, &path, &[]).await;
    assert_eq!(reply.status(), 503);
    assert!(reply.headers().contains_key("retry-after"));
    let text = reply.text().await.unwrap();
    assert!(text.contains("\"artifacts\"") && !text.contains("directory"), "{text}");
    std::fs::remove_file(root).unwrap();
    std::fs::rename(&aside, root).unwrap();
    assert_eq!(get(&ann, &path, &[]).await.status(), 200);
    // Half of it is not served as the whole.
    let task = TaskId::parse(path.split('/').nth(1).unwrap()).unwrap();
    let file = served.objects.file(task, Digest::of(CONTENT)).unwrap();
    std::fs::write(&file, &CONTENT[..5]).unwrap();
    assert_eq!(get(&ann, &path, &[]).await.status(), 503);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(get(&ann, &path, &[]).await.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_holds_only_what_fits_into_the_pipes() {
    let served = served().await;
    let content = vec![7; 100 << 20];
    let path = served.stored(&content, "application/octet-stream", "large").await;
    let gateway = &served.world.gateway;
    let mut stream = tokio::net::TcpStream::connect(gateway.listen).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ann\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let sent = async || gateway.metric("relevo_gateway_artifact_bytes_total").await;
    poll::until("it begins", async || match sent().await {
        0.0 => Err("nothing is sent"),
        _ => Ok(()),
    })
    .await;
    assert!(sent().await < 50_000_000.0, "it is read from the store as it is taken");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let head = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(all[head..] == content[..], "every byte comes");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_there_is_no_such_path() {
    let world = world_with(PRINCIPALS, &[]).await;
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann")]);
    let digest = Digest::of(CONTENT);
    let path = format!("artifacts/{}/{digest}", TaskId::new(1, Partition(1), 1));
    assert_eq!(
        told(&ann, Method::GET, &path).await,
        told(&ann, Method::GET, "no/such/path/here").await
    );
}
