//! Logging: set-up of `tracing`, and the names of the fields that say what a line is about.
//!
//! Owns the format, the filter and the panic hook. Lines go to standard error, since standard output belongs to what a
//! command prints. It refuses to fail: a second set-up in one process (tests, `relevo dev`) changes nothing, and a
//! closed standard error loses lines instead of ending the process. Called once from each `main.rs`.

use std::io::{self, IsTerminal as _};
use std::sync::Once;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::config::{LogFormat, LogSettings};

/// Names of fields, dotted by entity. Use them as `tracing::info!({ field::TASK_ID } = %id, …)` or spell them the same
/// way: `task.id = %id`.
pub mod field {
    /// The task.
    pub const TASK_ID: &str = "task.id";
    /// The context.
    pub const CONTEXT_ID: &str = "context.id";
    /// The turn.
    pub const TURN_ID: &str = "turn.id";
    /// The number of the attempt at a turn.
    pub const ATTEMPT: &str = "attempt";
    /// The worker.
    pub const WORKER_ID: &str = "worker.id";
    /// The epoch of a lease.
    pub const LEASE_EPOCH: &str = "lease.epoch";
    /// The partition.
    pub const PARTITION: &str = "partition";
    /// The agent.
    pub const AGENT: &str = "agent.name";
    /// The operation of A2A.
    pub const METHOD: &str = "method";
    /// How something ended; one of a closed set.
    pub const OUTCOME: &str = "outcome";
    /// Why; one of a closed set.
    pub const REASON: &str = "reason";
    /// How long something took, in milliseconds.
    pub const DURATION_MS: &str = "duration_ms";
}

/// What a set-up did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// Lines are written as asked.
    Now,
    /// Something in this process had set up logging before; that stands.
    Before,
}

/// Sets up logging and lets panics be logged.
pub fn init(settings: &LogSettings) -> Installed {
    install_panic_hook();
    // Refused by the configuration already; whatever is left of a bad filter is better than no logging.
    let filter = EnvFilter::builder().parse_lossy(&settings.level);
    let builder = SubscriberBuilder::default()
        .with_writer(io::stderr)
        // It would report a failed write to standard error by a write to standard error that panics.
        .log_internal_errors(false)
        .with_env_filter(filter);
    let installed = match settings.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).finish().try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .finish()
            .try_init(),
    };
    if installed.is_ok() {
        Installed::Now
    } else {
        Installed::Before
    }
}

/// Whether `level` is a filter: levels, alone or by module. A bare word that is no level is refused, although a filter
/// would take it for a module: it is a misspelled level.
pub(super) fn is_filter(level: &str) -> bool {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let part = |part: &str| part.contains('=') || LEVELS.contains(&part.trim().to_ascii_lowercase().as_str());
    level.split(',').all(part) && EnvFilter::builder().parse(level).is_ok()
}

/// Logs panics as one line of the log; where errors are not logged, the usual report stands.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !tracing::enabled!(tracing::Level::ERROR) {
                usual(panic);
                return;
            }
            let at = panic.location().map(ToString::to_string).unwrap_or_default();
            let text = panic.payload_as_str().unwrap_or("no text");
            let thread = std::thread::current();
            tracing::error!(at, thread = thread.name().unwrap_or("unnamed"), "panic: {text}");
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_set_up_changes_nothing() {
        let settings = LogSettings {
            level: "off".to_owned(),
            format: LogFormat::Json,
        };
        init(&settings);
        assert_eq!(init(&settings), Installed::Before);
    }

    #[test]
    fn only_levels_make_a_filter() {
        for right in [
            "info",
            "WARN",
            "off",
            "info,relevo_worker=debug",
            "relevo_shared::store=trace",
        ] {
            assert!(is_filter(right), "{right}");
        }
        for wrong in ["", "inof", "info,inof", "a=b", "relevo_worker"] {
            assert!(!is_filter(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_field_name_is_usable_where_a_line_is_logged() {
        tracing::debug!({ field::TASK_ID } = "t", task.state = "working", "example");
    }
}
