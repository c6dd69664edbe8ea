//! The card of a server: which of its interfaces is spoken to. Pure.
//!
//! Owns the choice: JSONRPC or HTTP+JSON of version 1, in the card's order, else JSONRPC of 0.3. Cards are read leniently: nothing
//! but the address matters here.

use std::net::IpAddr;
use std::path::Path;

use relevo_shared::platform::egress::{Url, parse_url};
use serde_json::Value;

/// What is spoken to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// A2A 1.0, JSON-RPC.
    Rpc,
    /// A2A 1.0, HTTP+JSON.
    Rest,
    /// A2A 0.3, JSON-RPC.
    OldRpc,
}

/// Where and how a server is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) url: Url,
    pub(super) dialect: Dialect,
    pub(super) tenant: Option<String>,
    pub(super) streaming: bool,
}

/// Where the card is: the URL itself if that is a file of JSON, else in its usual place below.
pub(super) fn address(url: &Url) -> Url {
    let mut card = url.clone();
    if Path::new(url.path()).extension().is_none_or(|kind| kind != "json") {
        card.set_query(None);
        card.set_path(&format!(
            "{}/.well-known/agent-card.json",
            url.path().trim_end_matches('/')
        ));
    }
    card
}

/// The interface to speak to. The error is a sentence about the card.
pub(super) fn choose(card: &Value, base: &Url) -> Result<Interface, String> {
    let streaming = card.pointer("/capabilities/streaming").and_then(Value::as_bool);
    let mut found: Option<(Dialect, &str, Option<&str>)> = None;
    let text =
        |value: &'static str| move |interface: &Value| interface.get(value).and_then(Value::as_str).map(str::to_owned);
    for interface in members(card, "supportedInterfaces") {
        let (binding, version) = (text("protocolBinding")(interface), text("protocolVersion")(interface));
        let Some(dialect) = dialect(&binding.unwrap_or_default(), &version.unwrap_or_default()) else {
            continue;
        };
        let old = dialect == Dialect::OldRpc;
        let better = found.is_none_or(|(known, ..)| known == Dialect::OldRpc && !old);
        if let Some(url) = interface.get("url").and_then(Value::as_str).filter(|_| better) {
            let tenant = interface.get("tenant").and_then(Value::as_str);
            found = Some((dialect, url, tenant.filter(|tenant| !tenant.is_empty())));
        }
    }
    let Some((dialect, url, tenant)) = found.or_else(|| old(card)) else {
        let offers = offers(card);
        let offers = if offers.is_empty() {
            "nothing".to_owned()
        } else {
            offers.join(", ")
        };
        return Err(format!(
            "it offers {offers}; spoken are JSONRPC and HTTP+JSON of version 1, and JSONRPC of 0.3"
        ));
    };
    let url = parse_url(url).map_err(|refused| format!("the address of its interface {refused}"))?;
    Ok(Interface {
        url: meant(url, base),
        dialect,
        tenant: tenant.map(str::to_owned),
        streaming: streaming.unwrap_or_default(),
    })
}

fn dialect(binding: &str, version: &str) -> Option<Dialect> {
    let first = version.split('.').next().unwrap_or_default();
    match (binding.to_ascii_uppercase().as_str(), first) {
        ("JSONRPC", "1") => Some(Dialect::Rpc),
        ("HTTP+JSON", "1") => Some(Dialect::Rest),
        ("JSONRPC", "0") => Some(Dialect::OldRpc),
        _ => None,
    }
}

/// The interface of a card of 0.3.
fn old(card: &Value) -> Option<(Dialect, &str, Option<&str>)> {
    let text = |value: &'static str| card.get(value).and_then(Value::as_str);
    if !text("protocolVersion")?.starts_with("0.") {
        return None;
    }
    let is_rpc = |transport: &str| transport.eq_ignore_ascii_case("JSONRPC");
    if is_rpc(text("preferredTransport").unwrap_or("JSONRPC")) {
        return Some((Dialect::OldRpc, text("url")?, None));
    }
    let other = members(card, "additionalInterfaces")
        .find(|interface| interface.get("transport").and_then(Value::as_str).is_some_and(is_rpc));
    Some((Dialect::OldRpc, other?.get("url")?.as_str()?, None))
}

/// What a card offers, in short: bindings with their versions.
fn offers(card: &Value) -> Vec<String> {
    let word = |of: &Value, name: &str| {
        let text = of.get(name).and_then(Value::as_str).unwrap_or("?");
        text.chars().filter(char::is_ascii_graphic).take(16).collect::<String>()
    };
    let new =
        members(card, "supportedInterfaces").map(|one| (word(one, "protocolBinding"), word(one, "protocolVersion")));
    let old = card
        .get("preferredTransport")
        .map(|_named| (word(card, "preferredTransport"), word(card, "protocolVersion")));
    let others =
        members(card, "additionalInterfaces").map(|one| (word(one, "transport"), word(card, "protocolVersion")));
    let all = new.chain(old).chain(others).take(8);
    all.map(|(binding, version)| format!("{binding} {version}")).collect()
}

fn members<'a>(card: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    card.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Servers on this machine often name it in another way than the operator did, or say where they listen.
fn meant(mut url: Url, base: &Url) -> Url {
    let same = url.scheme() == base.scheme() && url.port_or_known_default() == base.port_or_known_default();
    if same && is_here(&url) && is_here(base) {
        // A host that is one already.
        let _ = url.set_host(base.host_str());
    }
    url
}

fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn interface(binding: &str, version: &str, at: &str) -> Value {
        json!({ "url": at, "protocolBinding": binding, "protocolVersion": version })
    }

    fn chosen(card: &Value) -> Result<(Dialect, String), String> {
        choose(card, &url("http://127.0.0.1:9000")).map(|found| (found.dialect, found.url.to_string()))
    }

    #[test]
    fn a_card_is_below_the_url_or_the_url() {
        for (base, card) in [
            ("http://h", "http://h/.well-known/agent-card.json"),
            ("http://h/", "http://h/.well-known/agent-card.json"),
            (
                "http://h/agents/a/?x=1",
                "http://h/agents/a/.well-known/agent-card.json",
            ),
            ("http://h/my-card.json?v=1", "http://h/my-card.json?v=1"),
        ] {
            assert_eq!(address(&url(base)).as_str(), card);
        }
    }

    #[test]
    fn the_first_interface_of_version_1_that_is_spoken_is_taken() {
        let card = json!({ "supportedInterfaces": [
            interface("GRPC", "1.0", "h:1"), interface("JSONRPC", "0.3", "http://h/old"),
            interface("HTTP+JSON", "1.0", "http://h/rest"), interface("JSONRPC", "1.0", "http://h/rpc"),
        ]});
        assert_eq!(chosen(&card).unwrap(), (Dialect::Rest, "http://h/rest".to_owned()));
        let old = json!({ "supportedInterfaces": [interface("jsonrpc", "0.3", "http://h/old")] });
        assert_eq!(chosen(&old).unwrap(), (Dialect::OldRpc, "http://h/old".to_owned()));
        let none = json!({ "supportedInterfaces": [interface("GRPC", "1.0", "h:1"), interface("JSONRPC", "2.0", "http://h")] });
        assert_eq!(
            chosen(&none).unwrap_err(),
            "it offers GRPC 1.0, JSONRPC 2.0; spoken are JSONRPC and HTTP+JSON of version 1, and JSONRPC of 0.3"
        );
        assert!(chosen(&json!([])).is_err());
        let bad = json!({ "supportedInterfaces": [interface("JSONRPC", "1.0", "file:///etc/passwd")] });
        assert!(chosen(&bad).unwrap_err().contains("must be http://"));
    }

    #[test]
    fn a_card_of_0_3_names_its_transport() {
        let card = |transport: &str| {
            json!({ "protocolVersion": "0.3.0", "url": "http://h/main", "preferredTransport": transport,
                "additionalInterfaces": [{ "url": "http://h/grpc", "transport": "GRPC" }, { "url": "http://h/rpc", "transport": "JSONRPC" }] })
        };
        assert_eq!(chosen(&card("JSONRPC")).unwrap().1, "http://h/main");
        assert_eq!(chosen(&card("HTTP+JSON")).unwrap().1, "http://h/rpc");
        assert_eq!(
            chosen(&json!({ "protocolVersion": "0.3.0", "url": "http://h/" }))
                .unwrap()
                .1,
            "http://h/"
        );
        let rest = json!({ "protocolVersion": "0.3.0", "url": "http://h/", "preferredTransport": "HTTP+JSON" });
        assert!(
            chosen(&rest)
                .unwrap_err()
                .starts_with("it offers HTTP+JSON 0.3.0; spoken are")
        );
    }

    #[test]
    fn a_server_on_this_machine_may_name_it_in_its_own_way() {
        for (named, used) in [
            ("http://localhost:9000/a", "http://127.0.0.1:9000/a"),
            ("http://0.0.0.0:9000/", "http://127.0.0.1:9000/"),
            ("http://localhost:9001/", "http://localhost:9001/"),
            ("http://10.0.0.1:9000/", "http://10.0.0.1:9000/"),
        ] {
            let card = json!({ "supportedInterfaces": [interface("JSONRPC", "1.0", named)] });
            assert_eq!(chosen(&card).unwrap().1, used);
        }
    }
}
