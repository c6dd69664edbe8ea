//! Every section of the configuration, and the whole of them.
//!
//! They are together here because one TOML file serves both processes: a worker must know that `[gateway] listen` is a
//! key to be able to refuse one that is not.

mod artifacts;
mod auth;
mod compat;
mod egress;
mod keep;
mod process;
mod redis;
mod runtime;
mod turn;

use std::fmt;

pub use artifacts::{ArtifactSettings, ArtifactStore};
pub use auth::AuthSettings;
pub use compat::{CompatSettings, Statuses};
pub use egress::EgressSettings;
pub use keep::{LimitSettings, RetentionSettings, SecretSettings};
pub use process::{
    AdminSettings, DrainSettings, GATEWAY_ADMIN, GatewaySettings, LogFormat, LogSettings, WORKER_ADMIN, WorkerSettings,
    WorkspaceSettings, is_media_type,
};
pub use redis::RedisSettings;
pub use runtime::RuntimeSettings;
pub use turn::{CancelSettings, LeaseSettings, SendSettings, StreamSettings, TurnSettings};
#[cfg(test)]
pub(crate) use turn::{MOST_BYTES, MOST_EVENTS};

use super::mask::mask_table;
use super::{ConfigErrors, Secret, Section, SectionInfo, Source};

/// Sections whose tables belong to the processes, such as `[agents.<name>]`.
pub(super) const FREE_FORM: [&str; 3] = ["agents", "profiles", "principals"];

/// Declares [`Settings`] and the list of sections from one list.
macro_rules! sections {
    ($($(#[doc = $doc:literal])+ $field:ident : $section:ty,)+) => {
        /// Every section in the order of the documentation.
        pub const SECTIONS: &[SectionInfo] = &[$(<$section as Section>::INFO),+];

        /// The whole configuration of a process.
        #[derive(Clone, Default, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $field: $section,)+
            /// The raw `[agents.<name>]` tables; each process reads what it needs of them.
            pub agents: toml::Table,
            /// The raw `[profiles.<name>]` tables.
            pub profiles: toml::Table,
            /// The raw `[principals.<name>]` tables. They hold credentials.
            pub principals: toml::Table,
        }

        impl Settings {
            pub(super) fn read(source: &Source, errors: &mut ConfigErrors) -> Self {
                let mut settings = Self {
                    $($field: read_section(source, errors),)+
                    agents: tables_of(source, "agents"),
                    profiles: tables_of(source, "profiles"),
                    principals: tables_of(source, "principals"),
                };
                settings.redis.read_password_file(errors);
                settings.artifacts.read_secret_file(errors);
                settings.artifacts.validate_with(&settings.gateway, errors);
                settings
            }

            /// The free-form tables, by the name of their section.
            pub(super) fn free_form(&self) -> [(&'static str, &toml::Table); 3] {
                let [agents, profiles, principals] = FREE_FORM;
                [(agents, &self.agents), (profiles, &self.profiles), (principals, &self.principals)]
            }

            /// Every section with its values as TOML, `None` where unset, secrets masked.
            pub(super) fn printed(&self) -> Vec<(SectionInfo, Vec<Option<String>>)> {
                vec![$((<$section as Section>::INFO, self.$field.printed()),)+]
            }
        }

        // By hand: the free-form tables may hold credentials.
        impl fmt::Debug for Settings {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut formatter = formatter.debug_struct("Settings");
                $(formatter.field(stringify!($field), &self.$field);)+
                for (name, tables) in self.free_form() {
                    formatter.field(name, &mask_table(tables));
                }
                formatter.finish()
            }
        }
    };
}

sections! {
    /// Where the shared state is.
    redis: RedisSettings,
    /// The gateway's listener.
    gateway: GatewaySettings,
    /// Who may call.
    auth: AuthSettings,
    /// For older clients.
    compat: CompatSettings,
    /// The listener for operators.
    admin: AdminSettings,
    /// Ownership of contexts.
    lease: LeaseSettings,
    /// What a worker takes.
    worker: WorkerSettings,
    /// Where agents work.
    workspace: WorkspaceSettings,
    /// What is called.
    egress: EgressSettings,
    /// Bounds of one turn.
    turn: TurnSettings,
    /// Large parts of what agents produce.
    artifacts: ArtifactSettings,
    /// Open streams.
    stream: StreamSettings,
    /// Blocking calls.
    send: SendSettings,
    /// Cancelling.
    cancel: CancelSettings,
    /// When new work is refused.
    limits: LimitSettings,
    /// How long things are kept.
    retention: RetentionSettings,
    /// What must never be stored.
    secrets: SecretSettings,
    /// Stopping.
    drain: DrainSettings,
    /// What a process computes with.
    runtime: RuntimeSettings,
    /// Logging.
    log: LogSettings,
}

/// Reads a section, and checks its rules only if each of its keys could be read: a rule between a default that stands
/// in for a broken value and another value would be reported without being broken.
fn read_section<S: Section>(source: &Source, errors: &mut ConfigErrors) -> S {
    let before = errors.len();
    let section = S::read(source, errors);
    if errors.len() == before {
        section.validate(errors);
    }
    section
}

fn tables_of(source: &Source, name: &str) -> toml::Table {
    let file = source.file.as_ref();
    file.and_then(|file| file.table.get(name))
        .and_then(toml::Value::as_table)
        .cloned()
        .unwrap_or_default()
}

/// Whether `text` is `1..=longest` characters that `allowed` admits.
fn is_name(text: &str, longest: usize, allowed: impl Fn(u8) -> bool) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(allowed)
}

/// The secret in a file, its line end cut. An error names the key and the path, never the content.
fn secret_in(key: &str, path: &std::path::Path, errors: &mut ConfigErrors) -> Option<Secret> {
    let key = format!("{key} = \"{}\"", path.display());
    match std::fs::read_to_string(path) {
        Ok(content) => match content.trim_end_matches(['\n', '\r']) {
            "" => errors.refuse(key, "the file is empty"),
            secret => return Some(Secret::new(secret)),
        },
        Err(error) => errors.refuse(key, format!("cannot be read: {error}")),
    }
    None
}

fn require_longer_than_zero(errors: &mut ConfigErrors, key: &str, value: std::time::Duration) {
    errors.require(!value.is_zero(), key, &value, "must be longer than zero");
}

#[cfg(test)]
mod tests {
    use super::super::{Loader, Setting as _};
    use super::*;

    /// The errors when `pairs` are set on top of the defaults.
    pub(super) fn errors_with(pairs: &[(&str, &str)]) -> Vec<String> {
        let loader = pairs
            .iter()
            .fold(Loader::new(), |loader, (key, value)| loader.set(*key, *value));
        loader
            .load()
            .err()
            .map(|errors| errors.iter().map(ToString::to_string).collect())
            .unwrap_or_default()
    }

    #[test]
    fn every_default_is_of_its_form_and_breaks_no_rule() {
        let mut errors = ConfigErrors::new();
        let settings = Settings::read(&Source::default(), &mut errors);
        assert_eq!(errors, ConfigErrors::new());
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn every_key_says_what_it_is_in_full_sentences() {
        for section in SECTIONS {
            assert!(section.doc_text().ends_with('.'), "[{}]", section.name);
            for field in section.fields {
                let text = field.doc_text();
                assert!(text.len() > 40 && text.ends_with('.'), "{}: {text}", field.path());
            }
        }
    }

    #[test]
    fn names_of_sections_and_keys_are_unique() {
        let mut names: Vec<String> = SECTIONS
            .iter()
            .flat_map(|info| info.fields)
            .map(super::super::Field::env)
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn settings_are_debugged_without_secrets() {
        let settings = Loader::new()
            .text(
                "f",
                "[agents.a]\napi_key = \"hunter2\"\n[redis]\npassword = \"hunter2\"",
            )
            .load()
            .unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn zero_is_refused_where_it_would_mean_never_or_always() {
        for section in SECTIONS {
            for field in section
                .fields
                .iter()
                .filter(|field| field.expected == std::time::Duration::EXPECTED)
            {
                let path = field.path();
                let errors = errors_with(&[(&path, "0s")]);
                assert_eq!(errors.is_empty(), path == "drain.delay", "{path}: {errors:?}");
            }
        }
    }
}
