//! Reading `[auth]` and `[principals.<name>]`: whose credentials there are. No error shows one.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::HeaderName;
use relevo_shared::platform::config::{ConfigErrors, Settings, env_var};
use toml::{Table, Value};

use super::credentials::{Credentials, Digest, digest};

const KEYS: [&str; 4] = ["token", "api_key", "username", "password"];
/// Longest name of a principal: it is stored with every turn.
const LONGEST_NAME: usize = 128;
/// Forms of a credential, for errors.
const FORMS: &str =
    "must be a text, { file = \"PATH\" }, { env = \"NAME\" }, { sha256 = \"<64 hex digits>\" }, or an array of these";

/// What is wrong with a credential that stands in a header as it is.
const UNSENDABLE: &str = "must be visible ASCII characters: no request can show others";

pub(super) fn credentials(settings: &Settings, errors: &mut ConfigErrors) -> Credentials {
    let auth = &settings.auth;
    let header = HeaderName::try_from(&auth.api_key_header).ok();
    let mut all = Credentials {
        header: header.clone(),
        ..Credentials::default()
    };
    for (path, value) in [("auth.token", &auth.token), ("auth.api_key", &auth.api_key)] {
        if value.as_ref().is_some_and(|value| !is_sendable(value.expose())) {
            errors.refuse(path, UNSENDABLE);
        }
    }
    if let Some(token) = &auth.token {
        all.bearer.insert(digest(token.expose().as_bytes()), "bearer".into());
    }
    if let (Some(name), Some(password)) = (&auth.basic_username, &auth.basic_password) {
        let pair = format!("{name}:{}", password.expose());
        all.basic
            .insert(digest(pair.as_bytes()), format!("basic:{name}").into());
    }
    if let (Some(key), Some(header)) = (&auth.api_key, &header) {
        all.api_key
            .insert(digest(key.expose().as_bytes()), format!("api-key:{header}").into());
    }
    for (name, value) in &settings.principals {
        let path = format!("principals.{name}");
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            errors.refuse(
                path,
                format!("a principal's name is 1 to {LONGEST_NAME} bytes without control characters"),
            );
            continue;
        }
        if name == "bearer" || name.starts_with("basic:") || name.starts_with("api-key:") {
            errors.refuse(path, "is the name of a caller of [auth]; choose another");
            continue;
        }
        match value.as_table() {
            Some(table) => principal(name, &path, table, &mut all, errors),
            None => errors.refuse(&path, format!("must be a table: [principals.{name}]")),
        }
    }
    all
}

fn principal(name: &str, path: &str, table: &Table, all: &mut Credentials, errors: &mut ConfigErrors) {
    for key in table.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        errors.refuse(format!("{path}.{key}"), "is no known key");
    }
    let name: Arc<str> = name.into();
    let before = errors.len();
    let plain = |text: &str| {
        if is_sendable(text) {
            Ok(digest(text.as_bytes()))
        } else {
            Err(UNSENDABLE)
        }
    };
    let tokens = read(table, path, "token", errors, plain);
    let keys = read(table, path, "api_key", errors, plain);
    let user = match table.get("username").map(Value::as_str) {
        None => &*name,
        Some(Some(user)) => user,
        Some(None) => "",
    };
    if table.contains_key("password") && (user.is_empty() || user.contains(':')) {
        errors.refuse(
            format!("{path}.username"),
            "must be text that is not empty and has no colon",
        );
    }
    if table.contains_key("username") && !table.contains_key("password") {
        errors.refuse(format!("{path}.password"), "is missing beside username");
    }
    let hashed = |value: &Value| value.as_table().is_some_and(|form| form.contains_key("sha256"));
    if table
        .get("password")
        .is_some_and(|value| listed(value).iter().any(hashed))
    {
        errors.refuse(
            format!("{path}.password"),
            "cannot be a digest: it is hashed together with the user's name",
        );
    }
    let passwords = read(table, path, "password", errors, |text| {
        Ok(digest(format!("{user}:{text}").as_bytes()))
    });
    if tokens.is_empty() && keys.is_empty() && passwords.is_empty() && errors.len() == before {
        errors.refuse(path, "has no credential: token, api_key or password");
    }
    add(&mut all.bearer, tokens, &name, &format!("{path}.token"), errors);
    add(&mut all.api_key, keys, &name, &format!("{path}.api_key"), errors);
    add(&mut all.basic, passwords, &name, &format!("{path}.password"), errors);
}

/// A credential that two principals have would be whose?
fn add(to: &mut HashMap<Digest, Arc<str>>, new: Vec<Digest>, name: &Arc<str>, path: &str, errors: &mut ConfigErrors) {
    for digest in new {
        if to.get(&digest).is_some_and(|other| other != name) {
            errors.refuse(path, "is another principal's, too");
        }
        to.insert(digest, Arc::clone(name));
    }
}

fn listed(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// The digests of the credentials under a key.
fn read(
    table: &Table,
    path: &str,
    key: &str,
    errors: &mut ConfigErrors,
    digest: impl Fn(&str) -> Result<Digest, &'static str>,
) -> Vec<Digest> {
    let Some(value) = table.get(key) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for value in listed(value) {
        match secret(value) {
            Ok(Form::Text(text)) => match digest(&text) {
                Ok(digest) => found.push(digest),
                Err(rule) => errors.refuse(format!("{path}.{key}"), rule),
            },
            Ok(Form::Digest(digest)) => found.push(digest),
            Err(rule) => errors.refuse(format!("{path}.{key}"), rule),
        }
    }
    found
}

enum Form {
    Text(String),
    Digest(Digest),
}

/// A credential, wherever it is.
fn secret(value: &Value) -> Result<Form, String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let wrong = || FORMS.to_owned();
    let Some(table) = value.as_table() else {
        return whole(text(value).ok_or_else(wrong)?);
    };
    let (form, value) = table.iter().next().filter(|_| table.len() == 1).ok_or_else(wrong)?;
    let source = text(value).ok_or_else(wrong)?;
    let found = match form.as_str() {
        "file" => std::fs::read_to_string(&source)
            .map_err(|error| format!("the file {source} cannot be read: {error}"))?
            .trim_end_matches(['\n', '\r'])
            .to_owned(),
        "env" => env_var(&source).ok_or_else(|| format!("the variable {source} is not set"))?,
        "sha256" => {
            let mut digest = Digest::default();
            hex::decode_to_slice(source, &mut digest).map_err(|_wrong| "must be 64 hex digits".to_owned())?;
            return Ok(Form::Digest(digest));
        }
        _ => return Err(wrong()),
    };
    if found.is_empty() {
        return Err(format!("{form} {source} is empty"));
    }
    whole(found)
}

/// Whether a header can carry it. A blank within is none of the standards', but arrives.
fn is_sendable(text: &str) -> bool {
    text.trim() == text && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// What could never be sent is refused: headers lose the space around them.
fn whole(text: String) -> Result<Form, String> {
    if text.trim() == text {
        Ok(Form::Text(text))
    } else {
        Err("must not begin or end with white space".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use relevo_shared::platform::config::Loader;

    use super::*;

    fn read(text: &str) -> (Credentials, Vec<String>) {
        let settings = Loader::new().text("f", text).load().unwrap();
        let mut errors = ConfigErrors::new();
        let credentials = credentials(&settings, &mut errors);
        (credentials, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_table_gives_all_its_credentials_to_one_name() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"from-file\n").unwrap();
        let (all, errors) = read(&format!(
            "[principals.\"team/a\"]\ntoken = [\"one\", {{ file = \"{}\" }}, {{ sha256 = \"{}\" }}]\n\
             api_key = \"k\"\nusername = \"u\"\npassword = \"p\"\n",
            file.path().display(),
            hex::encode(digest(b"hashed")),
        ));
        assert_eq!(errors, Vec::<String>::new());
        for token in ["one", "from-file", "hashed"] {
            assert_eq!(&*all.bearer[&digest(token.as_bytes())], "team/a", "{token}");
        }
        assert!(all.basic.contains_key(&digest(b"u:p")) && all.api_key.contains_key(&digest(b"k")));
    }

    #[test]
    fn what_no_header_can_carry_is_refused_wherever_it_is() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all("t\u{f6}k\u{e9}n\n".as_bytes()).unwrap();
        let (_, errors) = read(&format!(
            "[auth]\ntoken = \"t\u{f6}k\u{e9}n\"\napi_key = \"a\\u0001b\"\n\
             [principals.a]\ntoken = {{ file = \"{}\" }}\napi_key = [\"k\", \"k\\tk\"]\n",
            file.path().display()
        ));
        let keys = [
            "auth.token",
            "auth.api_key",
            "principals.a.token",
            "principals.a.api_key",
        ];
        assert_eq!(errors, keys.map(|key| format!("{key}: {UNSENDABLE}")));
        // Basic encodes what it carries.
        let (_, errors) = read(
            "[auth]\ntoken = \"a b~\"\nbasic_username = \"\u{f6}\"\nbasic_password = \"\u{e9}\"\n\
             [principals.a]\npassword = \"\u{e9}\"\n",
        );
        assert_eq!(errors, Vec::<String>::new());
    }

    #[test]
    fn all_mistakes_are_reported_together_and_show_no_credential() {
        let (_, errors) = read(
            "[principals.a]\ntoken = [\"hunter2\", 5]\ncolour = 1\n[principals.b]\ntoken = \"hunter2\"\n[principals.c]\n\
             [principals.d]\nusername = \"u\"\n[principals.e]\npassword = { sha256 = \"00\" }\n\
             [principals.bearer]\ntoken = \"x\"\n[principals.h]\ntoken = \" x\"\n[principals.f]\ntoken = { file = \"/nonexistent\" }\n[principals.g]\ntoken = { env = \"NO_SUCH_VARIABLE_HERE\" }\n",
        );
        for part in [
            "principals.a.token: must be a text",
            "principals.a.colour: is no known key",
            "principals.b.token: is another principal's, too",
            "principals.c: has no credential",
            "principals.d.password: is missing",
            "principals.e.password: cannot be a digest",
            "principals.e.password: must be 64 hex digits",
            "principals.bearer: is the name of a caller of [auth]",
            "principals.h.token: must not begin or end with white space",
            "principals.f.token: the file /nonexistent cannot be read",
            "principals.g.token: the variable NO_SUCH_VARIABLE_HERE is not set",
        ] {
            assert!(
                errors.iter().any(|error| error.starts_with(part)),
                "{part} in {errors:#?}"
            );
        }
        assert_eq!(errors.len(), 11, "{errors:#?}");
        assert!(!errors.concat().contains("hunter2"));
    }
}
