//! Brings parts that are too large for events to the artifact store, before the event that names them is written. What was brought
//! and never named goes with the task.

use std::collections::HashMap;
use std::time::Duration;

use a2a::Part;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::ids::TaskId;
use relevo_shared::objects::{Digest, Objects, ObjectsError};
use relevo_shared::platform::config::{ArtifactStore, Settings};
use relevo_shared::store::{Retry, Store, StoreError};
use tokio::time::Instant;

use super::write::back_off;
use crate::metrics::WorkerMetrics;
use part::{Content, Place};

mod part;

/// How long a store that fails is asked again before the turn goes to another worker.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a part is not in the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StowError {
    /// It is larger than the limits allow.
    #[error("an artifact is larger than the limits allow")]
    OverLimit,
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

/// The artifact store of a worker, and what goes there.
#[derive(Debug, Clone)]
pub(crate) struct Artifacts {
    objects: Objects,
    inline_max: usize,
    object_bytes: u64,
    task_bytes: u64,
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
    pub(crate) async fn stow(
        &self,
        store: &Store,
        record: &TurnRecord,
        stowed: &mut Stowed,
        part: &mut Part,
        metrics: &WorkerMetrics,
    ) -> Result<(), StowError> {
        let outcome = match self.bring(store, record, stowed, part).await {
            Ok(0) => "known",
            Ok(bytes) => {
                metrics.artifact_bytes.inc_by(bytes);
                "stored"
            }
            Err(error) => {
                let outcome = match &error {
                    StowError::OverLimit => "over_limit",
                    StowError::Away(_) | StowError::Store(_) => "failed",
                };
                metrics.artifacts.with_label_values(&[outcome]).inc();
                return Err(error);
            }
        };
        metrics.artifacts.with_label_values(&[outcome]).inc();
        Ok(())
    }

    /// Says how many bytes were written.
    async fn bring(
        &self,
        store: &Store,
        record: &TurnRecord,
        stowed: &mut Stowed,
        part: &mut Part,
    ) -> Result<u64, StowError> {
        let task = record.task;
        // Found too large before anything is copied.
        let Some(Content { bytes, media_type }) = part::content(part, self.object_bytes) else {
            return Err(StowError::OverLimit);
        };
        let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
        let sizes = self.sizes(store, task, stowed).await?;
        let written = if sizes.get(&digest) == Some(&size) {
            0
        } else {
            let before: u64 = sizes.values().sum();
            if before.saturating_add(size) > self.task_bytes {
                return Err(StowError::OverLimit);
            }
            patiently(|| self.objects.put(task, digest, bytes.clone())).await?;
            sizes.insert(digest, size);
            size
        };
        let place = Place {
            url: self.url(record, digest),
            media_type,
            digest,
            size,
            seed: self.files,
        };
        place.put_into(part);
        Ok(written)
    }

    /// What the task has. Before anything is written, it is noted that it has something.
    async fn sizes<'a>(
        &self,
        store: &Store,
        task: TaskId,
        stowed: &'a mut Stowed,
    ) -> Result<&'a mut HashMap<Digest, u64>, StowError> {
        if !stowed.noted {
            // Set first: a note whose answer is lost may be there.
            stowed.noted = true;
            note(store, task).await?;
        }
        let known = match stowed.sizes.take() {
            Some(known) => known,
            None => patiently(|| self.objects.list(task)).await?.into_iter().collect(),
        };
        Ok(stowed.sizes.insert(known))
    }

    fn url(&self, record: &TurnRecord, digest: Digest) -> String {
        let file = self.objects.file(record.task, digest).filter(|_| self.files);
        file.and_then(|file| url::Url::from_file_path(file).ok())
            .map_or_else(|| part::url(&self.base, record, digest), String::from)
    }
}

/// Notes that a task may have objects; returns when it is noted, or with an error that no repeat can mend.
pub(crate) async fn note(store: &Store, task: TaskId) -> Result<(), StoreError> {
    let mut tries = 0;
    loop {
        match store.note_objects(task).await {
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
