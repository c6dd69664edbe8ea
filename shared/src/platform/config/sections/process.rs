//! Sections about the processes themselves: `[gateway]`, `[admin]`, `[worker]`, `[drain]`, `[log]`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use super::{is_name, require_longer_than_zero};
use crate::ids::StorageId;
use crate::platform::config::{ByteSize, ConfigErrors, ServiceUrl, Setting, Validate};

/// Where a gateway's admin listener is unless told otherwise. Loopback: it has no authentication.
pub const GATEWAY_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 41243);
/// Where a worker's admin listener is unless told otherwise; another port, so that both can run on one machine.
pub const WORKER_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 41244);

/// Smaller than this no header of a browser or proxy fits.
const LEAST_HEADER: ByteSize = ByteSize::new(8 << 10);
/// The parser allots its buffer at once.
const MOST_HEADER: ByteSize = ByteSize::new(1 << 20);

crate::settings! {
    /// The listener that clients of the A2A protocol reach. Only gateways read it.
    pub struct GatewaySettings in "gateway" {
        /// Address and port of the A2A listener; port 0 takes a free one. Loopback by default, so that nothing is open
        /// to the network before someone decides so.
        listen: SocketAddr = "127.0.0.1:41242",
        /// The address clients reach the gateway at, written into the agent card: http:// or https://, without a slash
        /// at its end. Unset: built from `listen`, which is wrong behind a proxy and when `listen` is 0.0.0.0.
        public_url: Option<ServiceUrl> = "",
        /// Address and port of the gRPC listener (HTTP/2 without TLS); port 0 takes a free one, which the file of `--ready-file`
        /// names as `grpc`. Unset: gRPC is not served.
        /// It has a port of its own, so that a proxy can treat it as HTTP/2.
        grpc_listen: Option<SocketAddr> = "",
        /// Where clients reach the gRPC listener, as `host:port`, written into the agent card. Unset: built from
        /// `grpc_listen`, which is wrong behind a proxy.
        grpc_public: Option<String> = "",
        /// Whether clients of A2A 0.3 are served, too: JSON-RPC with `message/send` and its like, HTTP+JSON below `/v1`. The
        /// agent card then has the fields that they read, for requests that name no version 1.x.
        a2a_0_3: bool = "true",
        /// Whether the `messageId` of a message without an idempotency key is its key: sent again, it runs once. Clients must not
        /// use an id for two messages then; without credentials ids have at least 16 bytes, since everyone shares them.
        message_id_key: bool = "false",
        /// Web pages that may call the gateway from a browser, by their origins such as `https://app.example.com`; `*`
        /// alone allows every page. Empty: no page may; the agent card is public and readable from any. Whoever may open
        /// an allowed page can send what that page sends.
        cors_origins: Vec<String> = "",
        /// Largest request body; a larger one is answered 413.
        body_limit: ByteSize = "8MiB",
        /// Largest request head, 8KiB to 1MiB; a larger one is answered 431. It is checked as the head arrives: on HTTP/1.1 one whose
        /// end comes with the piece that exceeds the limit passes, up to twice of it. More than 100 headers are answered 431, too.
        header_limit: ByteSize = "32KiB",
        /// How long a client may take to send the request head. Without such a bound slow clients hold connections.
        header_timeout: Duration = "10s",
        /// How long an operation that waits for no turn may take, its body included, before it is answered 408 or 503.
        /// Blocking sends and streams have bounds of their own.
        request_timeout: Duration = "30s",
        /// How long a client may take none of the bytes that wait for it before its connection is closed. One that reads
        /// slowly is not affected; one that was away resumes its stream.
        write_timeout: Duration = "1m",
        /// Open connections at once, on each listener; further ones wait to be accepted. Each stream holds one, and each takes a file
        /// descriptor.
        max_connections: NonZeroUsize = "10000",
    }
}

/// Whether a text is what browsers send as `Origin`: scheme, host, and port unless it is the scheme's own.
fn is_origin(text: &str) -> bool {
    url::Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text)
}

impl Validate for GatewaySettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        if let Some(url) = &self.public_url {
            let web =
                matches!(url.scheme(), "http" | "https") && !url.expose().ends_with('/') && !url.has_credentials();
            let rule = "must start with http:// or https://, without credentials and without a slash at its end";
            errors.require(web, "gateway.public_url", url, rule);
        }
        let address = |text: &str| {
            let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            port.is_some_and(|(host, port)| {
                port.parse::<u16>().is_ok_and(|port| port > 0) && !host.contains(['/', '@', ' '])
            })
        };
        errors.require(
            self.grpc_public.as_deref().is_none_or(address),
            "gateway.grpc_public",
            &self.grpc_public,
            "must be host:port, without a scheme",
        );
        let origins = self.cors_origins.iter().all(|origin| is_origin(origin)) || self.cors_origins == ["*"];
        errors.require(
            origins,
            "gateway.cors_origins",
            &self.cors_origins,
            "must be origins such as https://app.example.com, without a path, or * alone",
        );
        errors.require(
            self.body_limit.get() > 0,
            "gateway.body_limit",
            &self.body_limit,
            "must be above zero",
        );
        let head = (LEAST_HEADER..=MOST_HEADER).contains(&self.header_limit);
        errors.require(
            head,
            "gateway.header_limit",
            &self.header_limit,
            "must be from 8KiB to 1MiB",
        );
        require_longer_than_zero(errors, "gateway.header_timeout", self.header_timeout);
        require_longer_than_zero(errors, "gateway.request_timeout", self.request_timeout);
        require_longer_than_zero(errors, "gateway.write_timeout", self.write_timeout);
    }
}

crate::settings! {
    /// The listener for operators: /livez, /readyz and /metrics. It has no authentication and must not be reachable
    /// from outside.
    pub struct AdminSettings in "admin" {
        /// Address and port; port 0 takes a free one. Unset: 127.0.0.1:41243 for a gateway, 127.0.0.1:41244 for a
        /// worker. Two processes on one machine that share a file need it unset or set apart.
        listen: Option<SocketAddr> = "",
    }
}

impl Validate for AdminSettings {
    fn validate(&self, _: &mut ConfigErrors) {}
}

crate::settings! {
    /// What a worker takes. Only workers read it.
    pub struct WorkerSettings in "worker" {
        /// Turns that run here at once. More than the machine can feed makes all of them slow; what has no slot waits
        /// in the queue for another worker.
        slots: NonZeroUsize = "64",
        /// The pools whose turns are taken: 1 to 32 of a-z, 0-9, _ and - each. A pool no worker takes stands still.
        pools: Vec<String> = "default",
        /// Name of this worker in Redis, logs and metrics: 1 to 64 of A-Z, a-z, 0-9, dot, _ and -. Unset: a new random
        /// one at every start. Two running workers of one name fence each other off.
        id: Option<String> = "",
    }
}

impl Validate for WorkerSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        let pool = |name: &String| is_name(name, 32, |c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
        let pools = !self.pools.is_empty() && self.pools.iter().all(pool);
        errors.require(
            pools,
            "worker.pools",
            &self.pools,
            "must be names of 1 to 32 of a-z, 0-9, _ and -",
        );
        let once = self.pools.iter().collect::<BTreeSet<_>>().len() == self.pools.len();
        errors.require(once, "worker.pools", &self.pools, "must name each pool once");
        let letter = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let id = self.id.as_ref().is_none_or(|id| is_name(id, 64, letter));
        errors.require(
            id,
            "worker.id",
            &self.id,
            "must be 1 to 64 of A-Z, a-z, 0-9, dot, _ and -",
        );
    }
}

crate::settings! {
    /// Directories that agents work in, and what they read there, where their profile knows such (`iac-code`).
    pub struct WorkspaceSettings in "workspace" {
        /// Below which directories a message may choose the one it is about. Unset: the worker's own directory and the
        /// one for temporary files. Workers of one pool need the same ones; with the same content, unless `storage_id` tells
        /// them apart. Only workers read it.
        roots: Vec<String> = "",
        /// Name of the file system below `roots`, for workers of a pool that do not all share one: equal on those that do, 1 to
        /// 64 of A-Z, a-z, 0-9, dot, _ and -. A conversation that works in a directory stays with workers of the same name; it
        /// must outlive restarts, so it names a volume, not a container. Unset: the workers of a pool share their directories,
        /// and any of them goes on with any conversation. Only workers read it.
        storage_id: Option<String> = "",
        /// Media types whose content is read as text beside those of the profile, such as `text/x-hcl` or `text/*`.
        text_types: Vec<String> = "",
        /// Media types that the agent is told of by name, size and place beside those of the profile, such as `video/mp4`.
        media_types: Vec<String> = "",
    }
}

impl Validate for WorkspaceSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        let absolute = self.roots.iter().all(|root| root.starts_with('/'));
        errors.require(absolute, "workspace.roots", &self.roots, "must be absolute paths");
        let storage = self.storage_id.as_ref().is_none_or(|id| StorageId::parse(id).is_some());
        errors.require(storage, "workspace.storage_id", &self.storage_id, StorageId::RULE);
        for (key, types) in [("text_types", &self.text_types), ("media_types", &self.media_types)] {
            let rule = "must be media types such as \"text/plain\" or \"image/*\"";
            let good = types.iter().all(|text| is_media_type(text));
            errors.require(good, &format!("workspace.{key}"), types, rule);
        }
    }
}

/// Whether a text has the form of a media type.
pub fn is_media_type(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty())
}

crate::settings! {
    /// Stopping after SIGTERM. A second signal stops at once.
    pub struct DrainSettings in "drain" {
        /// How long a gateway still accepts after /readyz has turned 503, so that load balancers notice. Longer than
        /// the interval of their probes, or clients meet a closed port. Workers do not wait: they stop taking at once.
        delay: Duration = "5s",
        /// How long running turns, streams and blocking calls may go on. The last fifth of it closes streams, paced. Agents
        /// that still run are told to stop when as much is left of it as they may take, at least 5 seconds (or half of it), and
        /// their turns are handed to other workers: `kill_grace` and 3 seconds for programs, 7 seconds for `kind = "a2a"`, 3
        /// for others. Must be longer than that, and shorter than the time the platform gives before SIGKILL
        /// (terminationGracePeriodSeconds), or turns wait for their leases to run out instead.
        deadline: Duration = "10m",
    }
}

impl Validate for DrainSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        require_longer_than_zero(errors, "drain.deadline", self.deadline);
        let rule = "must be shorter than drain.deadline, else nothing is left to finish running work";
        errors.require(
            self.delay < self.deadline || self.deadline.is_zero(),
            "drain.delay",
            &self.delay,
            rule,
        );
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

impl Setting for LogFormat {
    const EXPECTED: &'static str = "\"text\" or \"json\"";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    fn print(&self) -> Option<String> {
        let text = match self {
            Self::Text => "text",
            Self::Json => "json",
        };
        Some(format!("\"{text}\""))
    }
}

crate::settings! {
    /// What is logged, to standard error.
    pub struct LogSettings in "log" {
        /// Least severe level written: error, warn, info, debug, trace or off; more narrowly by module, as in
        /// "info,relevo_worker=debug". Debug logs several lines for every event of a turn.
        level: String = "info",
        /// How lines are written: text for people, json for machines.
        format: LogFormat = "text",
    }
}

impl Validate for LogSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        let rule = "must be error, warn, info, debug, trace or off, or such levels by module as in \
                    \"info,relevo_worker=debug\"";
        errors.require(
            crate::platform::logging::is_filter(&self.level),
            "log.level",
            &self.level,
            rule,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors_with;

    #[test]
    fn a_public_url_can_be_put_into_a_card() {
        for (url, errors) in [
            ("https://agents.example.com", 0),
            ("http://h:8080/base", 0),
            ("https://h/", 1),
            ("ftp://h", 1),
            ("https://u:p@h", 1),
            ("agents.example.com", 1),
        ] {
            assert_eq!(errors_with(&[("gateway.public_url", url)]).len(), errors, "{url}");
        }
    }

    #[test]
    fn an_origin_is_spelled_as_browsers_spell_it() {
        for (origins, errors) in [
            ("", 0),
            ("*", 0),
            ("https://app.example.com,http://localhost:3000", 0),
            ("https://app.example.com/", 1),
            ("https://app.example.com:443", 1),
            ("https://App.example.com", 1),
            ("app.example.com", 1),
            ("null", 1),
            ("*,https://app.example.com", 1),
        ] {
            let found = errors_with(&[("gateway.cors_origins", origins)]).len();
            assert_eq!(found, errors, "{origins}");
        }
    }

    #[test]
    fn the_address_of_grpc_has_no_scheme() {
        for (address, errors) in [
            ("agents.example.com:443", 0),
            ("[::1]:41245", 0),
            ("https://agents.example.com:443", 1),
            ("agents.example.com", 1),
            (":443", 1),
            ("agents.example.com:0", 1),
        ] {
            assert_eq!(
                errors_with(&[("gateway.grpc_public", address)]).len(),
                errors,
                "{address}"
            );
        }
    }

    #[test]
    fn a_storage_is_named_with_characters_that_keys_are_not_made_with() {
        for (name, errors) in [
            ("", 0),
            ("node-1.disk_A", 0),
            ("a@b", 1),
            ("a:b", 1),
            ("{a}", 1),
            ("a b", 1),
        ] {
            assert_eq!(errors_with(&[("workspace.storage_id", name)]).len(), errors, "{name}");
        }
        let errors = errors_with(&[("workspace.storage_id", "a@b"), ("limits.storage_wait", "4s")]);
        assert!(
            errors
                .iter()
                .any(|e| e.starts_with("workspace.storage_id = \"a@b\": must be 1 to 64")),
            "{errors:?}"
        );
        assert!(
            errors
                .iter()
                .any(|e| e.starts_with("limits.storage_wait = \"4s\": must be at least 5s")),
            "{errors:?}"
        );
    }

    #[test]
    fn limits_of_a_request_keep_their_range() {
        assert_eq!(errors_with(&[("gateway.header_limit", "1KiB")]).len(), 1);
        assert_eq!(errors_with(&[("gateway.header_limit", "2MiB")]).len(), 1);
        assert_eq!(errors_with(&[("gateway.body_limit", "0")]).len(), 1);
        assert_eq!(errors_with(&[("gateway.max_connections", "0")]).len(), 1);
    }

    #[test]
    fn a_worker_takes_from_at_least_one_pool() {
        assert_eq!(errors_with(&[("worker.pools", "")]).len(), 1);
        assert_eq!(errors_with(&[("worker.pools", "default,Large Ones")]).len(), 1);
        assert_eq!(errors_with(&[("worker.pools", "default,default")]).len(), 1);
        assert_eq!(errors_with(&[("worker.pools", "default, large")]).len(), 0);
    }

    #[test]
    fn the_name_of_a_worker_needs_no_escaping() {
        assert_eq!(errors_with(&[("worker.id", "worker-0.a_B")]).len(), 0);
        assert_eq!(errors_with(&[("worker.id", "a:b")]).len(), 1);
    }

    #[test]
    fn the_delay_leaves_time_to_finish() {
        assert_eq!(errors_with(&[("drain.delay", "10m")]).len(), 1);
        assert_eq!(errors_with(&[("drain.delay", "0s")]).len(), 0);
    }

    #[test]
    fn a_misspelled_level_is_refused() {
        for (level, errors) in [
            ("debug", 0),
            ("off", 0),
            ("info,relevo_worker=debug", 0),
            ("inof", 1),
            ("a=b", 1),
        ] {
            assert_eq!(errors_with(&[("log.level", level)]).len(), errors, "{level}");
        }
        assert_eq!(errors_with(&[("log.format", "yaml")]).len(), 1);
    }
}
