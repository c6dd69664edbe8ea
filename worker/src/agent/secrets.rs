//! Credentials of a server of others, kept to strike them out of what the server says: servers quote them.
//!
//! Out of errors, which are words of a server about a request, every one; out of answers, which are an agent's words about anything, those
//! that are long enough to be no word of a language. One that is cut in two by a stream is not found.

use relevo_shared::agents::UpstreamConfig;
use relevo_shared::platform::config::Secret;
use serde_json::Value;

/// How much of a server's own words is shown.
const LONGEST: usize = 1000;
/// Shorter ones would strike out half the language.
const SHORTEST_SECRET: usize = 4;
/// The same in answers.
const SHORTEST_IN_ANSWERS: usize = 12;
/// What stands in the place of one.
const STRUCK: &str = "***";

/// The agent's credentials, so that they can be struck out.
#[derive(Debug, Clone, Default)]
pub(super) struct Secrets(Vec<Secret>);

impl Secrets {
    /// Those of a server's table that can be read.
    pub(super) fn of(upstream: &UpstreamConfig) -> Self {
        let values = upstream.bearer.iter().chain(upstream.headers.values());
        Self::new(values.filter_map(|value| value.read().ok()))
    }

    pub(super) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let long = |secret: &Secret| secret.expose().len() >= SHORTEST_SECRET;
        Self(secrets.into_iter().filter(long).collect())
    }

    /// A server's words as they may be shown.
    pub(super) fn shown(&self, words: &str) -> String {
        let strike = |words: String, secret: &Secret| words.replace(secret.expose(), STRUCK);
        let words = self.0.iter().fold(words.trim().to_owned(), strike);
        let mut shown: String = words
            .chars()
            .take(LONGEST)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        if words.chars().nth(LONGEST).is_some() {
            shown.push('…');
        }
        shown
    }

    /// Strikes them out of an agent's text.
    pub(super) fn strike(&self, text: &mut String) {
        for secret in self.0.iter().map(Secret::expose) {
            if secret.len() >= SHORTEST_IN_ANSWERS && text.contains(secret) {
                *text = text.replace(secret, STRUCK);
            }
        }
    }

    /// Strikes them out of all texts of an agent's answer.
    pub(super) fn strike_from(&self, answer: &mut Value) {
        if self.0.iter().all(|secret| secret.expose().len() < SHORTEST_IN_ANSWERS) {
            return;
        }
        let mut open = vec![answer];
        while let Some(value) = open.pop() {
            match value {
                Value::String(text) => self.strike(text),
                Value::Array(items) => open.extend(items),
                Value::Object(members) => open.extend(members.values_mut()),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_struck_out_at_any_depth_and_words_are_not() {
        let secrets = Secrets::new(["sk-0123456789", "test"].map(Secret::new));
        let mut answer = json!({ "a": [{ "b": "a test of sk-0123456789, sk-0123456789" }], "c": 1, "d": null });
        secrets.strike_from(&mut answer);
        assert_eq!(
            answer,
            json!({ "a": [{ "b": "a test of ***, ***" }], "c": 1, "d": null })
        );
        assert_eq!(secrets.shown("a test of sk-0123456789"), "a *** of ***");
    }
}
