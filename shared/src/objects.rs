//! The artifact store: large parts of what agents produce, outside of Redis, through the crate `object_store`.
//!
//! Owns the names of objects, `<task>/<sha256 of the content>`, how they are written, read and deleted. An object is there whole or
//! not at all, never changes, and belongs to one task, so that deleting what a task has takes nothing from another with the same
//! content. It knows no Redis: which tasks have objects is [`crate::store::Store::note_objects`]'s, when they go is the janitor's.

mod digest;
mod http;
mod open;
mod s3;
mod upload;

use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutPayload};

use crate::ids::TaskId;

pub use digest::{Digest, Digester};
pub use object_store;
pub use upload::Upload;

/// The artifact store does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// It cannot be opened.
    #[error("the artifact store cannot be opened: {rule}")]
    Open {
        /// What is wrong with the setting.
        rule: String,
    },
    /// A call failed, after the repeats that the library makes.
    #[error("the artifact store cannot {what}")]
    Failed {
        /// What it was asked to do.
        what: &'static str,
        /// What it answered.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ObjectsError {
    fn failed(what: &'static str) -> impl Fn(object_store::Error) -> Self {
        move |source| Self::Failed {
            what,
            source: Box::new(source),
        }
    }
}

/// A handle on the artifact store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    /// What comes before the task in the names.
    prefix: Path,
    /// The directory, where it is one.
    directory: Option<PathBuf>,
}

/// An object that is about to be read.
pub struct Object {
    /// How many bytes the whole of it has.
    pub size: u64,
    /// When it was written.
    pub modified: SystemTime,
    /// The bytes that were asked for.
    pub bytes: BoxStream<'static, Result<Bytes, ObjectsError>>,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// What is read of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Only what is known of it.
    Nothing,
    /// Everything.
    All,
    /// These bytes, which it has.
    Bytes(Range<u64>),
}

impl Objects {
    /// A store of any kind, for tests and for the parts of one process.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            prefix: Path::default(),
            directory: None,
        }
    }

    fn folder(&self, task: TaskId) -> Path {
        self.prefix.clone().join(task.to_string())
    }

    fn name(&self, task: TaskId, digest: Digest) -> Path {
        self.folder(task).join(digest.to_string())
    }

    /// Where an object lies on the disk, where it does.
    pub fn file(&self, task: TaskId, digest: Digest) -> Option<PathBuf> {
        let directory = self.directory.as_deref()?;
        Some(directory.join(task.to_string()).join(digest.to_string()))
    }

    /// What a task has: every object with its size. Those of attempts that crashed are among them.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn list(&self, task: TaskId) -> Result<Vec<(Digest, u64)>, ObjectsError> {
        let found = self.store.list(Some(&self.folder(task)));
        let found: Vec<_> = found.try_collect().await.map_err(ObjectsError::failed("list"))?;
        let object = |meta: object_store::ObjectMeta| Some((Digest::parse(meta.location.filename()?)?, meta.size));
        Ok(found.into_iter().filter_map(object).collect())
    }

    /// Writes an object whole. Safe to repeat: its name is its content's.
    ///
    /// # Errors
    /// [`ObjectsError`]; nothing can be read under its name then, unless it was there before.
    pub async fn put(&self, task: TaskId, digest: Digest, bytes: Bytes) -> Result<(), ObjectsError> {
        let name = self.name(task, digest);
        let put = self.store.put(&name, PutPayload::from_bytes(bytes)).await;
        put.map(drop).map_err(ObjectsError::failed("write"))
    }

    /// Opens an object; `None` when there is none of that name.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn get(&self, task: TaskId, digest: Digest, wanted: Wanted) -> Result<Option<Object>, ObjectsError> {
        let options = GetOptions {
            head: wanted == Wanted::Nothing,
            range: match wanted {
                Wanted::Bytes(range) => Some(GetRange::Bounded(range)),
                Wanted::All | Wanted::Nothing => None,
            },
            ..GetOptions::default()
        };
        let found = match self.store.get_opts(&self.name(task, digest), options).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(ObjectsError::failed("read")(error)),
        };
        Ok(Some(Object {
            size: found.meta.size,
            modified: found.meta.last_modified.into(),
            bytes: found.into_stream().map_err(ObjectsError::failed("read")).boxed(),
        }))
    }

    /// Deletes everything that a task has. Safe to repeat, also after it was broken off.
    ///
    /// # Errors
    /// [`ObjectsError`]; some may be left.
    pub async fn delete_all(&self, task: TaskId) -> Result<(), ObjectsError> {
        if let Some(directory) = &self.directory {
            return delete_directory(&directory.join(task.to_string())).await;
        }
        let found = self.store.list(Some(&self.folder(task))).map_ok(|meta| meta.location);
        let mut deleted = self.store.delete_stream(found.boxed());
        while let Some(deleted) = deleted.next().await {
            match deleted {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(ObjectsError::failed("delete")(error)),
            }
        }
        Ok(())
    }
}

/// With what writers that died left there, which no listing shows. A link is removed, not followed.
async fn delete_directory(path: &FilePath) -> Result<(), ObjectsError> {
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ObjectsError::Failed {
            what: "delete",
            source: Box::new(error),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
