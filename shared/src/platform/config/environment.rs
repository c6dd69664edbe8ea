//! The process environment: the only reader of it in the workspace.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::ConfigErrors;

/// What holds for every credential of callers.
pub(super) const EMPTY_CREDENTIAL: &str = "is empty: unset it if there is no such credential";

/// Every variable of ours starts with it.
pub(super) const PREFIX: &str = "RELEVO_";

/// What a worker sets for the agents it starts. Not settings, although `RELEVO_TURN_ID` looks like a key of `[turn]`:
/// a `relevo` command run by an agent must not trip over them.
pub(super) const SET_FOR_AGENTS: [&str; 3] = ["RELEVO_TURN_ID", "RELEVO_EPOCH", "RELEVO_ATTEMPT"];

/// Every variable of the reference server starts with it.
const THEIRS: &str = "IACCODE_A2A_";
/// Its names for credentials of ours.
const CREDENTIALS: [(&str, &str); 4] = [
    ("IACCODE_A2A_HTTP_TOKEN", "RELEVO_AUTH_TOKEN"),
    ("IACCODE_A2A_BASIC_USERNAME", "RELEVO_AUTH_BASIC_USERNAME"),
    ("IACCODE_A2A_BASIC_PASSWORD", "RELEVO_AUTH_BASIC_PASSWORD"),
    ("IACCODE_A2A_API_KEY", "RELEVO_AUTH_API_KEY"),
];
/// Its other names, and what separates the items of those that are lists.
const ALIASES: [(&str, &str, &[char]); 4] = [
    ("IACCODE_A2A_API_KEY_HEADER", "RELEVO_AUTH_API_KEY_HEADER", &[]),
    ("IACCODE_A2A_ALLOWED_CWDS", "RELEVO_WORKSPACE_ROOTS", &[':']),
    (
        "IACCODE_A2A_TEXT_MIME_TYPES",
        "RELEVO_WORKSPACE_TEXT_TYPES",
        &[',', ';'],
    ),
    (
        "IACCODE_A2A_MULTIMODAL_MIME_TYPES",
        "RELEVO_WORKSPACE_MEDIA_TYPES",
        &[',', ';'],
    ),
];

/// The variables of this process that may be settings, for [`super::Loader::env`].
///
/// A value that is not UTF-8 arrives with U+FFFD in it, which the loader refuses.
pub fn process_env() -> Vec<(String, String)> {
    let all = std::env::vars_os().filter_map(readable);
    all.filter(|(name, _)| name.starts_with(PREFIX) || name.starts_with(THEIRS))
        .collect()
}

/// The variables under our names. Where one of the reference server and one of ours are the same setting, ours counts.
pub(super) fn under_our_names(variables: Vec<(String, String)>, errors: &mut ConfigErrors) -> BTreeMap<String, String> {
    let (theirs, ours): (Vec<_>, Vec<_>) = variables.into_iter().partition(|(name, _)| name.starts_with(THEIRS));
    let theirs = theirs.into_iter().filter_map(|variable| aliased(variable, errors));
    // What comes last stays.
    theirs.collect::<Vec<_>>().into_iter().chain(ours).collect()
}

fn aliased((name, value): (String, String), errors: &mut ConfigErrors) -> Option<(String, String)> {
    if let Some((_, ours)) = CREDENTIALS.iter().find(|(alias, _)| *alias == name) {
        if value.trim().is_empty() {
            errors.refuse(name, EMPTY_CREDENTIAL);
            return None;
        }
        return Some(((*ours).to_owned(), value));
    }
    let (_, ours, separators) = ALIASES.iter().find(|(alias, ..)| *alias == name)?;
    // An empty one means nothing there, not "unset" in our sense.
    if value.is_empty() {
        return None;
    }
    let items: Vec<&str> = value.split(*separators).filter(|item| !item.is_empty()).collect();
    let value = if separators.is_empty() { value } else { items.join(",") };
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

    fn taken(variables: &[(&str, &str)]) -> (BTreeMap<String, String>, Vec<String>) {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut errors = ConfigErrors::new();
        let taken = under_our_names(variables.collect(), &mut errors);
        (taken, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn those_of_the_reference_server_stand_for_ours_unless_ours_are_there() {
        for pair in [
            [("RELEVO_AUTH_TOKEN", "b"), ("IACCODE_A2A_HTTP_TOKEN", "a")],
            [("IACCODE_A2A_HTTP_TOKEN", "a"), ("RELEVO_AUTH_TOKEN", "b")],
        ] {
            assert_eq!(taken(&pair).0["RELEVO_AUTH_TOKEN"], "b");
        }
        let (found, errors) = taken(&[
            ("IACCODE_A2A_ALLOWED_CWDS", "/a:/b:"),
            ("IACCODE_A2A_TEXT_MIME_TYPES", "text/x-hcl;text/x-b,text/c"),
            ("IACCODE_A2A_MULTIMODAL_MIME_TYPES", ""),
            ("IACCODE_A2A_API_KEY", "a,b;c"),
            ("IACCODE_A2A_OF_ANOTHER_VERSION", "1"),
        ]);
        let expected = [
            ("RELEVO_AUTH_API_KEY", "a,b;c"),
            ("RELEVO_WORKSPACE_ROOTS", "/a,/b"),
            ("RELEVO_WORKSPACE_TEXT_TYPES", "text/x-hcl,text/x-b,text/c"),
        ];
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(errors, Vec::<String>::new());
    }

    #[test]
    fn an_empty_credential_of_the_reference_server_is_refused_as_ours_are() {
        let (found, errors) = taken(&[("IACCODE_A2A_HTTP_TOKEN", " ")]);
        assert!(found.is_empty());
        assert_eq!(errors, [format!("IACCODE_A2A_HTTP_TOKEN: {EMPTY_CREDENTIAL}")]);
    }
}
