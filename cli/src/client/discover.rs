//! From the address a person knows to the interface to call: the agent card, and which of its addresses can be meant.

use a2a::{AgentCard, AgentInterface};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::{Client, ClientError, shown};

/// Where every A2A server has its card.
const CARD: &str = ".well-known/agent-card.json";

impl Client {
    /// Reads the card at `base` and takes the first interface it lists that this client speaks.
    /// `credentials` are shown to `base` and to no other origin: whoever wrote the card must not learn them by naming another.
    pub(crate) async fn discover(base: &Url, credentials: HeaderMap) -> Result<Self, ClientError> {
        let known = !credentials.is_empty();
        let http = super::http(base, credentials)?;
        let card = read_card(&http, base).await?;
        let foreign = |detail: String| ClientError::Foreign {
            url: shown(base),
            detail,
        };
        let card: AgentCard = serde_json::from_value(card).map_err(|error| foreign(format!("its card: {error}")))?;
        let interface =
            choose(&card).ok_or_else(|| foreign("its card lists no JSONRPC interface of version 1".to_owned()))?;
        let url = Url::parse(&interface.url)
            .map_err(|error| foreign(format!("its card names the address {}: {error}", interface.url)))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(foreign(format!("its card names the address {}", shown(&url))));
        }
        let url = reachable(url, base);
        if known && url.origin() != base.origin() {
            let (there, here) = (shown(&url), shown(base));
            return Err(foreign(format!(
                "its card names {there}, and credentials are shown to {here} only: give --url {there} if that is meant"
            )));
        }
        Ok(Self {
            http,
            url,
            tenant: interface.tenant.clone(),
            extensions: None,
        })
    }
}

/// The card as the server sent it.
pub(crate) async fn card(base: &Url, credentials: HeaderMap) -> Result<Value, ClientError> {
    read_card(&super::http(base, credentials)?, base).await
}

async fn read_card(http: &reqwest::Client, base: &Url) -> Result<Value, ClientError> {
    let mut url = base.clone();
    url.set_query(None);
    url.set_path(&format!("{}/{CARD}", base.path().trim_end_matches('/')));
    let unreachable = |source: reqwest::Error| ClientError::Unreachable {
        url: shown(&url),
        source: source.without_url(),
    };
    let request = http.get(url.clone()).timeout(super::ANSWER);
    let response = request.send().await.map_err(unreachable)?;
    if !response.status().is_success() {
        return Err(ClientError::Status {
            url: shown(&url),
            status: response.status().as_u16(),
            retry_after: super::retry_after(&response),
        });
    }
    let bytes = response.bytes().await.map_err(unreachable)?;
    serde_json::from_slice(&bytes).map_err(|error| ClientError::Foreign {
        url: shown(&url),
        detail: format!("its card: {error}"),
    })
}

fn choose(card: &AgentCard) -> Option<&AgentInterface> {
    card.supported_interfaces.iter().find(|interface| {
        let version = &interface.protocol_version;
        interface.protocol_binding == "JSONRPC" && (version == "1" || version.starts_with("1."))
    })
}

/// The address to call. A card that names an address of the server's own machine (or none in particular) means the
/// machine the card was found on.
fn reachable(mut url: Url, base: &Url) -> Url {
    let elsewhere = match place(&url) {
        Place::Anywhere => true,
        Place::Here => place(base) == Place::There,
        Place::There => false,
    };
    if elsewhere {
        let path = url.path().to_owned();
        url = base.clone();
        url.set_query(None);
        url.set_path(&path);
    }
    url
}

/// What the host of an address means to whoever reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// 0.0.0.0 or `[::]`: where a server listens, not where it can be called.
    Anywhere,
    /// This machine.
    Here,
    /// Some machine.
    There,
}

fn place(url: &Url) -> Place {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>().ok();
    if address.is_some_and(|address| address.is_unspecified()) {
        Place::Anywhere
    } else if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        Place::Here
    } else {
        Place::There
    }
}

/// Whether an address is on this machine: then no proxy is asked.
pub(super) fn is_here(url: &Url) -> bool {
    place(url) != Place::There
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(card: &str, base: &str) -> String {
        reachable(Url::parse(card).unwrap(), &Url::parse(base).unwrap()).to_string()
    }

    #[test]
    fn the_address_of_the_card_is_called_as_it_is() {
        assert_eq!(
            reach("http://a.example/rpc", "http://b.example"),
            "http://a.example/rpc"
        );
        assert_eq!(
            reach("http://127.0.0.1:1/", "http://127.0.0.1:2"),
            "http://127.0.0.1:1/"
        );
        assert_eq!(reach("http://localhost:1/", "http://[::1]:2"), "http://localhost:1/");
    }

    #[test]
    fn a_card_that_names_the_servers_own_machine_means_the_machine_it_came_from() {
        assert_eq!(
            reach("http://127.0.0.1:1/rpc", "http://b.example:9"),
            "http://b.example:9/rpc"
        );
        assert_eq!(
            reach("http://localhost:1/", "https://b.example/x?y"),
            "https://b.example/"
        );
        assert_eq!(reach("http://0.0.0.0:1/", "http://127.0.0.1:2"), "http://127.0.0.1:2/");
        assert_eq!(reach("http://[::]:1/", "http://b.example"), "http://b.example/");
    }
}
