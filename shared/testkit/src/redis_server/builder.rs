//! How a server differs from the usual one, and its start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::RedisServer;
use crate::authority::Certificate;
use crate::scratch::Scratch;

/// Another process may take a port between our choice and the server's bind; that often in a row it is something else.
const PORT_ATTEMPTS: usize = 20;

/// Where nodes of a cluster listen. Not where everyone connects from: a node that comes back would find its ports among those
/// that connections have been given meanwhile.
pub(crate) const MEMBERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// In the log of a server that lost that race.
const PORT_TAKEN: &str = "Address already in use";

/// How a server differs from the usual one; see [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
pub struct RedisBuilder {
    append_only: bool,
    max_memory: Option<String>,
    mode: Mode,
    tls: Option<Tls>,
    hostname: Option<String>,
    extra: Vec<String>,
}

/// TLS for clients and nodes; who connects need not show a certificate.
#[derive(Debug, Clone)]
struct Tls {
    shown: Certificate,
    trusted: PathBuf,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    UnixSocket,
    Tcp,
    ClusterNode,
    ClusterMember,
}

impl Mode {
    fn is_cluster(self) -> bool {
        matches!(self, Self::ClusterNode | Self::ClusterMember)
    }
}

impl RedisBuilder {
    /// Keeps an append-only file, so that [`RedisServer::restart`] finds the data again.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Sets `maxmemory`, for example `"8mb"`. The policy is `noeviction`.
    #[must_use]
    pub fn max_memory(mut self, size: &str) -> Self {
        self.max_memory = Some(size.to_owned());
        self
    }

    /// Listens on a TCP port of 127.0.0.1 as well, and [`RedisServer::url`] names it.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.mode = Mode::Tcp;
        self
    }

    /// Becomes a cluster of one node that owns all slots (TCP). The start takes two seconds, which Redis insists on.
    #[must_use]
    pub fn cluster_node(mut self) -> Self {
        self.mode = Mode::ClusterNode;
        self
    }

    /// Becomes a node in cluster mode that knows of no slots and of no others; see [`crate::RedisCluster`].
    #[must_use]
    pub(crate) fn cluster_member(mut self) -> Self {
        self.mode = Mode::ClusterMember;
        self
    }

    /// Speaks TLS on its port, and [`RedisServer::url`] says so. A node trusts others whose certificates `trusted` has signed.
    #[must_use]
    pub fn tls(mut self, shown: &Certificate, trusted: &Path) -> Self {
        self.tls = Some(Tls {
            shown: shown.clone(),
            trusted: trusted.to_owned(),
        });
        self
    }

    /// As a node of a cluster, announces this name of 127.0.0.1 in place of its address.
    #[must_use]
    pub fn hostname(mut self, name: &str) -> Self {
        self.hostname = Some(name.to_owned());
        self
    }

    /// Adds a setting, for example `setting("timeout", "1")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.extra.push(format!("--{name}"));
        self.extra.push(value.to_owned());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        self.try_start().unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`RedisBuilder::start`] for a server that may refuse its settings; the error holds its log.
    pub fn try_start(self) -> Result<RedisServer, String> {
        let mut failure = String::new();
        for _ in 0..PORT_ATTEMPTS {
            let host = self.host();
            let port = (self.mode != Mode::UnixSocket).then(|| free_port(host));
            // The default, 10000 above the port, may be no port at all.
            let bus = self.mode.is_cluster().then(|| free_port(host));
            let scratch = Scratch::new("redis");
            let server = RedisServer {
                url: self.url(&scratch, port),
                args: self.args(&scratch, port, bus),
                child: Mutex::new(None),
                scratch,
                addr: port.map(|port| SocketAddr::from((host, port))),
                bus,
            };
            match server.launch() {
                Ok(()) => {
                    if self.mode == Mode::ClusterNode {
                        server.form_cluster();
                    }
                    return Ok(server);
                }
                Err(error) if error.contains(PORT_TAKEN) => failure = error,
                Err(error) => return Err(error),
            }
        }
        Err(format!("no free port after {PORT_ATTEMPTS} attempts: {failure}"))
    }

    fn host(&self) -> Ipv4Addr {
        if self.mode.is_cluster() && self.hostname.is_none() {
            MEMBERS
        } else {
            Ipv4Addr::LOCALHOST
        }
    }

    fn url(&self, scratch: &Scratch, port: Option<u16>) -> String {
        let Some(port) = port else {
            return format!("unix://{}", socket_in(scratch).display());
        };
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match &self.hostname {
            Some(name) => format!("{scheme}://{name}:{port}"),
            None => format!("{scheme}://{}:{port}", self.host()),
        }
    }

    fn args(&self, scratch: &Scratch, port: Option<u16>, bus: Option<u16>) -> Vec<String> {
        let dir = scratch.path().display().to_string();
        let mut args = vec![
            if self.tls.is_some() { "--tls-port" } else { "--port" }.to_owned(),
            port.unwrap_or(0).to_string(),
            "--bind".to_owned(),
            self.host().to_string(),
            "--unixsocket".to_owned(),
            format!("{dir}/redis.sock"),
            "--unixsocketperm".to_owned(),
            "700".to_owned(),
            "--dir".to_owned(),
            dir,
            "--save".to_owned(),
            String::new(),
            "--appendonly".to_owned(),
            if self.append_only { "yes" } else { "no" }.to_owned(),
            // Not `everysec`: while a busy disk flushes, Redis puts even the write off, and what it has acknowledged dies with it.
            "--appendfsync".to_owned(),
            "always".to_owned(),
            "--maxmemory-policy".to_owned(),
            "noeviction".to_owned(),
            // Tests may use DEBUG SLEEP and the like; nobody else can reach this server.
            "--enable-debug-command".to_owned(),
            "local".to_owned(),
        ];
        if let Some(size) = &self.max_memory {
            args.extend(["--maxmemory".to_owned(), size.clone()]);
        }
        if let Some(bus) = bus {
            args.extend(["--cluster-enabled".to_owned(), "yes".to_owned()]);
            args.extend(["--cluster-port".to_owned(), bus.to_string()]);
            // A node that nobody has met yet does not know its address, and clients ask it for that.
            args.extend(["--cluster-announce-ip".to_owned(), self.host().to_string()]);
        }
        if let Some(tls) = &self.tls {
            let file = |path: &Path| path.display().to_string();
            args.extend(["--port".to_owned(), "0".to_owned()]);
            args.extend(["--tls-cert-file".to_owned(), file(&tls.shown.cert)]);
            args.extend(["--tls-key-file".to_owned(), file(&tls.shown.key)]);
            args.extend(["--tls-ca-cert-file".to_owned(), file(&tls.trusted)]);
            args.extend(["--tls-auth-clients".to_owned(), "no".to_owned()]);
            args.extend(["--tls-cluster".to_owned(), "yes".to_owned()]);
        }
        if let Some(name) = &self.hostname {
            args.extend(["--cluster-announce-hostname".to_owned(), name.clone()]);
            args.extend(["--cluster-preferred-endpoint-type".to_owned(), "hostname".to_owned()]);
        }
        args.extend(self.extra.iter().cloned());
        args
    }
}

pub(super) fn socket_in(scratch: &Scratch) -> PathBuf {
    scratch.path().join("redis.sock")
}

/// A port that was free a moment ago.
fn free_port(host: Ipv4Addr) -> u16 {
    let listener = TcpListener::bind((host, 0)).expect("there is a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}
