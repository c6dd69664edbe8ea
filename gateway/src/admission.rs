//! Whether new work is taken: the cluster's backlog, looked at a few times a second, against its limit.
//!
//! Refuses to count anything itself: the numbers come from Redis, so every gateway judges alike, late by a moment. When
//! Redis does not answer, the last number stands; the submit itself will say that Redis is away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use relevo_shared::store::Overview;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::{ApiError, Overload};
use crate::metrics::GatewayMetrics;
use crate::services::Services;

/// How often the backlog is looked at: what is admitted meanwhile is how soft the limit is.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is looked at while it is far from the limit: 64 partitions cost Redis about 0.2 ms.
const RELAXED: Duration = Duration::from_secs(2);
/// Bounds of Retry-After.
const SHORTEST: u64 = 1;
const LONGEST: u64 = 60;

/// The judge of new work.
#[derive(Debug)]
pub(crate) struct Admission {
    limit: u64,
    backlog: AtomicU64,
    /// Turns that leave the queues per second, times 1,000, as measured.
    rate: AtomicU64,
}

impl Admission {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            backlog: AtomicU64::new(0),
            rate: AtomicU64::new(0),
        }
    }

    /// Says whether a turn may be submitted.
    pub(crate) fn admit(&self) -> Result<(), ApiError> {
        let backlog = self.backlog.load(Ordering::Relaxed);
        if backlog < self.limit {
            return Ok(());
        }
        Err(ApiError::Unavailable {
            why: Overload::Backlog,
            retry_after: Duration::from_secs(self.wait(backlog)),
            unknown: None,
            source: None,
        })
    }

    /// Seconds until a tenth of the limit is free at the measured rate.
    fn wait(&self, backlog: u64) -> u64 {
        let over = backlog.saturating_sub(self.limit) + self.limit / 10 + 1;
        let rate = self.rate.load(Ordering::Relaxed);
        over.saturating_mul(1_000)
            .checked_div(rate)
            .unwrap_or(LONGEST)
            .clamp(SHORTEST, LONGEST)
    }

    fn close_to_limit(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) >= self.limit / 2
    }

    fn observe(&self, backlog: u64, since: Duration) {
        let before = self.backlog.swap(backlog, Ordering::Relaxed);
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        // Only what shrinks is seen; under a constant backlog the wait is the longest, which is right: nothing is free.
        let left = before.saturating_sub(backlog).saturating_mul(1_000_000) / ms;
        let rate = self.rate.load(Ordering::Relaxed);
        self.rate.store((rate * 3 + left) / 4, Ordering::Relaxed);
    }
}

/// Keeps the backlog known, and its gauges, for as long as it is polled.
pub(crate) async fn watch(services: Services) {
    let pools = services.agents.pools();
    let admission = &services.admission;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Instant> = None;
    loop {
        looks.tick().await;
        let rests = !admission.close_to_limit() && last.is_some_and(|last| last.elapsed() < RELAXED);
        if rests {
            continue;
        }
        match services.store.overview(&pools).await {
            Ok(overview) => {
                let since = last.map_or(LOOK, |last| last.elapsed());
                admission.observe(overview.backlog, since);
                show(&services.metrics, &overview);
                last = Some(Instant::now());
            }
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "the backlog is not known"),
        }
    }
}

fn show(metrics: &GatewayMetrics, overview: &Overview) {
    metrics.backlog.set(i64::try_from(overview.backlog).unwrap_or(i64::MAX));
    metrics
        .oldest
        .set(Duration::from_millis(overview.oldest_ms).as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry_after(admission: &Admission) -> Option<u64> {
        match admission.admit() {
            Err(ApiError::Unavailable {
                retry_after,
                why: Overload::Backlog,
                ..
            }) => Some(retry_after.as_secs()),
            _ => None,
        }
    }

    #[test]
    fn work_is_refused_from_the_limit_on() {
        let admission = Admission::new(100);
        assert_eq!(retry_after(&admission), None);
        admission.observe(99, LOOK);
        assert_eq!(retry_after(&admission), None);
        admission.observe(100, LOOK);
        assert_eq!(retry_after(&admission), Some(60), "nothing leaves the queues");
    }

    #[test]
    fn the_time_to_come_back_follows_the_measured_rate() {
        let admission = Admission::new(100);
        admission.observe(200, Duration::from_secs(1));
        for backlog in [180, 160, 140, 120] {
            admission.observe(backlog, Duration::from_secs(1));
        }
        let wait = retry_after(&admission).unwrap();
        assert!((1..=5).contains(&wait), "{wait}");
    }
}
