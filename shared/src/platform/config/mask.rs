//! Hiding what must never be shown: credentials in URLs and in free-form tables.

use super::types::MASK;

/// Parts of a key's name that say its value is a credential.
const CREDENTIAL_NAMES: [&str; 9] = [
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "credential",
    "authorization",
    "bearer",
];

/// Query parameters of a Redis URL over a unix socket that carry the password.
const CREDENTIAL_PARAMETERS: [&str; 2] = ["pass", "password"];

/// `text` with the credentials of a URL in it hidden. Works on texts that are no valid URL, since those are what an error
/// has to show, and rather hides too much: everything before the last `@` is taken for credentials.
pub fn mask_url(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let (user_info, address) = match rest.rsplit_once('@') {
        Some((user_info, address)) => (mask_user_info(user_info), address),
        None => (String::new(), rest),
    };
    match address.split_once('?') {
        Some((host, query)) => format!("{scheme}{user_info}{host}?{}", mask_query(query)),
        None => format!("{scheme}{user_info}{address}"),
    }
}

fn mask_user_info(user_info: &str) -> String {
    match user_info.split_once(':') {
        Some((user, _)) => format!("{user}:{MASK}@"),
        // A lone user name may be a token put in the wrong place.
        None => format!("{MASK}@"),
    }
}

fn mask_query(query: &str) -> String {
    let mask_parameter = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if is_password_parameter(name) || names_credential(name) => format!("{name}={MASK}"),
        _ => parameter.to_owned(),
    };
    query.split('&').map(mask_parameter).collect::<Vec<_>>().join("&")
}

/// Whether a query parameter of that name is the password of Redis over a unix socket.
pub(super) fn is_password_parameter(name: &str) -> bool {
    CREDENTIAL_PARAMETERS.contains(&name)
}

/// A free-form table with every value hidden whose name says it is a credential, and every URL masked.
pub fn mask_table(table: &toml::Table) -> toml::Table {
    table
        .iter()
        .map(|(name, value)| (name.clone(), mask_value(name, value)))
        .collect()
}

fn mask_value(name: &str, value: &toml::Value) -> toml::Value {
    match value {
        // A digest of what can be guessed is as good as it; where a credential is found is none.
        toml::Value::Table(table) if names_credential(name) && table.contains_key("sha256") => {
            toml::Value::String(MASK.to_owned())
        }
        // What says where a credential is found shows none.
        toml::Value::Table(table) if name == "headers" => {
            let masked = |value: &toml::Value| match value {
                toml::Value::Table(source) => toml::Value::Table(source.clone()),
                _ => toml::Value::String(MASK.to_owned()),
            };
            toml::Value::Table(
                table
                    .iter()
                    .map(|(name, value)| (name.clone(), masked(value)))
                    .collect(),
            )
        }
        toml::Value::Table(table) => toml::Value::Table(mask_table(table)),
        toml::Value::Array(items) => toml::Value::Array(items.iter().map(|item| mask_value(name, item)).collect()),
        _ if names_credential(name) => toml::Value::String(MASK.to_owned()),
        // Any other text with an `@` is no address.
        toml::Value::String(text) if text.contains("://") => toml::Value::String(mask_url(text)),
        other => other.clone(),
    }
}

fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    // `api_key_env = "ANTHROPIC_API_KEY"` names where the credential is, `max_tokens` is a number; neither is one.
    !name.starts_with("max_")
        && !name.ends_with("_env")
        && !name.ends_with("_file")
        && CREDENTIAL_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_an_url_is_hidden() {
        assert_eq!(mask_url("redis://127.0.0.1:6379"), "redis://127.0.0.1:6379");
        assert_eq!(mask_url("redis://:hunter2@h:6379/0"), "redis://:***@h:6379/0");
        assert_eq!(mask_url("rediss://relevo:hun@ter2@h"), "rediss://relevo:***@h");
        assert_eq!(mask_url("https://ghp_token@h/x"), "https://***@h/x");
        assert_eq!(mask_url("unix:///s?db=1&pass=hunter2"), "unix:///s?db=1&pass=***");
        assert_eq!(mask_url("redis://u:hun?ter2@h"), "redis://u:***@h");
        assert_eq!(mask_url("relevo:hunter2@h:6379"), "relevo:***@h:6379");
        assert_eq!(mask_url("redis://u:hunter2@h:notaport"), "redis://u:***@h:notaport");
    }

    #[test]
    fn credentials_of_a_free_form_table_are_hidden_at_any_depth() {
        let table: toml::Table = toml::from_str(
            r#"
            kind = "process"
            command = ["agent", "--upstream", "https://u:hunter2@h", "to=me@example.com"]
            api_key_env = "THE_KEY"
            tokens = ["hunter2", { file = "/etc/token" }, { sha256 = "hunter2" }]
            [env]
            X_API_KEY = "hunter2"
            MY-Secret = ["hunter2"]
            [upstream]
            bearer = "hunter2"
            max_tokens = 4711
            headers = { X-Team = "hunter2", X-Other = { env = "OTHER_KEY" } }
            "#,
        )
        .unwrap();
        let masked = toml::to_string(&mask_table(&table)).unwrap();
        assert!(!masked.contains("hunter2"), "{masked}");
        assert!(
            [
                "THE_KEY",
                "--upstream",
                "to=me@example.com",
                "/etc/token",
                "OTHER_KEY",
                "4711"
            ]
            .iter()
            .all(|shown| masked.contains(shown)),
            "{masked}"
        );
    }
}
