//! GetArtifact: the content of a part that is in the artifact store, for whoever may see the task that has the part. What no part
//! of the task names is not there, also when the store has it: attempts that crashed leave such.

use a2a::{Message, Part, PartContent};
use relevo_shared::objects::{Digest, Object, Objects, ObjectsError, Wanted};
use relevo_shared::store::{HistoryLength, StoredTask};
use tokio::time::timeout_at;

use super::read_visible;
use crate::auth::Permit;
use crate::error::ApiError;
use crate::request::GetArtifact;
use crate::services::{Call, Inner};

/// What is known of a content without the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredPart {
    pub(crate) size: u64,
    pub(crate) media_type: Option<String>,
    pub(crate) filename: Option<String>,
}

/// Looks for the part.
pub(crate) async fn find_artifact(
    services: &Inner,
    permit: &Permit<GetArtifact>,
    call: &Call,
    request: &GetArtifact,
) -> Result<StoredPart, ApiError> {
    let read = async |history| {
        let stored = read_visible(services, permit.principal(), &request.task, history, call.deadline).await?;
        Ok::<_, ApiError>(find(&stored, request.digest))
    };
    // The messages of earlier turns are many and seldom have files.
    let found = match read(HistoryLength::Latest(0)).await? {
        Some(found) => Some(found),
        None => read(HistoryLength::All).await?,
    };
    found.ok_or_else(|| ApiError::TaskNotFound(request.task.clone()))
}

/// Opens the content of a part that was found.
pub(crate) async fn open_artifact(
    objects: &Objects,
    call: &Call,
    request: &GetArtifact,
    part: &StoredPart,
    wanted: Wanted,
) -> Result<Object, ApiError> {
    let not_found = || ApiError::TaskNotFound(request.task.clone());
    let task = relevo_shared::ids::TaskId::parse(&request.task).ok_or_else(not_found)?;
    let opened = timeout_at(call.deadline, objects.get(task, request.digest, wanted)).await;
    let opened = opened.unwrap_or_else(|elapsed| {
        Err(ObjectsError::Failed {
            what: "answer in time",
            source: Box::new(elapsed),
        })
    });
    match opened {
        Ok(Some(object)) if object.size == part.size => Ok(object),
        Ok(Some(_)) => {
            tracing::error!(
                task.id = request.task,
                "an artifact is not as long as it was when it was stored"
            );
            Err(ApiError::artifacts_away())
        }
        Ok(None) => {
            tracing::warn!(task.id = request.task, "an artifact is not in the store");
            Err(not_found())
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "an artifact cannot be read");
            Err(ApiError::artifacts_away())
        }
    }
}

/// The part of a task that has this content.
fn find(stored: &StoredTask, digest: Digest) -> Option<StoredPart> {
    let folded = &stored.folded;
    let artifacts = folded.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let messages = folded
        .messages
        .iter()
        .chain(&folded.status.message)
        .chain(&stored.history);
    let parts = artifacts.chain(messages.flat_map(|message: &Message| &message.parts));
    let name = digest.to_string();
    let ending = format!("/{}/{name}", stored.task);
    parts.into_iter().find_map(|part| stored_part(part, &name, &ending))
}

fn stored_part(part: &Part, name: &str, ending: &str) -> Option<StoredPart> {
    let PartContent::Url(url) = &part.content else {
        return None;
    };
    let metadata = part.metadata.as_ref().filter(|_| url.ends_with(ending))?;
    let digest = metadata.get("sha256")?.as_str()?;
    let size = metadata.get("byteSize")?.as_u64()?;
    (digest == name).then(|| StoredPart {
        size,
        media_type: part.media_type.clone(),
        filename: part.filename.clone(),
    })
}
