//! Files that agents name: found, judged, and read piece by piece on threads where waiting for a disk disturbs nobody. What was
//! stored is what was named: a file that changes while it is read is not taken.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use relevo_shared::objects::{Digest, Digester};
use relevo_shared::platform::config::ByteSize;

use crate::files::{self, Opened, Refused};

/// How much is read at a time to know the content.
const LOOK: u64 = 1 << 20;
/// Longest name that is repeated to a reader, in characters.
const LONGEST_NAME: usize = 128;

/// A file that a part stands for until it is read: its content takes the part's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enclosed {
    /// Which part.
    pub part: usize,
    /// Where it is.
    pub path: PathBuf,
    /// The directory in which it must lie, free of symbolic links.
    pub workspace: Arc<Path>,
}

/// Why a file is not taken; a clause about it that names no directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("lies outside of the workspace")]
    Outside,
    #[error("does not exist")]
    Missing,
    #[error("is no regular file that the worker may read")]
    NoFile,
    #[error("changed while it was read")]
    Changed,
    #[error("cannot be read")]
    Unreadable(#[source] std::io::Error),
}

impl From<Refused> for FileError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Outside => Self::Outside,
            Refused::Missing => Self::Missing,
            Refused::NoFile => Self::NoFile,
        }
    }
}

/// A file that was judged.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    file: Arc<File>,
    /// How long it was then.
    pub(crate) length: u64,
}

impl Source {
    /// Finds a file. Nothing of it is read.
    pub(crate) async fn open(enclosed: &Enclosed) -> Result<Self, FileError> {
        let Enclosed { path, workspace, .. } = enclosed.clone();
        let open = move || files::open(&path, |path| path.starts_with(&workspace));
        let Opened { file, length, .. } = elsewhere(open).await??;
        let file = Arc::new(file);
        Ok(Self { file, length })
    }

    /// All of it. To be asked of short ones.
    pub(crate) async fn whole(&self) -> Result<Bytes, FileError> {
        let whole = self.piece(0, self.length + 1).await?;
        // Looked at twice, as long ones are: what was written in place meanwhile may have been read half.
        if whole.len() as u64 != self.length || !self.still_is(&whole).await? {
            return Err(FileError::Changed);
        }
        Ok(whole)
    }

    /// Whether it has these bytes and no more.
    async fn still_is(&self, bytes: &[u8]) -> Result<bool, FileError> {
        let (mut from, mut rest) = (0, bytes);
        loop {
            let piece = self.piece(from, LOOK).await?;
            if piece.is_empty() {
                return Ok(rest.is_empty());
            }
            let Some(after) = rest.strip_prefix(&*piece) else {
                return Ok(false);
            };
            rest = after;
            from += piece.len() as u64;
        }
    }

    /// The name of its content.
    pub(crate) async fn digest(&self) -> Result<Digest, FileError> {
        let mut reading = Reading::of(self, LOOK);
        while reading.next().await?.is_some() {}
        reading.finish()
    }

    /// The bytes from `from` on, as many as there are and at most `most`.
    async fn piece(&self, from: u64, most: u64) -> Result<Bytes, FileError> {
        let file = Arc::clone(&self.file);
        let read = move || {
            let mut file = &*file;
            file.seek(SeekFrom::Start(from))?;
            let mut piece = Vec::new();
            file.take(most).read_to_end(&mut piece)?;
            Ok(piece.into())
        };
        elsewhere(read).await?.map_err(FileError::Unreadable)
    }
}

/// A file on its way.
pub(super) struct Reading {
    source: Source,
    piece: u64,
    read: u64,
    digester: Digester,
}

impl Reading {
    /// From its beginning, in pieces so long; only the last is shorter.
    pub(super) fn of(source: &Source, piece: u64) -> Self {
        Self {
            source: source.clone(),
            piece,
            read: 0,
            digester: Digester::default(),
        }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FileError> {
        let piece = self.source.piece(self.read, self.piece).await?;
        self.read += piece.len() as u64;
        if self.read > self.source.length {
            return Err(FileError::Changed);
        }
        let mut digester = std::mem::take(&mut self.digester);
        let (digester, piece) = elsewhere(move || {
            digester.add(&piece);
            (digester, piece)
        })
        .await?;
        self.digester = digester;
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    /// What the content's name is, if it is as long as it was.
    pub(super) fn finish(self) -> Result<Digest, FileError> {
        if self.read != self.source.length {
            return Err(FileError::Changed);
        }
        Ok(self.digester.finish())
    }
}

/// Runs what may wait for a disk, or takes its time.
pub(super) async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FileError> {
    let done = tokio::task::spawn_blocking(work).await;
    // It only fails when the process ends.
    done.map_err(|gone| FileError::Unreadable(std::io::Error::other(gone)))
}

/// A sentence for the reader of the task: the file's name, never where it lies.
pub(super) fn sentence(path: &Path, what: impl std::fmt::Display) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(LONGEST_NAME).collect();
    format!("The agent's file {name:?} {what}.")
}

/// What is said of something larger than a limit.
pub(super) fn larger(size: u64, limit: &str, most: u64) -> String {
    format!("has {size} bytes; {limit} is {}", ByteSize::new(most))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn enclosed(workspace: &Path, name: &str) -> Enclosed {
        Enclosed {
            part: 0,
            path: workspace.join(name),
            workspace: workspace.into(),
        }
    }

    #[tokio::test]
    async fn what_grew_shrank_or_was_rewritten_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let write = |content: &[u8]| std::fs::write(root.join("a"), content).unwrap();
        write(b"whole");
        let source = Source::open(&enclosed(&root, "a")).await.unwrap();
        assert_eq!(source.whole().await.unwrap(), b"whole".as_slice());
        assert_eq!(source.digest().await.unwrap(), Digest::of(b"whole"));
        for other in [&b"whole and more"[..], b"who", b""] {
            write(other);
            assert!(matches!(source.whole().await, Err(FileError::Changed)));
            assert!(matches!(source.digest().await, Err(FileError::Changed)));
        }
        write(b"0123456789");
        let source = Source::open(&enclosed(&root, "a")).await.unwrap();
        let mut reading = Reading::of(&source, 4);
        assert_eq!(reading.next().await.unwrap().unwrap(), b"0123".as_slice());
        let mut file = std::fs::OpenOptions::new().append(true).open(root.join("a")).unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(reading.next().await.unwrap().unwrap(), b"4567".as_slice());
        assert!(matches!(reading.next().await, Err(FileError::Changed)));
    }

    #[tokio::test]
    async fn a_short_file_that_is_written_in_place_is_taken_as_it_was_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let last = 3 * LOOK;
        std::fs::write(root.join("a"), vec![0; usize::try_from(last).unwrap() + 8]).unwrap();
        let source = Source::open(&enclosed(&root, "a")).await.unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(root.join("a")).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&over);
        // First the first number, then the last: never is one more than one ahead of the other.
        let writer = std::thread::spawn(move || {
            for n in 1_u64.. {
                file.write_all_at(&n.to_be_bytes(), 0).unwrap();
                file.write_all_at(&n.to_be_bytes(), last).unwrap();
                if heard.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        for _ in 0..20 {
            match source.whole().await {
                Ok(whole) => {
                    let (first, last) = (number(&whole[..8]), number(&whole[whole.len() - 8..]));
                    assert!(first == last || first == last + 1, "{first} and {last}");
                }
                Err(error) => assert!(matches!(error, FileError::Changed), "{error}"),
            }
        }
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(source.whole().await.is_ok());
    }

    #[tokio::test]
    async fn a_file_in_pieces_has_the_name_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for length in [0, 1, LOOK, LOOK + 1] {
            let content = vec![7; usize::try_from(length).unwrap()];
            std::fs::write(root.join("a"), &content).unwrap();
            let source = Source::open(&enclosed(&root, "a")).await.unwrap();
            assert_eq!(source.length, length);
            assert_eq!(source.digest().await.unwrap(), Digest::of(&content));
        }
    }

    #[test]
    fn a_sentence_names_the_file_and_no_directory() {
        let path = Path::new("/srv/secret/a \"b\"\n.txt");
        let long = Path::new("/srv/secret").join("x".repeat(200));
        assert_eq!(
            sentence(path, FileError::Outside),
            "The agent's file \"a \\\"b\\\"\\n.txt\" lies outside of the workspace."
        );
        assert_eq!(
            sentence(&long, "is long"),
            format!("The agent's file {:?} is long.", "x".repeat(128))
        );
        assert_eq!(
            larger(4, "artifacts.object_bytes", 3 << 20),
            "has 4 bytes; artifacts.object_bytes is 3MiB"
        );
    }
}
