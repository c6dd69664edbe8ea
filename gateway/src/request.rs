//! Typed requests, read from JSON with the path of every field that is wrong.
//!
//! Owns the form of what clients send: types, oneofs, required fields, names, limits. Nothing here looks at Redis or
//! knows a transport: JSON-RPC hands in its `params`, another binding its body. Unknown fields are passed over; field
//! names are also understood in the spelling of the proto file (`context_id`), as ProtoJSON wants.

mod artifact;
mod message;
mod reader;
mod secrets;
mod tasks;
#[cfg(test)]
mod tests;
mod timestamp;

pub(crate) use artifact::GetArtifact;
pub(crate) use message::SendMessage;
pub(crate) use reader::Violation;
pub(crate) use reader::{Path, Violations, too_deep, whole};
pub(crate) use secrets::SecretKeys;
pub(crate) use tasks::{CancelTask, ExtendedCard, GetTask, ListTasks, PushConfig, SubscribeToTask};

use reader::Object;
use serde_json::Value;

use crate::error::ApiError;

/// Deepest nesting of a request: far more than any real message, far less than what a parser or a stack minds.
pub(crate) const DEEPEST: usize = 64;
/// Longest tenant name.
const LONGEST_TENANT: usize = 256;

/// Reads `params` as an object and lets `read` take its fields; all violations come together.
fn read<T>(params: Value, read: impl FnOnce(&mut Object<'_>, &mut Violations) -> T) -> Result<T, ApiError> {
    if let Some(path) = too_deep(&params, DEEPEST) {
        return Err(ApiError::invalid(
            path,
            format!("is nested deeper than {DEEPEST} levels"),
        ));
    }
    let mut violations = Violations::default();
    let map = match params {
        Value::Object(map) => map,
        Value::Null => serde_json::Map::new(),
        _ => return Err(ApiError::invalid("params", "must be an object")),
    };
    let root = Path::Root;
    let mut object = Object::new(map, &root, &mut violations);
    let request = read(&mut object, &mut violations);
    violations.into_result(request)
}

fn tenant(object: &mut Object<'_>, violations: &mut Violations) -> String {
    let tenant = object.text("tenant", violations).unwrap_or_default();
    if tenant.len() > LONGEST_TENANT {
        violations.add(&object.at("tenant"), format!("must be at most {LONGEST_TENANT} bytes"));
    }
    tenant
}
