//! The request for the content of a part that is in the artifact store. Unlike the others it is a path, not JSON.

use percent_encoding::percent_decode_str;
use relevo_shared::objects::Digest;

/// GetArtifact, which is no operation of A2A: what the URL of a part says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GetArtifact {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
    /// What the client calls the task.
    pub(crate) task: String,
    /// The content.
    pub(crate) digest: Digest,
}

impl GetArtifact {
    /// Reads a path, `[/<tenant>]/artifacts/<task>/<sha256>`; what names nothing that can exist is `None`.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let (tenant, task, digest) = match segments.as_slice() {
            ["artifacts", task, digest] => ("", task, digest),
            [tenant, "artifacts", task, digest] if !tenant.is_empty() => (*tenant, task, digest),
            _ => return None,
        };
        Some(Self {
            tenant: percent_decode_str(tenant).decode_utf8().ok()?.into_owned(),
            task: (*task).to_owned(),
            digest: Digest::parse(digest)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_task_and_a_content() {
        let digest = Digest::of(b"");
        let found = |path: &str| GetArtifact::of(path).map(|found| (found.tenant, found.task));
        let named = |tenant: &str| Some((tenant.to_owned(), "t".to_owned()));
        assert_eq!(found(&format!("/artifacts/t/{digest}")), named(""));
        assert_eq!(found(&format!("/a%20b/artifacts/t/{digest}")), named("a b"));
        assert_eq!(found(&format!("/artifacts/artifacts/t/{digest}")), named("artifacts"));
        for wrong in [
            "/artifacts/t".to_owned(),
            "/artifacts/t/abc".to_owned(),
            format!("/artifacts/t/{digest}/"),
            format!("//artifacts/t/{digest}"),
            format!("/%ff/artifacts/t/{digest}"),
            format!("/a/b/artifacts/t/{digest}"),
            format!("/artifacts/t/{}", digest.to_string().to_uppercase()),
        ] {
            assert_eq!(found(&wrong), None, "{wrong}");
        }
    }
}
