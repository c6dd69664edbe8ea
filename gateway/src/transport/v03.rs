//! A2A 0.3: the older shapes, translated into those of 1.0 and back. Pure: JSON in, JSON out.
//!
//! Nothing but shapes is decided here. What a request may say is judged by the reader of all bindings, which sees it as 1.0.
//! The two bindings differ in their shapes: JSON-RPC has JSON of its own (`kind`, `parts`, `working`), HTTP+JSON that of the
//! proto file of 0.3 (`content`, `TASK_STATE_WORKING`).

pub(crate) mod card;
pub(crate) mod rest;
pub(crate) mod rpc;

use serde_json::{Map, Value};

type Fields = Map<String, Value>;

/// Applies a change to a member that is an object; anything else is left to the reader to refuse.
fn change(object: &mut Fields, name: &str, how: impl Fn(&mut Fields)) {
    if let Some(Value::Object(member)) = object.get_mut(name) {
        how(member);
    }
}

fn rename(object: &mut Fields, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

/// Changes an object; what is none stays as it is.
fn changed(value: Value, how: impl FnOnce(&mut Fields)) -> Value {
    let Value::Object(mut fields) = value else { return value };
    how(&mut fields);
    Value::Object(fields)
}

fn each(object: &mut Fields, name: &str, how: impl Fn(Value) -> Value) {
    if let Some(Value::Array(list)) = object.get_mut(name) {
        for item in list {
            *item = how(item.take());
        }
    }
}

/// Moves the members that a file had in 0.3 into its part, or back.
fn moved<const N: usize>(from: &mut Fields, into: &mut Fields, names: [(&str, &str); N]) {
    for (old, new) in names {
        if let Some(value) = from.remove(old) {
            into.insert(new.to_owned(), value);
        }
    }
}

/// 0.3 has a list of schemes in a push config, 1.0 has one.
fn push_config(config: &mut Fields) {
    change(config, "authentication", |authentication| {
        if let Some(Value::Array(schemes)) = authentication.remove("schemes")
            && let Some(first) = schemes.into_iter().next()
        {
            authentication.insert("scheme".to_owned(), first);
        }
    });
}

/// Data as 0.3 has it: objects only.
fn object_of(data: Value) -> Value {
    if data.is_object() {
        data
    } else {
        serde_json::json!({ "value": data })
    }
}

/// Codes that 0.3 does not know are internal errors there.
pub(crate) fn error(mut error: Value) -> Value {
    if let Some(code) = error
        .get_mut("code")
        .filter(|code| matches!(code.as_i64(), Some(-32008 | -32009)))
    {
        *code = (-32603).into();
    }
    error
}

/// A result or event of 1.0, as it is printed or stored, in another shape.
fn translated(bytes: &[u8], how: impl FnOnce(Value) -> Value) -> Vec<u8> {
    // What is printed or stored here is JSON.
    let value = serde_json::from_slice(bytes).unwrap_or_default();
    how(value).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_that_0_3_does_not_know_are_internal() {
        assert_eq!(error(json!({ "code": -32009 }))["code"], -32603);
        assert_eq!(error(json!({ "code": -32001 }))["code"], -32001);
    }

    #[test]
    fn the_first_scheme_of_a_push_config_counts() {
        let mut config = Fields::from_iter([(
            "authentication".to_owned(),
            json!({ "schemes": ["Bearer", "Basic"], "credentials": "c" }),
        )]);
        push_config(&mut config);
        assert_eq!(
            config["authentication"],
            json!({ "scheme": "Bearer", "credentials": "c" })
        );
    }
}
