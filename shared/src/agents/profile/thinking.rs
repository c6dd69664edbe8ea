//! Which signals of its thinking an agent shows to clients: the reference server's `thinking-exposure`. A profile that shows some says
//! so in the card, and workers hold back the others.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Extension, Profile};

/// The extension that names them.
const URI: &str = "urn:iac-code:a2a:thinking-exposure:v1";

/// A signal of an agent's thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thinking {
    /// The model's own words: `thinking`.
    Raw,
    /// What it does with tools: `tool` and `permission`.
    Tools,
}

impl Thinking {
    /// Every signal there is.
    pub const ALL: [Self; 2] = [Self::Raw, Self::Tools];

    /// The word in the configuration; the card has the same with `_`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw-thinking",
            Self::Tools => "tool-trace",
        }
    }

    /// Reads words of the configuration; the error is one that is none of them.
    pub(super) fn read(words: &[String]) -> Result<Vec<Self>, String> {
        let known = |word: &String| Self::ALL.into_iter().find(|known| known.as_str() == word);
        words
            .iter()
            .map(|word| known(word).ok_or_else(|| word.clone()))
            .collect()
    }
}

impl Profile {
    /// Shows these signals and no others, and says so in the card.
    pub(super) fn show(&mut self, mut shown: Vec<Thinking>) {
        shown.sort_unstable();
        shown.dedup();
        self.extensions.retain(|extension| extension.uri != URI);
        if !shown.is_empty() {
            let types: Vec<Value> = shown.iter().map(|it| it.as_str().replace('-', "_").into()).collect();
            let extension = Extension {
                uri: URI.to_owned(),
                description: "Which signals of the agent's thinking are shown under `iac_code`.".to_owned(),
                required: false,
                params: BTreeMap::from([("enabledTypes".to_owned(), types.into())]),
            };
            self.extensions.insert(self.extensions.len().min(1), extension);
        }
        self.thinking = shown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Profiles;

    #[test]
    fn the_card_names_what_is_shown_and_has_no_extension_for_nothing() {
        let mut profile = Profiles::default().get("iac-code").unwrap();
        assert_eq!(profile.thinking, [Thinking::Tools]);
        for (shown, names) in [
            (
                vec![Thinking::Tools, Thinking::Raw, Thinking::Tools],
                Some(serde_json::json!(["raw_thinking", "tool_trace"])),
            ),
            (vec![], None),
            (vec![Thinking::Raw], Some(serde_json::json!(["raw_thinking"]))),
        ] {
            profile.show(shown);
            let named: Vec<&Extension> = profile.extensions.iter().filter(|it| it.uri == URI).collect();
            assert_eq!(named.first().map(|it| it.params["enabledTypes"].clone()), names);
            assert!(named.len() < 2);
        }
        assert_eq!(
            Thinking::read(&["raw-thinking".to_owned(), "x".to_owned()]),
            Err("x".to_owned())
        );
    }
}
