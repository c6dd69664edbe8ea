//! How S3 is spoken to: the library's requests over the workspace's HTTP client, so that there is one TLS stack with one provider.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use reqwest::Certificate;
use reqwest::redirect::Policy;

/// How long a connection may take, name lookup and TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the store may say nothing in the middle of an answer, or before it.
const SILENCE: Duration = Duration::from_secs(30);

/// Makes clients. Redirects are not followed: a signature is good for one address.
#[derive(Debug)]
pub(super) struct Connector {
    /// Trusted beside the public authorities.
    pub(super) certificates: Vec<Certificate>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let trusting = |builder: reqwest::ClientBuilder, certificate: &Certificate| {
            builder.add_root_certificate(certificate.clone())
        };
        let builder = self.certificates.iter().fold(reqwest::Client::builder(), trusting);
        let client = builder
            .https_only(!plain)
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(Policy::none())
            .no_proxy()
            .build();
        client
            .map(|client| HttpClient::new(Service(client)))
            .map_err(|error| object_store::Error::Generic {
                store: "S3",
                source: Box::new(error),
            })
    }
}

#[derive(Debug)]
struct Service(reqwest::Client);

impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let request = request.map(reqwest::Body::wrap).try_into().map_err(failed)?;
            let answer: axum::http::Response<reqwest::Body> = self.0.execute(request).await.map_err(failed)?.into();
            Ok(answer.map(|body| HttpResponseBody::new(body.map_err(failed))))
        })
    }
}

/// The kind says whether the library tries again.
fn failed(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_body() || error.is_request() {
        HttpErrorKind::Interrupted
    } else if error.is_decode() {
        HttpErrorKind::Decode
    } else {
        HttpErrorKind::Unknown
    };
    // The URL names bucket and key; it holds no credential, and errors are long enough without.
    HttpError::new(kind, error.without_url())
}
