//! Whether new work is taken: the cluster's backlog and Redis' memory, looked at a few times a second, and what a scope has
//! running, against their limits.
//!
//! Refuses to count anything itself: the numbers come from Redis, so every gateway judges alike, late by a moment. When
//! Redis does not answer, the last number stands; the submit itself will say that Redis is away.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use relevo_shared::ids::{ScopeKey, StorageId};
use relevo_shared::platform::config::LimitSettings;
use relevo_shared::store::{Overview, Serving, Store};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::{ApiError, Overload};
use crate::metrics::GatewayMetrics;
use crate::services::Services;

/// How often the backlog is looked at: what is admitted meanwhile is how soft the limit is.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is looked at while it is far from the limit: 64 partitions cost Redis about 0.2 ms.
const RELAXED: Duration = Duration::from_secs(2);
/// How often memory is looked at.
const MEMORY: Duration = Duration::from_secs(1);
/// How long the count of a scope is good.
const FRESH: Duration = Duration::from_millis(200);
/// Most scopes whose count is remembered.
const SCOPES: usize = 10_000;
/// A partition may hold this many times its share of a scope's limit: contexts do not spread evenly,
const SHARE: u64 = 4;
/// the less so the fewer they are: and this many in any case, as far as the limit goes.
const LEAST_SHARE: u64 = 16;
/// Storages with gauges of their own.
const STORAGES: usize = 100;
/// The label of the others; no storage can be called like that.
const OTHER: &str = "(other)";
/// Bounds of Retry-After.
const SHORTEST: u64 = 1;
const LONGEST: u64 = 60;

/// The judge of new work.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: LimitSettings,
    backlog: AtomicU64,
    /// Used memory of Redis over its limit, in millionths.
    memory: AtomicU64,
    /// Turns that this gateway submitted since the last look.
    submitted: AtomicU64,
    /// Turns that leave the queues per second, times 1,000, as measured.
    rate: AtomicU64,
    /// What scopes had live when it was last looked at.
    scopes: Mutex<HashMap<ScopeKey, (Instant, u64)>>,
}

impl Admission {
    pub(crate) fn new(limits: LimitSettings) -> Self {
        Self {
            limits,
            backlog: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            scopes: Mutex::default(),
        }
    }

    /// Says whether a turn may be submitted, as far as the cluster is concerned.
    pub(crate) fn admit(&self) -> Result<(), ApiError> {
        let backlog = self.backlog.load(Ordering::Relaxed);
        if backlog >= self.limits.backlog {
            return Err(refused(Overload::Backlog, self.wait(backlog)));
        }
        #[expect(clippy::cast_precision_loss, reason = "millionths of a share")]
        let memory = self.memory.load(Ordering::Relaxed) as f64 / 1e6;
        if memory > self.limits.redis_memory {
            return Err(refused(Overload::Memory, self.wait(self.limits.backlog)));
        }
        Ok(())
    }

    /// Says whether a scope may have another turn. Its exact count is judged by the submit, for its partition.
    pub(crate) async fn admit_scope(&self, store: &Store, scope: &ScopeKey) -> Result<(), ApiError> {
        let limit = self.limits.scope_turns;
        if limit == 0 {
            return Ok(());
        }
        let live = if let Some(live) = self.known(scope) {
            live
        } else {
            let live = store.live_turns(scope).await?;
            self.remember(scope, live);
            live
        };
        if live >= limit {
            return Err(self.over_limit());
        }
        // What is admitted here counts at once; what other gateways admit, at the next look.
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, live)) = scopes.get_mut(scope) {
            *live += 1;
        }
        Ok(())
    }

    /// The refusal of a scope that has as many turns as it may have.
    pub(crate) fn over_limit(&self) -> ApiError {
        refused(Overload::Scope, self.wait(self.limits.backlog))
    }

    /// Most live turns of a scope in one partition, if they are limited.
    pub(crate) fn scope_share(&self, partitions: u16) -> Option<u64> {
        let limit = self.limits.scope_turns;
        let share = limit.saturating_mul(SHARE).div_ceil(u64::from(partitions));
        (limit > 0).then(|| share.max(LEAST_SHARE).min(limit))
    }

    /// A turn was submitted here.
    pub(crate) fn submitted(&self) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
    }

    fn known(&self, scope: &ScopeKey) -> Option<u64> {
        let scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes
            .get(scope)
            .filter(|(at, _)| at.elapsed() < FRESH)
            .map(|(_, live)| *live)
    }

    fn remember(&self, scope: &ScopeKey, live: u64) {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if scopes.len() >= SCOPES {
            scopes.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if scopes.len() < SCOPES {
            scopes.insert(scope.clone(), (Instant::now(), live));
        }
    }

    /// Seconds until a tenth of the limit is free at the measured rate.
    fn wait(&self, backlog: u64) -> u64 {
        let over = backlog.saturating_sub(self.limits.backlog) + self.limits.backlog / 10 + 1;
        let rate = self.rate.load(Ordering::Relaxed);
        over.saturating_mul(1_000)
            .checked_div(rate)
            .unwrap_or(LONGEST)
            .clamp(SHORTEST, LONGEST)
    }

    fn close_to_limit(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) >= self.limits.backlog / 2
    }

    /// Takes a look over. What left is what came in here and is not there any more: other gateways' turns make the rate
    /// look smaller than it is, never larger.
    fn observe(&self, backlog: u64, since: Duration) {
        let came = self.submitted.swap(0, Ordering::Relaxed);
        let before = self.backlog.swap(backlog, Ordering::Relaxed);
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        let left = (before + came).saturating_sub(backlog).saturating_mul(1_000_000) / ms;
        let rate = self.rate.load(Ordering::Relaxed);
        self.rate.store((rate * 3 + left) / 4, Ordering::Relaxed);
    }

    fn observe_memory(&self, share: Option<f64>) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share, bounded"
        )]
        let millionths = (share.unwrap_or(0.0).clamp(0.0, 1e3) * 1e6) as u64;
        self.memory.store(millionths, Ordering::Relaxed);
    }
}

fn refused(why: Overload, seconds: u64) -> ApiError {
    ApiError::Unavailable {
        why,
        retry_after: Duration::from_secs(seconds),
        unknown: None,
        source: None,
    }
}

/// Keeps the backlog and memory known, and their gauges, for as long as it is polled.
pub(crate) async fn watch(services: Services) {
    let pools = services.agents.pools();
    let admission = &services.admission;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut memory, mut workers): (Option<Instant>, Option<Instant>, Option<Instant>) = (None, None, None);
    loop {
        looks.tick().await;
        if memory.is_none_or(|at| at.elapsed() >= MEMORY) {
            match services.store.memory_share().await {
                Ok(share) => admission.observe_memory(share),
                Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "memory is not known"),
            }
            memory = Some(Instant::now());
        }
        let rests = !admission.close_to_limit() && last.is_some_and(|last| last.elapsed() < RELAXED);
        if rests {
            continue;
        }
        match services.store.overview(&pools).await {
            Ok(overview) => {
                let since = last.map_or(LOOK, |last| last.elapsed());
                admission.observe(overview.backlog, since);
                show(&services.metrics, &overview);
                // Workers say how they are no more often.
                if workers.is_none_or(|at| at.elapsed() >= RELAXED) {
                    match services.store.serving().await {
                        Ok(serving) => show_pools(&services.metrics, &overview, &pools, &serving),
                        Err(error) => {
                            tracing::debug!(error = &error as &dyn std::error::Error, "workers are not known");
                        }
                    }
                    workers = Some(Instant::now());
                }
                last = Some(Instant::now());
            }
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "the backlog is not known"),
        }
    }
}

fn show(metrics: &GatewayMetrics, overview: &Overview) {
    metrics.backlog.set(i64::try_from(overview.backlog).unwrap_or(i64::MAX));
    metrics.behind.set(i64::try_from(overview.behind).unwrap_or(i64::MAX));
    metrics
        .suspended
        .set(i64::try_from(overview.suspended).unwrap_or(i64::MAX));
    metrics
        .oldest
        .set(Duration::from_millis(overview.oldest_ms).as_secs_f64());
}

fn show_pools(metrics: &GatewayMetrics, overview: &Overview, pools: &[String], serving: &[Serving]) {
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    for pool in pools {
        let turns = overview.pools.get(pool).copied().unwrap_or(0);
        let live = |entry: &&Serving| entry.pool == *pool && entry.storage.is_none() && entry.is_live(overview.now);
        let workers = serving.iter().filter(live).count() as u64;
        metrics.pool_turns.with_label_values(&[pool]).set(count(turns));
        metrics.pool_workers.with_label_values(&[pool]).set(count(workers));
    }
    metrics.storage_turns.reset();
    metrics.storage_workers.reset();
    for (pool, storage, turns, workers) in shown_storages(overview, serving) {
        let labels = [pool.as_str(), storage.as_str()];
        metrics.storage_turns.with_label_values(&labels).set(count(turns));
        metrics.storage_workers.with_label_values(&labels).set(count(workers));
    }
}

/// Pool, storage, turns and workers of the storages with the most turns; of each pool the others are one.
fn shown_storages(overview: &Overview, serving: &[Serving]) -> Vec<(String, String, u64, u64)> {
    let workers = |pool: &str, storage: &StorageId| {
        let has = |entry: &&Serving| entry.pool == pool && entry.storage.as_ref() == Some(storage);
        serving
            .iter()
            .filter(has)
            .filter(|entry| entry.is_live(overview.now))
            .count() as u64
    };
    let all = overview.storages.iter().filter(|(_, turns)| **turns > 0);
    let mut all: Vec<_> = all
        .map(|((pool, storage), turns)| (pool.clone(), storage.to_string(), *turns, workers(pool, storage)))
        .collect();
    all.sort_by_key(|(_, _, turns, _)| std::cmp::Reverse(*turns));
    let mut others: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (pool, _, turns, workers) in all.drain(STORAGES.min(all.len())..) {
        let other = others.entry(pool).or_insert((0, u64::MAX));
        *other = (other.0 + turns, other.1.min(workers));
    }
    all.extend(
        others
            .into_iter()
            .map(|(pool, (turns, workers))| (pool, OTHER.to_owned(), turns, workers)),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> LimitSettings {
        LimitSettings {
            backlog: 100,
            ..LimitSettings::default()
        }
    }

    #[test]
    fn a_nearly_full_redis_takes_no_new_work() {
        let admission = Admission::new(limits());
        admission.observe_memory(Some(0.849));
        assert!(admission.admit().is_ok());
        admission.observe_memory(Some(0.851));
        assert!(matches!(
            admission.admit(),
            Err(ApiError::Unavailable {
                why: Overload::Memory,
                ..
            })
        ));
        admission.observe_memory(None);
        assert!(admission.admit().is_ok());
    }

    #[test]
    fn storages_beyond_the_hundred_with_the_most_turns_are_shown_as_one() {
        let disk = |n: u64| StorageId::parse(&format!("disk-{n}")).unwrap();
        let serving = |n| Serving {
            pool: "default".to_owned(),
            storage: Some(disk(n)),
            worker: "w".to_owned(),
            seen: 1_000,
        };
        let storages = (1..=103).map(|n| (("default".to_owned(), disk(n)), n));
        let overview = Overview {
            now: 1_000,
            storages: storages.collect(),
            ..Overview::default()
        };
        let shown = shown_storages(&overview, &[serving(103), serving(2), serving(3)]);
        let of = |storage: &str| shown.iter().find(|each| each.1 == storage).map(|each| (each.2, each.3));
        assert_eq!(shown.len(), 101);
        assert_eq!(of("disk-103"), Some((103, 1)));
        assert_eq!(of("disk-4"), Some((4, 0)));
        assert_eq!(of("(other)"), Some((6, 0)), "one of them has no worker");
        assert_eq!(shown_storages(&Overview::default(), &[serving(1)]), []);
    }

    #[test]
    fn a_partition_may_hold_four_times_its_share_of_a_scope() {
        let of = |scope_turns| {
            Admission::new(LimitSettings {
                scope_turns,
                ..limits()
            })
            .scope_share(64)
        };
        assert_eq!(
            (of(0), of(1), of(16), of(64), of(6_400)),
            (None, Some(1), Some(16), Some(16), Some(400))
        );
    }

    #[test]
    fn turns_that_come_and_go_count_for_the_rate() {
        let admission = Admission::new(limits());
        admission.observe(100, Duration::from_secs(1));
        for _ in 0..20 {
            (0..50).for_each(|_| admission.submitted());
            admission.observe(100, Duration::from_secs(1));
        }
        assert_eq!(retry_after(&admission), Some(1), "50 turns a second leave the queues");
    }

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
        let admission = Admission::new(limits());
        assert_eq!(retry_after(&admission), None);
        admission.observe(99, LOOK);
        assert_eq!(retry_after(&admission), None);
        admission.observe(100, LOOK);
        assert_eq!(retry_after(&admission), Some(60), "nothing leaves the queues");
    }

    #[test]
    fn the_time_to_come_back_follows_the_measured_rate() {
        let admission = Admission::new(limits());
        admission.observe(200, Duration::from_secs(1));
        for backlog in [180, 160, 140, 120] {
            admission.observe(backlog, Duration::from_secs(1));
        }
        let wait = retry_after(&admission).unwrap();
        assert!((1..=5).contains(&wait), "{wait}");
    }
}
