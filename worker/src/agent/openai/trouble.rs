//! What can go wrong with a request, what may follow, and what the reader of the task is told. Pure.
//!
//! Credentials are never shown: what a server says about refused ones is left out, since servers quote them, and everything else that a
//! server says is shown in short, with the agent's own credentials struck out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use relevo_shared::platform::egress::EgressError;
use serde_json::Value;

use crate::agent::secrets::Secrets;

/// What may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server has not taken the request, and may take it later: after this time, if it says so.
    Busy(Option<Duration>),
    /// It failed again and again and is left alone for so long.
    Open(Duration),
    /// Another attempt may do better.
    Passing,
    /// It would be the same again.
    Lasting,
    /// The answer is longer than it may be.
    TooMuch,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) kind: Kind,
    /// For the reader of the task.
    pub(super) text: String,
    /// For metrics.
    pub(super) label: &'static str,
}

impl Trouble {
    pub(super) fn passing(label: &'static str, text: impl Into<String>) -> Self {
        Self {
            kind: Kind::Passing,
            text: text.into(),
            label,
        }
    }

    pub(super) fn lasting(label: &'static str, text: impl Into<String>) -> Self {
        Self {
            kind: Kind::Lasting,
            ..Self::passing(label, text)
        }
    }

    pub(super) fn too_much(text: impl Into<String>) -> Self {
        Self {
            kind: Kind::TooMuch,
            ..Self::passing("too_long", text)
        }
    }

    /// A request without an answer, or with half of one.
    pub(super) fn of_egress(error: &EgressError) -> Self {
        let text = format!("The model's server {}.", error.public());
        match error {
            EgressError::Open { again, .. } => Self {
                kind: Kind::Open(*again),
                ..Self::passing("breaker", text)
            },
            EgressError::Connect { .. } => Self {
                kind: Kind::Busy(None),
                ..Self::passing("unreachable", text)
            },
            EgressError::Broken { .. } => Self::passing("broken", text),
            EgressError::Silent { .. } => Self::passing("silent", text),
            EgressError::Refused(_) | EgressError::Redirect { .. } => Self::lasting("refused", text),
            EgressError::Untrusted { .. } => Self::lasting("certificate", text),
            EgressError::TooLarge { .. } => Self::too_much(text),
        }
    }

    /// An answer that says that there is none.
    pub(super) fn of_status(status: u16, after: Option<Duration>, body: &[u8], secrets: &Secrets) -> Self {
        let words = serde_json::from_slice(body).ok().and_then(|body| words(&body));
        let words = words
            .map(|words| format!(": {}", secrets.shown(&words)))
            .unwrap_or_default();
        match status {
            401 | 403 => Self::lasting(
                "unauthorized",
                format!("The model's server refuses the credentials of this agent (HTTP {status})."),
            ),
            429 | 503 => Self {
                kind: Kind::Busy(after),
                ..Self::passing("busy", format!("The model's server is busy (HTTP {status}){words}."))
            },
            408 | 409 | 425 | 500.. => {
                Self::passing("server_error", format!("The model's server failed (HTTP {status})."))
            }
            _ => Self::lasting(
                "refused",
                format!("The model's server refuses the request (HTTP {status}){words}"),
            ),
        }
    }

    /// An error in the middle of an answer.
    pub(super) fn of_words(words: &str, secrets: &Secrets) -> Self {
        let words = secrets.shown(words);
        Self::passing(
            "server_error",
            format!("The model's server failed in the middle of its answer: {words}"),
        )
    }
}

/// What a server says went wrong, in any of the forms that servers use.
pub(super) fn words(body: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    let error = body.get("error").filter(|error| !error.is_null());
    match error {
        Some(error) => text(error)
            .or_else(|| error.get("message").and_then(text))
            .or_else(|| Some("no reason is given".to_owned())),
        None if body.get("object").is_some_and(|object| object == "error") => body.get("message").and_then(text),
        None if body.get("choices").is_none() => body
            .get("message")
            .and_then(text)
            .or_else(|| body.get("detail").and_then(text)),
        None => None,
    }
}

/// How long a `Retry-After` wants a client to wait: seconds, or a date.
pub(super) fn retry_after(header: &str, now_ms: u64) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = httpdate::parse_http_date(header).ok()?;
    let now: SystemTime = UNIX_EPOCH + Duration::from_millis(now_ms);
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use relevo_shared::platform::config::Secret;

    use super::*;

    fn of(status: u16, body: &str) -> Trouble {
        let secrets = Secrets::new([Secret::new("sk-hunter2"), Secret::new("a")]);
        Trouble::of_status(status, None, body.as_bytes(), &secrets)
    }

    #[test]
    fn a_status_says_what_may_follow() {
        for (status, kind, label) in [
            (400, Kind::Lasting, "refused"),
            (401, Kind::Lasting, "unauthorized"),
            (403, Kind::Lasting, "unauthorized"),
            (404, Kind::Lasting, "refused"),
            (408, Kind::Passing, "server_error"),
            (422, Kind::Lasting, "refused"),
            (429, Kind::Busy(None), "busy"),
            (500, Kind::Passing, "server_error"),
            (503, Kind::Busy(None), "busy"),
            (529, Kind::Passing, "server_error"),
        ] {
            let trouble = of(status, "");
            assert_eq!((trouble.kind, trouble.label), (kind, label), "{status}");
            assert!(trouble.text.contains(&status.to_string()));
        }
    }

    #[test]
    fn the_servers_words_are_shown_in_all_their_forms() {
        for body in [
            r#"{"error": {"message": "no such model", "type": "x"}}"#,
            r#"{"error": "no such model"}"#,
            r#"{"object": "error", "message": "no such model"}"#,
            r#"{"message": "no such model"}"#,
            r#"{"detail": "no such model"}"#,
        ] {
            let text = of(404, body).text;
            assert_eq!(
                text, "The model's server refuses the request (HTTP 404): no such model",
                "{body}"
            );
        }
        for silent in ["", "<html>", "{}", "[]", r#"{"detail": [1]}"#] {
            assert_eq!(
                of(404, silent).text,
                "The model's server refuses the request (HTTP 404)",
                "{silent}"
            );
        }
    }

    #[test]
    fn no_credential_is_shown_and_words_are_bounded() {
        for status in [400, 401, 403, 429, 500, 503] {
            let text = of(status, r#"{"error": {"message": "bad key: sk-hunter2, I say"}}"#).text;
            assert!(!text.contains("hunter2"), "{text}");
        }
        let refused = of(401, r#"{"error": {"message": "Incorrect API key: sk-h***r2"}}"#).text;
        assert_eq!(
            refused,
            "The model's server refuses the credentials of this agent (HTTP 401)."
        );
        let long = of(400, &format!(r#"{{"error": "a\n{}"}}"#, "x".repeat(5000))).text;
        assert!(
            long.contains("a xxx") && long.ends_with("x…") && long.len() < 1100,
            "{long}"
        );
    }

    #[test]
    fn an_answer_is_no_error() {
        assert_eq!(words(&serde_json::json!({"choices": [], "message": "x"})), None);
        assert_eq!(words(&serde_json::json!({"choices": [], "error": null})), None);
        assert!(words(&serde_json::json!({"error": {}})).is_some());
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_or_a_date() {
        let now = 1_796_083_200_000;
        let at =
            |seconds| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(now) + Duration::from_secs(seconds));
        assert_eq!(retry_after(" 7 ", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(&at(9), now), Some(Duration::from_secs(9)));
        assert_eq!(retry_after("Tue, 15 Nov 1994 08:12:31 GMT", now), Some(Duration::ZERO));
        for nothing in ["", "soon", "-1", "99999999999999999999"] {
            assert_eq!(retry_after(nothing, now), None, "{nothing}");
        }
    }
}
