//! `[artifacts]`: where large parts of what agents produce are kept, and how much of it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{GatewaySettings, secret_in};
use crate::platform::config::mask::mask_url;
use crate::platform::config::value::quoted;
use crate::platform::config::{ByteSize, ConfigErrors, Secret, ServiceUrl, Setting, Validate};

/// Where artifacts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactStore {
    /// Nowhere: what is too large for an event ends its turn.
    None,
    /// In the memory of the process, which must be the only one.
    Memory,
    /// In a directory that every gateway and worker sees under the same path.
    Directory(PathBuf),
    /// In a bucket of S3, or of what speaks like it.
    Bucket {
        /// Its name.
        bucket: String,
        /// What the names of all objects begin with; may be empty.
        prefix: String,
    },
}

impl Setting for ArtifactStore {
    const EXPECTED: &'static str = "\"none\", \"memory:\", \"file:///ABSOLUTE/DIRECTORY\" or \"s3://BUCKET/PREFIX\"";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "none" => Some(Self::None),
            "memory:" => Some(Self::Memory),
            text => {
                let url = url::Url::parse(text).ok()?;
                let plain = url.query().is_none() && url.fragment().is_none();
                // A path that is not absolute would be one below the root.
                let absolute = text
                    .get(..8)
                    .is_some_and(|start| start.eq_ignore_ascii_case("file:///"));
                let directory = || {
                    url.to_file_path()
                        .ok()
                        .filter(|path| absolute && path.parent().is_some())
                };
                match url.scheme() {
                    "file" if plain => directory().map(Self::Directory),
                    "s3" if plain && url.port().is_none() && url.username().is_empty() && url.password().is_none() => {
                        Some(Self::Bucket {
                            bucket: url.host_str().filter(|name| !name.is_empty())?.to_owned(),
                            prefix: url.path().trim_matches('/').to_owned(),
                        })
                    }
                    _ => None,
                }
            }
        }
    }

    fn mask(text: &str) -> String {
        mask_url(text)
    }

    fn print(&self) -> Option<String> {
        Some(quoted(&match self {
            Self::None => "none".to_owned(),
            Self::Memory => "memory:".to_owned(),
            Self::Bucket { bucket, prefix } if prefix.is_empty() => format!("s3://{bucket}"),
            Self::Bucket { bucket, prefix } => format!("s3://{bucket}/{prefix}"),
            Self::Directory(path) => url::Url::from_file_path(path).map_or_else(|()| String::new(), String::from),
        }))
    }
}

crate::settings! {
    /// Files that agents produce and that are too large for events (docs/artifacts.md). Gateways and workers need the same
    /// values. Without a store everything is inside the events, as far as it fits.
    pub struct ArtifactSettings in "artifacts" {
        /// Where they are kept: `none`, `file:///ABSOLUTE/DIRECTORY` (which all gateways and workers share), `s3://BUCKET/PREFIX`, or `memory:` (only for
        /// `relevo dev`: they are gone with the process). Without one, what is too large for an event ends its turn FAILED.
        store: ArtifactStore = "none",
        /// A part with more bytes than this is kept in the store, and its event has a URL; smaller ones are in the event itself.
        /// What fits into no event (`turn.event_bytes`) and cannot be cut is kept in the store, too.
        inline_max: ByteSize = "64KiB",
        /// Most bytes of one part in the store; a larger one ends its turn FAILED `output_limit`. At least `inline_max`.
        object_bytes: ByteSize = "256MiB",
        /// Most bytes that one task may have in the store, those of attempts that crashed included. What would exceed it ends its
        /// turn FAILED `output_limit`. At least `object_bytes`.
        task_bytes: ByteSize = "1GiB",
        /// Most bytes that all tasks of one principal may have in the store together, whatever their tenants; deleted tasks give theirs
        /// back. What would exceed it ends its turn FAILED `quota_exceeded`. At least `object_bytes`. Unset: no limit. Without authentication everyone is one
        /// principal. What was stored before it was set does not count.
        principal_bytes: Option<ByteSize> = "",
        /// The address in the URLs of artifacts: http:// or https://, without a slash at its end. Unset: `gateway.public_url`, or
        /// what `gateway.listen` says. A wrong one sends clients to files that they cannot reach.
        url_base: Option<ServiceUrl> = "",
        /// Where the bucket is: https://, or http:// together with `s3_allow_http`. Unset: `AWS_ENDPOINT_URL`, else S3 itself, in
        /// its region.
        s3_endpoint: Option<ServiceUrl> = "",
        /// Region of the bucket. Unset: `AWS_REGION`, else us-east-1. A wrong one makes every signature wrong.
        s3_region: Option<String> = "",
        /// Id of the access key, together with its secret. Unset: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, else the role of the
        /// container or machine.
        s3_access_key_id: Option<String> = "",
        /// Secret of the access key. Prefer `s3_secret_access_key_file`, since an environment is visible to more eyes than a file.
        s3_secret_access_key: Option<Secret> = "",
        /// File with the secret, read once at start; line ends after it are cut. Not together with `s3_secret_access_key`.
        s3_secret_access_key_file: Option<PathBuf> = "",
        /// File of PEM certificates that are trusted beside the public authorities, for a bucket with certificates of one's own. Read once at
        /// start.
        s3_ca_file: Option<PathBuf> = "",
        /// Whether the bucket may be reached without TLS: whoever listens in reads every artifact.
        s3_allow_http: bool = "false",
    }
}

impl Validate for ArtifactSettings {
    fn validate(&self, errors: &mut ConfigErrors) {
        if let Some(url) = &self.url_base {
            let web =
                matches!(url.scheme(), "http" | "https") && !url.expose().ends_with('/') && !url.has_credentials();
            let rule = "must start with http:// or https://, without credentials and without a slash at its end";
            errors.require(web, "artifacts.url_base", url, rule);
        }
        if let Some(url) = &self.s3_endpoint {
            let web = matches!(url.scheme(), "http" | "https") && !url.has_credentials();
            errors.require(
                web,
                "artifacts.s3_endpoint",
                url,
                "must start with https:// or http://, without credentials",
            );
            let allowed = url.scheme() != "http" || self.s3_allow_http;
            errors.require(
                allowed,
                "artifacts.s3_endpoint",
                url,
                "needs artifacts.s3_allow_http = true: it is without TLS",
            );
        }
        let secrets = [
            self.s3_secret_access_key.is_some(),
            self.s3_secret_access_key_file.is_some(),
        ];
        let given = secrets.into_iter().filter(|given| *given).count();
        if given != usize::from(self.s3_access_key_id.is_some()) {
            let rule = "needs one of artifacts.s3_secret_access_key and artifacts.s3_secret_access_key_file, and the other way round";
            errors.refuse("artifacts.s3_access_key_id", rule);
        }
        let least =
            |key: &str, size: &ByteSize| format!("must be at least {key} ({size}), or none as large could be stored");
        let rule = least("artifacts.inline_max", &self.inline_max);
        errors.require(
            self.object_bytes >= self.inline_max,
            "artifacts.object_bytes",
            &self.object_bytes,
            &rule,
        );
        let rule = least("artifacts.object_bytes", &self.object_bytes);
        errors.require(
            self.task_bytes >= self.object_bytes,
            "artifacts.task_bytes",
            &self.task_bytes,
            &rule,
        );
        if let Some(most) = &self.principal_bytes {
            let rule = least("artifacts.object_bytes", &self.object_bytes);
            errors.require(*most >= self.object_bytes, "artifacts.principal_bytes", most, &rule);
        }
    }
}

impl ArtifactSettings {
    /// The address that URLs of artifacts begin with; `None` when nobody says where clients reach a gateway.
    pub fn base(&self, gateway: &GatewaySettings) -> Option<String> {
        let told = self.url_base.as_ref().or(gateway.public_url.as_ref());
        let reachable = |listen: &SocketAddr| listen.port() != 0 && !listen.ip().is_unspecified();
        told.map(|url| url.expose().to_owned())
            .or_else(|| Some(format!("http://{}", gateway.listen)).filter(|_| reachable(&gateway.listen)))
    }

    /// Puts the content of `s3_secret_access_key_file` into `s3_secret_access_key`.
    pub(super) fn read_secret_file(&mut self, errors: &mut ConfigErrors) {
        if let (Some(path), None) = (&self.s3_secret_access_key_file, &self.s3_secret_access_key) {
            self.s3_secret_access_key = secret_in("artifacts.s3_secret_access_key_file", path, errors);
        }
    }

    /// The rule between this section and `[gateway]`.
    pub(super) fn validate_with(&self, gateway: &GatewaySettings, errors: &mut ConfigErrors) {
        if self.store != ArtifactStore::None && self.base(gateway).is_none() {
            let rule =
                "needs artifacts.url_base or gateway.public_url beside it: gateway.listen is no address of clients";
            errors.require(false, "artifacts.store", &self.store, rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::errors_with;
    use super::*;

    #[test]
    fn a_store_is_a_word_or_the_url_of_a_directory() {
        for (text, printed) in [
            ("none", "\"none\""),
            ("memory:", "\"memory:\""),
            ("file:///srv/a%20b", "\"file:///srv/a%20b\""),
            ("s3://bucket", "\"s3://bucket\""),
            ("s3://my.bucket/a/b/", "\"s3://my.bucket/a/b\""),
        ] {
            assert_eq!(ArtifactStore::parse(text).unwrap().print().unwrap(), printed);
        }
        for wrong in [
            "",
            "None",
            "memory",
            "/srv/artifacts",
            "file://host/srv",
            "file:///",
            "file:///srv?x",
            "file:srv/artifacts",
            "file:/srv/artifacts",
            "file://localhost/srv",
            "http://h",
            "s3://",
            "s3://key:secret@bucket",
            "s3://bucket:1",
            "s3://bucket?x",
        ] {
            assert_eq!(ArtifactStore::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn whoever_stores_says_where_clients_find_it() {
        let store = ("artifacts.store", "memory:");
        assert_eq!(errors_with(&[store]).len(), 0);
        for listen in ["0.0.0.0:80", "127.0.0.1:0"] {
            let listen = ("gateway.listen", listen);
            assert_eq!(errors_with(&[listen]).len(), 0);
            assert_eq!(errors_with(&[store, listen]).len(), 1);
            for base in ["artifacts.url_base", "gateway.public_url"] {
                assert_eq!(errors_with(&[store, listen, (base, "https://h")]).len(), 0, "{base}");
            }
        }
        for wrong in ["https://h/", "ftp://h", "https://u:p@h"] {
            assert_eq!(errors_with(&[("artifacts.url_base", wrong)]).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn a_key_has_one_secret() {
        let key = ("artifacts.s3_access_key_id", "k");
        let secret = ("artifacts.s3_secret_access_key", "s");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"hunter2\n").unwrap();
        let path = file.path().display().to_string();
        let in_file = ("artifacts.s3_secret_access_key_file", path.as_str());
        assert_eq!(errors_with(&[key, secret]).len(), 0);
        assert_eq!(errors_with(&[key, in_file]).len(), 0);
        for wrong in [&[key][..], &[secret], &[in_file], &[key, secret, in_file]] {
            assert_eq!(errors_with(wrong).len(), 1, "{wrong:?}");
        }
        let read = crate::platform::config::Loader::new()
            .set(key.0, key.1)
            .set(in_file.0, in_file.1);
        let read = read.load().unwrap().artifacts.s3_secret_access_key.unwrap();
        assert_eq!(read.expose(), "hunter2");
        for wrong in ["http://h", "ftp://h", "https://u:p@h"] {
            assert_eq!(errors_with(&[("artifacts.s3_endpoint", wrong)]).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn each_bound_holds_the_next() {
        assert_eq!(errors_with(&[("artifacts.object_bytes", "63KiB")]).len(), 1);
        assert_eq!(errors_with(&[("artifacts.task_bytes", "255MiB")]).len(), 1);
        let errors = errors_with(&[("artifacts.principal_bytes", "255MiB")]);
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].contains("at least artifacts.object_bytes (256MiB)"),
            "{errors:?}"
        );
        assert_eq!(errors_with(&[("artifacts.principal_bytes", "256MiB")]).len(), 0);
        let equal = [
            ("artifacts.inline_max", "1KiB"),
            ("artifacts.object_bytes", "1KiB"),
            ("artifacts.task_bytes", "1KiB"),
        ];
        assert_eq!(errors_with(&equal).len(), 0);
    }
}
