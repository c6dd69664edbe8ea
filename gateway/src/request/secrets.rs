//! Metadata keys that carry credentials: what is sent under them is refused, because it would be stored in the clear.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::reader::{Path, Violations};

/// The patterns of `secrets.metadata_keys`.
#[derive(Debug, Clone)]
pub(crate) struct SecretKeys(Vec<Pattern>);

/// A name in which `*` stands for any text.
#[derive(Debug, Clone)]
struct Pattern(Vec<String>);

impl SecretKeys {
    pub(crate) fn new(patterns: &[String]) -> Self {
        let pattern = |text: &String| Pattern(text.to_ascii_lowercase().split('*').map(str::to_owned).collect());
        Self(patterns.iter().map(pattern).collect())
    }

    fn matches(&self, key: &str) -> bool {
        let key = key.to_ascii_lowercase();
        self.0.iter().any(|pattern| pattern.matches(&key))
    }

    /// Reports every secret key in `metadata`, at any depth: profiles nest theirs under one key.
    pub(super) fn check(&self, metadata: &HashMap<String, Value>, path: &Path<'_>, violations: &mut Violations) {
        for (key, value) in metadata {
            self.entry(key, value, path, violations);
        }
    }

    fn entry(&self, key: &str, value: &Value, path: &Path<'_>, violations: &mut Violations) {
        let path = Path::Key(path, key);
        if self.matches(key) {
            violations.add(
                &path,
                "carries a credential, which this server does not accept in metadata",
            );
        } else {
            self.value(value, &path, violations);
        }
    }

    fn value(&self, value: &Value, path: &Path<'_>, violations: &mut Violations) {
        match value {
            Value::Object(map) => self.object(map, path, violations),
            Value::Array(list) => {
                for (place, value) in list.iter().enumerate() {
                    self.value(value, &Path::At(path, place), violations);
                }
            }
            _ => {}
        }
    }

    fn object(&self, map: &Map<String, Value>, path: &Path<'_>, violations: &mut Violations) {
        for (key, value) in map {
            self.entry(key, value, path, violations);
        }
    }
}

impl Pattern {
    fn matches(&self, key: &str) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else {
            return self.0.first().is_some_and(|whole| whole == key);
        };
        let Some(mut rest) = key
            .strip_prefix(first.as_str())
            .and_then(|rest| rest.strip_suffix(last.as_str()))
        else {
            return false;
        };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else {
                return false;
            };
            rest = rest.get(at + part.len()..).unwrap_or_default();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let keys = SecretKeys::new(&["authorization".into(), "*_token".into(), "a*b*c".into()]);
        for key in ["Authorization", "x_security_token", "_token", "abc", "aXbYc"] {
            assert!(keys.matches(key), "{key}");
        }
        for key in ["authorization2", "token", "ab", "acb", ""] {
            assert!(!keys.matches(key), "{key}");
        }
    }
}
