use std::os::unix::fs::symlink;

use super::*;
use crate::ids::Partition;
use crate::platform::config::{ArtifactSettings, ArtifactStore};

fn task(n: u64) -> TaskId {
    TaskId::new(1_700_000_000_000, Partition(3), n)
}

fn in_directory(path: &FilePath) -> Objects {
    let settings = ArtifactSettings {
        store: ArtifactStore::Directory(path.to_owned()),
        ..ArtifactSettings::default()
    };
    Objects::open_shared(&settings).unwrap().unwrap()
}

fn in_memory() -> Objects {
    let settings = ArtifactSettings {
        store: ArtifactStore::Memory,
        ..ArtifactSettings::default()
    };
    Objects::open(&settings).unwrap().unwrap()
}

async fn put(objects: &Objects, task: TaskId, content: &[u8]) -> Digest {
    let digest = Digest::of(content);
    objects
        .put(task, digest, Bytes::copy_from_slice(content))
        .await
        .unwrap();
    digest
}

async fn read(objects: &Objects, task: TaskId, digest: Digest, wanted: Wanted) -> Option<Vec<u8>> {
    let object = objects.get(task, digest, wanted).await.unwrap()?;
    Some(object.bytes.try_collect::<Vec<_>>().await.unwrap().concat())
}

#[tokio::test]
async fn what_is_written_is_read_whole_and_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    for objects in [in_directory(folder.path()), in_memory()] {
        let large = vec![7; 100_000];
        for content in [&b""[..], b"x", &large] {
            let digest = put(&objects, task(1), content).await;
            assert_eq!(
                read(&objects, task(1), digest, Wanted::All).await.as_deref(),
                Some(content)
            );
            let known = objects.get(task(1), digest, Wanted::Nothing).await.unwrap().unwrap();
            assert_eq!(known.size, content.len() as u64);
        }
        let digest = put(&objects, task(1), b"0123456789").await;
        let piece = read(&objects, task(1), digest, Wanted::Bytes(3..5)).await;
        assert_eq!(piece.unwrap(), b"34");
        assert_eq!(objects.list(task(1)).await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn a_task_takes_nothing_of_another_with_it() {
    let folder = tempfile::tempdir().unwrap();
    for objects in [in_directory(folder.path()), in_memory()] {
        let digest = put(&objects, task(1), b"same").await;
        put(&objects, task(1), b"other").await;
        put(&objects, task(2), b"same").await;
        objects.delete_all(task(1)).await.unwrap();
        objects.delete_all(task(1)).await.unwrap();
        assert_eq!(read(&objects, task(1), digest, Wanted::All).await, None);
        assert_eq!(objects.list(task(1)).await.unwrap(), []);
        assert_eq!(read(&objects, task(2), digest, Wanted::All).await.unwrap(), b"same");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn what_is_written_in_pieces_is_there_when_it_is_finished_and_else_never() {
    let folder = tempfile::tempdir().unwrap();
    for objects in [in_directory(folder.path()), in_memory()] {
        let digest = Digest::of(b"whole");
        let mut upload = objects.upload(task(1), digest).await.unwrap();
        upload.write(Bytes::from_static(b"who")).await.unwrap();
        upload.write(Bytes::from_static(b"le")).await.unwrap();
        assert_eq!(objects.list(task(1)).await.unwrap(), []);
        // Another attempt does the same.
        let mut other = objects.upload(task(1), digest).await.unwrap();
        other.write(Bytes::from_static(b"whole")).await.unwrap();
        other.finish().await.unwrap();
        upload.give_up().await.unwrap();
        assert_eq!(read(&objects, task(1), digest, Wanted::All).await.unwrap(), b"whole");
        let mut again = objects.upload(task(1), digest).await.unwrap();
        again.write(Bytes::from_static(b"whole")).await.unwrap();
        again.finish().await.unwrap();
        assert_eq!(objects.list(task(1)).await.unwrap(), [(digest, 5)]);
    }
    let left = std::fs::read_dir(folder.path().join(task(1).to_string())).unwrap();
    assert_eq!(left.count(), 1);
}

#[test]
fn every_store_takes_the_pieces_of_any_size() {
    for size in [0, 1, 8 << 20, 1 << 30, 1 << 40, u64::MAX] {
        let piece = Objects::piece(size);
        assert!(piece >= 8 << 20 && size.div_ceil(piece) <= 10_000, "{size}: {piece}");
    }
}

#[tokio::test]
async fn what_a_writer_that_died_left_goes_too_and_links_are_not_followed() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let objects = in_directory(folder.path());
    let digest = put(&objects, task(1), b"whole").await;
    let file = objects.file(task(1), digest).unwrap();
    std::fs::write(format!("{}#1", file.display()), "ha").unwrap();
    std::fs::write(outside.path().join("mine"), "kept").unwrap();
    symlink(outside.path(), file.with_file_name("link")).unwrap();
    assert_eq!(objects.list(task(1)).await.unwrap(), [(digest, 5)]);
    objects.delete_all(task(1)).await.unwrap();
    assert!(!file.parent().unwrap().exists());
    assert!(outside.path().join("mine").exists());
    // A directory that is a link to one is removed like a file.
    symlink(outside.path(), folder.path().join(task(2).to_string())).unwrap();
    let _either = objects.delete_all(task(2)).await;
    assert!(outside.path().join("mine").exists());
}

#[tokio::test]
async fn a_half_written_object_has_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let objects = in_directory(folder.path());
    let digest = Digest::of(b"whole");
    let file = objects.file(task(1), digest).unwrap();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(format!("{}#1", file.display()), "ha").unwrap();
    assert_eq!(read(&objects, task(1), digest, Wanted::All).await, None);
    put(&objects, task(1), b"whole").await;
    assert_eq!(read(&objects, task(1), digest, Wanted::All).await.unwrap(), b"whole");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = ArtifactSettings {
        store: ArtifactStore::Directory(file.path().join("below")),
        ..ArtifactSettings::default()
    };
    let error = Objects::open_shared(&settings).unwrap_err().to_string();
    assert!(error.contains(&file.path().display().to_string()), "{error}");
    let memory = ArtifactSettings {
        store: ArtifactStore::Memory,
        ..ArtifactSettings::default()
    };
    let error = Objects::open_shared(&memory).unwrap_err().to_string();
    assert!(error.contains("relevo dev"), "{error}");
}

#[test]
fn a_directory_that_was_not_there_is_made_and_that_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not/mounted");
    assert!(open::made(&path).unwrap());
    assert!(!open::made(&path).unwrap());
    assert!(open::made(&tempfile::NamedTempFile::new().unwrap().path().join("below")).is_err());
}
