//! Whether a process accepts work, and if not, why.
//!
//! Owns a set of named conditions. Each starts unmet, so a process is not ready before every part of it has said so.
//! Draining makes it unready for good. Called by whoever keeps a condition (the Redis watch), read by the admin
//! listener and by the writer of the ready file.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::shutdown::{Phase, Shutdown};

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// Its name.
    pub condition: &'static str,
    /// Why it does not hold.
    pub why: String,
}

/// The readiness of one process. Clones are the same value.
#[derive(Clone, Debug)]
pub struct Readiness {
    /// Each condition with why it does not hold, if it does not.
    conditions: Arc<watch::Sender<BTreeMap<&'static str, Option<String>>>>,
    shutdown: Shutdown,
}

impl Readiness {
    /// Not ready until each of `conditions` is met.
    pub fn new(shutdown: Shutdown, conditions: &[&'static str]) -> Self {
        let unmet = conditions
            .iter()
            .map(|name| (*name, Some("not yet".to_owned())))
            .collect();
        Self {
            conditions: Arc::new(watch::Sender::new(unmet)),
            shutdown,
        }
    }

    /// The condition holds.
    pub fn meet(&self, condition: &'static str) {
        self.set(condition, None);
    }

    /// The condition does not hold; `why` is shown to operators and must hold no secret.
    pub fn fail(&self, condition: &'static str, why: impl Into<String>) {
        self.set(condition, Some(why.into()));
    }

    /// Whether work is accepted.
    pub fn is_ready(&self) -> bool {
        self.shutdown.phase() == Phase::Running && self.conditions.borrow().values().all(Option::is_none)
    }

    /// Every condition that does not hold.
    pub fn unmet(&self) -> Vec<Unmet> {
        let conditions = self.conditions.borrow();
        let unmet =
            |(condition, why): (&&'static str, &Option<String>)| why.clone().map(|why| Unmet { condition, why });
        let mut all: Vec<Unmet> = conditions.iter().filter_map(unmet).collect();
        if self.shutdown.phase() != Phase::Running {
            all.push(Unmet {
                condition: "draining",
                why: "the process is stopping".to_owned(),
            });
        }
        all
    }

    /// Waits until every condition holds. Cancel-safe. Never returns once the process is draining.
    pub async fn ready(&self) {
        let mut conditions = self.conditions.subscribe();
        // It cannot be closed while `self` holds the sender.
        let _ = conditions
            .wait_for(|conditions| conditions.values().all(Option::is_none))
            .await;
        if self.shutdown.phase() != Phase::Running {
            std::future::pending::<()>().await;
        }
    }

    fn set(&self, condition: &'static str, why: Option<String>) {
        self.conditions.send_if_modified(|conditions| {
            let known = conditions.get(condition);
            let changed = known != Some(&why);
            conditions.insert(condition, why);
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_ready_before_every_part_has_said_so() {
        let readiness = Readiness::new(Shutdown::new(), &["redis", "scripts"]);
        assert_eq!(readiness.unmet().len(), 2);
        readiness.meet("redis");
        assert!(!readiness.is_ready());
        readiness.meet("scripts");
        assert!(readiness.is_ready());
        assert_eq!(readiness.unmet(), []);
    }

    #[test]
    fn the_condition_that_does_not_hold_is_named_with_its_reason() {
        let readiness = Readiness::new(Shutdown::new(), &["redis"]);
        readiness.meet("redis");
        readiness.fail("redis", "no answer for 5s");
        assert_eq!(
            readiness.unmet(),
            [Unmet {
                condition: "redis",
                why: "no answer for 5s".to_owned()
            }]
        );
    }

    #[test]
    fn draining_is_not_ready_whatever_holds() {
        let shutdown = Shutdown::new();
        let readiness = Readiness::new(shutdown.clone(), &[]);
        assert!(readiness.is_ready());
        shutdown.trigger();
        assert!(!readiness.is_ready());
        assert_eq!(readiness.unmet()[0].condition, "draining");
    }

    #[tokio::test]
    async fn waiting_ends_when_the_last_condition_is_met() {
        let readiness = Readiness::new(Shutdown::new(), &["redis"]);
        tokio::join!(readiness.ready(), async { readiness.meet("redis") });
        assert!(readiness.is_ready());
    }
}
