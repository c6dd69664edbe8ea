//! Brings parts that are too large for events to the artifact store, before the event that names them is written. What was brought
//! and never named goes with the task.

use std::collections::HashMap;
use std::time::Duration;

use a2a::{Part, PartContent};
use bytes::Bytes;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::ids::{Epoch, OwnerKey, TaskId};
use relevo_shared::objects::{Digest, Objects, ObjectsError, Upload};
use relevo_shared::platform::config::{ArtifactStore, ByteSize, Settings};
use relevo_shared::platform::tasks::{self, Kind, Tasks};
use relevo_shared::store::{Retry, Store, StoreError, Use, Used};
use tokio::time::Instant;

use super::write::back_off;
use crate::metrics::WorkerMetrics;
use file::{FileError, Reading, Source};
use part::{Content, Place};

pub use file::Enclosed;

mod file;
mod part;

/// How long a store that fails is asked again before the turn goes to another worker.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long whoever gives up an upload tries to take back what a bucket has of it.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Why a part is not in the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StowError {
    /// It is larger than the limits allow; a sentence that names the limit.
    #[error("{0}")]
    OverLimit(String),
    /// The file that it stands for is not taken; a sentence for the reader of the task.
    #[error("{sentence}")]
    File {
        /// What the reader is told.
        sentence: String,
        /// What it is.
        source: FileError,
    },
    /// It is more than its principal may have; a sentence that names the limit.
    #[error("{0}")]
    OverQuota(String),
    /// A later run counts for the task.
    #[error("the turn is somebody else's")]
    Late,
    /// The artifact store is away.
    #[error("the artifact store is away")]
    Away(#[from] ObjectsError),
    /// Redis refuses.
    #[error("an artifact cannot be noted")]
    Store(#[from] StoreError),
}

/// What one attempt knows of its task's objects.
#[derive(Debug, Default)]
pub(crate) struct Stowed {
    /// Whether Redis knows that the task may have objects.
    pub(crate) noted: bool,
    /// What the task has, once somebody has asked.
    sizes: Option<HashMap<Digest, u64>>,
}

/// For whom something is brought to the store, and by what means.
pub(crate) struct Errand<'a> {
    pub(crate) store: &'a Store,
    pub(crate) record: &'a TurnRecord,
    pub(crate) epoch: Epoch,
    pub(crate) stowed: &'a mut Stowed,
    pub(crate) tasks: &'a Tasks,
    pub(crate) metrics: &'a WorkerMetrics,
}

/// The artifact store of a worker, and what goes there.
#[derive(Debug, Clone)]
pub(crate) struct Artifacts {
    objects: Objects,
    inline_max: usize,
    object_bytes: u64,
    task_bytes: u64,
    principal_bytes: Option<u64>,
    /// What URLs begin with.
    base: String,
    /// Whether URLs name files, as the reference server's do.
    files: bool,
}

impl Artifacts {
    pub(crate) fn new(objects: Objects, settings: &Settings) -> Self {
        let artifacts = &settings.artifacts;
        Self {
            objects,
            inline_max: artifacts.inline_max.as_len(),
            object_bytes: artifacts.object_bytes.get(),
            task_bytes: artifacts.task_bytes.get(),
            principal_bytes: artifacts.principal_bytes.map(ByteSize::get),
            // A store without it is refused with the configuration.
            base: artifacts.base(&settings.gateway).unwrap_or_default(),
            files: settings.compat.seed && matches!(artifacts.store, ArtifactStore::Directory(_)),
        }
    }

    /// Whether a part belongs into the store.
    pub(crate) fn takes(&self, part: &Part, fits_nowhere: bool) -> bool {
        part::takes(part, self.inline_max, fits_nowhere)
    }

    /// Brings a part to the store, and leaves of it what says where it is. Repeats what fails for a while.
    pub(crate) async fn stow(&self, errand: &mut Errand<'_>, part: &mut Part) -> Result<(), StowError> {
        let brought = self.bring(errand, part).await;
        counted(errand.metrics, brought)
    }

    /// The same with the content of a file, for the part that stands for it.
    pub(crate) async fn stow_file(
        &self,
        errand: &mut Errand<'_>,
        part: &mut Part,
        enclosed: &Enclosed,
    ) -> Result<(), StowError> {
        let brought = self.bring_file(errand, part, enclosed).await;
        counted(errand.metrics, brought)
    }

    /// Says how many bytes were written; `None` when the task had them already.
    async fn bring(&self, errand: &mut Errand<'_>, part: &mut Part) -> Result<Option<u64>, StowError> {
        // Found too large before anything is copied.
        let Some(Content { bytes, media_type }) = part::content(part, self.object_bytes) else {
            let most = ByteSize::new(self.object_bytes);
            return Err(StowError::OverLimit(format!(
                "The agent produced a part that is larger than artifacts.object_bytes, {most}."
            )));
        };
        let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
        let written = self.keep_whole(errand, digest, bytes).await?;
        self.place(errand.record, digest, size, media_type).put_into(part);
        Ok(written)
    }

    async fn bring_file(
        &self,
        errand: &mut Errand<'_>,
        part: &mut Part,
        enclosed: &Enclosed,
    ) -> Result<Option<u64>, StowError> {
        let refused = |error| refused(enclosed, error);
        let source = Source::open(enclosed).await.map_err(refused)?;
        let size = source.length;
        // Whatever it says it has, nothing of it is read then.
        if size > self.object_bytes {
            return Err(too_large(enclosed, size, "artifacts.object_bytes", self.object_bytes));
        }
        let piece = Objects::piece(size);
        let (digest, written) = if size <= piece {
            let bytes = source.whole().await.map_err(refused)?;
            let digest = Digest::of(&bytes);
            (digest, self.keep_whole(errand, digest, bytes).await?)
        } else {
            let digest = source.digest().await.map_err(refused)?;
            (digest, self.keep_pieces(errand, digest, &source, enclosed).await?)
        };
        let media_type = part.media_type.take();
        let media_type = media_type.unwrap_or_else(|| part::ANY_TYPE.to_owned());
        self.place(errand.record, digest, size, media_type).put_into(part);
        Ok(written)
    }

    async fn keep_whole(
        &self,
        errand: &mut Errand<'_>,
        digest: Digest,
        bytes: Bytes,
    ) -> Result<Option<u64>, StowError> {
        let (task, size) = (errand.record.task, bytes.len() as u64);
        if !self.room(errand, digest, size).await? {
            return Ok(None);
        }
        let put = patiently(|| self.objects.put(task, digest, bytes.clone())).await;
        self.settle(errand, digest, size, put.map_err(StowError::from)).await
    }

    async fn keep_pieces(
        &self,
        errand: &mut Errand<'_>,
        digest: Digest,
        source: &Source,
        enclosed: &Enclosed,
    ) -> Result<Option<u64>, StowError> {
        let (task, tasks) = (errand.record.task, errand.tasks);
        if !self.room(errand, digest, source.length).await? {
            return Ok(None);
        }
        let copied = match patiently(|| self.copy(task, digest, source, tasks)).await {
            Ok(copied) => copied.map_err(|error| refused(enclosed, error)),
            Err(error) => Err(error.into()),
        };
        self.settle(errand, digest, source.length, copied).await
    }

    /// Writes a file piece by piece. It gets its name only if it is what its name says.
    async fn copy(
        &self,
        task: TaskId,
        digest: Digest,
        source: &Source,
        tasks: &Tasks,
    ) -> Result<Result<(), FileError>, ObjectsError> {
        let mut begun = Begun {
            upload: Some(self.objects.upload(task, digest).await?),
            tasks,
        };
        let mut reading = Reading::of(source, Objects::piece(source.length));
        while let Some(upload) = &mut begun.upload {
            match reading.next().await {
                Ok(Some(piece)) => upload.write(piece).await?,
                Ok(None) => match reading.finish() {
                    Ok(found) if found == digest => {
                        upload.finish().await?;
                        begun.upload = None;
                        break;
                    }
                    Ok(_) => return Ok(Err(FileError::Changed)),
                    Err(error) => return Ok(Err(error)),
                },
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    /// Whom a task's objects are counted for, if they are.
    fn owner(&self, record: &TurnRecord) -> Option<OwnerKey> {
        self.principal_bytes.map(|_| OwnerKey::of(&record.sender.subject))
    }

    /// After a content was brought, or was not: then its principal is charged for what the task had before.
    async fn settle(
        &self,
        errand: &mut Errand<'_>,
        digest: Digest,
        size: u64,
        brought: Result<(), StowError>,
    ) -> Result<Option<u64>, StowError> {
        let sizes = errand.stowed.sizes.get_or_insert_default();
        if brought.is_ok() {
            sizes.insert(digest, size);
        } else {
            let before = sizes.values().sum();
            self.count_back(errand, before).await;
        }
        brought.map(|()| Some(size))
    }

    /// Counts what the task is about to have.
    async fn count(&self, errand: &Errand<'_>, bytes: u64) -> Result<(), StowError> {
        let (Some(most), Some(owner)) = (self.principal_bytes, self.owner(errand.record)) else {
            return Ok(());
        };
        let wanted = wanted(errand, &owner, bytes, most);
        match repeated(|| errand.store.use_bytes(&wanted)).await? {
            Used::Counted(_) => Ok(()),
            Used::Over(has) => {
                let most = ByteSize::new(most);
                Err(StowError::OverQuota(format!(
                    "Your tasks may have artifacts of {most} together (artifacts.principal_bytes) and have {has} bytes; those of \
                     deleted tasks do not count."
                )))
            }
            Used::Late => Err(StowError::Late),
        }
    }

    /// Counts what the task had before, as far as that can be: whoever runs it next counts anew.
    async fn count_back(&self, errand: &Errand<'_>, before: u64) {
        let (Some(most), Some(owner)) = (self.principal_bytes, self.owner(errand.record)) else {
            return;
        };
        if let Err(error) = errand.store.use_bytes(&wanted(errand, &owner, before, most)).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "what was not stored stays counted until the task is deleted");
        }
    }

    /// Notes again that a task may have objects.
    pub(crate) async fn note(&self, store: &Store, record: &TurnRecord) -> Result<(), StoreError> {
        let owner = self.owner(record);
        repeated(|| store.note_objects(record.task, owner.as_ref())).await
    }

    /// Makes room for a content; `false` when the task has it already. Before anything is written, it is noted that the task has
    /// something, and its principal is charged for it.
    async fn room(&self, errand: &mut Errand<'_>, digest: Digest, size: u64) -> Result<bool, StowError> {
        let task = errand.record.task;
        if !errand.stowed.noted {
            // Set first: a note whose answer is lost may be there.
            errand.stowed.noted = true;
            self.note(errand.store, errand.record).await?;
        }
        let known = if let Some(known) = &errand.stowed.sizes {
            known
        } else {
            let found = patiently(|| self.objects.list(task)).await?.into_iter().collect();
            errand.stowed.sizes.insert(found)
        };
        if known.get(&digest) == Some(&size) {
            return Ok(false);
        }
        let before: u64 = known.values().sum();
        if before.saturating_add(size) > self.task_bytes {
            let most = ByteSize::new(self.task_bytes);
            return Err(StowError::OverLimit(format!(
                "The agent's artifacts in this task are more than artifacts.task_bytes, {most}."
            )));
        }
        self.count(errand, before + size).await?;
        Ok(true)
    }

    fn place(&self, record: &TurnRecord, digest: Digest, size: u64, media_type: String) -> Place {
        Place {
            url: self.url(record, digest),
            media_type,
            digest,
            size,
            seed: self.files,
        }
    }

    fn url(&self, record: &TurnRecord, digest: Digest) -> String {
        let file = self.objects.file(record.task, digest).filter(|_| self.files);
        file.and_then(|file| url::Url::from_file_path(file).ok())
            .map_or_else(|| part::url(&self.base, record, digest), String::from)
    }
}

/// What a task is to have from now on.
fn wanted<'a>(errand: &Errand<'_>, owner: &'a OwnerKey, bytes: u64, most: u64) -> Use<'a> {
    Use {
        owner,
        task: errand.record.task,
        bytes,
        most,
        epoch: errand.epoch,
    }
}

/// An upload that is given up when it is dropped before its end: a bucket keeps its pieces else.
struct Begun<'a> {
    upload: Option<Upload>,
    tasks: &'a Tasks,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let give_up = async move {
            if let Ok(Err(error)) = tokio::time::timeout(GIVE_UP, upload.give_up()).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "an upload is left unfinished");
            }
        };
        drop(tasks::spawn(self.tasks, "upload given up", Kind::BestEffort, give_up));
    }
}

/// Puts the content of a file of at most `most` bytes into the part that stands for it. Says how many bytes it has.
pub(crate) async fn inline_file(part: &mut Part, enclosed: &Enclosed, most: u64) -> Result<u64, StowError> {
    let refused = |error| refused(enclosed, error);
    let source = Source::open(enclosed).await.map_err(refused)?;
    if source.length > most {
        let limit = "without an artifact store, what fits into an event (turn.event_bytes)";
        return Err(too_large(enclosed, source.length, limit, most));
    }
    let bytes = source.whole().await.map_err(refused)?;
    let size = bytes.len() as u64;
    part.content = PartContent::Raw(bytes.into());
    Ok(size)
}

fn refused(enclosed: &Enclosed, source: FileError) -> StowError {
    StowError::File {
        sentence: file::sentence(&enclosed.path, &source),
        source,
    }
}

fn too_large(enclosed: &Enclosed, size: u64, limit: &str, most: u64) -> StowError {
    StowError::OverLimit(file::sentence(&enclosed.path, file::larger(size, limit, most)))
}

/// Counts what became of a part.
fn counted(metrics: &WorkerMetrics, brought: Result<Option<u64>, StowError>) -> Result<(), StowError> {
    let outcome = match &brought {
        Ok(None) => "known",
        Ok(Some(bytes)) => {
            metrics.artifact_bytes.inc_by(*bytes);
            "stored"
        }
        Err(StowError::OverLimit(_)) => "over_limit",
        Err(StowError::OverQuota(_)) => "over_quota",
        Err(StowError::File { .. }) => "refused",
        Err(StowError::Away(_) | StowError::Store(_) | StowError::Late) => "failed",
    };
    metrics.artifacts.with_label_values(&[outcome]).inc();
    brought.map(drop)
}

/// Repeats a call of the store, which must be safe to repeat, until its outcome is known or no repeat can mend it.
async fn repeated<T, F>(call: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut tries = 0;
    loop {
        match call().await {
            Err(error) if error.retry() == Retry::Later => back_off(tries).await,
            answer => return answer,
        }
        tries += 1;
    }
}

/// Repeats a call, which must be safe to repeat, for a while.
async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T, ObjectsError>
where
    F: Future<Output = Result<T, ObjectsError>>,
{
    let until = Instant::now() + PATIENCE;
    let mut tries = 0;
    loop {
        match call().await {
            Err(error) if Instant::now() < until => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the artifact store failed");
                back_off(tries).await;
                tries += 1;
            }
            answer => return answer,
        }
    }
}
