//! A value of an agent's table that may be a secret: it stands in the table, in a file, or in a variable of the worker.

use std::path::PathBuf;

use toml::Value;

use crate::platform::config::{Secret, env_var};

/// What such a value must be.
pub(super) const FORM: &str = "must be a text without NUL, { file = \"PATH\" } or { env = \"NAME\" }";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// The table itself.
    Text(Secret),
    /// The content of a file, line ends after it cut; read when it is needed.
    File(PathBuf),
    /// A variable of the worker.
    Env(String),
}

impl EnvValue {
    /// Reads what the table says; the value itself is not read.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.contains('\0')).map(str::to_owned);
        let Some(table) = value.as_table() else {
            return text(value).map(|text| Self::Text(Secret::new(text)));
        };
        let (name, value) = table.iter().next().filter(|_| table.len() == 1)?;
        let source = text(value).filter(|text| !text.is_empty())?;
        match name.as_str() {
            "file" => Some(Self::File(PathBuf::from(source))),
            "env" => is_variable(&source).then_some(Self::Env(source)),
            _ => None,
        }
    }

    /// The value, now.
    ///
    /// # Errors
    /// Where it is not; never what it is.
    pub fn read(&self) -> Result<Secret, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Env(name) => env_var(name)
                .map(Secret::new)
                .ok_or_else(|| format!("{name} is not set for the worker")),
            Self::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("{} cannot be read: {}", path.display(), error.kind()))?;
                let text = text.trim_end_matches(['\r', '\n']);
                if text.contains('\0') {
                    return Err(format!("{} holds a NUL", path.display()));
                }
                Ok(Secret::new(text))
            }
        }
    }
}

/// Whether a text can be the name of a variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
