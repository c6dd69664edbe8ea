//! Binding listeners, before anything else of a process is built: a port in use is found in milliseconds.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (setting {setting})")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The key of the configuration it comes from.
    pub setting: &'static str,
    /// Why.
    pub source: io::Error,
}

/// Listens on `address`; `setting` is the key it comes from.
///
/// # Errors
/// When the address is in use, not ours, or not allowed.
pub async fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError {
        address,
        setting,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_reported_with_its_address_and_setting() {
        let first = bind("admin.listen", SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .unwrap();
        let address = first.local_addr().unwrap();
        let error = bind("gateway.listen", address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot listen on {address} (setting gateway.listen)")
        );
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
    }
}
