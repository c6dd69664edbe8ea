//! The HTTP client of one agent: its guard, its credentials, its breakers and its connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Method, StatusCode, Url};

use super::answer::Answer;
use super::breaker::{BreakerSettings, Weight};
use super::credentials::Credentials;
use super::error::EgressError;
use super::guard::{Guard, Lookup, SystemLookup};
use super::metrics::EgressMetrics;
use super::rules::Rules;
use super::upstreams::Upstreams;
use crate::platform::certificates::certificates;
use crate::platform::config::EgressSettings;

/// How long an unused connection stays open: shorter than what servers and the balancers before them use, mostly a minute.
const IDLE: Duration = Duration::from_secs(30);
/// Unused connections per server.
const SPARE: usize = 32;

/// It cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A list has an entry that is none.
    #[error("egress.allow or egress.deny has `{0}`, which is no address, network or host name")]
    Rules(String),
    /// The certificates cannot be used.
    #[error("egress.ca_file: {} {text}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why not.
        text: String,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made")]
    Client(#[from] reqwest::Error),
}

/// What all clients of a process share.
#[derive(Clone)]
pub struct Egress {
    rules: Arc<Rules>,
    certificates: Vec<Certificate>,
    connect_timeout: Duration,
    breaker: BreakerSettings,
    metrics: EgressMetrics,
    lookup: Arc<dyn Lookup>,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// Reads `[egress]`, its file of certificates included.
    ///
    /// # Errors
    /// [`SetupError`]
    pub fn new(settings: &EgressSettings, metrics: EgressMetrics) -> Result<Self, SetupError> {
        Ok(Self {
            rules: Arc::new(Rules::parse(&settings.allow, &settings.deny).map_err(SetupError::Rules)?),
            certificates: settings
                .ca_file
                .as_deref()
                .map(|path| {
                    certificates(path).map_err(|text| SetupError::Certificates {
                        path: path.to_owned(),
                        text,
                    })
                })
                .transpose()?
                .unwrap_or_default(),
            connect_timeout: settings.connect_timeout,
            breaker: BreakerSettings {
                failures: settings.breaker_failures,
                pause: settings.breaker_pause,
            },
            metrics,
            lookup: Arc::new(SystemLookup),
        })
    }

    /// With another resolver of names.
    #[must_use]
    pub fn with_lookup(mut self, lookup: Arc<dyn Lookup>) -> Self {
        self.lookup = lookup;
        self
    }

    /// The client of an agent whose URL in the configuration is `own`: an address there is allowed, and the credentials are shown
    /// to that origin. `agent` is its name in metrics and logs.
    ///
    /// # Errors
    /// [`SetupError`]
    pub fn client(&self, agent: &str, own: &Url, credentials: Credentials) -> Result<Client, SetupError> {
        let guard = Guard::new(Arc::clone(&self.rules), Some(own.clone()), Arc::clone(&self.lookup));
        let builder = reqwest::Client::builder()
            .use_rustls_tls()
            .dns_resolver(Arc::new(guard.clone()))
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .user_agent(concat!("relevo/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(SPARE);
        let trusting = |builder: reqwest::ClientBuilder, certificate: &Certificate| {
            builder.add_root_certificate(certificate.clone())
        };
        Ok(Client {
            http: self.certificates.iter().fold(builder, trusting).build()?,
            guard,
            credentials,
            upstreams: Upstreams::new(agent, self.breaker, self.metrics.clone()),
        })
    }
}

/// A request, and how long and how large its answer may be.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Vec<u8>,
    head: Duration,
    silence: Duration,
    limit: usize,
    weight: Weight,
}

impl Call {
    /// A request without a body. Its answer begins within 30 s, is never silent for as long, and has at most 1 MiB.
    pub fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Vec::new(),
            head: Duration::from_secs(30),
            silence: Duration::from_secs(30),
            limit: 1 << 20,
            weight: Weight::default(),
        }
    }

    /// With a header that is no secret.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// With a body of JSON.
    #[must_use]
    pub fn json(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self.header(
            reqwest::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )
    }

    /// Its answer begins within this time.
    #[must_use]
    pub fn within(mut self, head: Duration) -> Self {
        self.head = head;
        self
    }

    /// Its answer is not silent for longer than this.
    #[must_use]
    pub fn silent_for(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Its answer has at most so many bytes.
    #[must_use]
    pub fn at_most(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Whether the caller has asked before and goes on: its failure is no further one for the breaker, which lets it out sooner.
    #[must_use]
    pub fn repeat(mut self, repeat: bool) -> Self {
        self.weight.repeat = repeat;
        self
    }

    /// A server may well answer it that fails at all else: its success says nothing to the breaker.
    #[must_use]
    pub fn aside(mut self) -> Self {
        self.weight.aside = true;
        self
    }
}

/// The client of one agent. Clones share connections and breakers.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    guard: Guard,
    credentials: Credentials,
    upstreams: Arc<Upstreams>,
}

impl Client {
    /// Judges a URL that someone else wrote by all that can be said before it is dialled.
    ///
    /// # Errors
    /// [`super::Refused`]
    pub fn check(&self, url: &Url) -> Result<(), super::Refused> {
        self.guard.check(url)
    }

    /// Sends a request, once, and waits for the head of the answer.
    ///
    /// # Errors
    /// [`EgressError`]
    pub async fn send(&self, call: Call) -> Result<Answer, EgressError> {
        if let Err(refused) = self.guard.check(&call.url) {
            let error = EgressError::Refused(refused);
            self.upstreams.count(error.label());
            return Err(error);
        }
        let mut permit = self
            .upstreams
            .admit(&call.url, call.weight)
            .inspect_err(|error| self.upstreams.count(error.label()))?;
        let origin = call.url.origin().ascii_serialization();
        let mut headers = call.headers;
        if let Some(own) = self.credentials.of(&call.url) {
            headers.extend(own.clone());
        }
        let sending = self
            .http
            .request(call.method, call.url)
            .headers(headers)
            .body(call.body)
            .send();
        let sent = match tokio::time::timeout(call.head, sending).await {
            Ok(sent) => sent.map_err(|error| EgressError::from_client(&origin, &error)),
            Err(_elapsed) => Err(EgressError::Silent {
                origin: origin.clone(),
                waited: call.head,
            }),
        };
        let response = match sent {
            Ok(response) => response,
            Err(error @ (EgressError::Refused(_) | EgressError::Untrusted { .. })) => {
                permit.void(error.label());
                return Err(error);
            }
            Err(error) => {
                permit.failed(error.label());
                return Err(error);
            }
        };
        if response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED {
            let error = redirect(&response, origin);
            permit.void(error.label());
            return Err(error);
        }
        if !response.status().is_server_error() {
            permit.answered();
        }
        Ok(Answer::new(response, permit, origin, call.silence, call.limit))
    }
}

fn redirect(response: &reqwest::Response, origin: String) -> EgressError {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    // Only the origin: the rest may hold what is nobody's business.
    let to = location.and_then(|text| response.url().join(text).ok());
    EgressError::Redirect {
        origin,
        status: response.status().as_u16(),
        to: to.map_or_else(|| "nowhere".to_owned(), |url| url.origin().ascii_serialization()),
    }
}
