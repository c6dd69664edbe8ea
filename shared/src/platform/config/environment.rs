//! The process environment: the only reader of it in the workspace.

use std::ffi::OsString;

/// Every variable of ours starts with it.
pub(super) const PREFIX: &str = "RELEVO_";

/// What a worker sets for the agents it starts. Not settings, although `RELEVO_TURN_ID` looks like a key of `[turn]`:
/// a `relevo` command run by an agent must not trip over them.
pub(super) const SET_FOR_AGENTS: [&str; 3] = ["RELEVO_TURN_ID", "RELEVO_EPOCH", "RELEVO_ATTEMPT"];

/// The `RELEVO_…` variables of this process, for [`super::Loader::env`].
///
/// A value that is not UTF-8 arrives with U+FFFD in it, which the loader refuses.
pub fn process_env() -> Vec<(String, String)> {
    std::env::vars_os().filter_map(ours).collect()
}

/// One variable that is no setting, such as `PATH` or a switch of a test.
pub fn env_var(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn ours((name, value): (OsString, OsString)) -> Option<(String, String)> {
    let name = name.into_string().ok()?;
    name.starts_with(PREFIX)
        .then(|| (name, value.to_string_lossy().into_owned()))
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

    #[test]
    fn only_our_variables_are_taken_from_the_environment() {
        assert_eq!(ours(("PATH".into(), "/bin".into())), None);
        assert_eq!(
            ours(("RELEVO_LEASE_TTL".into(), "9s".into())),
            Some(("RELEVO_LEASE_TTL".into(), "9s".into()))
        );
    }
}
