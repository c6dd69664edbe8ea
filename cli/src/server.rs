//! Which A2A server a command talks to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use relevo_shared::platform::config::env_var;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::client::Client;
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
    /// User name for HTTP Basic; its password is in the file of --basic-password-file or the variable RELEVO_BASIC_PASSWORD
    #[arg(long, value_name = "NAME")]
    basic_username: Option<String>,
    /// File with the password for HTTP Basic
    #[arg(long, value_name = "PATH", requires = "basic_username")]
    basic_password_file: Option<PathBuf>,
    /// File with the API key for the server; the variable RELEVO_API_KEY does the same
    #[arg(long, value_name = "PATH")]
    api_key_file: Option<PathBuf>,
    /// The header of the API key
    #[arg(long, value_name = "NAME", default_value = "X-API-Key")]
    api_key_header: HeaderName,
    /// An extension of the protocol to switch on, by its URI; may be given several times
    #[arg(long, value_name = "URI", value_parser = parse_extension)]
    extension: Vec<String>,
}

impl ServerArgs {
    /// A client for the server, with credentials and extensions.
    pub(crate) async fn connect(&self) -> Result<Client, Problem> {
        let client = Client::discover(&self.url, self.credentials()?).await?;
        if self.extension.is_empty() {
            return Ok(client);
        }
        let list =
            HeaderValue::from_str(&self.extension.join(", ")).context("an extension holds what no header can")?;
        Ok(client.with_extensions(list))
    }

    /// What is shown to the server, and to no other.
    pub(crate) fn credentials(&self) -> Result<HeaderMap, Problem> {
        let mut headers = HeaderMap::new();
        // A server takes one Authorization: what stands on the command line goes before a variable.
        let token = match (&self.token_file, &self.basic_username) {
            (Some(_), Some(_)) => {
                let text = "--token-file and --basic-username are two credentials for one header: give one of them";
                return Err(Problem::Usage(text.to_owned()));
            }
            (None, Some(_)) => None,
            (file, None) => secret(file.as_deref(), "RELEVO_TOKEN", "IACCODE_A2A_HTTP_TOKEN")?,
        };
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, hidden(&format!("Bearer {token}"))?);
        } else if let Some(name) = self.username() {
            let file = self.basic_password_file.as_deref();
            let password = secret(file, "RELEVO_BASIC_PASSWORD", "IACCODE_A2A_BASIC_PASSWORD")?;
            let password = password.ok_or_else(|| {
                let text = "HTTP Basic needs a password: --basic-password-file or the variable RELEVO_BASIC_PASSWORD";
                Problem::Usage(text.to_owned())
            })?;
            let pair = BASE64_STANDARD.encode(format!("{name}:{password}"));
            headers.insert(AUTHORIZATION, hidden(&format!("Basic {pair}"))?);
        }
        if let Some(key) = secret(self.api_key_file.as_deref(), "RELEVO_API_KEY", "IACCODE_A2A_API_KEY")? {
            headers.insert(self.api_key_header.clone(), hidden(&key)?);
        }
        Ok(headers)
    }

    fn username(&self) -> Option<String> {
        let given = self.basic_username.clone();
        given.or_else(|| variable("RELEVO_BASIC_USERNAME", "IACCODE_A2A_BASIC_USERNAME"))
    }
}

/// A variable of ours, or the reference server's for the same.
fn variable(ours: &str, theirs: &str) -> Option<String> {
    let read = |name| env_var(name).filter(|text| !text.is_empty());
    read(ours).or_else(|| read(theirs))
}

fn secret(file: Option<&Path>, ours: &str, theirs: &str) -> Result<Option<String>, Problem> {
    let Some(path) = file else {
        return Ok(variable(ours, theirs));
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
    let url = Url::parse(text).ok();
    let web = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    web.ok_or_else(|| format!("must be a URL that starts with http:// or https://, such as {DEFAULT_URL}"))
}

fn parse_extension(text: &str) -> Result<String, String> {
    // The header is a list with commas.
    if Url::parse(text).is_ok() && !text.contains([',', ' ']) {
        Ok(text.to_owned())
    } else {
        Err("must be a URI such as urn:example:extension:v1".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_servers() {
        assert!(parse_url(DEFAULT_URL).is_ok());
        for wrong in ["", "127.0.0.1:41242", "redis://h", "http://"] {
            assert!(parse_url(wrong).unwrap_err().contains(DEFAULT_URL), "{wrong}");
        }
    }

    #[test]
    fn an_extension_is_one_uri() {
        assert!(parse_extension("urn:example:a:v1").is_ok());
        for wrong in ["", "a", "urn:a, urn:b", "urn:a b"] {
            assert!(parse_extension(wrong).is_err(), "{wrong}");
        }
    }
}
