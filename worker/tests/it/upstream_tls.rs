//! Servers behind agents that speak TLS: whose certificates are trusted, and what is said of the others. For both kinds of agents.

use a2a::TaskState;
use relevo_shared::domain::record::CrashPolicy;
use relevo_testkit::tls::AUTHORITY;
use relevo_testkit::{Identity, Reply, Scratch, Scripted, TlsFront};
use serde_json::json;

use crate::fixture::{RunningWorker, World, answer};

const JSON: &str = "content-type: application/json\r\n";

/// A server of a kind that answers well, if it is asked, behind a certificate; and the table of its agent.
fn serve(kind: &str, identity: Identity) -> (Scripted, String) {
    let front = TlsFront::bind();
    let url = format!("https://127.0.0.1:{}/", front.port());
    let (script, table) = if kind == "a2a" {
        let interface = json!([{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
        let message = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "hi" }] });
        let script = vec![
            Reply::answer("200 OK", JSON, &json!({ "supportedInterfaces": interface }).to_string()),
            Reply::answer("200 OK", JSON, &json!({ "result": { "message": message } }).to_string()),
        ];
        (script, String::new())
    } else {
        let choice = json!([{ "message": { "content": "hi" }, "finish_reason": "stop" }]);
        let script = vec![Reply::answer("200 OK", JSON, &json!({ "choices": choice }).to_string())];
        (script, "model = \"m\"\nstream = false".to_owned())
    };
    let server = Scripted::start([127, 0, 0, 1], script);
    front.serve(identity, server.address());
    let table = format!("[a]\nkind = {kind:?}\nurl = {url:?}\nbearer = \"hunter2\"\n{table}\n");
    (server, table)
}

/// Asks a server whose certificate this is a worker that trusts these: how the turn ended, and how often the server was asked.
async fn ask(kind: &str, identity: Identity, trusted: Option<&str>) -> (TaskState, String, usize) {
    let (server, table) = serve(kind, identity);
    let world = World::start().await;
    let scratch = Scratch::new("upstream-tls");
    let file = scratch.path().join("ca.pem");
    let mut settings = Vec::new();
    if let Some(pem) = trusted {
        std::fs::write(&file, pem).unwrap();
        settings.push(("egress.ca_file", file.to_str().unwrap()));
    }
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, &table).await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert!(worker.stop().await);
    (stored.state.clone(), answer(&stored), server.heard().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_ones_own_is_trusted_where_the_file_says_so() {
    for kind in ["a2a", "openai"] {
        for (identity, trusted) in [(Identity::Issued, AUTHORITY), (Identity::Alone, Identity::Alone.pem())] {
            let (state, text, _) = ask(kind, identity, Some(trusted)).await;
            assert_eq!((state, text.as_str()), (TaskState::Completed, "hi"), "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_show_who_it_is_hears_nothing() {
    for (identity, trusted) in [
        (Identity::Alone, None),
        (Identity::Issued, None),
        (Identity::Alone, Some(AUTHORITY)),
        (Identity::Stranger, Some(AUTHORITY)),
        (Identity::OtherAddress, Some(AUTHORITY)),
        (Identity::OtherName, Some(AUTHORITY)),
        (Identity::Expired, Some(AUTHORITY)),
    ] {
        for (kind, begins, ends) in [
            ("a2a", "the upstream server", ""),
            ("openai", "The model's server", "."),
        ] {
            let (state, text, heard) = ask(kind, identity, trusted).await;
            let expected = format!("{begins} has a certificate that is not trusted (egress.ca_file){ends}");
            assert_eq!(
                (state, text, heard),
                (TaskState::Failed, expected, 0),
                "{kind}: {identity:?}"
            );
        }
    }
}
