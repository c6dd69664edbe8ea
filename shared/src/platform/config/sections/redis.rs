//! `[redis]`: where the shared state is.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::{is_name, secret_in};
use crate::platform::config::{ConfigErrors, Secret, ServiceUrl, Validate};

/// The schemes the client speaks: TCP, TLS, and a unix socket.
const SCHEMES: [&str; 4] = ["redis", "rediss", "redis+unix", "unix"];

/// Partitions share one bell; beyond this the passes over them cost more than they spread.
const MOST_PARTITIONS: u32 = 4096;

crate::settings! {
    /// Where the shared state is. All gateways and workers of one cluster must agree on `url`, `prefix` and
    /// `partitions`; a process that disagrees with what is stored refuses to start.
    pub struct RedisSettings in "redis" {
        /// Address of Redis 7 or later: redis:// (TCP), rediss:// (TLS) or unix:// (socket). Of a Redis Cluster, any
        /// node: it says where the others are, and they are reached at the addresses that they announce, with the
        /// same scheme, user and password. Credentials in it are masked wherever it is shown. Nothing works while it
        /// cannot be reached; once started, a process needs the nodes of a cluster, not this one.
        url: ServiceUrl = "redis://127.0.0.1:6379",
        /// ACL user name; unset means the default user.
        username: Option<String> = "",
        /// Password. Prefer `password_file`, since an environment is visible to more eyes than a file.
        password: Option<Secret> = "",
        /// File with the password, read once at start; line ends after it are cut. Not together with `password` or a
        /// password in `url`.
        password_file: Option<PathBuf> = "",
        /// First part of every key, 1 to 32 of a-z, 0-9, _ and -. Two clusters in one Redis need different ones; with
        /// another prefix all tasks seem gone.
        prefix: String = "relevo",
        /// Into how many partitions contexts are spread: a power of two up to 4096. It is fixed by the first process
        /// that starts; more than 64 only serve a Redis Cluster of many nodes.
        partitions: u32 = "64",
        /// Exclusive connections per process and node for what must not share one (large reads, waiting). Too few: such calls
        /// queue up behind each other.
        pool_size: NonZeroUsize = "4",
        /// How long one call may take before it counts as failed and is repeated or refused. Shorter than a failover
        /// of Redis lasts means 503 answers during it.
        timeout: Duration = "5s",
    }
}

impl Validate for RedisSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        let known_scheme = SCHEMES.contains(&self.url.scheme());
        errors.require(
            known_scheme,
            "redis.url",
            &self.url,
            "must start with redis://, rediss:// or unix://",
        );
        let prefix = is_name(
            &self.prefix,
            32,
            |c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'),
        );
        errors.require(
            prefix,
            "redis.prefix",
            &self.prefix,
            "must be 1 to 32 of a-z, 0-9, _ and -",
        );
        let partitions = self.partitions.is_power_of_two() && self.partitions <= MOST_PARTITIONS;
        errors.require(
            partitions,
            "redis.partitions",
            &self.partitions,
            "must be a power of two from 1 to 4096",
        );
        super::require_longer_than_zero(errors, "redis.timeout", self.timeout);
        let passwords = [
            self.url.has_password(),
            self.password.is_some(),
            self.password_file.is_some(),
        ];
        if passwords.into_iter().filter(|given| *given).count() > 1 {
            let rule = "is given more than once: keep one of redis.url, redis.password and redis.password_file";
            errors.refuse("redis.password", rule);
        }
    }
}

impl RedisSettings {
    /// Puts the content of `password_file` into `password`. An error names the key and the path, never the content.
    pub(in crate::platform::config) fn read_password_file(&mut self, errors: &mut ConfigErrors) {
        let Some(path) = &self.password_file else { return };
        if self.password.is_some() {
            return; // Already refused.
        }
        self.password = secret_in("redis.password_file", path, errors);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::tests::errors_with;
    use crate::platform::config::Loader;

    #[test]
    fn a_prefix_that_would_need_escaping_is_refused() {
        for wrong in ["Relevo", "a:b", "a{b}", "a b", &"a".repeat(33)] {
            assert_eq!(errors_with(&[("redis.prefix", wrong)]).len(), 1, "{wrong}");
        }
        assert_eq!(errors_with(&[("redis.prefix", "team-a_2")]).len(), 0);
    }

    #[test]
    fn partitions_are_a_power_of_two() {
        for (value, errors) in [("1", 0), ("4096", 0), ("0", 1), ("3", 1), ("8192", 1)] {
            assert_eq!(errors_with(&[("redis.partitions", value)]).len(), errors, "{value}");
        }
    }

    #[test]
    fn an_address_without_a_known_scheme_is_refused_without_its_password() {
        let errors = errors_with(&[("redis.url", "http://u:hunter2@h")]);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("redis.url = \"http://u:***@h\""), "{errors:?}");
        assert_eq!(errors_with(&[("redis.url", "localhost:6379")]).len(), 1);
    }

    #[test]
    fn the_password_is_given_once() {
        let errors = errors_with(&[("redis.url", "redis://:a@h"), ("redis.password", "b")]);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }

    #[test]
    fn the_password_file_is_read_and_its_line_end_cut() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"hunter2\r\n").unwrap();
        let settings = Loader::new()
            .set("redis.password_file", file.path().display().to_string())
            .load()
            .unwrap();
        assert_eq!(settings.redis.password.unwrap().expose(), "hunter2");
    }

    #[test]
    fn a_password_file_that_cannot_be_used_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let errors = errors_with(&[("redis.password_file", &path)]);
        assert_eq!(errors, [format!("redis.password_file = \"{path}\": the file is empty")]);
        let missing = format!("{path}.missing");
        let errors = errors_with(&[("redis.password_file", &missing)]);
        assert!(
            errors[0].contains(&missing) && errors[0].contains("cannot be read"),
            "{errors:?}"
        );
    }
}
