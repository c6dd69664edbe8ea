//! `[egress]`: which servers of others are called, and how patiently.

use std::path::PathBuf;
use std::time::Duration;

use super::require_longer_than_zero;
use crate::platform::config::{ConfigErrors, Validate};
use crate::platform::egress::{FORM, Rules};

crate::settings! {
    /// Where requests to servers of others may go: to agents behind a URL. Addresses that no public server has are refused, by
    /// default; so is what a name resolves to, at the moment it is dialled. See security.md.
    pub struct EgressSettings in "egress" {
        /// What may be called beside public addresses: addresses, networks (`10.0.0.0/8`) and host names (`agents.internal`, `*.internal`).
        /// An address of cloud metadata is opened by exactly itself only. An address or `localhost` in the `url` of an agent
        /// needs no entry.
        allow: Vec<String> = "",
        /// What is never called, in the same forms. It wins over `allow` and over the `url` of an agent.
        deny: Vec<String> = "",
        /// File of PEM certificates that are trusted beside the public authorities, for servers with certificates of one's own.
        ca_file: Option<PathBuf> = "",
        /// How long a connection may take, name lookup and TLS included. Beyond it the server counts as unreachable.
        connect_timeout: Duration = "5s",
        /// Failures in a row (no connection, no answer, HTTP 5xx, an answer that breaks off) after which a server is left alone;
        /// at least 1. Turns for it end at once then, instead of waiting for it one by one. A turn of kind `a2a` that goes on asking
        /// counts once.
        breaker_failures: u32 = "5",
        /// How long a server is left alone; then one request tries it. Longer delays its return, shorter bothers it. A turn of kind `a2a`
        /// that goes on asking tries it all the while: once it is answered, the pause is over for all.
        breaker_pause: Duration = "10s",
    }
}

impl Validate for EgressSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        for (key, list) in [("egress.allow", &self.allow), ("egress.deny", &self.deny)] {
            if let Err(entry) = Rules::parse(list, &[]) {
                errors.refuse(key, format!("`{entry}` is none: must be {FORM}"));
            }
        }
        require_longer_than_zero(errors, "egress.connect_timeout", self.connect_timeout);
        require_longer_than_zero(errors, "egress.breaker_pause", self.breaker_pause);
        errors.require(
            self.breaker_failures >= 1,
            "egress.breaker_failures",
            &self.breaker_failures,
            "must be at least 1",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors_with;

    #[test]
    fn lists_are_of_addresses_networks_and_names() {
        let good = [
            ("egress.allow", "10.0.0.0/8, ::1, *.internal"),
            ("egress.deny", "evil.example"),
        ];
        assert_eq!(errors_with(&good), Vec::<String>::new());
        for key in ["egress.allow", "egress.deny"] {
            let errors = errors_with(&[(key, "10.0.0.0/8, http://h")]);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(
                errors[0].starts_with(&format!("{key}: `http://h` is none")),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn a_breaker_needs_a_failure_to_open() {
        assert_eq!(errors_with(&[("egress.breaker_failures", "0")]).len(), 1);
    }
}
