//! The layers a value is looked up in: command line over environment over file over default.

use std::collections::BTreeMap;
use std::fmt;

use super::field::section_env_prefix;
use super::value::quoted;
use super::{ConfigError, ConfigErrors, Setting};

/// Everything settings are read from. Tests fill it with maps; only [`super::Loader`] fills it from the outside.
#[derive(Clone, Default)]
pub struct Source {
    pub(super) file: Option<FileLayer>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) overrides: BTreeMap<String, String>,
}

/// A parsed file.
#[derive(Clone)]
pub(super) struct FileLayer {
    /// How errors name it.
    pub(super) name: String,
    pub(super) table: toml::Table,
    /// Settings that the file calls by another name.
    pub(super) called: BTreeMap<String, String>,
}

impl FileLayer {
    pub(super) fn new(name: String, table: toml::Table) -> Self {
        let called = BTreeMap::new();
        Self { name, table, called }
    }

    /// A setting as errors name it.
    pub(super) fn path(&self, setting: &str) -> String {
        let called = self.called.get(setting).map_or(setting, String::as_str);
        format!("{called} in {}", self.name)
    }
}

// By hand: the layers hold secrets.
impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_ref().map(|file| file.name.as_str());
        let env: Vec<_> = self.env.keys().collect();
        let overrides: Vec<_> = self.overrides.keys().collect();
        formatter
            .debug_struct("Source")
            .field("file", &file)
            .field("env", &env)
            .field("overrides", &overrides)
            .finish()
    }
}

impl Source {
    /// Reads one key from the highest layer that has it. A value of the wrong form is reported and the default stands,
    /// so that the other keys are still read.
    pub fn read<T: Setting>(&self, section: &str, key: &str, default: &str, errors: &mut ConfigErrors) -> T {
        let path = format!("{section}.{key}");
        let found = if let Some(text) = self.overrides.get(&path) {
            read_text(format!("{path} on the command line"), text)
        } else if let Some((name, text)) = self.env.get_key_value(&env_name(section, key)) {
            read_text(name.clone(), text)
        } else if let Some((file, value)) = self.in_file(section, key) {
            read_toml(file.path(&path), value)
        } else {
            return Self::default_of(section, key, default);
        };
        found.unwrap_or_else(|error| {
            errors.push(error);
            Self::default_of(section, key, default)
        })
    }

    /// The declared default of a key.
    ///
    /// # Panics
    /// When the declaration's own default is not of the declared form; a test reads every default.
    #[expect(
        clippy::panic,
        reason = "a mistake in a declaration, found by the test that reads every default"
    )]
    pub fn default_of<T: Setting>(section: &str, key: &str, default: &str) -> T {
        T::parse(default).unwrap_or_else(|| panic!("the default of {section}.{key} is not {}", T::EXPECTED))
    }

    fn in_file(&self, section: &str, key: &str) -> Option<(&FileLayer, &toml::Value)> {
        let file = self.file.as_ref()?;
        let value = file.table.get(section)?.as_table()?.get(key)?;
        Some((file, value))
    }
}

fn env_name(section: &str, key: &str) -> String {
    format!("{}{}", section_env_prefix(section), key.to_ascii_uppercase())
}

fn read_text<T: Setting>(key: String, text: &str) -> Result<T, ConfigError> {
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err(ConfigError {
            key,
            value: None,
            rule: "must be UTF-8".to_owned(),
        });
    }
    T::parse(text).ok_or_else(|| wrong_form::<T>(key, Some(quoted(&T::mask(text)))))
}

fn read_toml<T: Setting>(key: String, value: &toml::Value) -> Result<T, ConfigError> {
    T::from_toml(value).ok_or_else(|| {
        let shown = match value {
            toml::Value::String(text) => Some(quoted(&T::mask(text))),
            // What is in them is unknown, so it may be a secret.
            toml::Value::Table(_) => None,
            other => Some(T::mask(&other.to_string())),
        };
        wrong_form::<T>(key, shown)
    })
}

fn wrong_form<T: Setting>(key: String, value: Option<String>) -> ConfigError {
    ConfigError {
        key,
        value,
        rule: format!("must be {}", T::EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Secret;
    use super::*;

    fn source(toml: &str, env: &[(&str, &str)], overrides: &[(&str, &str)]) -> Source {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let table = toml::from_str(toml).unwrap();
        Source {
            file: Some(FileLayer::new("relevo.toml".to_owned(), table)),
            env: map(env),
            overrides: map(overrides),
        }
    }

    fn ttl(source: &Source) -> Result<Duration, String> {
        let mut errors = ConfigErrors::new();
        let ttl = source.read("lease", "ttl", "15s", &mut errors);
        errors
            .into_result(ttl)
            .map_err(|errors| errors.iter().next().unwrap().to_string())
    }

    #[test]
    fn the_highest_layer_wins() {
        let file = "[lease]\nttl = \"1s\"";
        let env = [("RELEVO_LEASE_TTL", "2s")];
        assert_eq!(ttl(&source("", &[], &[])), Ok(Duration::from_secs(15)));
        assert_eq!(ttl(&source(file, &[], &[])), Ok(Duration::from_secs(1)));
        assert_eq!(ttl(&source(file, &env, &[])), Ok(Duration::from_secs(2)));
        assert_eq!(
            ttl(&source(file, &env, &[("lease.ttl", "3s")])),
            Ok(Duration::from_secs(3))
        );
    }

    #[test]
    fn an_error_names_where_the_value_came_from() {
        let form = Duration::EXPECTED;
        assert_eq!(
            ttl(&source("[lease]\nttl = 15", &[], &[])),
            Err(format!("lease.ttl in relevo.toml = 15: must be {form}"))
        );
        assert_eq!(
            ttl(&source("", &[("RELEVO_LEASE_TTL", "soon")], &[])),
            Err(format!("RELEVO_LEASE_TTL = \"soon\": must be {form}"))
        );
        assert_eq!(
            ttl(&source("", &[], &[("lease.ttl", "")])),
            Err(format!("lease.ttl on the command line = \"\": must be {form}"))
        );
    }

    #[test]
    fn a_secret_of_the_wrong_form_is_not_shown() {
        let source = source("[redis]\npassword = [\"hunter2\"]", &[], &[]);
        let mut errors = ConfigErrors::new();
        let _: Secret = source.read("redis", "password", "x", &mut errors);
        assert_eq!(errors.len(), 1);
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }

    #[test]
    fn the_layers_are_debugged_without_their_values() {
        let source = source("", &[("RELEVO_REDIS_PASSWORD", "hunter2")], &[]);
        let shown = format!("{source:?}");
        assert!(
            shown.contains("RELEVO_REDIS_PASSWORD") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn a_value_that_is_not_utf8_is_refused() {
        let shown = ttl(&source("", &[("RELEVO_LEASE_TTL", "1\u{fffd}s")], &[]));
        assert_eq!(shown, Err("RELEVO_LEASE_TTL: must be UTF-8".to_owned()));
    }
}
