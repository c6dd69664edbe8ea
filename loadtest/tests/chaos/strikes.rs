//! Carries out faults at their times and heals them.

use std::sync::{Arc, Mutex};

use relevo_loadtest::chaos::schedule::{Fault, Kind, Victim};
use relevo_loadtest::chaos::series::{Strike, ms};
use relevo_testkit::FaultProxy;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::Instant;

use crate::cluster::{Cluster, Seat};

/// Carries out the plan; returns when everything is healed.
pub async fn carry_out(cluster: &Arc<Cluster>, begun: Instant, plan: Vec<Fault>) -> Vec<Strike> {
    let strikes = Arc::new(Mutex::new(Vec::new()));
    let mut open = JoinSet::new();
    for fault in plan {
        let time = tokio::time::sleep_until(begun + fault.at);
        tokio::pin!(time);
        loop {
            tokio::select! {
                () = &mut time => break,
                // A fault that could not be carried out ends the run.
                Some(struck) = open.join_next() => struck.unwrap(),
            }
        }
        let (cluster, strikes) = (Arc::clone(cluster), Arc::clone(&strikes));
        open.spawn(async move {
            let from = strike(&cluster, begun, fault).await;
            let to = ms(begun.elapsed());
            strikes.lock().unwrap().push(Strike { fault, from, to });
        });
    }
    open.join_all().await;
    let mut strikes = std::mem::take(&mut *strikes.lock().unwrap());
    strikes.sort_by_key(|strike| strike.from);
    strikes
}

/// One fault; returns when it began, which is when its victim was free of earlier ones.
async fn strike(cluster: &Cluster, begun: Instant, fault: Fault) -> u64 {
    let (seat, busy) = match fault.victim {
        Victim::Gateway(place) => seated(&cluster.gateways[place]),
        Victim::Worker(place) => seated(&cluster.workers[place]),
        Victim::Redis => (None, &cluster.redis_busy),
        Victim::Entry => (None, &cluster.entry_busy),
    };
    let _alone = busy.lock().await;
    let from = ms(begun.elapsed());
    match fault.kind {
        Kind::KillGateway | Kind::KillWorker => {
            cluster.kill(seat.unwrap());
            last(fault).await;
            cluster.seat(seat.unwrap()).await;
        }
        Kind::KillRedis => {
            block_in_place(|| cluster.redis.kill());
            last(fault).await;
            block_in_place(|| cluster.redis.restart());
        }
        Kind::StopGateway | Kind::StopWorker => {
            let life = seat.unwrap().sitting().unwrap();
            block_in_place(|| life.process.sigstop());
            last(fault).await;
            life.process.sigcont();
        }
        Kind::StopRedis => {
            block_in_place(|| cluster.redis.stop());
            last(fault).await;
            cluster.redis.cont();
        }
        Kind::MuteRedis => {
            block_in_place(|| cluster.mute(fault.cut));
            last(fault).await;
            block_in_place(|| cluster.unmute());
        }
        Kind::RollGateway | Kind::RollWorker => {
            if let Some(old) = cluster.seat(seat.unwrap()).await {
                cluster.end(&old).await;
            }
        }
        Kind::CutRedis | Kind::CutClient => way(cluster, seat, fault.kind).cut_all(),
        Kind::DelayRedis | Kind::DelayClient => {
            let way = way(cluster, seat, fault.kind);
            way.delay(fault.late);
            last(fault).await;
            way.delay(std::time::Duration::ZERO);
        }
        Kind::HalfOpenRedis | Kind::HalfOpenClient => {
            let way = way(cluster, seat, fault.kind);
            way.pause();
            last(fault).await;
            if fault.cut {
                way.cut_all();
            }
            way.resume();
        }
    }
    from
}

fn seated(seat: &Seat) -> (Option<&Seat>, &tokio::sync::Mutex<()>) {
    (Some(seat), &seat.busy)
}

async fn last(fault: Fault) {
    tokio::time::sleep(fault.lasts).await; // pace: of what disturbs
}

/// The way that is hurt.
fn way<'a>(cluster: &'a Cluster, seat: Option<&'a Seat>, kind: Kind) -> &'a FaultProxy {
    match (kind, seat) {
        (Kind::CutRedis | Kind::DelayRedis | Kind::HalfOpenRedis, Some(seat)) => &seat.redis,
        (_, Some(seat)) => seat.front.as_ref().unwrap(),
        (_, None) => cluster.balancer.as_ref().unwrap().entry(),
    }
}
