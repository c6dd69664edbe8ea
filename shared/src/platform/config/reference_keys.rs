//! The keys of the reference server's YAML file, as settings of ours.
//!
//! Owns which of them mean what here. They stand at the top of the file, spelled with `-` or `_`. A key that asks for
//! what does not exist here is refused by name, unless its value asks for nothing: no start differs silently from what
//! the file says.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::source::FileLayer;
use super::{ConfigErrors, SECTIONS, Section as _};
use crate::platform::config::GatewaySettings;

enum Meaning {
    /// Is this setting.
    Setting(&'static str),
    /// Is this setting, and must be a text: YAML makes numbers of digits.
    Credential(&'static str),
    /// Is this setting, which is a URL, as a directory.
    Directory(&'static str),
    /// Belongs to something that another key switches on, and is passed over without it.
    Detail,
    /// Is refused with this sentence, unless it is off or empty.
    Missing(&'static str),
    /// One of those that are read together, by [`addresses`].
    Address,
    /// What is shown of an agent's thinking: a list, or a text of words.
    Thinking,
}
use Meaning::{Address, Credential, Detail, Directory, Missing, Setting, Thinking};

const PUSH: &str = "push notifications are not served";

const KEYS: [(&str, Meaning); 33] = [
    ("host", Address),
    ("port", Address),
    ("transport", Address),
    ("grpc_host", Address),
    ("grpc_port", Address),
    ("token", Credential("auth.token")),
    ("basic_username", Credential("auth.basic_username")),
    ("basic_password", Credential("auth.basic_password")),
    ("api_key", Credential("auth.api_key")),
    ("api_key_header", Setting("auth.api_key_header")),
    ("redis_url", Setting("redis.url")),
    ("push_notifications", Missing(PUSH)),
    ("push_queue", Detail),
    ("push_redis_url", Detail),
    ("push_stream", Detail),
    ("push_retry_key", Detail),
    ("push_dead_stream", Detail),
    ("push_consumer_group", Detail),
    ("push_consumer_name", Detail),
    ("push_lease_timeout_ms", Detail),
    ("socket_path", Detail),
    ("ws_path", Detail),
    ("request_stream", Detail),
    ("response_stream", Detail),
    ("consumer_group", Detail),
    ("signing_secret", Missing("agent cards are not signed")),
    ("persistence_dir", Missing("tasks are kept in Redis, see redis.url")),
    ("artifact_dir", Directory("artifacts.store")),
    ("thinking_exposure", Thinking),
    (
        "auto_approve_permissions",
        Missing("what an agent may do is its own matter"),
    ),
    (
        "idle_shutdown_seconds",
        Missing("a process ends when it is told to, by SIGTERM"),
    ),
    ("log_to_stdout", Missing("logs are written to standard error")),
    ("debug", Missing("say log.level = \"debug\"")),
];

/// The file with every key of the reference server in the place of the setting it is.
pub(super) fn translate(name: String, table: Table, errors: &mut ConfigErrors) -> FileLayer {
    let mut layer = FileLayer {
        name,
        table: Table::new(),
        called: BTreeMap::new(),
    };
    let mut theirs = Table::new();
    for (written, value) in table {
        let key = written.replace('-', "_");
        let known = KEYS.iter().any(|(name, _)| *name == key);
        let target = if known { &mut theirs } else { &mut layer.table };
        let value = if known { value } else { with_our_spelling(&key, value) };
        if target.insert(key, value).is_some() {
            errors.refuse(layer.path(&written), "is there twice, with - and with _");
        }
    }
    addresses(&theirs, &mut layer, errors);
    for (key, value) in theirs {
        let Some((_, meaning)) = KEYS.iter().find(|(name, _)| *name == key) else {
            continue;
        };
        match meaning {
            Detail | Address => {}
            Thinking => put("compat.thinking_exposure", &key, exposure(value), &mut layer, errors),
            Missing(_) | Directory(_) if is_off(&value) => {}
            Missing(why) => errors.refuse(layer.path(&key), format!("has no counterpart here: {why}")),
            Credential(_) if !value.is_str() => errors.refuse(layer.path(&key), "must be a text: put it in quotes"),
            Directory(path) => match value.as_str().and_then(|dir| url::Url::from_file_path(dir).ok()) {
                Some(url) => put(path, &key, Value::String(url.into()), &mut layer, errors),
                None => errors.refuse(layer.path(&key), "must be an absolute path of a directory"),
            },
            Credential(path) | Setting(path) => put(path, &key, value, &mut layer, errors),
        }
    }
    layer
}

/// Keys of our own sections may be spelled with `-`, too; names of agents and their like are as they are.
fn with_our_spelling(section: &str, value: Value) -> Value {
    match value {
        Value::Table(table) if SECTIONS.iter().any(|info| info.name == section) => {
            let keys = table.into_iter().map(|(key, value)| (key.replace('-', "_"), value));
            Value::Table(keys.collect())
        }
        other => other,
    }
}

/// Where to listen: two keys each.
fn addresses(theirs: &Table, layer: &mut FileLayer, errors: &mut ConfigErrors) {
    let transport = theirs.get("transport").and_then(Value::as_str).unwrap_or("http");
    let grpc = match transport.to_ascii_lowercase().replace('_', "-").as_str() {
        "http" | "https" | "jsonrpc" | "json-rpc" | "http+jsonrpc" | "http-jsonrpc" => false,
        "grpc" | "grpcs" => true,
        _ => {
            let rule = "has no counterpart here: what is served is \"http\" (JSON-RPC and HTTP+JSON) and \"grpc\"";
            errors.refuse(layer.path("transport"), rule);
            false
        }
    };
    let (host, port) = (theirs.get("host"), theirs.get("port"));
    if host.is_some() || port.is_some() {
        put("gateway.listen", "host and port", address(host, port), layer, errors);
    }
    let (own_host, own_port) = (theirs.get("grpc_host"), theirs.get("grpc_port"));
    if own_port.is_some() {
        let address = address(own_host.or(host), own_port);
        put("gateway.grpc_listen", "grpc_host and grpc_port", address, layer, errors);
    } else if grpc {
        errors.refuse(
            layer.path("grpc_port"),
            "is missing: gRPC has a port of its own, beside that of HTTP",
        );
    }
}

fn address(host: Option<&Value>, port: Option<&Value>) -> Value {
    let text = |value: Option<&Value>, default: &str| match value.map(super::value::scalar_text) {
        Some(Some(text)) => text,
        Some(None) => "?".to_owned(),
        None => default.to_owned(),
    };
    let info = GatewaySettings::INFO;
    let default = info.field("listen").and_then(|field| field.default.rsplit_once(':'));
    let (default_host, default_port) = default.unwrap_or_default();
    let host = match text(host, default_host).as_str() {
        "localhost" => "127.0.0.1".to_owned(),
        name if name.contains(':') && !name.starts_with('[') => format!("[{name}]"),
        name => name.to_owned(),
    };
    Value::String(format!("{host}:{}", text(port, default_port)))
}

fn put(path: &str, written: &str, value: Value, layer: &mut FileLayer, errors: &mut ConfigErrors) {
    let Some((section, key)) = path.split_once('.') else {
        return;
    };
    let table = layer.table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    // What is no table is refused with the other sections.
    let Some(table) = table.as_table_mut() else { return };
    if table.contains_key(key) {
        errors.refuse(
            layer.path(written),
            format!("is the same as {path}, which is there, too"),
        );
        return;
    }
    table.insert(key.to_owned(), value);
    layer.called.insert(path.to_owned(), written.to_owned());
}

/// `all` and `*` are everything, `none` and its like nothing; words of a text are parted by `,` or `;`.
fn exposure(value: Value) -> Value {
    let words = match value {
        value if is_off(&value) => Vec::new(),
        Value::String(text) => text
            .split([',', ';'])
            .map(|word| word.trim().to_owned().into())
            .collect(),
        Value::Array(words) => words,
        other => return other,
    };
    let is_all = |word: &Value| matches!(word.as_str(), Some("all" | "*"));
    if words.iter().any(is_all) {
        return Value::Array(["raw-thinking", "tool-trace"].map(Value::from).to_vec());
    }
    Value::Array(words.into_iter().filter(|word| !is_off(word)).collect())
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Boolean(truth) => !truth,
        Value::Integer(number) => *number == 0,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => matches!(
            text.to_ascii_lowercase().as_str(),
            "" | "off" | "none" | "false" | "no" | "0"
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Loader, Settings};

    fn read(yaml: &str) -> Result<Settings, Vec<String>> {
        let loaded = Loader::new().text("a2a.yml", yaml).load();
        loaded.map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_of_the_reference_server_is_a_configuration() {
        let yaml = "host: 0.0.0.0\nport: 8080\ntransport: http\ntoken: s3cret\napi-key: \"77\"\napi_key_header: X-Key\n\
                    basic-username: u\nbasic-password: p\npush-notifications: false\npush-queue: local-file\n\
                    signing-secret: \"\"\nthinking-exposure: none\ngrpc-port: 0\nredis-url: redis://h:1\n\
                    idle-shutdown-seconds: 0\n";
        let settings = read(yaml).unwrap();
        assert_eq!(settings.gateway.listen.to_string(), "0.0.0.0:8080");
        assert_eq!(settings.gateway.grpc_listen.unwrap().to_string(), "0.0.0.0:0");
        assert_eq!(settings.auth.token.as_ref().unwrap().expose(), "s3cret");
        assert_eq!(settings.auth.api_key.as_ref().unwrap().expose(), "77");
        assert_eq!(settings.auth.api_key_header, "X-Key");
        assert_eq!(settings.auth.basic_username.as_deref(), Some("u"));
        assert_eq!(settings.redis.url.to_string(), "redis://h:1");
    }

    #[test]
    fn what_is_shown_of_thinking_is_a_list_or_a_text() {
        let both = ["raw-thinking", "tool-trace"];
        for (yaml, shown) in [
            ("none", &[][..]),
            ("false", &[]),
            ("\"\"", &[]),
            ("[]", &[]),
            ("raw-thinking", &both[..1]),
            ("\"raw-thinking; tool-trace\"", &both),
            ("[raw-thinking, tool-trace]", &both),
            ("all", &both),
            ("\"*\"", &both),
            ("[\"*\"]", &both),
        ] {
            let settings = read(&format!("thinking-exposure: {yaml}\n")).unwrap();
            assert_eq!(settings.compat.thinking_exposure, shown, "{yaml}");
        }
        assert_eq!(read("port: 1\n").unwrap().compat.thinking_exposure, ["tool-trace"]);
        let errors = read("thinking-exposure: 7\n").unwrap_err();
        assert!(errors[0].starts_with("thinking_exposure in a2a.yml"), "{errors:?}");
    }

    #[test]
    fn our_own_sections_stand_beside_its_keys() {
        let settings =
            read("port: 1\nlease:\n  ttl: 9s\nagents:\n  my-agent:\n    kind: demo\ngateway:\n  body-limit: 1MiB\n");
        let settings = settings.unwrap();
        assert_eq!(settings.gateway.listen.to_string(), "127.0.0.1:1");
        assert_eq!(settings.lease.ttl.as_secs(), 9);
        assert_eq!(settings.gateway.body_limit.get(), 1 << 20);
        assert!(settings.agents.contains_key("my-agent"));
    }

    #[test]
    fn the_directory_of_artifacts_is_a_store() {
        let settings = read("artifact-dir: /srv/my artifacts\n").unwrap();
        let toml = "[artifacts]\nstore = \"file:///srv/my%20artifacts\"\n";
        let same = Loader::new().text("a.toml", toml).load().unwrap();
        assert_eq!(settings.artifacts.store, same.artifacts.store);
        assert!(read("artifact-dir: \"\"\n").is_ok());
        for wrong in ["below/artifacts", "7"] {
            let errors = read(&format!("artifact-dir: {wrong}\n")).unwrap_err();
            assert!(
                errors[0].starts_with("artifact_dir in a2a.yml: must be an absolute path"),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn hosts_are_addresses() {
        let listen = |yaml: &str| read(yaml).map(|settings| settings.gateway.listen.to_string());
        assert_eq!(listen("host: localhost").unwrap(), "127.0.0.1:41242");
        assert_eq!(listen("host: \"::1\"\nport: 5").unwrap(), "[::1]:5");
        let errors = listen("host: example.com").unwrap_err();
        assert!(
            errors[0].starts_with("host and port in a2a.yml = \"example.com:41242\": must be an address"),
            "{errors:?}"
        );
    }

    #[test]
    fn what_does_not_exist_here_is_refused_by_name() {
        let yaml = "push-notifications: true\nsigning-secret: hunter2\ntransport: websocket\npersistence-dir: /var\n\
                    tokn: x\n";
        let errors = read(yaml).unwrap_err();
        assert_eq!(errors.len(), 5, "{errors:#?}");
        for part in [
            "push_notifications in a2a.yml: has no counterpart here: push",
            "signing_secret in a2a.yml: has no counterpart",
            "transport in a2a.yml: has no counterpart",
            "persistence_dir in a2a.yml: has no counterpart here: tasks are kept in Redis",
            "[tokn] in a2a.yml: is no known section",
        ] {
            assert!(
                errors.iter().any(|error| error.starts_with(part)),
                "{part}: {errors:#?}"
            );
        }
        assert!(errors.iter().all(|error| !error.contains("hunter2")));
    }

    #[test]
    fn a_credential_that_is_empty_or_a_number_is_refused() {
        let refused = |yaml: &str| read(yaml).unwrap_err().remove(0);
        assert!(refused("token: \"\"").starts_with("token in a2a.yml: is empty"));
        assert!(refused("api-key: 77").starts_with("api_key in a2a.yml: must be a text"));
        assert!(read("token: null").is_ok());
    }

    #[test]
    fn one_setting_is_said_once() {
        let twice = read("port: 1\ngateway: {listen: \"127.0.0.1:2\"}").unwrap_err();
        assert_eq!(
            twice,
            ["host and port in a2a.yml: is the same as gateway.listen, which is there, too"]
        );
        let spelled = read("api-key: a\napi_key: b").unwrap_err();
        assert!(spelled[0].ends_with("is there twice, with - and with _"), "{spelled:?}");
    }

    #[test]
    fn grpc_has_a_port_of_its_own() {
        let errors = read("transport: grpc").unwrap_err();
        assert!(errors[0].starts_with("grpc_port in a2a.yml: is missing"), "{errors:?}");
        let settings = read("transport: grpc\ngrpc-host: 127.0.0.2\ngrpc-port: 7").unwrap();
        assert_eq!(settings.gateway.grpc_listen.unwrap().to_string(), "127.0.0.2:7");
    }

    #[test]
    fn in_toml_its_keys_mean_nothing() {
        let errors = Loader::new().text("a.toml", "token = \"x\"").load().unwrap_err();
        assert!(
            errors.to_string().contains("[token] in a.toml: is no known section"),
            "{errors}"
        );
    }
}
