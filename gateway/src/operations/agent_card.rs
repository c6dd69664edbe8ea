//! The agent card: a pure function of the configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use a2a::{AgentCapabilities, AgentCard, AgentInterface, AgentSkill};
use relevo_shared::agents::{AgentConfig, Agents};

/// The bindings that are served at the same address, the preferred one first.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// What this deployment says about itself at `url`, and at `grpc` if gRPC is served.
pub(crate) fn agent_card(agents: &Agents, url: &str, grpc: Option<&str>) -> AgentCard {
    let default = agents.default_agent();
    let mut interfaces = BINDINGS.map(|binding| AgentInterface::new(url, binding)).to_vec();
    interfaces.extend(grpc.map(|address| AgentInterface::new(address, "GRPC")));
    AgentCard {
        name: default.name.clone(),
        description: default.description.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        supported_interfaces: interfaces,
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(false),
            extensions: None,
            extended_agent_card: Some(false),
        },
        // What an agent can do with a part is its own matter: nothing is refused by its type.
        default_input_modes: vec!["*/*".to_owned()],
        default_output_modes: vec!["text/plain".to_owned(), "application/octet-stream".to_owned()],
        // What nobody can call is not offered: every message goes to the default agent.
        skills: skills(default).collect(),
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    }
}

fn skills(agent: &AgentConfig) -> impl Iterator<Item = AgentSkill> {
    agent.skills.iter().map(|skill| AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: if skill.tags.is_empty() {
            vec![agent.name.clone()]
        } else {
            skill.tags.clone()
        },
        examples: (!skill.examples.is_empty()).then(|| skill.examples.clone()),
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    })
}

/// The address that clients on this machine reach a listener at.
pub(crate) fn url_of(listen: SocketAddr) -> String {
    format!("http://{}", address_of(listen))
}

/// The same without a scheme, as gRPC has it.
pub(crate) fn address_of(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_says_where_and_what() {
        let card = serde_json::to_value(agent_card(
            &Agents::default(),
            "https://agents.example.com",
            Some("h:1"),
        ))
        .unwrap();
        assert_eq!(card["name"], "demo");
        for (place, binding) in ["JSONRPC", "HTTP+JSON"].into_iter().enumerate() {
            let interface = &card["supportedInterfaces"][place];
            assert_eq!(interface["url"], "https://agents.example.com");
            assert_eq!(interface["protocolBinding"], binding);
            assert_eq!(interface["protocolVersion"], "1.0");
        }
        let grpc = &card["supportedInterfaces"][2];
        assert_eq!(
            (&grpc["url"], &grpc["protocolBinding"]),
            (&"h:1".into(), &"GRPC".into())
        );
        assert_eq!(card["capabilities"]["streaming"], true);
        assert_eq!(card["capabilities"]["pushNotifications"], false);
        assert_eq!(card["skills"][0]["id"], "demo");
        for required in ["description", "version", "defaultInputModes", "defaultOutputModes"] {
            assert!(!card[required].is_null(), "{required}");
        }
    }

    #[test]
    fn an_address_of_all_interfaces_is_reached_at_loopback() {
        assert_eq!(url_of("0.0.0.0:80".parse().unwrap()), "http://127.0.0.1:80");
        assert_eq!(url_of("[::]:80".parse().unwrap()), "http://[::1]:80");
        assert_eq!(url_of("10.1.2.3:80".parse().unwrap()), "http://10.1.2.3:80");
    }
}
