//! What a table says of an agent that is a server behind a URL, whatever that server speaks: where it is and who calls.
//!
//! Owns the form and the rules of these keys. It reads no secret: `{ file = … }` and `{ env = … }` are looked up by the worker that
//! calls the server, never by the gateway.

use std::collections::BTreeMap;

use url::Url;

use super::read::Reader;
use super::value::{EnvValue, FORM};
use crate::platform::egress::{Credentials, header_name, parse_url};

/// The keys that every such table has.
pub(super) const KEYS: [&str; 3] = ["url", "bearer", "headers"];

/// A server behind a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Where it is.
    pub url: Url,
    /// The token of `Authorization: Bearer`.
    pub bearer: Option<EnvValue>,
    /// Further headers that show who calls.
    pub headers: BTreeMap<String, EnvValue>,
}

impl UpstreamConfig {
    /// A server that asks for no credentials.
    pub fn of_url(url: Url) -> Self {
        Self {
            url,
            bearer: None,
            headers: BTreeMap::new(),
        }
    }

    /// Its credentials; secrets are read now.
    ///
    /// # Errors
    /// The key and what is wrong with it, never a value.
    pub fn credentials(&self) -> Result<Credentials, (String, String)> {
        let mut credentials = Credentials::new(&self.url);
        if let Some(bearer) = &self.bearer {
            let failed = |rule: String| ("bearer".to_owned(), rule);
            let token = bearer.read().map_err(failed)?;
            credentials = credentials.bearer(&token).map_err(|error| failed(error.to_string()))?;
        }
        for (name, value) in &self.headers {
            let failed = |rule: String| (format!("headers.{name}"), rule);
            let value = value.read().map_err(failed)?;
            credentials = credentials
                .header(name, &value)
                .map_err(|error| failed(error.to_string()))?;
        }
        Ok(credentials)
    }
}

/// Reads the keys; `None` when there is no URL to call, which is then an error.
pub(super) fn upstream(reader: &mut Reader<'_>) -> Option<UpstreamConfig> {
    let url = url(reader);
    let bearer = reader.table.get("bearer").and_then(|value| {
        let read = EnvValue::parse(value);
        if read.is_none() {
            reader.refuse("bearer", FORM);
        }
        read
    });
    let headers = headers(reader);
    if bearer.is_some() && headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
        reader.refuse(
            "headers",
            "has an Authorization beside `bearer`: only one of them can be sent",
        );
    }
    Some(UpstreamConfig {
        url: url?,
        bearer,
        headers,
    })
}

fn url(reader: &mut Reader<'_>) -> Option<Url> {
    let text = reader.required_text("url");
    if text.is_empty() {
        return None;
    }
    // The text is not shown: it may hold a password.
    match parse_url(&text) {
        Ok(url) if url.fragment().is_some() => {
            reader.refuse("url", "must not have a fragment (#…)");
            None
        }
        Ok(url) => Some(url),
        Err(refused) => {
            let hint = "; credentials go into `bearer` or `headers`";
            let hint = if text.contains('@') { hint } else { "" };
            reader.refuse("url", &format!("{refused}{hint}"));
            None
        }
    }
}

fn headers(reader: &mut Reader<'_>) -> BTreeMap<String, EnvValue> {
    let Some(value) = reader.table.get("headers") else {
        return BTreeMap::new();
    };
    let Some(table) = value.as_table() else {
        reader.refuse("headers", "must be a table of headers");
        return BTreeMap::new();
    };
    let mut headers: BTreeMap<String, EnvValue> = BTreeMap::new();
    for (name, value) in table {
        let key = format!("headers.{name}");
        if let Err(error) = header_name(name) {
            reader.refuse(&key, &error.to_string());
        } else if headers.keys().any(|known| known.eq_ignore_ascii_case(name)) {
            reader.refuse(&key, "is there twice: case does not matter");
        }
        match EnvValue::parse(value) {
            Some(value) => {
                headers.insert(name.clone(), value);
            }
            None => reader.refuse(&key, FORM),
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::config::{ConfigErrors, Secret};

    fn read(text: &str) -> (Option<UpstreamConfig>, Vec<String>) {
        let table = toml::from_str(text).unwrap();
        let mut errors = ConfigErrors::new();
        let config = upstream(&mut Reader {
            path: "agents.a".to_owned(),
            table: &table,
            errors: &mut errors,
        });
        (config, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_url_is_enough() {
        let (config, errors) = read("url = \"http://127.0.0.1:9000\"");
        assert_eq!(errors, Vec::<String>::new());
        let config = config.unwrap();
        assert_eq!(config.url.as_str(), "http://127.0.0.1:9000/");
        assert!(config.credentials().is_ok());
    }

    #[test]
    fn every_key_is_read() {
        for key in KEYS {
            let (_, errors) = read(&format!("{key} = [1]"));
            assert!(
                errors
                    .iter()
                    .any(|error| error.starts_with(&format!("agents.a.{key}: must be"))),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn secrets_are_read_when_they_are_needed_and_never_shown() {
        let text = "url = \"https://h/a\"\nbearer = \"hunter2\"\n\
                    [headers]\nX-Key = { file = \"/nowhere/key\" }\nX-Path = { env = \"PATH\" }\n";
        let (config, errors) = read(text);
        assert_eq!(errors, Vec::<String>::new());
        let mut config = config.unwrap();
        assert_eq!(config.bearer, Some(EnvValue::Text(Secret::new("hunter2"))));
        assert!(!format!("{config:?}").contains("hunter2"));
        let (key, rule) = config.credentials().unwrap_err();
        assert_eq!(key, "headers.X-Key");
        assert!(rule.contains("/nowhere/key cannot be read"), "{rule}");
        config.headers.remove("X-Key");
        let shown = format!("{:?}", config.credentials().unwrap());
        assert!(shown.contains("authorization") && !shown.contains("hunter2"), "{shown}");
        config.bearer = Some(EnvValue::Text(Secret::new("a\nhunter2")));
        let (key, rule) = config.credentials().unwrap_err();
        assert!(key == "bearer" && !rule.contains("hunter2"), "{key}: {rule}");
    }

    #[test]
    fn mistakes_are_named_and_show_no_secret() {
        for (text, part) in [
            ("", "agents.a.url: is missing"),
            ("url = \"agents.example\"", "agents.a.url: is no URL"),
            ("url = \"ftp://h\"", "agents.a.url: must be http:// or https://"),
            (
                "url = \"http://u:hunter2@h\"",
                "agents.a.url: must not hold a user name or a password",
            ),
            ("url = \"http://h/#a\"", "agents.a.url: must not have a fragment"),
            ("url = \"http://[fe80::1%25eth0]/\"", "agents.a.url: is no URL"),
            ("url = \"http://h\"\nbearer = 1", "agents.a.bearer: must be a text"),
            ("url = \"http://h\"\nheaders = 1", "agents.a.headers: must be a table"),
            (
                "url = \"http://h\"\nheaders = { \"a b\" = \"hunter2\" }",
                "agents.a.headers.a b: `a b` is no name",
            ),
            (
                "url = \"http://h\"\nheaders = { Host = \"hunter2\" }",
                "agents.a.headers.Host: `Host` is set by",
            ),
            (
                "url = \"http://h\"\nheaders = { a = { text = \"hunter2\" } }",
                "agents.a.headers.a: must be a text",
            ),
            (
                "url = \"http://h\"\nheaders = { a = \"1\", A = \"2\" }",
                "is there twice",
            ),
            (
                "url = \"http://h\"\nbearer = \"x\"\nheaders = { authorization = \"hunter2\" }",
                "has an Authorization beside",
            ),
        ] {
            let (_, errors) = read(text);
            assert_eq!(errors.len(), 1, "{text}: {errors:?}");
            assert!(errors[0].contains(part), "{text}: {errors:?}");
            assert!(!errors[0].contains("hunter2"), "{errors:?}");
        }
    }
}
