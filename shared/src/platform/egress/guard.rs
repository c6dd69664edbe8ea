//! Where a request may go: the URL before it is sent, and every address at the moment it is dialled.
//!
//! Owns what a URL must be and when its address is the operator's own wish. An address that stands in the URL, in any spelling
//! that the URL standard knows, is judged with the URL; a name is judged when it is resolved, in the resolver of the client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::rules::{Reason, Rules};

/// A request that is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The text is no URL.
    #[error("is no URL: {0}")]
    NoUrl(url::ParseError),
    /// Another scheme.
    #[error("must be http:// or https://, not {0}:")]
    Scheme(String),
    /// `user:password@`
    #[error("must not hold a user name or a password before the host")]
    UserInfo,
    /// The address, or the host itself, is refused. Names host, address, rule and setting.
    #[error("{host} ({address}): {reason}")]
    Address {
        /// The host of the URL.
        host: String,
        /// What it stands for.
        address: IpAddr,
        /// Why not.
        reason: Reason,
    },
    /// The host is refused whatever its address is.
    #[error("{host}: {reason}")]
    Host {
        /// The host of the URL.
        host: String,
        /// Why not.
        reason: Reason,
    },
}

/// Reads a URL of a server.
///
/// # Errors
/// It is none, has another scheme, or holds credentials, which then are not in the error.
pub fn parse_url(text: &str) -> Result<Url, Refused> {
    let url = Url::parse(text.trim()).map_err(Refused::NoUrl)?;
    check_form(&url)?;
    Ok(url)
}

fn check_form(url: &Url) -> Result<(), Refused> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refused::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::UserInfo);
    }
    Ok(())
}

/// The addresses of a name.
pub type Looking = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Asks for the addresses of a name.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of `name`, now.
    fn lookup(&self, name: &str) -> Looking;
}

/// The system's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: &str) -> Looking {
        let name = name.to_owned();
        async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// The guard of one client.
#[derive(Clone)]
pub struct Guard {
    rules: Arc<Rules>,
    /// The URL that the operator wrote.
    own: Option<Url>,
    lookup: Arc<dyn Lookup>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// The guard of whoever calls `own`, a URL from the configuration, if there is one such.
    pub fn new(rules: Arc<Rules>, own: Option<Url>, lookup: Arc<dyn Lookup>) -> Self {
        Self { rules, own, lookup }
    }

    /// Judges a URL by all that can be said before it is dialled.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn check(&self, url: &Url) -> Result<(), Refused> {
        check_form(url)?;
        let own = self.own.as_ref().is_some_and(|own| own.origin() == url.origin());
        let host = url.host_str().unwrap_or_default();
        let refused = |address: IpAddr| {
            move |reason| Refused::Address {
                host: host.to_owned(),
                address,
                reason,
            }
        };
        let literal = match url.host() {
            // Every URL of these schemes has a host.
            None => return Err(Refused::NoUrl(url::ParseError::EmptyHost)),
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(name)) => {
                let name = plain(name);
                if let Some(reason) = self.rules.denied_host(&name) {
                    return Err(Refused::Host { host: name, reason });
                }
                if !is_localhost(&name) {
                    return Ok(());
                }
                // The resolver is told no port, so that this origin is the operator's own is judged here.
                let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
                return self.rules.judge(Some(&name), here, own).map_err(refused(here));
            }
        };
        self.rules.judge(None, literal, own).map_err(refused(literal))
    }

    /// The addresses of a name, if all of them may be dialled.
    async fn resolve_all(self, name: String) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.lookup.lookup(&name).await?;
        let host = plain(&name);
        let meant = is_localhost(&host);
        for address in &found {
            self.rules
                .judge(Some(&host), *address, meant && address.is_loopback())
                .map_err(|reason| Refused::Address {
                    host: host.clone(),
                    address: *address,
                    reason,
                })?;
        }
        // Port 0 stands for that of the URL.
        Ok(found.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.clone().resolve_all(name.as_str().to_owned());
        async move { Ok(Box::new(found.await?.into_iter()) as Addrs) }.boxed()
    }
}

/// A name as rules have it.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}
