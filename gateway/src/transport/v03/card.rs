//! What clients of A2A 0.3 read in an agent card, beside what it says to others.
//!
//! Security schemes have the same member in both versions, in other shapes: each carries both.

use serde_json::{Map, Value, json};

use super::{Fields, change, rename, translated};

/// The version that the card names.
pub(crate) const VERSION: &str = "0.3.0";
/// The bindings of 0.3, the preferred one first. All are served at the same address.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// An extended card of 1.0, as it is printed, for a client of 0.3, which is served where the others are.
pub(crate) fn printed(card: &[u8]) -> Vec<u8> {
    translated(card, |mut card| {
        let url = card.pointer("/supportedInterfaces/0/url").and_then(Value::as_str);
        let url = url.unwrap_or_default().to_owned();
        list(&mut card, &url);
        add(&mut card, &url);
        card
    })
}

/// Lists the bindings of 0.3 at `url` beside those of 1.0, where clients of 1.0 find them.
pub(crate) fn list(card: &mut Value, url: &str) {
    if let Some(Value::Array(interfaces)) = card.get_mut("supportedInterfaces") {
        // Last: who knows both versions takes the later one.
        let old = |binding| json!({ "url": url, "protocolBinding": binding, "protocolVersion": "0.3" });
        interfaces.extend(BINDINGS.map(old));
    }
}

/// Adds what clients of 0.3 read, which is spoken at `url`.
pub(crate) fn add(card: &mut Value, url: &str) {
    let Value::Object(fields) = card else { return };
    fields.insert("protocolVersion".to_owned(), VERSION.into());
    fields.insert("url".to_owned(), url.into());
    fields.insert("preferredTransport".to_owned(), BINDINGS[0].into());
    let interfaces = BINDINGS.map(|binding| json!({ "url": url, "transport": binding }));
    fields.insert("additionalInterfaces".to_owned(), interfaces.to_vec().into());
    let extended = fields.get("capabilities").and_then(|it| it.get("extendedAgentCard"));
    let extended = extended.and_then(Value::as_bool).unwrap_or_default();
    fields.insert("supportsAuthenticatedExtendedCard".to_owned(), extended.into());
    change(fields, "securitySchemes", |schemes| {
        for (_, scheme) in schemes {
            if let Value::Object(scheme) = scheme {
                security_scheme(scheme);
            }
        }
    });
    if let Some(Value::Array(requirements)) = fields.get("securityRequirements") {
        let old = requirements.iter().map(requirement).collect();
        fields.insert("security".to_owned(), Value::Array(old));
    }
}

/// In 1.0 the name of the only member says what kind of scheme it is, in 0.3 the member `type`.
fn security_scheme(scheme: &mut Fields) {
    for (member, kind) in [
        ("apiKeySecurityScheme", "apiKey"),
        ("httpAuthSecurityScheme", "http"),
        ("oauth2SecurityScheme", "oauth2"),
        ("openIdConnectSecurityScheme", "openIdConnect"),
        ("mtlsSecurityScheme", "mutualTLS"),
    ] {
        if let Some(Value::Object(inner)) = scheme.get(member) {
            let mut old = inner.clone();
            rename(&mut old, "location", "in");
            old.insert("type".to_owned(), kind.into());
            scheme.extend(old);
            return;
        }
    }
}

/// `{"schemes":{"a":{"list":["x"]}}}` as `{"a":["x"]}`.
fn requirement(requirement: &Value) -> Value {
    let scopes = |scheme: &Value| scheme.get("list").cloned().unwrap_or_else(|| json!([]));
    let schemes = requirement.get("schemes").and_then(Value::as_object);
    let old: Map<String, Value> = schemes
        .into_iter()
        .flatten()
        .map(|(name, scheme)| (name.clone(), scopes(scheme)))
        .collect();
    Value::Object(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_is_listed_for_both_kinds_of_clients() {
        let mut card = json!({ "supportedInterfaces": [{ "protocolVersion": "1.0" }], "capabilities": {} });
        list(&mut card, "http://a");
        add(&mut card, "http://a");
        let entry = |transport| json!({ "url": "http://a", "transport": transport });
        assert_eq!(
            card["additionalInterfaces"],
            json!([entry("JSONRPC"), entry("HTTP+JSON")])
        );
        assert_eq!(
            (&card["url"], &card["preferredTransport"]),
            (&json!("http://a"), &json!("JSONRPC"))
        );
        assert_eq!(card["supportsAuthenticatedExtendedCard"], false);
        let versions: Vec<&Value> = card["supportedInterfaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|interface| &interface["protocolVersion"])
            .collect();
        assert_eq!(versions, ["1.0", "0.3", "0.3"]);
    }

    #[test]
    fn what_a_card_says_of_security_is_said_in_both_shapes() {
        let mut card = json!({
            "capabilities": { "extendedAgentCard": true },
            "securitySchemes": {
                "bearer": { "httpAuthSecurityScheme": { "scheme": "Bearer", "bearerFormat": "JWT" } },
                "key": { "apiKeySecurityScheme": { "location": "header", "name": "X-Key" } },
            },
            "securityRequirements": [{ "schemes": { "bearer": { "list": ["a"] } } }, { "schemes": { "key": {} } }],
        });
        add(&mut card, "http://a");
        assert_eq!(card["supportsAuthenticatedExtendedCard"], true);
        assert_eq!(card["security"], json!([{ "bearer": ["a"] }, { "key": [] }]));
        assert_eq!(
            card["securitySchemes"]["bearer"],
            json!({ "type": "http", "scheme": "Bearer", "bearerFormat": "JWT",
                "httpAuthSecurityScheme": { "scheme": "Bearer", "bearerFormat": "JWT" } })
        );
        assert_eq!(
            card["securitySchemes"]["key"],
            json!({ "type": "apiKey", "in": "header", "name": "X-Key",
                "apiKeySecurityScheme": { "location": "header", "name": "X-Key" } })
        );
    }
}
