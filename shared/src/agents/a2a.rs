//! What a table of `kind = "a2a"` says beside what every agent behind a URL has.

use std::time::Duration;

use super::UpstreamConfig;
use super::read::Reader;
use super::upstream;

/// The keys that only these tables have.
pub(super) const KEYS: [&str; 1] = ["patience"];

/// Longer, and a turn seems to hang whose server will not come back.
const LONGEST_PATIENCE: Duration = Duration::from_hours(1);

/// An A2A server behind ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct A2aConfig {
    /// Where it is, and who calls.
    pub upstream: UpstreamConfig,
    /// How long a server that has the task, or cannot be reached, may be away until the turn is given up.
    pub patience: Duration,
}

/// Reads the keys of a table of this kind; `None` when there is no URL, which is then an error.
pub(super) fn a2a(reader: &mut Reader<'_>) -> Option<A2aConfig> {
    let upstream = upstream::upstream(reader);
    let patience = reader.setting::<Duration>("patience");
    if patience.is_some_and(|patience| patience.is_zero() || patience > LONGEST_PATIENCE) {
        reader.refuse("patience", "must be above zero and at most \"1h\"");
    }
    Some(A2aConfig {
        upstream: upstream?,
        patience: patience.unwrap_or(Duration::from_mins(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::AgentKind;
    use super::super::fixture::read;
    use super::*;
    use crate::domain::record::CrashPolicy;

    #[test]
    fn a_url_is_enough() {
        let (agents, errors) = read("[a]\nkind = \"a2a\"\nurl = \"http://127.0.0.1:9000\"\n");
        assert_eq!(errors, Vec::<String>::new());
        let agent = agents.default_agent();
        assert_eq!((agent.kind, agent.policy), (AgentKind::A2a, CrashPolicy::Fail));
        assert_eq!(agent.a2a.as_ref().unwrap().patience, Duration::from_mins(1));
    }

    #[test]
    fn mistakes_are_reported_together() {
        let (_, errors) = read(
            "[a]\nkind = \"a2a\"\nurl = \"ftp://h\"\npatience = \"0s\"\ncommand = [\"x\"]\n\
             [b]\nkind = \"demo\"\nurl = \"http://h\"\npatience = \"1s\"\ndefault = true\n[c]\nkind = \"a2a\"\npatience = 5\n",
        );
        for part in [
            "agents.a.url: must be http:// or https://",
            "agents.a.patience: must be above zero",
            "agents.a.command: belongs to kind = \"process\"",
            "agents.b.url: belongs to kind = ",
            "agents.b.patience: belongs to kind = \"a2a\"",
            "agents.c.url: is missing",
            "agents.c.patience: must be a duration",
        ] {
            assert!(errors.iter().any(|e| e.starts_with(part)), "{part} in {errors:#?}");
        }
        assert_eq!(errors.len(), 7, "{errors:#?}");
    }
}
