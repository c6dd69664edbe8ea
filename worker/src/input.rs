//! What a message is for agents whose profile makes one text of its parts (docs/protocol.md): the prompt, and the directory
//! it is about.
//!
//! Owns the reference server's rules for parts and workspaces, with its limits and its words. Everything is looked at here,
//! on the worker, because only its disk can tell. A message that breaks a rule does not damage a task that exists: a new
//! task ends FAILED with the words, one that continues is again what it was before.

mod file;
#[cfg(test)]
mod hostile;
mod parts;
mod workspace;

use std::path::PathBuf;
use std::sync::Arc;

use relevo_shared::agents::Profile;
use relevo_shared::domain::record::TurnRecord;

pub(crate) use workspace::Roots;

/// What an agent is given beside the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// All parts as one text.
    pub text: String,
    /// The directory that the context works in, free of symbolic links.
    pub workspace: PathBuf,
}

/// Why a message cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// For its sender.
    pub(crate) words: &'static str,
    /// For the operator, where the sender is told less.
    pub(crate) why: &'static str,
}

impl Unusable {
    pub(crate) const fn new(words: &'static str) -> Self {
        Self { words, why: words }
    }
}

/// Reads the message of a turn by the rules of `profile`; `None` when it has none. Files are read: not on a thread of the
/// runtime.
pub(crate) fn prompt(profile: &Profile, record: &TurnRecord, roots: &Roots) -> Option<Result<Prompt, Unusable>> {
    let ingest = profile.ingest.as_ref()?;
    let workspace = match workspace::of(record, profile.namespace.as_deref(), roots) {
        Ok(workspace) => workspace,
        Err(unusable) => return Some(Err(unusable)),
    };
    let place = file::Place {
        workspace: &workspace,
        roots,
    };
    let text = parts::text(&record.message, ingest, &place);
    Some(text.map(|text| Prompt { text, workspace }))
}

/// Reads it on a thread where waiting for a disk disturbs nobody.
pub(crate) async fn read(
    profile: Arc<Profile>,
    record: Arc<TurnRecord>,
    roots: Arc<Roots>,
) -> Option<Result<Prompt, Unusable>> {
    profile.ingest.as_ref()?;
    let read = tokio::task::spawn_blocking(move || prompt(&profile, &record, &roots));
    // It only fails when the process ends.
    read.await
        .unwrap_or(Some(Err(Unusable::new("The message could not be read."))))
}
