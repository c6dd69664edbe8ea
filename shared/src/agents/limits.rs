//! Bounds of one agent's turns, from its table.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::AgentConfig;
use super::read::Reader;
use crate::platform::config::{ByteSize, ConfigErrors};

pub(super) const KEYS: [&str; 4] = ["concurrency", "max_duration", "max_events", "max_bytes"];

/// What an agent's table bounds. Where `[turn]` has the same bound, the narrower of the two holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentLimits {
    /// How many of its turns run at once on a worker, in slots of their own; without it they share `worker.slots`.
    pub concurrency: Option<NonZeroUsize>,
    /// Longest time that one attempt may run.
    pub max_duration: Option<Duration>,
    /// Most events of one turn.
    pub max_events: Option<u64>,
    /// Most bytes that a task may hold.
    pub max_bytes: Option<ByteSize>,
}

pub(super) fn limits(reader: &mut Reader<'_>) -> AgentLimits {
    let limits = AgentLimits {
        concurrency: reader.setting("concurrency"),
        max_duration: reader.setting("max_duration"),
        max_events: reader.setting("max_events"),
        max_bytes: reader.setting("max_bytes"),
    };
    let none = "must be more than nothing";
    if limits.max_duration.is_some_and(|longest| longest.is_zero()) {
        reader.refuse("max_duration", none);
    }
    if limits.max_events == Some(0) {
        reader.refuse("max_events", none);
    }
    if limits.max_bytes.is_some_and(|most| most.get() == 0) {
        reader.refuse("max_bytes", none);
    }
    limits
}

/// Slots are of a pool: turns are taken by pool, and what was taken runs.
pub(super) fn refuse_shared_pools(all: &[AgentConfig], errors: &mut ConfigErrors) {
    for agent in all.iter().filter(|agent| agent.limits.concurrency.is_some()) {
        let other = all
            .iter()
            .find(|other| other.pool == agent.pool && other.name != agent.name);
        if let Some(other) = other {
            let rule = format!("needs a `pool` of the agent's own: `{}` has the same", other.name);
            errors.refuse(format!("agents.{}.concurrency", agent.name), rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::read;
    use super::*;

    #[test]
    fn a_table_bounds_its_turns() {
        let (agents, errors) = read(
            "[a]\nkind = \"demo\"\nconcurrency = 2\nmax_duration = \"1m\"\nmax_events = 10\nmax_bytes = \"1MiB\"\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        let expected = AgentLimits {
            concurrency: NonZeroUsize::new(2),
            max_duration: Some(Duration::from_mins(1)),
            max_events: Some(10),
            max_bytes: Some(ByteSize::new(1 << 20)),
        };
        assert_eq!(agents.default_agent().limits, expected);
    }

    #[test]
    fn slots_of_its_own_need_a_pool_of_its_own() {
        let (_, errors) = read(
            "[a]\nkind = \"demo\"\ndefault = true\nconcurrency = 2\n[b]\nkind = \"demo\"\n\
             [c]\nkind = \"demo\"\npool = \"c\"\nconcurrency = 1\n",
        );
        assert_eq!(
            errors,
            ["agents.a.concurrency: needs a `pool` of the agent's own: `b` has the same"]
        );
    }

    #[test]
    fn nothing_is_no_bound() {
        let (_, errors) =
            read("[a]\nkind = \"demo\"\nconcurrency = 0\nmax_duration = \"0s\"\nmax_events = 0\nmax_bytes = 0\n");
        assert_eq!(errors.len(), 4, "{errors:?}");
    }
}
