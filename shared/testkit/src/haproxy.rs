//! HAProxy with the configuration that is deployed, `deploy/haproxy/haproxy.cfg`, unchanged.
//!
//! HAProxy cannot choose a free port itself, so it listens on a unix socket and a [`FaultProxy`] gives that an address.
//! Called by the tests that look at the cluster as its clients do.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::fault_proxy::{FaultProxy, Upstream};
use crate::poll;
use crate::process::Process;
use crate::scratch::Scratch;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/haproxy/haproxy.cfg");

/// Debian's place; it is not in the search path of ordinary users.
const DEBIAN: &str = "/usr/sbin/haproxy";

/// A running HAProxy in front of two gateways.
#[derive(Debug)]
pub struct HaProxy {
    // ORDER: fields drop in this order: connections first, then the process, then its socket's directory.
    entry: FaultProxy,
    process: Process,
    _scratch: Scratch,
}

/// The addresses of one gateway.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    /// Where it serves clients.
    pub listen: SocketAddr,
    /// Where it serves `/readyz`; the same host as `listen`.
    pub admin: SocketAddr,
}

impl HaProxy {
    /// Starts it and waits until it accepts connections. It looks at `/readyz` of both gateways each second.
    pub fn start(gateways: [Backend; 2]) -> Self {
        let scratch = Scratch::new("haproxy-socket");
        let socket = scratch.path().join("haproxy.sock");
        let program = if Path::new(DEBIAN).exists() { DEBIAN } else { "haproxy" };
        let [first, second] = gateways;
        let process = Process::spawn(
            program,
            // -db: no background process.
            &["-db", "-f", CONFIG],
            &[
                ("PROXY_LISTEN", &format!("unix@{}", socket.display())),
                ("GATEWAY_1", &first.listen.to_string()),
                ("GATEWAY_1_ADMIN_PORT", &first.admin.port().to_string()),
                ("GATEWAY_2", &second.listen.to_string()),
                ("GATEWAY_2_ADMIN_PORT", &second.admin.port().to_string()),
            ],
        );
        poll::until_sync("haproxy to listen", || {
            if let Some(status) = process.exit_status() {
                panic!(
                    "haproxy ended ({status}); install it: apt-get install haproxy; its log:\n{}",
                    process.log()
                );
            }
            UnixStream::connect(&socket)
        });
        Self {
            entry: FaultProxy::start(Upstream::Unix(socket)),
            process,
            _scratch: scratch,
        }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.entry.addr()
    }

    /// The same as a URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The way from the clients to HAProxy.
    pub fn entry(&self) -> &FaultProxy {
        &self.entry
    }

    /// Its log: a line per finished call, and per gateway that goes up or down.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until HAProxy sends gateway `number` (1 or 2) no new calls.
    pub async fn until_down(&self, number: usize) {
        let line = format!("Server gateways/gateway-{number} is DOWN");
        let down = || async {
            if self.log().contains(&line) {
                Ok(())
            } else {
                Err(self.log())
            }
        };
        poll::until("haproxy to take the gateway out", down).await;
    }
}
