//! A rolling restart of every process behind the proxy that is deployed: no call fails.

use std::time::Duration;

use clap::Parser as _;
use relevo_loadtest::driver;
use relevo_loadtest::report::Report;
use relevo_loadtest::settings::Settings;
use relevo_testkit::haproxy::Backend;
use relevo_testkit::{FaultProxy, HaProxy, Upstream, poll};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fixture::{Cluster, Member};
use crate::wire::LIMIT;

/// One place behind the proxy: whatever gateway stands there now.
struct Slot {
    listen: FaultProxy,
    admin: FaultProxy,
}

impl Slot {
    fn of(member: &Member) -> Self {
        let [listen, admin] = Self::places(member).map(FaultProxy::start);
        Self { listen, admin }
    }

    fn places(member: &Member) -> [Upstream; 2] {
        [member.ready.listen.unwrap(), member.admin()].map(Upstream::Tcp)
    }

    fn backend(&self) -> Backend {
        Backend {
            listen: self.listen.addr(),
            admin: self.admin.addr(),
        }
    }

    fn take(&self, member: &Member) {
        let [listen, admin] = Self::places(member);
        self.listen.retarget(listen);
        self.admin.retarget(admin);
    }
}

/// A load that runs until it is told to stop.
struct Load {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Report>,
}

impl Load {
    fn start(url: &str, args: &[&str]) -> Self {
        let fixed = [
            "relevo-loadtest",
            "--url",
            url,
            "--duration",
            "1h",
            "--verify",
            "--no-resume",
        ];
        let settings = Settings::parse_from(fixed.iter().chain(args));
        settings.check().unwrap();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let until = async move { drop(stopped.await) };
            driver::run_until(&settings, until).await.unwrap()
        });
        Self { stop, ended }
    }

    async fn end(self) -> Report {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_while_every_process_is_restarted() {
    // The proxy looks each second and wants two looks.
    let mut cluster = Cluster::setup().set("RELEVO_DRAIN_DELAY", "4s").start().await;
    let slots = [Slot::of(&cluster.gateways[0]), Slot::of(&cluster.gateways[1])];
    let proxy = HaProxy::start([slots[0].backend(), slots[1].backend()]);
    let texts = [
        "--text",
        "chunks=5 nonce={nonce}",
        "--text",
        "chunks=4 delay=500 nonce={nonce} end=input-required",
        "--text",
        "chunks=5 delay=1200 nonce={nonce}",
        // Twenty seconds: longer than any lease here.
        "--text",
        "chunks=5 delay=4000 nonce={nonce}",
    ];
    let args = |mode, contexts| {
        [
            &["--mode", mode, "--contexts", contexts, "--followups", "1"][..],
            &texts,
        ]
        .concat()
    };
    let loads = [
        Load::start(&proxy.url(), &args("stream", "12")),
        Load::start(&proxy.url(), &args("send", "6")),
    ];

    for (place, slot) in slots.iter().enumerate() {
        let old = cluster.gateways.remove(0);
        assert!(old.process.sigterm());
        proxy.until_down(place + 1).await;
        let status = old.process.exited(LIMIT).await;
        assert!(status.success(), "{status}\n{}", old.process.log());
        let new = cluster.start_gateway().await;
        slot.take(new);
        let up = format!("Server gateways/gateway-{} is UP", place + 1);
        poll::until("the proxy to use the new gateway", || async {
            if proxy.log().contains(&up) {
                Ok(())
            } else {
                Err(proxy.log())
            }
        })
        .await;
    }
    for _ in 0..3 {
        cluster.start_worker().await;
        let old = cluster.workers.remove(0);
        assert!(old.process.sigterm());
        let status = old.process.exited(LIMIT).await;
        assert!(status.success(), "{status}\n{}", old.process.log());
    }
    for load in loads {
        let report = load.end().await;
        let tally = report.tally();
        assert!(report.is_good() && tally.refused == 0 && tally.turns > 0, "{report}");
        assert_eq!((tally.resumes, tally.boundaries), (0, 0), "{report}");
        assert!(
            tally.turn.max() > u64::try_from(Duration::from_secs(5).as_micros()).unwrap(),
            "no long turn: {report}"
        );
    }
}
