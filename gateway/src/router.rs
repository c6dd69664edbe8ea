//! The whole surface of the gateway.
//!
//! | path | methods | what |
//! | --- | --- | --- |
//! | `/` | POST | JSON-RPC: every operation |
//! | `/.well-known/agent-card.json` | GET, HEAD | the agent card |
//! | `/message:send`, `/tasks`, ... | GET, POST, DELETE | HTTP+JSON: every operation, also below `/{tenant}` |
//! | `/v1/message:send`, `/v1/tasks`, ... | GET, POST, DELETE | the same for clients of A2A 0.3 |
//! | `/v1/card` | GET, HEAD | the agent card for clients of A2A 0.3, the extended one where there is one |
//! | `/artifacts/{task}/{sha256}` | GET, HEAD | the content of a part in the artifact store, where there is one; also below `/{tenant}` |
//! | `/health` | GET, HEAD | whether the process answers; readiness is on the admin listener |

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, Response};
use axum::routing::{any, get, post};
use tokio::time::Instant;

use crate::cors;
use crate::error::{Plain, json_response};
use crate::observe::Observed;
use crate::services::Services;
use crate::transport::card::Card;
use crate::transport::{artifact, jsonrpc, rest};

const CARD: &str = "/.well-known/agent-card.json";
const CARD_0_3: &str = "/v1/card";

const ARTIFACTS: [&str; 2] = ["/artifacts/{task}/{digest}", "/{tenant}/artifacts/{task}/{digest}"];

#[derive(Clone)]
struct CardState {
    services: Services,
    card: Card,
}

/// Builds it.
pub(crate) fn router(services: Services, card: Card) -> Router {
    let serve = || get(serve_card).fallback(async || Plain::MethodNotAllowed("GET, HEAD").respond());
    let mut cards = Router::new().route(CARD, serve());
    // Where there is a card for those who have shown a credential, that is the one of 0.3; see `transport::rest`.
    if services.settings.gateway.a2a_0_3 && services.extended_card.is_none() {
        cards = cards.route(CARD_0_3, serve());
    }
    let cards = cards
        .with_state(CardState {
            services: Services::clone(&services),
            card,
        })
        .layer(cors::card(&services.settings.auth.api_key_header));
    let operations = cors::operations(
        &services.settings.gateway.cors_origins,
        &services.settings.auth.api_key_header,
    );
    let mut router = Router::new();
    if services.objects.is_some() {
        for path in ARTIFACTS {
            router = router.route(path, any(artifact::serve));
        }
    }
    let router = router
        .route(
            "/",
            post(jsonrpc::serve).fallback(async || Plain::MethodNotAllowed("POST").respond()),
        )
        .route(
            "/health",
            get(health).fallback(async || Plain::MethodNotAllowed("GET, HEAD").respond()),
        )
        .fallback(rest::serve)
        .with_state(services);
    // The layer of the operations also answers preflights, for paths of REST that no router knows.
    match operations {
        Some(layer) => router.layer(layer),
        None => router,
    }
    .merge(cards)
}

async fn serve_card(State(state): State<CardState>, headers: HeaderMap, query: RawQuery) -> Response<Body> {
    let received = Instant::now();
    let services = &state.services;
    if services.settings.auth.card && services.credentials.identify(&headers).is_err() {
        return jsonrpc::refused(services, received);
    }
    let mut observed = Observed::new(&services.metrics, "agent_card", received);
    let response = state.card.respond(&headers, query.0.as_deref());
    observed.finish("ok");
    response
}

async fn health() -> Response<Body> {
    json_response(br#"{"status":"healthy"}"#.to_vec())
}
