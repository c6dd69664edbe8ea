//! Refused configuration: every error of one start, together.

use std::fmt;

use super::Setting;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The variable, or the key with the file it is in, as the operator wrote it.
    pub key: String,
    /// The value found, masked where it is secret; `None` where the value is not what is wrong.
    pub value: Option<String>,
    /// What holds instead: completes "`key` = `value`: …".
    pub rule: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(formatter, "{} = {value}: {}", self.key, self.rule),
            None => write!(formatter, "{}: {}", self.key, self.rule),
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// None so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, error: ConfigError) {
        self.0.push(error);
    }

    /// Adds one about a key or variable whose value does not matter (unknown, missing).
    pub fn refuse(&mut self, key: impl Into<String>, rule: impl Into<String>) {
        self.push(ConfigError {
            key: key.into(),
            value: None,
            rule: rule.into(),
        });
    }

    /// Adds one unless `holds`. The value is printed as the configuration prints it, so a secret stays masked.
    pub fn require<T: Setting>(&mut self, holds: bool, key: &str, value: &T, rule: &str) {
        if !holds {
            let value = Some(value.print().unwrap_or_else(|| "\"\"".to_owned()));
            self.push(ConfigError {
                key: key.to_owned(),
                value,
                rule: rule.to_owned(),
            });
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Each of them, in the order found.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }

    /// `value` if nothing is wrong.
    ///
    /// # Errors
    /// All of them, otherwise.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => write!(formatter, "the configuration has no error"),
            [_] => write!(formatter, "the configuration has an error:"),
            several => write!(formatter, "the configuration has {} errors:", several.len()),
        }?;
        self.0.iter().try_for_each(|error| write!(formatter, "\n  {error}"))
    }
}

impl std::error::Error for ConfigErrors {}

#[cfg(test)]
mod tests {
    use super::super::Secret;
    use super::*;

    #[test]
    fn all_errors_are_printed_together_one_a_line() {
        let mut errors = ConfigErrors::new();
        errors.refuse("lease.tll", "is not a key");
        errors.require(false, "worker.slots", &0_u32, "must be at least 1");
        assert_eq!(
            errors.to_string(),
            "the configuration has 2 errors:\n  lease.tll: is not a key\n  worker.slots = 0: must be at least 1"
        );
    }

    #[test]
    fn a_secret_that_breaks_a_rule_stays_masked() {
        let mut errors = ConfigErrors::new();
        errors.require(false, "redis.password", &Secret::new("hunter2"), "must be longer");
        assert!(!errors.to_string().contains("hunter2"));
        assert!(!format!("{errors:?}").contains("hunter2"));
    }

    #[test]
    fn a_rule_that_holds_adds_nothing() {
        let mut errors = ConfigErrors::new();
        errors.require(true, "worker.slots", &1_u32, "must be at least 1");
        assert_eq!(errors.into_result(7), Ok(7));
    }
}
