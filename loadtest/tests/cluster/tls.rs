//! Gateways and workers that reach the nodes of a Redis Cluster by TLS, and believe no node that cannot show who it is.

use relevo_testkit::{Authority, Certificate, Process, RedisBuilder, RedisServer, binary, poll};

use crate::fixture::{Cluster, Setup};
use crate::load::{drive, report};
use crate::wire::{LIMIT, Say};

/// The name of this machine, which no certificate of another name is good for.
const NAME: &str = "localhost";

fn redis(shown: &Certificate, authority: &Authority) -> RedisBuilder {
    RedisServer::builder().append_only().tls(shown, &authority.file())
}

fn setup(redis: RedisBuilder, authority: &Authority) -> Setup {
    let trusted = authority.file().display().to_string();
    Cluster::setup().redis(redis).nodes(3).set("SSL_CERT_FILE", &trusted)
}

/// Turns on all nodes while slots move between them: whoever asks the wrong node is told the right one.
async fn serves(cluster: &Cluster) {
    let text = "chunks=10 delay=30 nonce={nonce}";
    let load = ["--contexts", "40", "--duration", "4s", "--text", text];
    let driver = drive(cluster, &load);
    for partition in 0..4 {
        cluster.nodes().move_slot(&cluster.meta(partition), 2);
    }
    let report = report(driver).await;
    assert!(report["verified"].as_u64().unwrap() > 40, "{report}");
    assert_eq!(report["refused"], 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_reached_by_the_names_that_they_announce() {
    let authority = Authority::new();
    let shown = authority.certificate(&format!("DNS:{NAME}"));
    serves(
        &setup(redis(&shown, &authority).hostname(NAME), &authority)
            .start()
            .await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_reached_by_addresses_that_their_certificates_name() {
    let authority = Authority::new();
    let shown = authority.certificate("IP:127.0.0.2");
    serves(&setup(redis(&shown, &authority), &authority).start().await).await;
}

/// Waits until a process has logged all these words in one line.
async fn until_logged(log: impl Fn() -> String, words: &[&str]) {
    poll::until("a line of the log", || async {
        let log = log();
        let found = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        if found { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_show_who_it_is_is_refused_and_named() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let good = authority.certificate(&format!("DNS:{NAME}"));
    // Nodes trust both among themselves.
    let redis = RedisServer::builder().append_only();
    let redis = redis.tls(&good, &authority.with(&stranger)).hostname(NAME);
    let setup = setup(redis, &authority).set("RELEVO_GATEWAY_REQUEST_TIMEOUT", "3s");
    let mut cluster = setup.start().await;
    // It holds neither the layout nor the bells.
    let last = cluster.nodes().nodes()[2].clone();
    let port = last.addr().unwrap().port();
    let address = format!("{NAME}:{port}");
    let there = cluster.context_on(2, 0);
    let elsewhere = cluster.context_on(1, 0);
    for (wrong, words) in [
        (authority.certificate("DNS:elsewhere.example"), "not valid for name"),
        (stranger.certificate(&format!("DNS:{NAME}")), "UnknownIssuer"),
    ] {
        last.show(&wrong);
        // It starts: the other nodes serve.
        let gateway = cluster.start_gateway().await;
        until_logged(|| gateway.process.log(), &[&address, words]).await;
        let at = cluster.gateways.len() - 1;
        let client = cluster.client();
        let say = Say::new(&elsewhere, &format!("chunks=3 nonce=e.{at}")).at(at);
        assert_eq!(say.checked(&client).await.0.violations, []);
        let failure = Say::new(&there, "chunks=1 nonce=t")
            .at(at)
            .run(&client)
            .await
            .unwrap_err();
        assert!(failure.refused, "{failure:?}");

        last.show(&good);
        let say = Say::new(&there, &format!("chunks=3 nonce=b.{at}")).at(at);
        assert_eq!(say.checked(&client).await.0.violations, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_at_a_node_that_cannot_show_who_it_is_is_refused_with_its_address() {
    let authority = Authority::new();
    let shown = authority.certificate(&format!("DNS:{NAME}"));
    let cluster = setup(redis(&shown, &authority), &authority)
        .gateways(0)
        .workers(0)
        .start()
        .await;
    // The certificate is one for names, and the node is called by its address.
    let url = cluster.redis.url();
    let trusted = authority.file().display().to_string();
    let envs = [
        ("SSL_CERT_FILE", trusted.as_str()),
        ("RELEVO_ADMIN_LISTEN", "127.0.0.1:0"),
        ("RELEVO_GATEWAY_LISTEN", "127.0.0.1:0"),
    ];
    for program in ["relevo-gateway", "relevo-worker"] {
        let process = Process::spawn(binary(program), &["--redis", &url], &envs);
        assert!(!process.exited(LIMIT).await.success());
        let log = process.log();
        assert!(log.contains(&url) && log.contains("not valid for name"), "{log}");
    }
}
