//! Taking fields out of JSON objects, with the path of each for the error.

use std::collections::HashMap;
use std::fmt;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::error::{ApiError, echo};

/// Most violations that are reported: enough to repair a request, too few to be a weapon.
const MOST: usize = 16;

/// A field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Its path, such as `message.parts[0].text`.
    pub(crate) field: String,
    /// What it must be.
    pub(crate) description: String,
}

/// All that is wrong with one request.
#[derive(Debug, Default)]
pub(crate) struct Violations(Vec<Violation>);

impl Violations {
    pub(crate) fn add(&mut self, path: &Path<'_>, description: impl Into<String>) {
        if self.0.len() < MOST {
            self.0.push(Violation {
                field: path.to_string(),
                description: description.into(),
            });
        }
    }

    pub(crate) fn into_result<T>(self, value: T) -> Result<T, ApiError> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(ApiError::InvalidParams(self.0))
        }
    }
}

/// Where a value stands. Written out only when something is wrong with it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    At(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Path::Root, key) => f.write_str(echo(key)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", echo(key)),
            Self::At(parent, place) => write!(f, "{parent}[{place}]"),
        }
    }
}

/// An object whose fields are taken out one by one.
#[derive(Debug)]
pub(super) struct Object<'a> {
    map: Map<String, Value>,
    path: &'a Path<'a>,
    /// Whether a field may be spelled as in the proto file.
    snake: bool,
}

impl<'a> Object<'a> {
    /// A field in both spellings is a violation: which of the two counts would be a guess.
    pub(super) fn new(map: Map<String, Value>, path: &'a Path<'a>, violations: &mut Violations) -> Self {
        let snake = map.keys().any(|key| key.contains('_'));
        if snake {
            for key in map
                .keys()
                .filter(|key| map.contains_key(&snake_of(key)) && snake_of(key) != **key)
            {
                violations.add(&Path::Key(path, key), "is given twice, in two spellings");
            }
        }
        Self { map, path, snake }
    }

    /// The value as an object; anything else is a violation.
    pub(super) fn from_value(value: Value, path: &'a Path<'a>, violations: &mut Violations) -> Option<Self> {
        if let Value::Object(map) = value {
            return Some(Self::new(map, path, violations));
        }
        violations.add(path, "must be an object");
        None
    }

    /// The path of a field.
    pub(super) fn at<'p>(&'p self, key: &'p str) -> Path<'p> {
        Path::Key(self.path, key)
    }

    /// Takes a field; null is the same as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.take_even_null(key).filter(|value| !value.is_null())
    }

    /// Takes a field whose value may be null.
    pub(super) fn take_even_null(&mut self, key: &str) -> Option<Value> {
        let found = self.map.remove(key);
        if found.is_some() || !self.snake {
            return found;
        }
        self.map.remove(&snake_of(key))
    }

    /// A field that must be there.
    pub(super) fn required(&mut self, key: &str, violations: &mut Violations) -> Option<Value> {
        let value = self.take(key);
        if value.is_none() {
            violations.add(&self.at(key), "is required");
        }
        value
    }

    /// A text; the empty one is the same as absent.
    pub(super) fn text(&mut self, key: &str, violations: &mut Violations) -> Option<String> {
        if let Value::String(text) = self.take(key)? {
            return Some(text).filter(|text| !text.is_empty());
        }
        violations.add(&self.at(key), "must be a string");
        None
    }

    /// A text that must be there and not empty.
    pub(super) fn required_text(&mut self, key: &str, violations: &mut Violations) -> Option<String> {
        match self.required(key, violations)? {
            Value::String(text) if !text.is_empty() => Some(text),
            Value::String(_) => {
                violations.add(&self.at(key), "must not be empty");
                None
            }
            _ => {
                violations.add(&self.at(key), "must be a string");
                None
            }
        }
    }

    /// Texts in a list.
    pub(super) fn texts(&mut self, key: &str, most: usize, violations: &mut Violations) -> Option<Vec<String>> {
        let Value::Array(values) = self.take(key)? else {
            violations.add(&self.at(key), "must be an array");
            return None;
        };
        if values.len() > most {
            violations.add(&self.at(key), format!("must have at most {most} items"));
            return None;
        }
        let path = self.at(key);
        let mut texts = Vec::with_capacity(values.len());
        for (place, value) in values.into_iter().enumerate() {
            match value {
                Value::String(text) => texts.push(text),
                _ => violations.add(&Path::At(&path, place), "must be a string"),
            }
        }
        Some(texts)
    }

    /// A whole number; ProtoJSON also allows its decimal text.
    pub(super) fn int32(&mut self, key: &str, violations: &mut Violations) -> Option<i32> {
        let value = self.take(key)?;
        let number = match &value {
            Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.and_then(|number| i32::try_from(number).ok());
        if number.is_none() {
            violations.add(&self.at(key), "must be a whole number of 32 bits");
        }
        number
    }

    /// A moment.
    pub(super) fn timestamp(&mut self, key: &str, violations: &mut Violations) -> Option<DateTime<Utc>> {
        let value = self.take(key)?;
        let time = value.as_str().and_then(super::timestamp::parse);
        if time.is_none() {
            let rule = "must be a UTC time such as 2026-11-30T10:39:06.380Z";
            violations.add(&self.at(key), rule);
        }
        time
    }

    /// True or false.
    pub(super) fn flag(&mut self, key: &str, violations: &mut Violations) -> Option<bool> {
        if let Value::Bool(flag) = self.take(key)? {
            return Some(flag);
        }
        violations.add(&self.at(key), "must be true or false");
        None
    }

    /// A free-form object.
    pub(super) fn metadata(&mut self, key: &str, violations: &mut Violations) -> Option<HashMap<String, Value>> {
        if let Value::Object(map) = self.take(key)? {
            return Some(map.into_iter().collect());
        }
        violations.add(&self.at(key), "must be an object");
        None
    }
}

/// A number that has no fraction, and that a double holds exactly.
#[expect(clippy::cast_possible_truncation, reason = "compared before: it is whole and small")]
pub(crate) fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
}

/// `contextId` as the proto file spells it: `context_id`.
fn snake_of(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// The path of the first value that stands below `limit` levels, if any.
pub(crate) fn too_deep(value: &Value, limit: usize) -> Option<String> {
    fn walk(value: &Value, left: usize, path: &Path<'_>) -> Option<String> {
        match value {
            Value::Object(_) | Value::Array(_) if left == 0 => Some(path.to_string()),
            Value::Object(map) => map
                .iter()
                .find_map(|(key, value)| walk(value, left - 1, &Path::Key(path, key))),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .find_map(|(place, value)| walk(value, left - 1, &Path::At(path, place))),
            _ => None,
        }
    }
    walk(value, limit, &Path::Root)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object<'static> {
        let Value::Object(map) = value else {
            panic!("not an object")
        };
        Object::new(map, &Path::Root, &mut Violations::default())
    }

    #[test]
    fn both_spellings_of_a_name_are_understood() {
        let mut violations = Violations::default();
        let mut fields = object(json!({ "context_id": "a", "historyLength": "3", "page_size": 4.0 }));
        assert_eq!(fields.text("contextId", &mut violations).as_deref(), Some("a"));
        assert_eq!(fields.int32("historyLength", &mut violations), Some(3));
        assert_eq!(fields.int32("pageSize", &mut violations), Some(4));
        assert!(violations.into_result(()).is_ok());
    }

    #[test]
    fn a_field_in_both_spellings_is_refused() {
        let mut violations = Violations::default();
        let map = Map::from_iter(["contextId", "context_id", "a_b"].map(|key| (key.to_owned(), Value::Null)));
        Object::new(map, &Path::Root, &mut violations);
        assert_eq!(violations.0.len(), 1);
        assert_eq!(violations.0[0].field, "contextId");
    }

    #[test]
    fn wrong_types_are_named_by_their_path() {
        let mut violations = Violations::default();
        let parent = Path::Root;
        let list = Path::Key(&parent, "parts");
        let path = Path::At(&list, 2);
        let mut fields = Object {
            path: &path,
            ..object(json!({ "text": 1, "n": 1.5, "b": "x", "l": [1], "m": [] }))
        };
        fields.text("text", &mut violations);
        fields.int32("n", &mut violations);
        fields.flag("b", &mut violations);
        fields.texts("l", 9, &mut violations);
        fields.metadata("m", &mut violations);
        fields.required("gone", &mut violations);
        let paths: Vec<&str> = violations.0.iter().map(|v| v.field.as_str()).collect();
        let all = ["text", "n", "b", "l[0]", "m", "gone"].map(|key| format!("parts[2].{key}"));
        assert_eq!(paths, all);
    }

    #[test]
    fn nesting_is_bounded_and_the_deep_place_named() {
        let deep = json!({ "a": [{ "b": [1] }] });
        assert_eq!(too_deep(&deep, 4), None);
        assert_eq!(too_deep(&deep, 3), Some("a[0].b".to_owned()));
    }

    #[test]
    fn a_long_name_is_repeated_in_part() {
        let long = "é".repeat(1_000_000);
        let path = Path::Key(&Path::Root, &long);
        assert_eq!(Path::Key(&path, "b").to_string().len(), 128 + 2);
    }
}
