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
    let redis = &cluster.redis;
    let (seat, place) = match fault.victim {
        Victim::Gateway(place) => (Some(&cluster.gateways[place]), 0),
        Victim::Worker(place) => (Some(&cluster.workers[place]), 0),
        Victim::Redis(place) => (None, place),
        Victim::Entry | Victim::Slots(_) => (None, 0),
    };
    let _alone = match fault.victim {
        Victim::Gateway(_) | Victim::Worker(_) => vec![seat.unwrap().busy.lock().await],
        Victim::Redis(place) => vec![redis.alone(place).await],
        Victim::Slots(_) => redis.all_alone().await,
        Victim::Entry => vec![cluster.entry_busy.lock().await],
    };
    let from = ms(begun.elapsed());
    match fault.kind {
        Kind::KillGateway | Kind::KillWorker => {
            cluster.kill(seat.unwrap());
            last(fault).await;
            cluster.seat(seat.unwrap()).await;
        }
        Kind::KillRedis => {
            block_in_place(|| redis.node(place).kill());
            last(fault).await;
            block_in_place(|| redis.node(place).restart());
        }
        Kind::StopGateway | Kind::StopWorker => {
            let life = seat.unwrap().sitting().unwrap();
            block_in_place(|| life.process.sigstop());
            last(fault).await;
            life.process.sigcont();
        }
        Kind::StopRedis => {
            block_in_place(|| redis.node(place).stop());
            last(fault).await;
            redis.node(place).cont();
        }
        Kind::MuteRedis => {
            block_in_place(|| redis.mute(place, fault.cut));
            last(fault).await;
            block_in_place(|| redis.unmute(place));
        }
        Kind::MoveSlots => {
            let Victim::Slots(first) = fault.victim else {
                return from;
            };
            let moves = block_in_place(|| redis.begin_moves(first));
            last(fault).await;
            block_in_place(|| redis.end_moves(&moves));
        }
        Kind::RollGateway | Kind::RollWorker => {
            if let Some(old) = cluster.seat(seat.unwrap()).await {
                cluster.end(&old).await;
            }
        }
        Kind::CutRedis | Kind::CutClient => way(cluster, seat, fault).cut_all(),
        Kind::DelayRedis | Kind::DelayClient => {
            let way = way(cluster, seat, fault);
            way.delay(fault.late);
            last(fault).await;
            way.delay(std::time::Duration::ZERO);
        }
        Kind::HalfOpenRedis | Kind::HalfOpenClient => {
            let way = way(cluster, seat, fault);
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

async fn last(fault: Fault) {
    tokio::time::sleep(fault.lasts).await; // pace: of what disturbs
}

/// The way that is hurt.
fn way<'a>(cluster: &'a Cluster, seat: Option<&'a Seat>, fault: Fault) -> &'a FaultProxy {
    match (fault.kind, fault.victim, seat) {
        (_, Victim::Redis(place), _) => cluster.redis.way(place),
        (Kind::CutRedis | Kind::DelayRedis | Kind::HalfOpenRedis, _, Some(seat)) => seat.redis.as_ref().unwrap(),
        (_, _, Some(seat)) => seat.front.as_ref().unwrap(),
        (_, _, None) => cluster.balancer.as_ref().unwrap().entry(),
    }
}
