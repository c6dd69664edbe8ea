//! A YAML file as the same tables that a TOML file is read as.
//!
//! Owns how YAML's values become TOML's; which keys there are is not its matter. Its errors show where, and nothing of
//! what stands there, which may be a secret.

use serde_json::Value;
use serde_saphyr::{Error, Options};
use toml::Table;

/// Whether a file of this name is YAML.
pub(super) fn is_yaml(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    matches!(ending.as_deref(), Some("yaml" | "yml"))
}

/// The mapping in the text, or the line that is wrong, if it is one, and the rule.
pub(super) fn read(text: &str) -> Result<Table, (Option<u64>, String)> {
    match serde_saphyr::from_str_with_options::<Value>(text, options()) {
        Ok(Value::Object(mapping)) => {
            let mut table = Table::new();
            for (key, value) in mapping {
                let value = converted(value).map_err(|rule| (None, format!("{key}: {rule}")))?;
                table.extend(value.map(|value| (key, value)));
            }
            Ok(table)
        }
        // A file of comments.
        Ok(Value::Null) => Ok(Table::new()),
        Ok(_) => Err((None, "must contain a YAML mapping".to_owned())),
        Err(error) => {
            let line = error.location().map(|location| location.line());
            let rule = match error.without_snippet() {
                Error::DuplicateMappingKey { .. } => "has a key twice",
                _ => "is not YAML",
            };
            Err((line, rule.to_owned()))
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        // A token of digits is not a number.
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
    }
}

/// What is null is not set.
fn converted(value: Value) -> Result<Option<toml::Value>, String> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(truth) => toml::Value::Boolean(truth),
        Value::String(text) => toml::Value::String(text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => toml::Value::Integer(whole),
            (None, Some(float)) if !number.is_u64() => toml::Value::Float(float),
            _ => return Err("is a number too large; put it in quotes if it is a text".to_owned()),
        },
        Value::Array(values) => {
            let values = values
                .into_iter()
                .map(|value| converted(value)?.ok_or_else(|| "has an item that is null".to_owned()));
            toml::Value::Array(values.collect::<Result<_, _>>()?)
        }
        Value::Object(mapping) => {
            let mut table = Table::new();
            for (key, value) in mapping {
                table.extend(converted(value)?.map(|value| (key, value)));
            }
            toml::Value::Table(table)
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_read_as_what_toml_would_be() {
        let yaml = "redis:\n  url: redis://h\n  partitions: 8\nlimits: {redis_memory: 0.5}\nagents:\n  a:\n    kind: demo\n\
                    workspace:\n  roots: [/a, /b]\ngateway:\n  public_url: null\n  a2a_0_3: false\n";
        let toml = "[redis]\nurl = \"redis://h\"\npartitions = 8\n[limits]\nredis_memory = 0.5\n[agents.a]\nkind = \"demo\"\n\
                    [workspace]\nroots = [\"/a\", \"/b\"]\n[gateway]\na2a_0_3 = false\n";
        assert_eq!(read(yaml).unwrap(), toml::from_str::<Table>(toml).unwrap());
    }

    #[test]
    fn a_text_of_digits_stays_a_text() {
        let table = read("a: 0123\nb: \"123\"\nc: 1_000\n").unwrap();
        assert_eq!(table["a"].as_str(), Some("0123"));
        assert_eq!(table["b"].as_str(), Some("123"));
        assert_eq!(table["c"].as_str(), Some("1_000"));
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        assert_eq!(read("# nothing\n"), Ok(Table::new()));
        for text in ["- a\n", "hunter2\n", "3\n"] {
            assert_eq!(
                read(text),
                Err((None, "must contain a YAML mapping".to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn an_error_names_the_line_and_shows_nothing_of_it() {
        for (text, line) in [
            ("a: 1\ntoken: [hunter2\n", 2),
            ("a: 1\nb: *hunter2\n", 2),
            ("a: 1\na: hunter2\n", 2),
        ] {
            let (found, rule) = read(text).unwrap_err();
            assert!(found >= Some(line), "{text}: {found:?}");
            assert!(!rule.contains("hunter2"), "{rule}");
        }
    }

    #[test]
    fn numbers_that_are_none_of_toml_are_refused() {
        let (_, rule) = read("a: 18446744073709551615\n").unwrap_err();
        assert!(rule.starts_with("a: is a number too large"), "{rule}");
    }

    #[test]
    fn a_small_file_cannot_become_a_large_one() {
        let level = |n: u32| format!("k{n}: &k{n} [*k{0}, *k{0}, *k{0}, *k{0}, *k{0}, *k{0}]\n", n - 1);
        let bomb: Vec<String> = (1..40).map(level).collect();
        assert!(read(&format!("k0: &k0 [x, x, x, x]\n{}", bomb.concat())).is_err());
    }
}
