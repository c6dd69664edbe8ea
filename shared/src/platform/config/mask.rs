//! Hiding what must never be shown: credentials in URLs and in free-form tables.

use super::types::MASK;

/// Parts of a key's name that say its value is a credential.
const CREDENTIAL_NAMES: [&str; 8] = [
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "credential",
    "authorization",
];

/// Query parameters of a Redis URL over a unix socket that carry the password.
const CREDENTIAL_PARAMETERS: [&str; 2] = ["pass", "password"];

/// `text` with the password of an URL in it hidden. Works on texts that are no valid URL, since those are what an
/// error has to show.
pub fn mask_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (address, query) = rest
        .split_once('?')
        .map_or((rest, None), |(address, query)| (address, Some(query)));
    let address = match address.rsplit_once('@') {
        Some((user_info, host)) => match user_info.split_once(':') {
            Some((user, _)) => format!("{user}:{MASK}@{host}"),
            // A lone user name may be a token put in the wrong place.
            None => format!("{MASK}@{host}"),
        },
        None => address.to_owned(),
    };
    match query {
        Some(query) => format!("{scheme}://{address}?{}", mask_query(query)),
        None => format!("{scheme}://{address}"),
    }
}

fn mask_query(query: &str) -> String {
    let mask_parameter = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if CREDENTIAL_PARAMETERS.contains(&name) || names_credential(name) => format!("{name}={MASK}"),
        _ => parameter.to_owned(),
    };
    query.split('&').map(mask_parameter).collect::<Vec<_>>().join("&")
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
        toml::Value::Table(table) => toml::Value::Table(mask_table(table)),
        _ if names_credential(name) => toml::Value::String(MASK.to_owned()),
        toml::Value::Array(items) => toml::Value::Array(items.iter().map(|item| mask_value(name, item)).collect()),
        toml::Value::String(text) => toml::Value::String(mask_url(text)),
        other => other.clone(),
    }
}

fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    // `api_key_env = "ANTHROPIC_API_KEY"` names where the credential is; it is not one.
    !name.ends_with("_env") && !name.ends_with("_file") && CREDENTIAL_NAMES.iter().any(|part| name.contains(part))
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
        assert_eq!(mask_url("redis://u:hunter2@h:notaport"), "redis://u:***@h:notaport");
    }

    #[test]
    fn credentials_of_a_free_form_table_are_hidden_at_any_depth() {
        let table: toml::Table = toml::from_str(
            r#"
            kind = "process"
            command = ["agent", "--upstream", "https://u:hunter2@h"]
            api_key_env = "THE_KEY"
            [env]
            X_API_KEY = "hunter2"
            MY-Secret = ["hunter2"]
            "#,
        )
        .unwrap();
        let masked = toml::to_string(&mask_table(&table)).unwrap();
        assert!(!masked.contains("hunter2"), "{masked}");
        assert!(masked.contains("THE_KEY") && masked.contains("--upstream"), "{masked}");
    }
}
