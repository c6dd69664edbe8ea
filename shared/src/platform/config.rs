//! Configuration: declared once per section, read from four layers, refused as a whole.
//!
//! Owns the `settings!` declaration, the value types, the layers (defaults, one TOML or YAML file, `RELEVO_…` environment,
//! command line), the collection of errors, and what is generated from the declarations: the printed effective
//! configuration and docs/configuration.md. It is the only code that reads the environment. It refuses to guess: an
//! unknown key, an unknown `RELEVO_<SECTION>_…` variable or a value of the wrong form is an error, and all errors are
//! reported together. It does not know `[agents.<name>]`: those tables are handed to the process as they are.
//!
//! Called from each process' own `config.rs`:
//!
//! ```
//! use relevo_shared::platform::config::{Loader, process_env};
//!
//! let settings = Loader::new().file(None).env(process_env()).set("redis.prefix", "demo").load()?;
//! assert_eq!(settings.redis.prefix, "demo");
//! # Ok::<(), relevo_shared::platform::config::ConfigErrors>(())
//! ```

mod environment;
mod error;
mod field;
mod loader;
mod mask;
mod print;
mod reference;
mod reference_keys;
mod sections;
mod size;
mod source;
mod suggest;
mod types;
mod value;
mod yaml;

pub use environment::{env_var, process_env};
pub use error::{ConfigError, ConfigErrors};
pub use field::{Field, Section, SectionInfo, Validate};
pub use loader::Loader;
pub use mask::{mask_table, mask_url};
pub use reference::{default_file, reference_markdown};
pub use sections::{
    AdminSettings, ArtifactSettings, ArtifactStore, AuthSettings, CancelSettings, CompatSettings, DrainSettings,
    EgressSettings, GATEWAY_ADMIN, GatewaySettings, LeaseSettings, LimitSettings, LogFormat, LogSettings,
    RedisSettings, RetentionSettings, RuntimeSettings, SECTIONS, SecretSettings, SendSettings, Settings, Statuses,
    StreamSettings, TurnSettings, WORKER_ADMIN, WorkerSettings, WorkspaceSettings, is_media_type,
};
#[cfg(test)]
pub(crate) use sections::{MOST_BYTES, MOST_EVENTS};
pub use size::ByteSize;
pub use source::Source;
pub(crate) use suggest::nearest;
pub use types::{Secret, ServiceUrl};
pub use value::{Setting, print_duration};

/// What a process exits with when its configuration is refused (`EX_USAGE` of sysexits.h), so that a supervisor can
/// tell "will never start like this" from "could not start now", which is 1.
pub const EXIT_CONFIG: u8 = 64;

/// Declares one section of the configuration.
///
/// The doc comment of the section and of every field is also its text in docs/configuration.md, so it says what the
/// value is, its unit, and what happens when it is wrong. The default is written as an operator would write it; `""`
/// leaves an `Option` unset. Rules that need more than one value go into the section's [`Validate`].
///
/// ```
/// use std::time::Duration;
/// use relevo_shared::platform::config::{ConfigErrors, Validate};
///
/// relevo_shared::settings! {
///     /// How often tea is made.
///     pub struct TeaSettings in "tea" {
///         /// How long a bag is left in; beyond some minutes the tea is bitter.
///         steep: Duration = "3m",
///         /// The guest's own cup; a clean one is taken when unset.
///         cup: Option<String> = "",
///     }
/// }
///
/// impl Validate for TeaSettings {
///     fn validate(&self, errors: &mut ConfigErrors) {
///         errors.require(!self.steep.is_zero(), "tea.steep", &self.steep, "must be longer than zero");
///     }
/// }
///
/// assert_eq!(TeaSettings::default().steep, Duration::from_secs(180));
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $section_doc:literal])+
        $visibility:vis struct $name:ident in $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident : $type:ty = $default:literal
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $section_doc])+
        #[derive(Clone, Debug, PartialEq)]
        $visibility struct $name {
            $(
                $(#[doc = $doc])+
                $visibility $field: $type,
            )+
        }

        impl ::core::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::platform::config::Source::default_of($section, stringify!($field), $default),)+ }
            }
        }

        impl $crate::platform::config::Section for $name {
            const INFO: $crate::platform::config::SectionInfo = $crate::platform::config::SectionInfo {
                name: $section,
                doc: concat!($($section_doc, "\n"),+),
                fields: &[
                    $($crate::platform::config::Field {
                        section: $section,
                        key: stringify!($field),
                        default: $default,
                        doc: concat!($($doc, "\n"),+),
                        expected: <$type as $crate::platform::config::Setting>::EXPECTED,
                        optional: <$type as $crate::platform::config::Setting>::OPTIONAL,
                        secret: <$type as $crate::platform::config::Setting>::SECRET,
                        list: <$type as $crate::platform::config::Setting>::LIST,
                    },)+
                ],
            };

            fn read(
                source: &$crate::platform::config::Source,
                errors: &mut $crate::platform::config::ConfigErrors,
            ) -> Self {
                Self { $($field: source.read($section, stringify!($field), $default, errors),)+ }
            }

            fn printed(&self) -> ::std::vec::Vec<::core::option::Option<::std::string::String>> {
                ::std::vec![$($crate::platform::config::Setting::print(&self.$field),)+]
            }
        }
    };
}
