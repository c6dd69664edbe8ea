//! The body of a request. Pure.

use relevo_shared::agents::OpenAiConfig;
use serde::Serialize;
use serde_json::{Map, Value};

use super::conversation::{Conversation, Sent, message};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<&'a Sent>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(flatten)]
    options: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// What is sent: what the model is told before every conversation, as much of this one as the table allows, and what is said now.
pub(super) fn body(
    config: &OpenAiConfig,
    system: Option<&str>,
    conversation: &Conversation,
    said: &Sent,
) -> Result<Vec<u8>, serde_json::Error> {
    let system = system.map(|text| message("system", &Value::from(text))).transpose()?;
    let before = conversation.recent(config.history, config.history_bytes.get());
    let body = Body {
        model: &config.model,
        messages: system.iter().chain(before).chain([said]).collect(),
        stream: config.stream,
        stream_options: (config.stream && config.usage).then_some(StreamOptions { include_usage: true }),
        temperature: config.temperature,
        max_tokens: config.max_tokens,
        options: &config.options,
    };
    serde_json::to_vec(&body)
}

#[cfg(test)]
mod tests {
    use relevo_shared::platform::egress::parse_url;
    use serde_json::json;

    use super::super::conversation::exchange;
    use super::*;

    fn sent(config: &OpenAiConfig, system: Option<&str>) -> Value {
        let before = exchange(&message("user", &json!("q")).unwrap(), "a").unwrap();
        let said = message("user", &json!("now")).unwrap();
        let body = body(config, system, &Conversation::read(&before), &said).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn the_conversation_goes_before_what_is_said_now() {
        let config = OpenAiConfig::of_model(parse_url("http://h/v1").unwrap(), "m");
        assert_eq!(
            sent(&config, Some("Be kind.")),
            json!({
                "model": "m", "stream": true, "stream_options": {"include_usage": true},
                "messages": [
                    {"role": "system", "content": "Be kind."},
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": "a"},
                    {"role": "user", "content": "now"},
                ],
            })
        );
    }

    #[test]
    fn what_the_table_says_goes_along() {
        let mut config = OpenAiConfig::of_model(parse_url("http://h/v1").unwrap(), "m");
        (config.stream, config.history) = (false, 0);
        (config.temperature, config.max_tokens) = (Some(0.5), Some(7));
        config.options = Map::from_iter([("top_p".to_owned(), json!(0.9))]);
        assert_eq!(
            sent(&config, None),
            json!({
                "model": "m", "stream": false, "temperature": 0.5, "max_tokens": 7, "top_p": 0.9,
                "messages": [{"role": "user", "content": "now"}],
            })
        );
        (config.stream, config.usage) = (true, false);
        assert_eq!(sent(&config, None).get("stream_options"), None);
    }
}
