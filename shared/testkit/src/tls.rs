//! TLS in front of a test's server that speaks without: certificates, good ones and others, and a proxy that has one of them.
//!
//! The certificates in `certificates/` were made once; they are good until 2126. The keys of their authorities are nowhere any more, and
//! the one key of all servers opens nothing but tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate of an authority that nobody trusts who was not told to.
pub const AUTHORITY: &str = include_str!("../certificates/authority.pem");
const KEY: &str = include_str!("../certificates/key.pem");

/// The certificate of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// For 127.0.0.1, by [`AUTHORITY`].
    Issued,
    /// For 127.0.0.1, by itself.
    Alone,
    /// For 127.0.0.1, by another authority.
    Stranger,
    /// For 127.0.0.1, by [`AUTHORITY`], good in the year 2001.
    Expired,
    /// For 127.0.0.2, by [`AUTHORITY`].
    OtherAddress,
    /// For agents.test, by [`AUTHORITY`].
    OtherName,
}

impl Identity {
    /// The certificate.
    pub const fn pem(self) -> &'static str {
        match self {
            Self::Issued => include_str!("../certificates/issued.pem"),
            Self::Alone => include_str!("../certificates/alone.pem"),
            Self::Stranger => include_str!("../certificates/stranger.pem"),
            Self::Expired => include_str!("../certificates/expired.pem"),
            Self::OtherAddress => include_str!("../certificates/other-address.pem"),
            Self::OtherName => include_str!("../certificates/other-name.pem"),
        }
    }
}

/// Speaks TLS and passes on what it hears to a server that does not. Its thread ends with the test process.
#[derive(Debug)]
pub struct TlsFront {
    listener: TcpListener,
}

impl TlsFront {
    /// Takes a port of its own on 127.0.0.1.
    pub fn bind() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        Self { listener }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().expect("a bound address").port()
    }

    /// Serves what is behind it.
    pub fn serve(&self, identity: Identity, behind: SocketAddr) {
        let certificate = CertificateDer::from_pem_slice(identity.pem().as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the protocol versions of the library")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a certificate with its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = self.listener.try_clone().expect("a second handle");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be built");
            runtime.block_on(serve(listener, acceptor, behind));
        });
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, behind: SocketAddr) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener of this runtime");
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let mut client = acceptor.accept(stream).await.ok()?;
            let mut server = TcpStream::connect(behind).await.ok()?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()
        });
    }
}
