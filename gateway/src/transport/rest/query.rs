//! The query of a GET or DELETE as the parameters of its operation.

use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::error::ApiError;
use crate::transport::version;

/// Every parameter as a member; the reader of requests judges what it knows. A parameter that is given twice is refused:
/// none of those that exist is a list.
pub(super) fn params(query: &str) -> Result<Map<String, Value>, ApiError> {
    let mut params = Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if version::is_parameter(&name) {
            continue;
        }
        let value = match (name.as_ref(), value.as_ref()) {
            ("includeArtifacts" | "include_artifacts", "true") => Value::Bool(true),
            ("includeArtifacts" | "include_artifacts", "false") => Value::Bool(false),
            (_, text) => Value::String(text.to_owned()),
        };
        if params.insert(name.as_ref().to_owned(), value).is_some() {
            let field: String = name.chars().take(64).collect();
            return Err(ApiError::invalid(field, "is given more than once"));
        }
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_become_members() {
        let read = params("contextId=a%3Ab&pageSize=5&includeArtifacts=true&A2A-Version=1.0&x").unwrap();
        let expected = json!({ "contextId": "a:b", "pageSize": "5", "includeArtifacts": true, "x": "" });
        assert_eq!(Value::Object(read), expected);
        assert!(params("").unwrap().is_empty());
    }

    #[test]
    fn a_parameter_is_given_once() {
        assert!(matches!(params("a=1&b=2&a=1"), Err(ApiError::InvalidParams(_))));
    }
}
