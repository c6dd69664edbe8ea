//! How an agent speaks to its clients: what its card says beside its name, how a good turn ends, which parts it takes, and
//! where metadata of its own lies.
//!
//! Two are built in: `generic`, which is the standard's letter, and `iac-code`, which is the reference server's. Others are
//! tables `[profiles.<name>]` that begin with one of them. Owns their form and their rules; the gateway and the worker do
//! what they say.

mod read;
mod seed;
mod thinking;

use std::collections::BTreeMap;

pub use thinking::Thinking;
use toml::Table;

use super::SkillConfig;
use crate::platform::config::{CompatSettings, ConfigErrors, WorkspaceSettings};

/// The name of the profile that agents have unless told otherwise.
pub(super) const GENERIC: &str = "generic";
/// The name of the reference server's.
const SEED: &str = "iac-code";

/// What a good end of a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoodEnd {
    /// The task is COMPLETED.
    Completed,
    /// The task is INPUT_REQUIRED: the next message may continue it.
    InputRequired,
}

/// An extension of the protocol that agents of a profile speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// What it is called.
    pub uri: String,
    /// For people.
    pub description: String,
    /// Whether clients that do not know it are refused.
    pub required: bool,
    /// Its parameters in the card.
    pub params: BTreeMap<String, serde_json::Value>,
}

/// The parts that are made into one text before the agent sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingest {
    /// Media types that are text.
    pub text_types: Vec<String>,
    /// Media types that the agent is told of by a manifest.
    pub media_types: Vec<String>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The agent's name in the card, unless its table has one.
    pub title: Option<String>,
    /// The agent's description, unless its table has one.
    pub description: Option<String>,
    /// Who provides the agent.
    pub organization: Option<(String, String)>,
    /// The agent's skills, unless its table has some.
    pub skills: Vec<SkillConfig>,
    /// The media types of parts that are taken; `*` stands for any.
    pub input_modes: Vec<String>,
    /// The media types of answers.
    pub output_modes: Vec<String>,
    /// For the card.
    pub extensions: Vec<Extension>,
    /// The key of metadata that is the agent's own.
    pub namespace: Option<String>,
    /// What is shown of its thinking under that key.
    pub thinking: Vec<Thinking>,
    /// How a good turn ends.
    pub good_end: GoodEnd,
    /// Whether what an agent says is an artifact at the end, too.
    pub answer_artifact: bool,
    /// How parts become a text with files of a workspace; without it the agent gets the message as it was sent.
    pub ingest: Option<Ingest>,
}

impl Profile {
    /// The standard's letter.
    pub fn generic() -> Self {
        Self {
            name: GENERIC.to_owned(),
            title: None,
            description: None,
            organization: None,
            skills: Vec::new(),
            // What an agent can do with a part is its own matter: nothing is refused by its type.
            input_modes: vec!["*/*".to_owned()],
            output_modes: vec!["text/plain".to_owned(), "application/octet-stream".to_owned()],
            extensions: Vec::new(),
            namespace: None,
            thinking: Vec::new(),
            good_end: GoodEnd::Completed,
            answer_artifact: false,
            ingest: None,
        }
    }

    /// Takes parts of further media types, if it makes a text of parts; says whether it does.
    pub(super) fn take_also(&mut self, texts: &[String], media: &[String]) -> bool {
        let Some(ingest) = &mut self.ingest else { return false };
        let add = |modes: &mut Vec<String>, further: &[String]| {
            for mode in further.iter().map(|mode| essence(mode)) {
                if !modes.contains(&mode) {
                    modes.push(mode);
                }
            }
        };
        add(&mut ingest.text_types, texts);
        add(&mut ingest.media_types, media);
        add(&mut self.input_modes, texts);
        add(&mut self.input_modes, media);
        true
    }

    /// Whether a part of this media type (empty: none is given) is taken.
    pub fn takes(&self, media_type: &str) -> bool {
        let wanted = essence(media_type);
        wanted.is_empty() || self.input_modes.iter().any(|mode| is_of(mode, &wanted))
    }
}

/// A media type without its parameters, in lower case.
pub fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Whether a media type, as [`essence`] gives it, is one of those that `mode` stands for: itself, or all of a kind (`image/*`).
pub fn is_of(mode: &str, wanted: &str) -> bool {
    let mode = essence(mode);
    match mode.strip_suffix("/*") {
        Some("*") => true,
        Some(kind) => wanted.split_once('/').is_some_and(|(found, _)| found == kind),
        None => mode == wanted,
    }
}

/// All profiles by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles(BTreeMap<String, Profile>);

impl Default for Profiles {
    fn default() -> Self {
        let all = [Profile::generic(), seed::profile()];
        Self(all.into_iter().map(|profile| (profile.name.clone(), profile)).collect())
    }
}

impl Profiles {
    /// The built-in ones, with what `[workspace]` adds and `[compat]` shows, and the tables of `[profiles]`.
    pub fn read(
        tables: &Table,
        workspace: &WorkspaceSettings,
        compat: &CompatSettings,
        errors: &mut ConfigErrors,
    ) -> Self {
        let mut built_in = Self::default();
        let shown = Thinking::read(&compat.thinking_exposure).unwrap_or_else(|word| {
            let rule = format!("`{word}` is no signal: there are \"tool-trace\" and \"raw-thinking\"");
            errors.refuse("compat.thinking_exposure", rule);
            Vec::new()
        });
        for profile in built_in.0.values_mut() {
            profile.take_also(&workspace.text_types, &workspace.media_types);
            if profile.namespace.is_some() {
                profile.show(shown.clone());
            }
        }
        read::profiles(tables, &built_in, errors)
    }

    /// The profile of a name.
    pub fn get(&self, name: &str) -> Option<Profile> {
        self.0.get(name).cloned()
    }

    /// For errors: what there is.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::config::Loader;

    #[test]
    fn further_types_are_taken_by_profiles_that_make_texts_of_parts() {
        let text = "[workspace]\ntext_types = [\"Text/X-HCL\"]\nmedia_types = [\"video/mp4\"]\n[profiles.team]\nbase = \"iac-code\"\n";
        let settings = Loader::new().text("f", text).load().unwrap();
        let profiles = Profiles::read(
            &settings.profiles,
            &settings.workspace,
            &settings.compat,
            &mut ConfigErrors::new(),
        );
        for name in ["iac-code", "team"] {
            let profile = profiles.get(name).unwrap();
            assert!(profile.takes("text/x-hcl") && profile.takes("video/mp4"), "{name}");
            let ingest = profile.ingest.unwrap();
            assert!(ingest.text_types.iter().any(|kind| kind == "text/x-hcl"), "{name}");
            assert!(ingest.media_types.iter().any(|kind| kind == "video/mp4"), "{name}");
        }
        assert_eq!(profiles.get("generic"), Some(Profile::generic()));
    }

    #[test]
    fn media_types_match_without_case_and_parameters() {
        let mut profile = Profile::generic();
        assert!(profile.takes("anything/at-all") && profile.takes(""));
        profile.input_modes = vec!["text/*".to_owned(), "image/PNG".to_owned()];
        for taken in ["text/plain; charset=utf-8", "TEXT/markdown", "image/png", ""] {
            assert!(profile.takes(taken), "{taken}");
        }
        for refused in ["image/jpeg", "textual/plain", "text", "application/json"] {
            assert!(!profile.takes(refused), "{refused}");
        }
    }

    #[test]
    fn the_reference_servers_profile_is_what_its_card_says() {
        let profile = Profiles::default().get("iac-code").unwrap();
        assert_eq!(profile.title.as_deref(), Some("iac-code"));
        assert_eq!(profile.namespace.as_deref(), Some("iac_code"));
        assert_eq!(profile.good_end, GoodEnd::InputRequired);
        let ids: Vec<&str> = profile
            .skills
            .iter()
            .filter(|s| !s.extended)
            .map(|s| s.id.as_str())
            .collect();
        assert_eq!(
            ids,
            [
                "iac_generation",
                "iac_review",
                "aliyun_ros_operations",
                "terraform_ros_conversion"
            ]
        );
        assert_eq!(profile.output_modes, ["text/plain"]);
        assert!(profile.takes("application/x-yaml") && !profile.takes("video/mp4"));
    }
}
