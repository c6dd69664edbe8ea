use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;
use relevo_testkit::tls::AUTHORITY;
use relevo_testkit::{Identity, Reply, Scripted, TlsFront};

use super::guard::Looking;
use super::*;
use crate::platform::config::{EgressSettings, Secret};
use crate::platform::metrics::{Registry, encode};

const HERE: [u8; 4] = [127, 0, 0, 1];

fn settings(allow: &[&str], deny: &[&str]) -> EgressSettings {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    EgressSettings {
        allow: owned(allow),
        deny: owned(deny),
        ..EgressSettings::default()
    }
}

fn url(text: &str) -> Url {
    parse_url(text).unwrap()
}

fn egress(settings: &EgressSettings) -> Egress {
    Egress::new(settings, EgressMetrics::register(&Registry::new()).unwrap()).unwrap()
}

/// A client whose own URL is this, with nothing else allowed.
fn client(own: &str) -> Client {
    let own = url(own);
    egress(&settings(&[], &[]))
        .client("a", &own, Credentials::new(&own))
        .unwrap()
}

async fn get(client: &Client, text: &str) -> Result<String, EgressError> {
    let answer = client.send(Call::new(Method::GET, url(text))).await?;
    Ok(String::from_utf8(answer.bytes().await?).unwrap())
}

/// Says one thing after the other; the last one again and again.
struct Names(Mutex<Vec<Vec<IpAddr>>>, Mutex<usize>);

impl Names {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(answers.iter().map(parse).collect()), Mutex::new(0)))
    }

    fn asked(&self) -> usize {
        *self.1.lock().unwrap()
    }
}

impl Lookup for Names {
    fn lookup(&self, _: &str) -> Looking {
        *self.1.lock().unwrap() += 1;
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.remove(0)
        } else {
            answers[0].clone()
        };
        async move { Ok(answer) }.boxed()
    }
}

#[test]
fn no_spelling_of_an_address_passes() {
    let guard = Guard::new(Arc::default(), None, Arc::new(SystemLookup));
    for (kind, urls) in [
        (
            "a loopback address",
            "http://127.0.0.1 http://2130706433 http://017700000001 http://0x7f000001 http://0x7f.1 http://127.1 http://0177.0.0.1 \
             http://127.0.0.1. http://%31%32%37.0.0.1 http://１２７.0.0.1 http://127。0。0。1 http://[::1] http://[::ffff:127.0.0.1] \
             http://[::ffff:7f00:1] http://[::127.0.0.1] http://[0:0:0:0:0:ffff:7f00:0001] http://[64:ff9b::7f00:1] \
             http://[2002:7f00:1::] http://localhost http://LOCALHOST. http://a.localhost:99 https:127.0.0.1 http:\\\\127.0.0.1",
        ),
        (
            "an address of cloud metadata",
            "http://169.254.169.254/latest http://2852039166 http://0xa9fea9fe http://0251.0376.0251.0376 http://[::ffff:a9fe:a9fe] \
             http://[64:ff9b::a9fe:a9fe] http://[fd00:ec2::254] http://100.100.100.200 http://192.0.0.192 http://168.63.129.16",
        ),
        (
            "a private network",
            "http://10.0.0.1 http://167772161 http://192.168.1 http://172.16.0.1 http://[2002:c0a8:101::]",
        ),
        ("100.64.0.0/10", "http://100.64.0.1 http://[::ffff:100.64.0.1]"),
        ("a link-local address", "http://169.254.1.1 http://[fe80::1]"),
        ("the unspecified address", "http://0 http://0.0.0.0 http://[::]"),
        ("a unique local address", "http://[fd12::1]"),
        ("a site-local address", "http://[fec0::1]"),
        ("a multicast address", "http://224.0.0.1 http://[ff02::1]"),
        ("a broadcast address", "http://255.255.255.255 http://4294967295"),
        ("for documentation", "http://192.0.2.1 http://[2001:db8::1]"),
        ("for benchmarks", "http://198.18.0.1"),
        (
            "a reserved address",
            "http://240.0.0.1 http://[64:ff9b:1::1] http://[2001::1]",
        ),
    ] {
        for text in urls.split_whitespace() {
            let refused = guard.check(&url(text)).unwrap_err().to_string();
            assert!(refused.contains(kind), "{text}: {refused}");
            assert!(refused.contains("egress.allow"), "{text}: {refused}");
        }
    }
    for text in [
        "http://1.1.1.1",
        "https://agents.example/a?b",
        "http://[2606:4700::1111]:8080",
        "http://[::ffff:1.1.1.1]",
    ] {
        assert_eq!(guard.check(&url(text)), Ok(()), "{text}");
    }
}

#[test]
fn what_is_no_address_of_a_web_server_is_refused() {
    for (text, part) in [
        ("ftp://h", "must be http:// or https://"),
        ("file:///etc/passwd", "must be http:// or https://"),
        ("unix:///run/x.sock", "must be http:// or https://"),
        ("http://hunter2@h", "must not hold a user name"),
        ("http://u:hunter2@1.1.1.1", "must not hold a user name"),
        ("http://:hunter2@h", "must not hold a user name"),
        ("http://", "is no URL"),
        ("h", "is no URL"),
        ("http://[fe80::1%25eth0]", "is no URL"),
        ("http://[::1%lo]", "is no URL"),
        ("http://1.2.3.4.5", "is no URL"),
        ("http://256.256.256.256", "is no URL"),
        ("http://a b", "is no URL"),
        ("http://h:99999", "is no URL"),
    ] {
        let refused = parse_url(text).unwrap_err().to_string();
        assert!(refused.contains(part), "{text}: {refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn an_agents_own_address_is_meant_for_its_origin_only() {
    let own = |text: &str| Guard::new(Arc::default(), Some(url(text)), Arc::new(SystemLookup));
    for (guard, good, bad) in [
        (
            "http://127.0.0.1:9000/a",
            "http://127.0.0.1:9000/b",
            "http://127.0.0.1:9001 https://127.0.0.1:9000 http://127.0.0.2:9000 http://[::1]:9000",
        ),
        (
            "http://localhost:9000",
            "http://localhost:9000/x",
            "http://localhost:9001 http://127.0.0.1:9000 http://a.localhost:9000",
        ),
        (
            "http://10.0.0.1",
            "http://10.0.0.1:80/x",
            "http://10.0.0.2 http://10.0.0.1:81",
        ),
        ("http://h", "http://h", "http://127.0.0.1"),
    ] {
        assert_eq!(own(guard).check(&url(good)), Ok(()), "{good}");
        for bad in bad.split_whitespace() {
            assert!(own(guard).check(&url(bad)).is_err(), "{guard}: {bad}");
        }
    }
    for never in [
        "http://169.254.169.254",
        "http://[fe80::1]",
        "http://0.0.0.0:9000",
        "http://169.254.7.7",
    ] {
        assert!(own(never).check(&url(never)).is_err(), "{never}");
    }
}

#[tokio::test]
async fn an_own_address_needs_no_setting_and_localhost_neither() {
    let server = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "hello")]);
    assert_eq!(
        get(&client(&server.url("/")), &server.url("/x")).await.unwrap(),
        "hello"
    );
    let named = format!("http://localhost:{}", server.address().port());
    let own = url(&named);
    let egress = egress(&settings(&[], &[])).with_lookup(Names::new(&[&["127.0.0.1"]]));
    let client = egress.client("a", &own, Credentials::new(&own)).unwrap();
    assert_eq!(get(&client, &named).await.unwrap(), "hello");
}

#[tokio::test]
async fn localhost_that_is_elsewhere_is_refused() {
    let own = url("http://localhost:9000");
    let egress = egress(&settings(&[], &[])).with_lookup(Names::new(&[&["10.0.0.1"]]));
    let client = egress.client("a", &own, Credentials::new(&own)).unwrap();
    let error = get(&client, "http://localhost:9000").await.unwrap_err();
    assert!(matches!(error, EgressError::Refused(_)), "{error}");
}

#[tokio::test]
async fn a_name_is_judged_when_it_is_dialled_and_what_was_judged_is_dialled() {
    let reply = Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello".to_vec());
    let server = Scripted::start(HERE, vec![reply]);
    let port = server.address().port();
    let own = url(&format!("http://agent.example:{port}"));
    // The second time the name server says something else.
    let names = Names::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let egress = egress(&settings(&["127.0.0.1"], &[])).with_lookup(Arc::clone(&names) as Arc<dyn Lookup>);
    let client = egress.client("a", &own, Credentials::new(&own)).unwrap();
    assert_eq!(get(&client, own.as_str()).await.unwrap(), "hello");
    assert_eq!(names.asked(), 1, "what was judged is what is dialled");
    let error = get(&client, own.as_str()).await.unwrap_err();
    let text = error.to_string();
    for part in ["agent.example", "127.0.0.2", "a loopback address", "egress.allow"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(error.is_unsent() && !error.may_pass());
    assert!(!error.public().contains("127.0.0.2") && !error.public().contains("agent.example"));
    assert_eq!(server.heard().len(), 1);
}

#[tokio::test]
async fn one_address_of_a_name_that_is_refused_is_enough() {
    let server = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "hello")]);
    let own = url(&format!("http://agent.example:{}", server.address().port()));
    for second in ["10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fd00::1"] {
        let names = Names::new(&[&["127.0.0.1", second]]);
        let egress = egress(&settings(&["127.0.0.1"], &[])).with_lookup(names);
        let client = egress.client("a", &own, Credentials::new(&own)).unwrap();
        assert!(
            matches!(get(&client, own.as_str()).await, Err(EgressError::Refused(_))),
            "{second}"
        );
    }
    assert_eq!(server.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn a_host_can_be_allowed_or_denied_by_name() {
    let server = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "hello")]);
    let own = url(&format!("http://agent.internal:{}", server.address().port()));
    let asked = |allow: &'static [&'static str], deny: &'static [&'static str]| {
        let egress = egress(&settings(allow, deny)).with_lookup(Names::new(&[&["127.0.0.1"]]));
        let client = egress.client("a", &own, Credentials::new(&own)).unwrap();
        let own = own.clone();
        async move { get(&client, own.as_str()).await }
    };
    assert!(asked(&["agent.internal"], &[]).await.is_ok());
    assert!(asked(&["*.internal"], &[]).await.is_ok());
    assert!(asked(&["other.internal"], &[]).await.is_err());
    assert!(asked(&["*.internal"], &["agent.internal"]).await.is_err());
    assert!(asked(&["*.internal"], &["127.0.0.0/8"]).await.is_err());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "secret")]);
    for (status, location, shown) in [
        (
            "302 Found",
            "http://169.254.169.254/latest?token=hunter2".to_owned(),
            "http://169.254.169.254",
        ),
        ("307 Temporary Redirect", target.url("/"), "http://127.0.0.1"),
        ("308 Permanent Redirect", "/elsewhere".to_owned(), "http://127.0.0.1"),
        ("301 Moved Permanently", String::new(), "http://127.0.0.1"),
    ] {
        let server = Scripted::start(
            HERE,
            vec![Reply::answer(status, &format!("location: {location}\r\n"), "")],
        );
        let error = get(&client(&server.url("/")), &server.url("/")).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, EgressError::Redirect { .. }), "{text}");
        assert!(text.contains(shown) && !text.contains("hunter2"), "{text}");
        assert_eq!(server.heard().len(), 1);
    }
    assert_eq!(target.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn credentials_go_to_their_own_origin_only() {
    let own = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "")]);
    let other = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "")]);
    let at = url(&own.url("/"));
    let credentials = Credentials::new(&at).bearer(&Secret::new("hunter2")).unwrap();
    let credentials = credentials.header("X-Team", &Secret::new("blue")).unwrap();
    let client = egress(&settings(&["127.0.0.1"], &[]))
        .client("a", &at, credentials)
        .unwrap();
    get(&client, &own.url("/x")).await.unwrap();
    get(&client, &other.url("/x")).await.unwrap();
    let (own, other) = (own.heard().concat(), other.heard().concat());
    assert!(
        own.contains("authorization: Bearer hunter2") && own.contains("x-team: blue"),
        "{own}"
    );
    assert!(!other.contains("hunter2") && !other.contains("blue"), "{other}");
    assert!(!format!("{client:?}").contains("hunter2"));
}

#[tokio::test]
async fn whatever_goes_wrong_has_its_own_error() {
    let short = Duration::from_millis(50);
    let body = |head: &str| Reply::Close(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nhalf").into_bytes());
    let hang = |text: &str| Reply::Hang(text.as_bytes().to_vec());
    for (reply, label) in [
        (hang(""), "silent"),
        (hang("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), "silent"),
        (body("content-length: 9"), "broken"),
        (body("transfer-encoding: chunked"), "broken"),
        (Reply::Close(Vec::new()), "broken"),
        (Reply::Close(b"SSH-2.0-OpenSSH\r\n".to_vec()), "broken"),
        (Reply::answer("200 OK", "", &"x".repeat(2000)), "too_large"),
    ] {
        let server = Scripted::start(HERE, vec![reply.clone()]);
        let client = client(&server.url("/"));
        let mut call = Call::new(Method::POST, url(&server.url("/")))
            .json(b"{}".to_vec())
            .at_most(1000);
        if label == "silent" {
            call = call.within(short).silent_for(short);
        }
        let sent = client.send(call).await;
        let error = match sent {
            Ok(answer) => answer.bytes().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.label(), label, "{reply:?}: {error}");
        assert!(
            !error.is_unsent() && error.to_string().contains("http://127.0.0.1:"),
            "{error}"
        );
        assert!(!error.public().contains("127.0.0.1"), "{}", error.public());
        assert_eq!(error.may_pass(), label != "too_large", "{error}");
    }
    let gone = Scripted::start(HERE, Vec::new()).url("/");
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    assert!(matches!(
        get(&client(&gone), &gone).await,
        Err(EgressError::Broken { .. })
    ));
    let closed = format!("http://{closed}/");
    let error = get(&client(&closed), &closed).await.unwrap_err();
    assert!(
        matches!(error, EgressError::Connect { .. }) && error.is_unsent() && error.may_pass(),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_fails_again_and_again_is_left_alone() {
    let busy = Reply::answer("503 Service Unavailable", "", "no");
    let server = Scripted::start(HERE, vec![busy]);
    let registry = Registry::new();
    let breaker = EgressSettings {
        breaker_failures: 3,
        breaker_pause: Duration::from_hours(1),
        ..EgressSettings::default()
    };
    let egress = Egress::new(&breaker, EgressMetrics::register(&registry).unwrap()).unwrap();
    let own = url(&server.url("/"));
    let client = egress.client("a", &own, Credentials::new(&own)).unwrap();
    for _ in 0..3 {
        // Nobody reads what it says about it.
        let answer = client.send(Call::new(Method::GET, own.clone())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let error = client
        .clone()
        .send(Call::new(Method::GET, own.clone()))
        .await
        .unwrap_err();
    assert!(
        matches!(error, EgressError::Open { .. }) && error.is_unsent() && error.may_pass(),
        "{error}"
    );
    assert!(error.to_string().ends_with("; it is tried again in 3600 s"), "{error}");
    assert_eq!(server.heard().len(), 3);
    let text = encode(&[registry]).unwrap();
    for line in [
        "relevo_egress_breakers_open{agent=\"a\"} 1",
        "relevo_egress_breakers_opened_total{agent=\"a\"} 1",
        "relevo_egress_requests_total{agent=\"a\",outcome=\"breaker\"} 1",
        "relevo_egress_requests_total{agent=\"a\",outcome=\"server_error\"} 3",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    }
}

#[tokio::test]
async fn a_server_that_answers_again_is_called_again() {
    let script = [503, 503, 503, 200, 404, 500, 200].map(|status| Reply::answer(&format!("{status} X"), "", ""));
    let server = Scripted::start(HERE, script.to_vec());
    let breaker = EgressSettings {
        breaker_failures: 2,
        breaker_pause: Duration::from_nanos(1),
        ..EgressSettings::default()
    };
    let own = url(&server.url("/"));
    let client = egress(&breaker).client("a", &own, Credentials::new(&own)).unwrap();
    for status in [503, 503, 503, 200, 404, 500, 200] {
        let answer = client.send(Call::new(Method::GET, own.clone())).await.unwrap();
        assert_eq!(answer.status().as_u16(), status);
        answer.bytes().await.unwrap();
    }
}

#[tokio::test]
async fn one_who_goes_on_asking_ends_the_pause_for_all() {
    let script = [503, 503, 200, 200].map(|status| Reply::answer(&format!("{status} X"), "", ""));
    let server = Scripted::start(HERE, script.to_vec());
    let breaker = EgressSettings {
        breaker_failures: 1,
        breaker_pause: Duration::from_hours(1),
        ..EgressSettings::default()
    };
    let own = url(&server.url("/"));
    let client = egress(&breaker).client("a", &own, Credentials::new(&own)).unwrap();
    for (repeat, status) in [
        (true, Some(503)),
        (false, Some(503)),
        (false, None),
        (true, Some(200)),
        (false, Some(200)),
    ] {
        let call = Call::new(Method::GET, own.clone()).repeat(repeat);
        let sent = client.send(call).await;
        assert_eq!(sent.as_ref().ok().map(|answer| answer.status().as_u16()), status);
        if let Ok(answer) = sent {
            answer.bytes().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_answer_to_a_cached_card_is_no_redirect() {
    let server = Scripted::start(HERE, vec![Reply::answer("304 Not Modified", "", "")]);
    let client = client(&server.url("/"));
    let answer = client
        .send(Call::new(Method::GET, url(&server.url("/"))))
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn the_log_says_why_a_certificate_is_not_trusted() {
    let scratch = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(scratch.path(), AUTHORITY).unwrap();
    for (identity, expected) in [
        (Identity::Alone, "UnknownIssuer"),
        (Identity::OtherName, "not valid for name \"127.0.0.1\""),
        (Identity::Expired, "certificate expired"),
    ] {
        let front = TlsFront::bind();
        let server = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "x")]);
        front.serve(identity, server.address());
        let own = url(&format!("https://127.0.0.1:{}/", front.port()));
        let settings = EgressSettings {
            ca_file: Some(scratch.path().to_owned()),
            breaker_failures: 1,
            ..EgressSettings::default()
        };
        let client = egress(&settings).client("a", &own, Credentials::new(&own)).unwrap();
        // It is no failure of the server that would be left alone for a while.
        for _ in 0..2 {
            let error = get(&client, own.as_str()).await.unwrap_err();
            assert!(error.is_unsent() && !error.may_pass(), "{error}");
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains("egress.ca_file"), "{text}");
        }
        assert_eq!(server.heard().len(), 0);
    }
}

#[test]
fn certificates_are_read_at_the_start() {
    let none = tempfile::NamedTempFile::new().unwrap();
    for (path, part) in [
        (none.path().to_owned(), "holds no certificate"),
        ("/nowhere/ca.pem".into(), "cannot be read"),
    ] {
        let settings = EgressSettings {
            ca_file: Some(path),
            ..EgressSettings::default()
        };
        let error = Egress::new(&settings, EgressMetrics::register(&Registry::new()).unwrap()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

const PROXIED: &str = "platform::egress::tests::in_a_process_with_a_proxy_in_its_environment";

#[test]
fn a_proxy_of_the_environment_is_not_used() {
    let proxy = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "from the proxy")]);
    let variables = [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ];
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", PROXIED])
        .envs(variables.map(|name| (name, proxy.url(""))))
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"), "{run:?}");
    assert_eq!(proxy.heard(), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "run by a_proxy_of_the_environment_is_not_used"]
async fn in_a_process_with_a_proxy_in_its_environment() {
    let server = Scripted::start(HERE, vec![Reply::answer("200 OK", "", "from the server")]);
    let said = get(&client(&server.url("/")), &server.url("/")).await.unwrap();
    assert_eq!(said, "from the server");
}
