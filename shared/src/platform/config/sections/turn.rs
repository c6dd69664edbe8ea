//! Sections about a turn on its way: `[lease]`, `[turn]`, `[stream]`, `[send]`, `[cancel]`.

use std::time::Duration;

use super::require_longer_than_zero;
use crate::platform::config::{ByteSize, ConfigErrors, Validate};

/// Renewal, loss of authority and killing the agent are fractions of the lease; below this they are too short for a
/// busy machine.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);
/// Authority ends after two thirds of a lease; at a fifth, three renewals can be lost before that.
const RENEWALS_PER_LEASE: u32 = 5;
/// Four renewals before authority ends, unless told otherwise.
const DEFAULT_RENEWALS_PER_LEASE: u32 = 6;

crate::settings! {
    /// Ownership of contexts by workers. All processes of one cluster should agree on it.
    pub struct LeaseSettings in "lease" {
        /// How long a worker owns a context without renewing, at least 2s. A turn whose worker died goes on elsewhere
        /// after about this time; shorter than a failover of Redis or a pause of the machine, and turns are started
        /// again for no reason.
        ttl: Duration = "15s",
        /// How often a lease is renewed; at most a fifth of `ttl`, so that one lost renewal ends no turn. Unset: a
        /// sixth of `ttl`.
        renew: Option<Duration> = "",
    }
}

impl Validate for LeaseSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        errors.require(
            self.ttl >= SHORTEST_LEASE,
            "lease.ttl",
            &self.ttl,
            "must be at least 2s",
        );
        let renew = self.renew_every();
        let rule = "must be longer than zero and at most a fifth of lease.ttl, else one lost renewal ends a turn";
        let often = !renew.is_zero() && renew <= self.ttl / RENEWALS_PER_LEASE;
        errors.require(often || self.ttl < SHORTEST_LEASE, "lease.renew", &renew, rule);
    }
}

impl LeaseSettings {
    /// The interval between renewals.
    pub fn renew_every(&self) -> Duration {
        self.renew.unwrap_or(self.ttl / DEFAULT_RENEWALS_PER_LEASE)
    }
}

/// The most bytes that a call of a script takes, and the most items of a list in it (`store::script`). What agents produce is written
/// by such calls.
pub(crate) const MOST_BYTES: ByteSize = ByteSize::new(64 << 20);
pub(crate) const MOST_EVENTS: u64 = 60_000;
/// A batch holds other events beside the largest.
const LARGEST_EVENT: ByteSize = ByteSize::new(32 << 20);

crate::settings! {
    /// Bounds of one turn. What exceeds one ends FAILED with a reason; nothing runs or grows for ever.
    pub struct TurnSettings in "turn" {
        /// Longest time that one attempt may run. Beyond it the turn ends FAILED `deadline_exceeded`; its lease is not renewed
        /// any further.
        max_duration: Duration = "1h",
        /// Longest time that a turn waits for its user when its agent has suspended it. Beyond it the turn ends FAILED
        /// `deadline_exceeded`; other messages of its context wait, or are refused, until then.
        max_suspended: Duration = "7d",
        /// Attempts charged for crashes before the turn ends FAILED `attempts_exhausted`; at least 1. More than a few
        /// let one poisonous message take down worker after worker.
        attempts: u32 = "3",
        /// How often a turn may be handed to another worker uncharged (drain, outage of Redis) before it ends FAILED
        /// `handbacks_exhausted`; at least 1.
        handbacks: u32 = "20",
        /// Most events of one turn, at most 60000; beyond it the turn ends FAILED `output_limit`. They are kept in Redis
        /// until retention.journal has passed.
        max_events: u64 = "50000",
        /// Most bytes that a task may hold, at most 64MiB: what its earlier turns left and all events of this one. Beyond
        /// it the turn ends FAILED `output_limit`.
        max_bytes: ByteSize = "64MiB",
        /// Largest single event, at most `max_bytes` and 32MiB. A larger artifact is split, what cannot be split ends the turn
        /// FAILED `output_limit`. Large events block Redis for all others while they are written.
        event_bytes: ByteSize = "1MiB",
    }
}

impl Validate for TurnSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        require_longer_than_zero(errors, "turn.max_duration", self.max_duration);
        require_longer_than_zero(errors, "turn.max_suspended", self.max_suspended);
        errors.require(
            self.attempts >= 1,
            "turn.attempts",
            &self.attempts,
            "must be at least 1",
        );
        errors.require(
            self.handbacks >= 1,
            "turn.handbacks",
            &self.handbacks,
            "must be at least 1",
        );
        errors.require(
            (1..=MOST_EVENTS).contains(&self.max_events),
            "turn.max_events",
            &self.max_events,
            "must be at least 1 and at most 60000, or Redis could not take the end of a turn",
        );
        errors.require(
            self.max_bytes <= MOST_BYTES,
            "turn.max_bytes",
            &self.max_bytes,
            "must be at most 64MiB, or Redis would be held up by a single task",
        );
        let event = self.event_bytes.get() > 0 && self.event_bytes <= self.max_bytes.min(LARGEST_EVENT);
        errors.require(
            event,
            "turn.event_bytes",
            &self.event_bytes,
            "must be above zero, at most turn.max_bytes and at most 32MiB",
        );
    }
}

crate::settings! {
    /// Open streams at the gateway.
    pub struct StreamSettings in "stream" {
        /// Silence after which a comment is sent, so that proxies do not close the connection, nor clients: shorter than their
        /// idle timeouts, 5s in the Python SDK as it comes.
        keep_alive: Duration = "4s",
        /// How often a stream and a blocking call look into the journal although nobody rang. It bounds how late an
        /// event is when a doorbell was lost; each look costs Redis a read.
        reread: Duration = "10s",
        /// Bytes buffered for one reader that does not keep up. Beyond it events are dropped from memory and read from
        /// the journal again when it does; too small makes every burst such a read.
        byte_budget: ByteSize = "1MiB",
        /// Age at which a stream is closed at an event boundary; clients resume where it ended. It spreads long streams
        /// over gateways that were added later.
        max_age: Duration = "1h",
    }
}

impl Validate for StreamSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        require_longer_than_zero(errors, "stream.keep_alive", self.keep_alive);
        require_longer_than_zero(errors, "stream.reread", self.reread);
        require_longer_than_zero(errors, "stream.max_age", self.max_age);
        errors.require(
            self.byte_budget.get() > 0,
            "stream.byte_budget",
            &self.byte_budget,
            "must be above zero",
        );
    }
}

crate::settings! {
    /// Blocking calls: SendMessage that waits for the end of its turn.
    pub struct SendSettings in "send" {
        /// Longest wait. Then the call is answered with the task as it stands, marked as still running; the turn goes
        /// on. Longer than the timeout of a proxy in between, and clients see that proxy's error instead.
        max_wait: Duration = "10m",
    }
}

impl Validate for SendSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        require_longer_than_zero(errors, "send.max_wait", self.max_wait);
    }
}

crate::settings! {
    /// Cancelling a turn that runs.
    pub struct CancelSettings in "cancel" {
        /// How long CancelTask waits for the turn to stop before it answers. After that it answers with the task as it is,
        /// marked `cancelRequested`: the request stands, and the task is CANCELED once its agent is gone.
        wait: Duration = "10s",
    }
}

impl Validate for CancelSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        require_longer_than_zero(errors, "cancel.wait", self.wait);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors_with;
    use super::*;

    #[test]
    fn a_lease_is_renewed_every_sixth_of_it_unless_told_otherwise() {
        assert_eq!(LeaseSettings::default().renew_every(), Duration::from_millis(2_500));
        let told = LeaseSettings {
            renew: Some(Duration::from_secs(1)),
            ..LeaseSettings::default()
        };
        assert_eq!(told.renew_every(), Duration::from_secs(1));
    }

    #[test]
    fn one_lost_renewal_must_not_end_a_turn() {
        assert_eq!(errors_with(&[("lease.renew", "3s")]).len(), 0);
        let errors = errors_with(&[("lease.renew", "3001ms")]);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("lease.renew = \"3001ms\": must be"), "{errors:?}");
    }

    #[test]
    fn a_lease_too_short_to_renew_is_refused_once() {
        assert_eq!(errors_with(&[("lease.ttl", "1s")]).len(), 1);
        assert_eq!(errors_with(&[("lease.ttl", "2s")]).len(), 0);
    }

    #[test]
    fn an_event_fits_into_its_turn() {
        assert_eq!(errors_with(&[("turn.event_bytes", "65MiB")]).len(), 1);
        assert_eq!(errors_with(&[("turn.event_bytes", "33MiB")]).len(), 1);
        assert_eq!(errors_with(&[("turn.event_bytes", "32MiB")]).len(), 0);
        assert_eq!(
            errors_with(&[("turn.max_bytes", "64KiB"), ("turn.event_bytes", "64KiB")]).len(),
            0
        );
    }

    #[test]
    fn what_a_turn_may_produce_fits_into_the_calls_that_write_it() {
        assert_eq!(
            errors_with(&[("turn.max_bytes", "65MiB"), ("turn.max_events", "60001")]).len(),
            2
        );
        assert_eq!(
            errors_with(&[("turn.max_bytes", "64MiB"), ("turn.max_events", "60000")]).len(),
            0
        );
    }

    #[test]
    fn a_turn_is_tried_at_least_once() {
        assert_eq!(
            errors_with(&[
                ("turn.attempts", "0"),
                ("turn.handbacks", "0"),
                ("turn.max_events", "0")
            ])
            .len(),
            3
        );
    }
}
