//! Credentials of a server of others, kept to strike them out of what the server says: servers quote them.

use relevo_shared::agents::UpstreamConfig;
use relevo_shared::platform::config::Secret;

/// How much of a server's own words is shown.
const LONGEST: usize = 1000;
/// Shorter ones would strike out half the language.
const SHORTEST_SECRET: usize = 4;

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
        let strike = |words: String, secret: &Secret| words.replace(secret.expose(), "***");
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
}
