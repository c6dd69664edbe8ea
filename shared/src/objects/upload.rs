//! An object that is written in pieces, so that nobody holds all of it. Until it is finished there is none of its name.

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};

use super::{Digest, Objects, ObjectsError};
use crate::ids::TaskId;

/// The smallest piece that every store takes; only the last may be smaller.
const SMALLEST: u64 = 8 << 20;
/// How many pieces every store takes.
const PIECES: u64 = 9_000;

/// An object that is being written. One that is dropped leaves no object; what a bucket keeps of it is [`Upload::give_up`]'s.
#[derive(Debug)]
pub struct Upload(Box<dyn MultipartUpload>);

impl Objects {
    /// How long the pieces of an object of `size` bytes are. One that is no longer is written whole.
    pub fn piece(size: u64) -> u64 {
        size.div_ceil(PIECES).max(SMALLEST)
    }

    /// Begins an object. Safe to repeat: its name is its content's.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn upload(&self, task: TaskId, digest: Digest) -> Result<Upload, ObjectsError> {
        let (store, name) = (self.store.clone(), self.name(task, digest));
        let begun = if self.directory.is_some() {
            // The library begins a file where it is asked to, which may be a thread of the runtime.
            let runtime = tokio::runtime::Handle::current();
            let begin = move || runtime.block_on(store.put_multipart(&name));
            tokio::task::spawn_blocking(begin)
                .await
                .unwrap_or_else(|gone| Err(object_store::Error::JoinError { source: gone }))
        } else {
            store.put_multipart(&name).await
        };
        begun.map(Upload).map_err(ObjectsError::failed("begin to write"))
    }
}

impl Upload {
    /// Writes the next piece.
    ///
    /// # Errors
    /// [`ObjectsError`]; the object must be begun anew then.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), ObjectsError> {
        let written = self.0.put_part(PutPayload::from_bytes(piece)).await;
        written.map_err(ObjectsError::failed("write"))
    }

    /// Everything is written: the object is there when this returns.
    ///
    /// # Errors
    /// [`ObjectsError`]; the object must be begun anew then.
    pub async fn finish(&mut self) -> Result<(), ObjectsError> {
        let finished = self.0.complete().await;
        finished.map(drop).map_err(ObjectsError::failed("finish"))
    }

    /// Takes back what was written.
    ///
    /// # Errors
    /// [`ObjectsError`]; a bucket may keep pieces then, of which no listing tells.
    pub async fn give_up(&mut self) -> Result<(), ObjectsError> {
        self.0.abort().await.map_err(ObjectsError::failed("give up"))
    }
}
