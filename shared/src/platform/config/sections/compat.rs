//! `[compat]`: where older clients expect something else than the standard of today.

use crate::platform::config::value::quoted;
use crate::platform::config::{ConfigErrors, Setting, Validate};

/// Which version of the standard says what HTTP and gRPC status an error has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statuses {
    /// A2A 1.0.0.
    Older,
    /// A2A 1.0.1.
    Current,
}

impl Setting for Statuses {
    const EXPECTED: &'static str = "\"1.0.1\" or \"1.0.0\"";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "1.0.0" => Some(Self::Older),
            "1.0.1" => Some(Self::Current),
            _ => None,
        }
    }

    fn print(&self) -> Option<String> {
        let text = match self {
            Self::Older => "1.0.0",
            Self::Current => "1.0.1",
        };
        Some(quoted(text))
    }
}

crate::settings! {
    /// For clients that were written against something else than the standard of today.
    pub struct CompatSettings in "compat" {
        /// Whether the reference server's letter goes before the standard's where they part: a task that waits for its user
        /// cannot be canceled (TASK_NOT_CANCELABLE), and no task without a running turn can be subscribed to (TASK_NOT_FOUND).
        seed: bool = "false",
        /// The version of the standard whose HTTP and gRPC statuses errors have: 1.0.0 had 409 for TASK_NOT_CANCELABLE, 415
        /// for CONTENT_TYPE_NOT_SUPPORTED, and UNIMPLEMENTED on gRPC for what is not supported. Reasons are the same.
        errors: Statuses = "1.0.1",
        /// What agents of the profile iac-code show of their thinking: `tool-trace` (tools and permissions), `raw-thinking` (the
        /// model's own words), both, or nothing when it is empty. Other profiles say it themselves (`thinking`).
        thinking_exposure: Vec<String> = "tool-trace",
    }
}

impl Validate for CompatSettings {
    fn validate(&self, _: &mut ConfigErrors) {}
}
