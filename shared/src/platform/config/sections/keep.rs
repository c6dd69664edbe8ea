//! Sections about what is admitted and kept: `[limits]`, `[retention]`, `[secrets]`.

use std::time::Duration;

use super::require_longer_than_zero;
use crate::platform::config::{ConfigErrors, Validate};

crate::settings! {
    /// When new work is refused, with 503 or (a caller's own limit) 429, and Retry-After. Running turns are never touched by these.
    pub struct LimitSettings in "limits" {
        /// Turns queued, running or waiting behind another in the whole cluster before new ones are refused; at least 1. Each
        /// holds its message in Redis.
        backlog: u64 = "100000",
        /// Live turns, waiting and running, that one scope (tenant and principal) may have in the whole cluster; more are
        /// refused with 429. 0 means no limit. Without authentication everyone is one scope.
        scope_turns: u64 = "0",
        /// Share of Redis' maxmemory, above 0 and up to 1, beyond which new work is refused, so that the turns already
        /// accepted can still write their results. Without maxmemory it has no effect.
        redis_memory: f64 = "0.85",
        /// How long a turn may wait in the queue; then it ends FAILED `queue_expired` instead of being run for a client
        /// that has long given up. What it waits behind another turn of its context before that does not count.
        queue_age: Duration = "1h",
        /// How long a turn waits while no worker has the storage that its conversation's workspace is on
        /// (`workspace.storage_id`), at least 5s; then it ends FAILED `workspace_unavailable`. The conversation goes on when one
        /// has it again. Longer than such a worker takes to come back from an upgrade or a lost machine.
        storage_wait: Duration = "10m",
    }
}

impl Validate for LimitSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        errors.require(self.backlog >= 1, "limits.backlog", &self.backlog, "must be at least 1");
        let share = self.redis_memory > 0.0 && self.redis_memory <= 1.0;
        errors.require(
            share,
            "limits.redis_memory",
            &self.redis_memory,
            "must be above 0 and at most 1",
        );
        require_longer_than_zero(errors, "limits.queue_age", self.queue_age);
        // Workers say every 2 s that they live.
        errors.require(
            self.storage_wait >= Duration::from_secs(5),
            "limits.storage_wait",
            &self.storage_wait,
            "must be at least 5s",
        );
    }
}

crate::settings! {
    /// How long things are kept in Redis after their last use. Longer costs memory: about 8 KB for a small ended task with its context, more than half of it the journal.
    pub struct RetentionSettings in "retention" {
        /// Ended tasks, from their end. Afterwards they are not found.
        task: Duration = "24h",
        /// Interrupted tasks (waiting for input), from their last turn. An answer after that finds no task.
        idle: Duration = "7d",
        /// Contexts without tasks, with their session: at least as long as `task` and `idle`, so that no task outlives
        /// the context it belongs to.
        context: Duration = "7d",
        /// Events of ended turns, from the end: how long after it a stream can be resumed event by event. Afterwards a
        /// resumed stream gets the task as a whole. At most `task`.
        journal: Duration = "1h",
        /// Tasks refused before they began, from the refusal.
        refused: Duration = "10m",
        /// Idempotency keys, from the first use. A repeat after that starts a second turn. At most `task`, since the
        /// answer to a repeat is the task.
        idempotency: Duration = "24h",
    }
}

impl Validate for RetentionSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        require_longer_than_zero(errors, "retention.task", self.task);
        require_longer_than_zero(errors, "retention.idle", self.idle);
        require_longer_than_zero(errors, "retention.refused", self.refused);
        require_longer_than_zero(errors, "retention.journal", self.journal);
        require_longer_than_zero(errors, "retention.idempotency", self.idempotency);
        let rule = "must be at least retention.task and retention.idle, else a task outlives its context";
        errors.require(
            self.context >= self.task.max(self.idle),
            "retention.context",
            &self.context,
            rule,
        );
        let rule = "must be at most retention.task, whose events they are";
        errors.require(self.journal <= self.task, "retention.journal", &self.journal, rule);
        let rule = "must be at most retention.task, else a repeat is answered with a task that is gone";
        errors.require(
            self.idempotency <= self.task,
            "retention.idempotency",
            &self.idempotency,
            rule,
        );
    }
}

crate::settings! {
    /// What must never be stored.
    pub struct SecretSettings in "secrets" {
        /// Metadata keys of a message that carry credentials; `*` stands for any text. A message with such a key is
        /// refused, with the path of the key. A key missing here is stored in Redis in the clear.
        metadata_keys: Vec<String> = "iac_code_api_key,*_access_key_secret,*_security_token,authorization",
    }
}

impl Validate for SecretSettings {
    fn validate(&self, _: &mut ConfigErrors) {}
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors_with;
    use super::*;

    #[test]
    fn nothing_is_kept_longer_than_what_it_belongs_to() {
        for (key, value) in [
            ("retention.task", "8d"),
            ("retention.journal", "25h"),
            ("retention.idempotency", "25h"),
        ] {
            assert_eq!(errors_with(&[(key, value)]).len(), 1, "{key}");
        }
    }

    #[test]
    fn a_task_kept_shortly_needs_its_events_and_keys_kept_no_longer() {
        let short = [
            ("retention.task", "2s"),
            ("retention.journal", "1s"),
            ("retention.idempotency", "2s"),
        ];
        assert_eq!(errors_with(&short), Vec::<String>::new());
    }

    #[test]
    fn the_share_of_memory_is_a_share() {
        for (share, errors) in [("1", 0), ("0.1", 0), ("0", 1), ("85", 1), ("-1", 1)] {
            assert_eq!(errors_with(&[("limits.redis_memory", share)]).len(), errors, "{share}");
        }
        assert_eq!(errors_with(&[("limits.backlog", "0")]).len(), 1);
    }

    #[test]
    fn credentials_in_metadata_are_known_by_default() {
        let keys = SecretSettings::default().metadata_keys;
        assert_eq!(
            keys,
            [
                "iac_code_api_key",
                "*_access_key_secret",
                "*_security_token",
                "authorization"
            ]
        );
    }
}
