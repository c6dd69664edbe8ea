//! Watching Redis: whether it answers, and what time it is there.

use std::time::Duration;

use relevo_shared::platform::readiness::Readiness;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::REDIS;
use crate::services::Services;

/// How often it is asked.
const ASK: Duration = Duration::from_secs(1);
/// Questions in a row that may go unanswered: a failover that is over in time is not noticed by load balancers.
const PATIENCE: u32 = 3;

/// Keeps the readiness and the clock for as long as it is polled.
pub(super) async fn redis(services: Services, readiness: Readiness) {
    let mut asks = interval(ASK);
    asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missed = 0;
    loop {
        asks.tick().await;
        match timeout(ASK, services.store.now()).await {
            Ok(Ok(now)) => {
                services.clock.learn(now);
                missed = 0;
                readiness.meet(REDIS);
            }
            _ => missed += 1,
        }
        if missed == PATIENCE {
            tracing::warn!("redis does not answer; not ready");
            readiness.fail(REDIS, "it does not answer");
        }
    }
}
