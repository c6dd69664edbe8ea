//! Which A2A server a command talks to.

use clap::Args;
use reqwest::Url;

/// Where `relevo dev` listens.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:41242";

/// Names a server.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server: where its agent card is found
    #[arg(long, default_value = DEFAULT_URL, value_parser = parse_url)]
    pub(crate) url: Url,
}

fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        Ok(url)
    } else {
        Err("must start with http:// or https://".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_servers() {
        assert!(parse_url(DEFAULT_URL).is_ok());
        for wrong in ["", "127.0.0.1:41242", "redis://h", "http://"] {
            assert!(parse_url(wrong).is_err(), "{wrong}");
        }
    }
}
