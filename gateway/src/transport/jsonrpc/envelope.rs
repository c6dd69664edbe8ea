//! The envelope of a request. What cannot be read is refused as the standard says: no JSON, JSON that is no request,
//! a batch, a notification, an id that is neither text nor number.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::ApiError;
use crate::transport::body;

/// Longest id: it is repeated in every event of a stream.
const LONGEST_ID: usize = 256;

/// The id of a request, kept exactly as it was written: a number keeps its spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcId(Box<str>);

impl RpcId {
    /// Takes JSON text that is a string or a number.
    pub(crate) fn parse(raw: &str) -> Option<Self> {
        let fits = raw.len() <= LONGEST_ID && raw.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit());
        fits.then(|| Self(raw.into()))
    }

    /// The id of an answer to something without a readable id.
    pub(crate) fn null() -> Self {
        Self("null".into())
    }

    /// As JSON.
    pub(crate) fn raw(&self) -> &str {
        &self.0
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) id: RpcId,
    pub(crate) method: String,
    pub(crate) params: Value,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(default)]
    jsonrpc: Value,
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Value,
    #[serde(default)]
    params: Value,
}

impl Envelope {
    /// Reads a body. The error comes with the id to answer with.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Box<(RpcId, ApiError)>> {
        let refuse = |id: Option<RpcId>, why| {
            Err(Box::new((
                id.unwrap_or_else(RpcId::null),
                ApiError::InvalidRequest(why),
            )))
        };
        let unreadable = |error| Err(Box::new((RpcId::null(), ApiError::Parse(body::describe(&error)))));
        let raw: Raw<'_> = match bytes.trim_ascii_start().first() {
            Some(b'{') => match serde_json::from_slice(bytes) {
                Ok(raw) => raw,
                Err(error) if error.is_data() => return refuse(None, "a member of the request is given twice"),
                Err(error) => return unreadable(error),
            },
            // Not an object: whether it is JSON at all decides which error it is.
            first => {
                return match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
                    Err(error) => unreadable(error),
                    Ok(_) if first == Some(&b'[') => refuse(None, "batches are not supported"),
                    Ok(_) => refuse(None, "it is not an object"),
                };
            }
        };
        let id = match raw.id.map(|id| RpcId::parse(id.get())) {
            Some(Some(id)) => id,
            Some(None) => return refuse(None, "id must be a string or a number of at most 256 bytes"),
            None => return refuse(None, "id is missing; notifications are not supported"),
        };
        if raw.jsonrpc != "2.0" {
            return refuse(Some(id), "jsonrpc must be \"2.0\"");
        }
        let Value::String(method) = raw.method else {
            return refuse(Some(id), "method must be a string");
        };
        Ok(Self {
            id,
            method,
            params: raw.params,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: &ApiError) -> i64 {
        error.to_json()["code"].as_i64().unwrap()
    }

    fn refused(text: &str) -> (String, i64) {
        let (id, error) = *Envelope::parse(text.as_bytes()).unwrap_err();
        (id.raw().to_owned(), code(&error))
    }

    #[test]
    fn ids_are_echoed_exactly() {
        for id in [
            "\"a\"",
            "1",
            "-1",
            "1.0",
            "1e2",
            "12345678901234567890123",
            "\"\\u00e9\"",
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask"}}"#);
            assert_eq!(Envelope::parse(text.as_bytes()).unwrap().id.raw(), id);
        }
    }

    #[test]
    fn what_is_not_json_is_a_parse_error() {
        let deep = format!(r#"{{"params":{}1{}}}"#, "[".repeat(300), "]".repeat(300));
        for text in [
            "",
            "{",
            "nonsense",
            r#"{"id":1,}"#,
            "[1,",
            "{\"a\":\"\\ud800\"}x",
            &deep,
        ] {
            assert_eq!(refused(text), ("null".to_owned(), -32700), "{text}");
        }
        let (_, error) = *Envelope::parse(b"{\"method\":\"\xff\"}").unwrap_err();
        assert_eq!(code(&error), -32700);
    }

    #[test]
    fn json_that_is_no_request_is_an_invalid_request() {
        for (text, id) in [
            ("1", "null"),
            ("\"a\"", "null"),
            ("[]", "null"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#, "null"),
            ("{}", "null"),
            (r#"{"jsonrpc":"2.0","method":"GetTask"}"#, "null"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"GetTask"}"#, "null"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"GetTask"}"#, "null"),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"GetTask"}"#, "null"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, "null"),
            (r#"{"jsonrpc":"1.0","id":7,"method":"GetTask"}"#, "7"),
            (r#"{"id":7,"method":"GetTask"}"#, "7"),
            (r#"{"jsonrpc":"2.0","id":7}"#, "7"),
            (r#"{"jsonrpc":"2.0","id":7,"method":1}"#, "7"),
            (r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"GetTask"}"#, "null"),
        ] {
            assert_eq!(refused(text), (id.to_owned(), -32600), "{text}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"GetTask"}}"#, "x".repeat(300));
        assert_eq!(refused(&long), ("null".to_owned(), -32600));
    }
}

#[cfg(test)]
mod hostile {
    use proptest::prelude::*;
    use relevo_testkit::hostile::damaged;

    use super::*;

    const SAMPLES: &[&str] = &[
        r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#,
        r#"{"id":"a","params":[1,null,{"a":"\\ud83d\\ude00"}],"method":"","jsonrpc":"2.0"}"#,
        r#"[{"jsonrpc":"2.0","id":-1.5e3,"method":"SendMessage"}]"#,
        "null",
    ];

    /// An id that is answered with is JSON by itself, whatever was read.
    fn parse(bytes: &[u8]) -> Result<(), TestCaseError> {
        let id = match Envelope::parse(bytes) {
            Ok(envelope) => envelope.id,
            Err(refused) => {
                let (id, error) = *refused;
                let code = error.to_json()["code"].as_i64();
                prop_assert!(matches!(code, Some(-32700 | -32600)), "{error:?}");
                id
            }
        };
        let raw: Value =
            serde_json::from_str(id.raw()).map_err(|error| TestCaseError::fail(format!("{error}: {id:?}")))?;
        prop_assert!(raw.is_null() || raw.is_string() || raw.is_number());
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damaged_requests_are_read_or_refused(bytes in damaged(SAMPLES)) {
            parse(&bytes)?;
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes)?;
        }
    }
}
