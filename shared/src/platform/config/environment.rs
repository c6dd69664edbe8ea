//! The process environment: the only reader of it in the workspace.

use std::ffi::OsString;

/// Every variable of ours starts with it.
pub(super) const PREFIX: &str = "RELEVO_";

/// What a worker sets for the agents it starts. Not settings, although `RELEVO_TURN_ID` looks like a key of `[turn]`:
/// a `relevo` command run by an agent must not trip over them.
pub(super) const SET_FOR_AGENTS: [&str; 3] = ["RELEVO_TURN_ID", "RELEVO_EPOCH", "RELEVO_ATTEMPT"];

/// Names that the reference server has for settings of ours.
const ALIASES: [(&str, &str); 5] = [
    ("IACCODE_A2A_HTTP_TOKEN", "RELEVO_AUTH_TOKEN"),
    ("IACCODE_A2A_BASIC_USERNAME", "RELEVO_AUTH_BASIC_USERNAME"),
    ("IACCODE_A2A_BASIC_PASSWORD", "RELEVO_AUTH_BASIC_PASSWORD"),
    ("IACCODE_A2A_API_KEY", "RELEVO_AUTH_API_KEY"),
    ("IACCODE_A2A_API_KEY_HEADER", "RELEVO_AUTH_API_KEY_HEADER"),
];
/// Its list of directories, separated as in `PATH`.
const DIRECTORIES: (&str, &str) = ("IACCODE_A2A_ALLOWED_CWDS", "RELEVO_WORKSPACE_ROOTS");

/// The `RELEVO_…` variables of this process, for [`super::Loader::env`], and those of the reference server under our names.
///
/// A value that is not UTF-8 arrives with U+FFFD in it, which the loader refuses.
pub fn process_env() -> Vec<(String, String)> {
    ours_of(std::env::vars_os())
}

fn ours_of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    let (ours, others): (Vec<_>, Vec<_>) = variables
        .into_iter()
        .filter_map(readable)
        .partition(|(name, _)| name.starts_with(PREFIX));
    // Ours come last: where both are set, they count.
    others.into_iter().filter_map(aliased).chain(ours).collect()
}

fn aliased((name, value): (String, String)) -> Option<(String, String)> {
    // An empty one means nothing there, not "unset" in our sense.
    if value.is_empty() {
        return None;
    }
    if name == DIRECTORIES.0 {
        let list: Vec<&str> = value.split(':').filter(|path| !path.is_empty()).collect();
        return Some((DIRECTORIES.1.to_owned(), list.join(",")));
    }
    let (_, ours) = ALIASES.iter().find(|(alias, _)| *alias == name)?;
    Some(((*ours).to_owned(), value))
}

/// One variable that is no setting, such as `PATH` or a switch of a test.
pub fn env_var(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn readable((name, value): (OsString, OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
}

/// Whether Kubernetes made this variable for a Service of ours (`enableServiceLinks` is on by default): a Service named
/// `relevo-redis` puts `RELEVO_REDIS_PORT=tcp://10.0.0.1:6379` and more into every pod of its namespace.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    if name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return true;
    }
    if name.ends_with("_PORT") {
        return ["tcp://", "udp://", "sctp://"]
            .iter()
            .any(|scheme| value.starts_with(scheme));
    }
    // RELEVO_REDIS_PORT_6379_TCP, ..._TCP_ADDR, ..._TCP_PORT, ..._TCP_PROTO
    name.split_once("_PORT_")
        .and_then(|(_, rest)| rest.split('_').next())
        .is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links_of_kubernetes_are_recognised() {
        for (name, value) in [
            ("RELEVO_REDIS_SERVICE_HOST", "10.0.0.1"),
            ("RELEVO_REDIS_SERVICE_PORT", "6379"),
            ("RELEVO_GATEWAY_SERVICE_PORT_HTTP", "80"),
            ("RELEVO_REDIS_PORT", "tcp://10.0.0.1:6379"),
            ("RELEVO_REDIS_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
            ("RELEVO_REDIS_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ] {
            assert!(is_service_link(name, value), "{name}");
        }
    }

    #[test]
    fn a_wrong_guess_of_an_operator_is_no_service_link() {
        assert!(!is_service_link("RELEVO_REDIS_PORT", "6379"));
        assert!(!is_service_link("RELEVO_REDIS_PORT_RANGE", "1-2"));
        assert!(!is_service_link("RELEVO_LEASE_TTL", "15s"));
    }

    fn taken(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        ours_of(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn only_our_variables_are_taken_from_the_environment() {
        assert_eq!(taken(&[("PATH", "/bin"), ("IACCODE_OTHER", "1")]), []);
        assert_eq!(
            taken(&[("RELEVO_LEASE_TTL", "9s")]),
            [("RELEVO_LEASE_TTL".into(), "9s".into())]
        );
    }

    #[test]
    fn those_of_the_reference_server_stand_for_ours_unless_ours_are_there() {
        let both = taken(&[("RELEVO_AUTH_TOKEN", "b"), ("IACCODE_A2A_HTTP_TOKEN", "a")]);
        let last = both.into_iter().collect::<std::collections::BTreeMap<_, _>>();
        assert_eq!(last["RELEVO_AUTH_TOKEN"], "b");
        assert_eq!(
            taken(&[("IACCODE_A2A_ALLOWED_CWDS", "/a:/b:"), ("IACCODE_A2A_API_KEY", "")]),
            [("RELEVO_WORKSPACE_ROOTS".into(), "/a,/b".into())]
        );
    }
}
