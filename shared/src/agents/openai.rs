//! What a table of `kind = "openai"` says beside what every agent's table says: a chat model behind an OpenAI-compatible endpoint.
//!
//! Owns the form and the rules of these keys. It reads no file and no secret: the worker that asks the model does.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use super::read::Reader;
use super::upstream::{self, UpstreamConfig};
use crate::platform::config::{ByteSize, Setting};

/// The keys that these tables have beside those of every server behind a URL.
pub(super) const KEYS: [&str; 12] = [
    "model",
    "system",
    "temperature",
    "max_tokens",
    "options",
    "stream",
    "usage",
    "images",
    "history",
    "history_bytes",
    "retry_for",
    "idle_timeout",
];

/// Members of a request that are not the table's: what is sent, and how its answer comes, must be what this agent can read.
const RESERVED: [&str; 12] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "n",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "modalities",
];

/// More is no prompt but a mistake, and is sent with every request.
const HISTORY_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=16 << 20;
/// As many as a session holds.
const MOST_HISTORY: u32 = 10_000;
/// Longer, and a slot of the worker stands still for nothing.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// As long as a turn may take.
const LONGEST_SILENCE: Duration = Duration::from_hours(1);

/// What the model is told before every conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum System {
    /// The table itself says it.
    Text(String),
    /// The content of a file, read for every turn.
    File(PathBuf),
}

/// How a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAiConfig {
    /// The base of the endpoint, such as `https://api.example.com/v1`, and who calls.
    pub upstream: UpstreamConfig,
    /// The model's name.
    pub model: String,
    /// What the model is told before every conversation.
    pub system: Option<System>,
    /// Sent when set.
    pub temperature: Option<f64>,
    /// Sent when set.
    pub max_tokens: Option<u32>,
    /// Further members of every request.
    pub options: Map<String, Value>,
    /// Whether answers are asked for piece by piece.
    pub stream: bool,
    /// Whether a streaming endpoint is asked for its count of tokens.
    pub usage: bool,
    /// Whether images are sent.
    pub images: bool,
    /// How many messages of the conversation are sent before the new one at the most,
    pub history: u32,
    /// and how many bytes of them.
    pub history_bytes: ByteSize,
    /// How long a turn goes on asking at the most, all waits together, where the endpoint has not taken the request.
    pub retry_for: Duration,
    /// How long the endpoint may be silent, before its answer and within it.
    pub idle_timeout: Duration,
}

impl Eq for OpenAiConfig {}

impl OpenAiConfig {
    /// A model with nothing but defaults.
    pub fn of_model(url: Url, model: &str) -> Self {
        Self {
            upstream: UpstreamConfig::of_url(url),
            model: model.to_owned(),
            system: None,
            temperature: None,
            max_tokens: None,
            options: Map::new(),
            stream: true,
            usage: true,
            images: false,
            history: 100,
            history_bytes: ByteSize::new(256 << 10),
            retry_for: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(2),
        }
    }

    /// Where requests go: below the base, with its query if it has one.
    pub fn endpoint(&self) -> Url {
        let mut url = self.upstream.url.clone();
        // Every URL of http and https has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["chat", "completions"]);
        }
        url
    }

    /// The media types of parts that can be sent to it.
    pub(super) fn input_modes(&self) -> Vec<String> {
        let images = self.images.then_some("image/*");
        ["text/*", "application/json"]
            .into_iter()
            .chain(images)
            .map(str::to_owned)
            .collect()
    }
}

/// Reads the keys of a table of this kind.
pub(super) fn openai(reader: &mut Reader<'_>) -> Option<OpenAiConfig> {
    let upstream = upstream::upstream(reader);
    // Read even without an endpoint: all mistakes are reported together.
    let nowhere = Url::parse("http://localhost").ok()?;
    let mut config = OpenAiConfig::of_model(nowhere, &reader.required_text("model"));
    config.system = system(reader);
    config.temperature = reader.setting("temperature");
    if config.temperature.is_some_and(|heat| !(0.0..=2.0).contains(&heat)) {
        reader.refuse("temperature", "must be 0 to 2");
    }
    config.max_tokens = reader.setting("max_tokens");
    if config.max_tokens == Some(0) {
        reader.refuse("max_tokens", "must be at least 1");
    }
    config.options = options(reader);
    for (key, flag) in [("stream", &mut config.stream), ("usage", &mut config.usage)] {
        if reader.table.contains_key(key) {
            *flag = reader.flag(key);
        }
    }
    config.images = reader.flag("images");
    if let Some(value) = reader.table.get("history") {
        match u32::from_toml(value).filter(|history| *history <= MOST_HISTORY) {
            Some(history) => config.history = history,
            None => reader.refuse(
                "history",
                &format!("must be a whole number of messages up to {MOST_HISTORY}"),
            ),
        }
    }
    if let Some(bytes) = reader.setting::<ByteSize>("history_bytes") {
        if !HISTORY_BYTES.contains(&bytes.get()) {
            reader.refuse("history_bytes", "must be \"1KiB\" to \"16MiB\"");
        }
        config.history_bytes = bytes;
    }
    if let Some(wait) = reader.setting::<Duration>("retry_for") {
        if wait > LONGEST_WAIT {
            reader.refuse("retry_for", "must be at most \"10m\"");
        }
        config.retry_for = wait;
    }
    if let Some(silence) = reader.setting::<Duration>("idle_timeout") {
        if silence.is_zero() || silence > LONGEST_SILENCE {
            reader.refuse("idle_timeout", "must be above zero and at most \"1h\"");
        }
        config.idle_timeout = silence;
    }
    config.upstream = upstream?;
    if config
        .upstream
        .url
        .path()
        .trim_end_matches('/')
        .ends_with("/chat/completions")
    {
        reader.refuse("url", "must be the base alone: /chat/completions is added to it");
    }
    Some(config)
}

fn system(reader: &mut Reader<'_>) -> Option<System> {
    let value = reader.table.get("system")?;
    let filled = |value: &toml::Value| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    let file = value
        .as_table()
        .filter(|table| table.len() == 1)
        .and_then(|table| table.get("file"));
    let system = match file {
        Some(path) => filled(path).map(|path| System::File(PathBuf::from(path))),
        None => filled(value).map(System::Text),
    };
    if system.is_none() {
        reader.refuse("system", "must be text that is not empty, or { file = \"PATH\" }");
    }
    system
}

fn options(reader: &mut Reader<'_>) -> Map<String, Value> {
    let Some(value) = reader.table.get("options") else {
        return Map::new();
    };
    let Ok(Value::Object(options)) = serde_json::to_value(value) else {
        reader.refuse("options", "must be a table of members of the request");
        return Map::new();
    };
    for key in options.keys().filter(|key| RESERVED.contains(&key.as_str())) {
        let rule = if KEYS.contains(&key.as_str()) {
            format!("is a key of the agent's table itself: {key} = …")
        } else {
            "is not supported".to_owned()
        };
        reader.refuse(&format!("options.{key}"), &rule);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::super::fixture::read;
    use super::super::{AgentKind, EnvValue};
    use super::*;
    use crate::domain::record::CrashPolicy;

    #[test]
    fn an_endpoint_and_a_model_are_enough() {
        let (agents, errors) = read("[a]\nkind = \"openai\"\nurl = \"http://127.0.0.1:8080/v1/\"\nmodel = \"m\"\n");
        assert_eq!(errors, Vec::<String>::new());
        let agent = agents.default_agent();
        assert_eq!((agent.kind, agent.policy), (AgentKind::OpenAi, CrashPolicy::Fail));
        let url = "http://127.0.0.1:8080/v1/".parse().unwrap();
        assert_eq!(agent.openai.as_ref().unwrap(), &OpenAiConfig::of_model(url, "m"));
        assert!(agent.profile.takes("text/markdown") && agent.profile.takes("application/json"));
        assert!(!agent.profile.takes("image/png"));
    }

    #[test]
    fn requests_go_below_the_base() {
        for (base, endpoint) in [
            ("http://h/v1", "http://h/v1/chat/completions"),
            ("http://h/v1/", "http://h/v1/chat/completions"),
            ("http://h", "http://h/chat/completions"),
            (
                "https://h/openai/d?api-version=1",
                "https://h/openai/d/chat/completions?api-version=1",
            ),
        ] {
            let config = OpenAiConfig::of_model(base.parse().unwrap(), "m");
            assert_eq!(config.endpoint().as_str(), endpoint);
        }
    }

    #[test]
    fn a_table_says_everything_about_a_model() {
        let (agents, errors) = read(
            "[a]\nkind = \"openai\"\nurl = \"https://h/v1\"\nmodel = \"m\"\nsystem = { file = \"/srv/prompt\" }\n\
             temperature = 0.5\nmax_tokens = 100\nstream = false\nusage = false\nimages = true\nhistory = 0\n\
             history_bytes = \"1MiB\"\nretry_for = \"0s\"\nidle_timeout = \"10m\"\nbearer = { env = \"KEY\" }\n[a.options]\ntop_p = 0.9\nstop = [\"x\"]\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        let agent = agents.default_agent();
        let config = agent.openai.as_ref().unwrap();
        assert_eq!(config.system, Some(System::File("/srv/prompt".into())));
        assert_eq!((config.temperature, config.max_tokens), (Some(0.5), Some(100)));
        assert_eq!((config.stream, config.usage, config.images), (false, false, true));
        assert_eq!((config.history, config.history_bytes.get()), (0, 1 << 20));
        assert_eq!(
            (config.retry_for, config.idle_timeout),
            (Duration::ZERO, Duration::from_mins(10))
        );
        assert_eq!(config.upstream.bearer, Some(EnvValue::Env("KEY".to_owned())));
        assert_eq!(
            Value::Object(config.options.clone()),
            serde_json::json!({"top_p": 0.9, "stop": ["x"]})
        );
        assert!(agent.profile.takes("image/png"));
    }

    #[test]
    fn all_mistakes_are_reported_together_and_show_no_credential() {
        let (agents, errors) = read(
            "[a]\nkind = \"openai\"\nurl = \"https://u:hunter2@h/v1\"\nsystem = { path = \"x\" }\ntemperature = 3\nmax_tokens = 0\n\
             stream = 1\nhistory = 10001\nhistory_bytes = \"1GiB\"\nretry_for = \"1h\"\nidle_timeout = \"0s\"\ncommand = [\"x\"]\n\
             [a.options]\nmessages = 1\nmax_tokens = 1\n\
             [b]\nkind = \"openai\"\ndefault = true\nurl = \"http://h/v1/chat/completions\"\nmodel = \"m\"\noptions = 1\n\
             history = \"all\"\n[c]\nkind = \"demo\"\nmodel = \"m\"\n",
        );
        for part in [
            "agents.a.url: must not hold a user name",
            "agents.a.model: is missing",
            "agents.a.system: must be",
            "agents.a.temperature: must be",
            "agents.a.max_tokens: must be",
            "agents.a.options.messages: is not supported",
            "agents.a.options.max_tokens: is a key of",
            "agents.a.stream: must be",
            "agents.a.history: must be a whole number of messages up to 10000",
            "agents.a.history_bytes: must be",
            "agents.a.retry_for: must be",
            "agents.a.idle_timeout: must be",
            "agents.a.command: belongs to kind = \"process\"",
            "agents.b.url: must be the base alone",
            "agents.b.options: must be",
            "agents.b.history: must be a whole number of messages up to 10000",
            "agents.c.model: belongs to kind = \"openai\"",
        ] {
            assert!(
                errors.iter().any(|error| error.starts_with(part)),
                "{part} in {errors:#?}"
            );
        }
        assert_eq!(errors.len(), 17, "{errors:#?}");
        assert!(!format!("{errors:?}").contains("hunter2"), "{agents:?}");
    }
}
