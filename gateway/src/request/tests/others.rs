//! Both ways through ProtoJSON: the agent card and all that it holds, requests about push configs, and what the generated types lose.
//! Push configs are never printed here: the card announces none.

use a2a::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
    ApiKeySecurityScheme, AuthenticationInfo, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow,
    DeleteTaskPushNotificationConfigRequest, DeviceCodeOAuthFlow, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, HttpAuthSecurityScheme, ListTaskPushNotificationConfigsRequest,
    MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows, OpenIdConnectSecurityScheme, SecurityRequirement,
    SecurityScheme, TaskPushNotificationConfig,
};
use proptest::sample::select;

use super::*;
use crate::error::ApiError;
use crate::request::{ExtendedCard, PushConfig};

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn some_text() -> impl Strategy<Value = Option<String>> {
    option::of(text())
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..3)
}

fn requirements() -> impl Strategy<Value = Option<Vec<SecurityRequirement>>> {
    option::of(vec(hash_map(text(), texts(), 0..3), 0..3))
}

fn flows() -> impl Strategy<Value = OAuthFlows> {
    let scopes = || hash_map(text(), text(), 0..3);
    prop_oneof![
        (text(), text(), scopes(), some_text(), option::of(any::<bool>())).prop_map(
            |(authorization_url, token_url, scopes, refresh_url, pkce_required)| {
                OAuthFlows::AuthorizationCode(AuthorizationCodeOAuthFlow {
                    authorization_url,
                    token_url,
                    scopes,
                    refresh_url,
                    pkce_required,
                })
            }
        ),
        (text(), scopes(), some_text()).prop_map(|(token_url, scopes, refresh_url)| {
            OAuthFlows::ClientCredentials(ClientCredentialsOAuthFlow {
                token_url,
                scopes,
                refresh_url,
            })
        }),
        (text(), text(), scopes(), some_text()).prop_map(
            |(device_authorization_url, token_url, scopes, refresh_url)| {
                OAuthFlows::DeviceCode(DeviceCodeOAuthFlow {
                    device_authorization_url,
                    token_url,
                    scopes,
                    refresh_url,
                })
            }
        ),
    ]
}

fn scheme() -> impl Strategy<Value = SecurityScheme> {
    prop_oneof![
        (select(vec!["header", "query", "cookie"]), text(), some_text()).prop_map(|(location, name, description)| {
            SecurityScheme::ApiKey(ApiKeySecurityScheme {
                location: location.to_owned(),
                name,
                description,
            })
        }),
        (text(), some_text(), some_text()).prop_map(|(scheme, description, bearer_format)| {
            SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
                scheme,
                description,
                bearer_format,
            })
        }),
        (flows(), some_text(), some_text()).prop_map(|(flows, description, oauth2_metadata_url)| {
            SecurityScheme::OAuth2(OAuth2SecurityScheme {
                flows,
                description,
                oauth2_metadata_url,
            })
        }),
        (text(), some_text()).prop_map(|(open_id_connect_url, description)| {
            SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                open_id_connect_url,
                description,
            })
        }),
        some_text().prop_map(|description| SecurityScheme::MutualTls(MutualTlsSecurityScheme { description })),
    ]
}

fn interface() -> impl Strategy<Value = AgentInterface> {
    let binding = select(vec!["JSONRPC", "HTTP+JSON", "GRPC", "https://example.com/own"]);
    ("https://[a-z]{1,8}", binding, "[01]\\.[0-9]", some_text()).prop_map(
        |(url, protocol_binding, protocol_version, tenant)| AgentInterface {
            url,
            protocol_binding: protocol_binding.to_owned(),
            protocol_version,
            tenant,
        },
    )
}

fn capabilities() -> impl Strategy<Value = AgentCapabilities> {
    let flag = || option::of(any::<bool>());
    let extension =
        (text(), some_text(), flag(), metadata()).prop_map(|(uri, description, required, params)| AgentExtension {
            uri,
            description,
            required,
            params,
        });
    (flag(), flag(), option::of(vec(extension, 0..3)), flag()).prop_map(
        |(streaming, push_notifications, extensions, extended_agent_card)| AgentCapabilities {
            streaming,
            push_notifications,
            extensions,
            extended_agent_card,
        },
    )
}

fn skill() -> impl Strategy<Value = AgentSkill> {
    let lists = || option::of(texts());
    (
        (text(), text(), text()),
        texts(),
        lists(),
        lists(),
        lists(),
        requirements(),
    )
        .prop_map(
            |((id, name, description), tags, examples, input_modes, output_modes, security_requirements)| AgentSkill {
                id,
                name,
                description,
                tags,
                examples,
                input_modes,
                output_modes,
                security_requirements,
            },
        )
}

fn card() -> impl Strategy<Value = AgentCard> {
    let names = (text(), text(), text());
    let provider = (text(), text()).prop_map(|(organization, url)| AgentProvider { organization, url });
    let signature = (text(), text(), metadata()).prop_map(|(protected, signature, header)| AgentCardSignature {
        protected,
        signature,
        header,
    });
    let offered = (
        vec(interface(), 1..4),
        capabilities(),
        texts(),
        texts(),
        vec(skill(), 0..3),
    );
    let more = (option::of(provider), some_text(), some_text());
    let kept = (
        option::of(hash_map(text(), scheme(), 0..3)),
        requirements(),
        option::of(vec(signature, 0..2)),
    );
    (names, offered, more, kept).prop_map(
        |(
            (name, description, version),
            (supported_interfaces, capabilities, default_input_modes, default_output_modes, skills),
            (provider, documentation_url, icon_url),
            (security_schemes, security_requirements, signatures),
        )| AgentCard {
            name,
            description,
            version,
            supported_interfaces,
            capabilities,
            default_input_modes,
            default_output_modes,
            skills,
            provider,
            documentation_url,
            icon_url,
            security_schemes,
            security_requirements,
            signatures,
        },
    )
}

fn push_config() -> impl Strategy<Value = TaskPushNotificationConfig> {
    let authentication =
        (text(), some_text()).prop_map(|(scheme, credentials)| AuthenticationInfo { scheme, credentials });
    let tenant = option::of("[a-z]{1,9}");
    (
        text(),
        some_text(),
        text(),
        some_text(),
        option::of(authentication),
        tenant,
    )
        .prop_map(
            |(url, id, task_id, token, authentication, tenant)| TaskPushNotificationConfig {
                url,
                id,
                task_id,
                token,
                authentication,
                tenant,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_card_is_printed_as_the_generated_types_read_it(card in card()) {
        read_back_from(&card, &serde_json::to_vec(&card).unwrap())?;
    }

    #[test]
    fn requests_about_push_configs_and_the_extended_card_are_read_alike_in_every_spelling(
        config in push_config(),
        page in (option::of(any::<i32>()), some_text()),
        spelling in spelling(),
    ) {
        let (task_id, tenant) = (config.task_id.clone(), config.tenant.clone());
        let id = config.id.clone().unwrap_or_default();
        let expected = PushConfig { tenant: tenant.clone().unwrap_or_default() };
        let (page_size, page_token) = page;
        for json in [
            canonical(&config, spelling),
            canonical(
                &GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: id.clone(), tenant: tenant.clone() },
                spelling,
            ),
            canonical(
                &DeleteTaskPushNotificationConfigRequest { task_id: task_id.clone(), id, tenant: tenant.clone() },
                spelling,
            ),
            canonical(
                &ListTaskPushNotificationConfigsRequest { task_id, page_size, page_token, tenant: tenant.clone() },
                spelling,
            ),
        ] {
            prop_assert_eq!(PushConfig::parse(json).unwrap(), expected.clone());
        }
        let extended = canonical(&GetExtendedAgentCardRequest { tenant }, spelling);
        prop_assert_eq!(ExtendedCard::parse(extended).unwrap(), ExtendedCard { tenant: expected.tenant });
    }

    #[test]
    fn a_push_config_in_a_send_is_seen_and_changes_nothing_else(
        mut request in send_request(),
        config in push_config(),
        spelling in spelling(),
    ) {
        let modes = request.configuration.as_ref().and_then(|c| c.accepted_output_modes.clone());
        request.configuration = Some(SendMessageConfiguration {
            accepted_output_modes: modes.clone(),
            task_push_notification_config: Some(config),
            history_length: None,
            return_immediately: None,
        });
        let read = SendMessage::parse(canonical(&request, spelling), &SecretKeys::new(&[])).unwrap();
        prop_assert!(read.inline_push);
        prop_assert_eq!(read.message, request.message);
        prop_assert_eq!(read.accepted_output_modes, modes.unwrap_or_default());
    }

    #[test]
    fn a_cancel_is_read_alike_with_whatever_metadata(
        id in "\\PC{1,40}",
        metadata in metadata(),
        spelling in spelling(),
    ) {
        let cancel = CancelTaskRequest { id: id.clone(), metadata, tenant: None };
        let read = CancelTask::parse(canonical(&cancel, spelling)).unwrap();
        prop_assert_eq!(read, CancelTask { tenant: String::new(), id });
    }

    #[test]
    fn a_message_of_an_agent_is_no_request(request in send_request(), spelling in spelling()) {
        let mut request = request;
        request.message.role = Role::Agent;
        let refused = SendMessage::parse(canonical(&request, spelling), &SecretKeys::new(&[])).unwrap_err();
        let ApiError::InvalidParams(fields) = refused else { panic!("{refused:?}") };
        prop_assert_eq!(&fields[0].field, "message.role");
    }
}

/// The generated reader takes `null` for no data at all; here it is data, both ways.
#[test]
fn data_may_be_null() {
    let json = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "data": null }] } });
    let read = SendMessage::parse(json, &SecretKeys::new(&[])).unwrap();
    assert_eq!(read.message.parts[0].content, PartContent::Data(Value::Null));
    let printed: Value = serde_json::from_slice(&wire::to_vec(&StreamResponse::Message(read.message))).unwrap();
    assert_eq!(printed["message"]["parts"], json!([{ "data": null }]));
}

/// Empty metadata says what none says.
#[test]
fn empty_metadata_is_read() {
    let json = json!({
        "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "a", "metadata": {} }], "metadata": {} },
        "metadata": {},
    });
    let read = SendMessage::parse(json, &SecretKeys::new(&[])).unwrap();
    assert!(read.metadata.is_empty());
    assert!(read.message.metadata.unwrap_or_default().is_empty());
    assert!(read.message.parts[0].metadata.clone().unwrap_or_default().is_empty());
}
