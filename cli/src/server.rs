//! Which A2A server a command talks to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use relevo_shared::platform::config::env_var;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::exit::Problem;

/// Where `relevo dev` listens.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:41242";

/// Names a server.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server: where its agent card is found
    #[arg(long, default_value = DEFAULT_URL, value_parser = parse_url)]
    pub(crate) url: Url,
    /// File with the bearer token for the server; the variable RELEVO_TOKEN does the same
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// File with the API key for the server; the variable RELEVO_API_KEY does the same
    #[arg(long, value_name = "PATH")]
    api_key_file: Option<PathBuf>,
    /// The header of the API key
    #[arg(long, value_name = "NAME", default_value = "X-API-Key")]
    api_key_header: HeaderName,
}

impl ServerArgs {
    /// What is shown to the server, and to no other.
    pub(crate) fn credentials(&self) -> Result<HeaderMap, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(token) = secret(self.token_file.as_deref(), "RELEVO_TOKEN")? {
            headers.insert(AUTHORIZATION, hidden(&format!("Bearer {token}"))?);
        }
        if let Some(key) = secret(self.api_key_file.as_deref(), "RELEVO_API_KEY")? {
            headers.insert(self.api_key_header.clone(), hidden(&key)?);
        }
        Ok(headers)
    }
}

fn secret(file: Option<&Path>, variable: &str) -> Result<Option<String>, Problem> {
    let Some(path) = file else {
        return Ok(env_var(variable).filter(|text| !text.is_empty()));
    };
    let read = std::fs::read_to_string(path);
    let text = read.with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

fn hidden(text: &str) -> Result<HeaderValue, Problem> {
    let mut value = HeaderValue::from_str(text).context("a credential holds what no header can")?;
    value.set_sensitive(true);
    Ok(value)
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
