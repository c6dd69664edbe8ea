//! The agent card: a pure function of the configuration.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use a2a::{
    AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentProvider, AgentSkill, ApiKeySecurityScheme,
    HttpAuthSecurityScheme, SecurityRequirement, SecurityScheme,
};
use axum::http::HeaderName;
use relevo_shared::agents::{AgentConfig, Agents, Profile, SkillConfig};

use super::extensions::OWN as OWN_EXTENSIONS;
use crate::auth::Schemes;

/// The bindings that are served at the same address, the preferred one first.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// What this deployment says about itself to everyone: at `url`, and at `grpc` if gRPC is served.
pub(crate) fn agent_card(agents: &Agents, schemes: Schemes<'_>, url: &str, grpc: Option<&str>) -> AgentCard {
    let default = agents.default_agent();
    let mut interfaces = BINDINGS.map(|binding| AgentInterface::new(url, binding)).to_vec();
    interfaces.extend(grpc.map(|address| AgentInterface::new(address, "GRPC")));
    let (security_schemes, security_requirements) = security(schemes);
    let profile = &default.profile;
    AgentCard {
        name: default.title.clone(),
        description: default.description.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        supported_interfaces: interfaces,
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(false),
            extensions: Some(extensions(agents)),
            extended_agent_card: Some(security_schemes.is_some()),
        },
        default_input_modes: of_all(agents, |profile| &profile.input_modes),
        default_output_modes: of_all(agents, |profile| &profile.output_modes),
        skills: skills(agents, false),
        provider: profile
            .organization
            .clone()
            .map(|(organization, url)| AgentProvider { organization, url }),
        documentation_url: None,
        icon_url: None,
        security_schemes,
        security_requirements,
        signatures: None,
    }
}

/// What it says to callers with a credential: everything, and the skills that are only for them.
pub(crate) fn extended_card(agents: &Agents, public: &AgentCard) -> AgentCard {
    AgentCard {
        skills: skills(agents, true),
        ..public.clone()
    }
}

/// What the profiles of all agents list, each once, the default agent's first.
fn of_all(agents: &Agents, list: impl Fn(&Profile) -> &Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for mode in agents.in_order().flat_map(|agent| list(&agent.profile)) {
        if !all.contains(mode) {
            all.push(mode.clone());
        }
    }
    all
}

/// What the server speaks itself, then what the profiles add. What a profile requires is required of messages for its agents: the card
/// says so of the default one, which every message is for that names no skill.
fn extensions(agents: &Agents) -> Vec<AgentExtension> {
    let mut all: Vec<AgentExtension> = OWN_EXTENSIONS
        .iter()
        .map(|(uri, description)| AgentExtension {
            uri: (*uri).to_owned(),
            description: Some((*description).to_owned()),
            required: None,
            params: None,
        })
        .collect();
    for (place, agent) in agents.in_order().enumerate() {
        for extension in &agent.profile.extensions {
            if all.iter().any(|known| known.uri == extension.uri) {
                continue;
            }
            all.push(AgentExtension {
                uri: extension.uri.clone(),
                description: Some(extension.description.clone()).filter(|text| !text.is_empty()),
                required: (place == 0 && extension.required).then_some(true),
                params: (!extension.params.is_empty()).then(|| extension.params.clone().into_iter().collect()),
            });
        }
    }
    all
}

type Security = (
    Option<HashMap<String, SecurityScheme>>,
    Option<Vec<SecurityRequirement>>,
);

/// Any of the schemes is enough.
fn security(schemes: Schemes<'_>) -> Security {
    let http = |scheme: &str| {
        SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
            scheme: scheme.to_owned(),
            description: None,
            bearer_format: None,
        })
    };
    let key = |header: &HeaderName| {
        SecurityScheme::ApiKey(ApiKeySecurityScheme {
            location: "header".to_owned(),
            name: header.to_string(),
            description: None,
        })
    };
    let all: Vec<(String, SecurityScheme)> = [
        ("bearerAuth", schemes.bearer.then(|| http("bearer"))),
        ("basicAuth", schemes.basic.then(|| http("basic"))),
        ("apiKeyAuth", schemes.api_key.map(key)),
    ]
    .into_iter()
    .filter_map(|(name, scheme)| Some((name.to_owned(), scheme?)))
    .collect();
    if all.is_empty() {
        return (None, None);
    }
    let one = |(name, _): &(String, _)| SecurityRequirement::from([(name.clone(), Vec::new())]);
    let requirements = all.iter().map(one).collect();
    (Some(all.into_iter().collect()), Some(requirements))
}

/// The skills of all agents, the default one's first. One that two agents took from the same profile is the first's.
fn skills(agents: &Agents, extended: bool) -> Vec<AgentSkill> {
    let several = agents.all().len() > 1;
    let mut all: Vec<AgentSkill> = Vec::new();
    for agent in agents.in_order() {
        for skill in agent.skills.iter().filter(|skill| extended || !skill.extended) {
            if !all.iter().any(|known| known.id == skill.id) {
                all.push(shown(agent, skill, several));
            }
        }
    }
    all
}

fn shown(agent: &AgentConfig, skill: &SkillConfig, several: bool) -> AgentSkill {
    // The card's own are those of all agents together; the reference server repeats them in every skill.
    let repeats = several || agent.profile.ingest.is_some();
    let modes = |own: &[String], all: &[String]| match own {
        [] => repeats.then(|| all.to_vec()),
        own => Some(own.to_vec()),
    };
    AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: if skill.tags.is_empty() {
            vec![agent.name.clone()]
        } else {
            skill.tags.clone()
        },
        examples: (!skill.examples.is_empty()).then(|| skill.examples.clone()),
        input_modes: modes(&skill.input_modes, &agent.profile.input_modes),
        output_modes: modes(&skill.output_modes, &agent.profile.output_modes),
        security_requirements: None,
    }
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
    use relevo_shared::platform::config::{ConfigErrors, Loader};

    use super::*;
    use crate::auth::Credentials;

    #[test]
    fn the_card_says_where_and_what() {
        let card = serde_json::to_value(agent_card(
            &Agents::default(),
            Credentials::default().schemes(),
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
    fn credentials_are_announced_with_the_extended_card() {
        let settings = Loader::new()
            .set("auth.token", "t")
            .set("auth.api_key", "k")
            .load()
            .unwrap();
        let credentials = Credentials::read(&settings, &mut ConfigErrors::new());
        let agents = Agents::from_table(
            &toml::from_str("[a]\nkind = \"demo\"\nprofile = \"iac-code\"\n").unwrap(),
            &mut ConfigErrors::new(),
        );
        let public = agent_card(&agents, credentials.schemes(), "https://a", None);
        let card = serde_json::to_value(&public).unwrap();
        assert_eq!(card["name"], "iac-code");
        assert_eq!(card["capabilities"]["extendedAgentCard"], true);
        assert_eq!(
            card["securitySchemes"]["bearerAuth"]["httpAuthSecurityScheme"]["scheme"],
            "bearer"
        );
        assert_eq!(
            card["securitySchemes"]["apiKeyAuth"]["apiKeySecurityScheme"]["name"],
            "x-api-key"
        );
        assert!(card["securitySchemes"]["basicAuth"].is_null());
        assert_eq!(
            card["securityRequirements"][1]["schemes"]["apiKeyAuth"]["list"],
            serde_json::json!([])
        );
        let skills = card["skills"].as_array().unwrap();
        assert_eq!(skills.len(), 4);
        for skill in skills {
            assert_eq!(skill["inputModes"], card["defaultInputModes"]);
            assert_eq!(skill["outputModes"], serde_json::json!(["text/plain"]));
        }
        assert_eq!(card["provider"]["organization"], "iac-code");
        let extensions = card["capabilities"]["extensions"].as_array().unwrap();
        let thinking = extensions
            .iter()
            .find(|it| it["uri"] == "urn:iac-code:a2a:thinking-exposure:v1");
        assert_eq!(
            thinking.unwrap()["params"]["enabledTypes"],
            serde_json::json!(["tool_trace"])
        );
        let extended = extended_card(&agents, &public);
        assert_eq!(extended.skills.last().unwrap().id, "iac_code_runtime_details");
        let uris: Vec<&str> = public
            .capabilities
            .extensions
            .iter()
            .flatten()
            .map(|e| e.uri.as_str())
            .collect();
        assert_eq!(uris[..4], OWN_EXTENSIONS.map(|(uri, _)| uri));
        assert!(uris.contains(&"urn:iac-code:a2a:artifact-metadata:v1"));
    }

    #[test]
    fn an_address_of_all_interfaces_is_reached_at_loopback() {
        assert_eq!(url_of("0.0.0.0:80".parse().unwrap()), "http://127.0.0.1:80");
        assert_eq!(url_of("[::]:80".parse().unwrap()), "http://[::1]:80");
        assert_eq!(url_of("10.1.2.3:80".parse().unwrap()), "http://10.1.2.3:80");
    }
}
