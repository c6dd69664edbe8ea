//! Opens the store that `[artifacts]` names.

use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use super::{Objects, ObjectsError, s3};
use crate::platform::config::{ArtifactSettings, ArtifactStore};

impl Objects {
    /// The store of the settings, if they name one.
    ///
    /// # Errors
    /// [`ObjectsError::Open`] says what is wrong.
    pub fn open(settings: &ArtifactSettings) -> Result<Option<Self>, ObjectsError> {
        match &settings.store {
            ArtifactStore::None => Ok(None),
            ArtifactStore::Memory => Ok(Some(Self::new(Arc::new(InMemory::new())))),
            ArtifactStore::Directory(path) => directory(path).map(Some),
            ArtifactStore::Bucket { bucket, prefix } => s3::open(settings, bucket, prefix).map(Some),
        }
    }

    /// The same for a process that is not the only one of its cluster.
    ///
    /// # Errors
    /// [`ObjectsError::Open`], also for a store that other processes cannot see.
    pub fn open_shared(settings: &ArtifactSettings) -> Result<Option<Self>, ObjectsError> {
        if settings.store == ArtifactStore::Memory {
            let rule = "artifacts.store = \"memory:\" is for `relevo dev`: another process cannot see it".to_owned();
            return Err(ObjectsError::Open { rule });
        }
        Self::open(settings)
    }
}

fn directory(path: &FilePath) -> Result<Objects, ObjectsError> {
    let failed = |error: &dyn std::fmt::Display| ObjectsError::Open {
        rule: format!("artifacts.store: {}: {error}", path.display()),
    };
    if made(path).map_err(|error| failed(&error))? {
        tracing::warn!(
            directory = %path.display(),
            "the directory of artifacts.store was not there and has been made; what should be mounted there is not"
        );
    }
    let path = path.canonicalize().map_err(|error| failed(&error))?;
    let store = LocalFileSystem::new_with_prefix(&path).map_err(|error| failed(&error))?;
    Ok(Objects {
        directory: Some(path),
        // What a client was told of must be there after the machine lost its power.
        ..Objects::new(Arc::new(store.with_fsync(true)))
    })
}

/// Makes the directory unless it is there, and says whether it was not.
pub(super) fn made(path: &FilePath) -> std::io::Result<bool> {
    let there = path.try_exists()?;
    std::fs::create_dir_all(path)?;
    Ok(!there)
}
