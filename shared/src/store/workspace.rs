//! The workspace of a context: the one that its first turn worked in, for ever, on the storage of the worker that ran it.

use super::script::{Args, Name};
use super::turns::Taken;
use super::{Store, StoreError};
use crate::ids::StorageId;

/// What became of a turn's wish to work somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// It may: the context works there, or does from now on.
    Here,
    /// The context works elsewhere.
    Elsewhere,
    /// The turn is not the caller's any more.
    Fenced,
}

impl Store {
    /// Ties the context of a leased turn to a workspace, and to the storage that it is on, if the worker names one. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn bind_workspace(
        &self,
        taken: &Taken,
        workspace: &[u8],
        storage: Option<&StorageId>,
    ) -> Result<Bound, StoreError> {
        let mut args = Args::new();
        args.push(taken.context.as_str())
            .number(taken.epoch.0)
            .push(taken.token.as_str())
            .push(taken.record.turn.to_string())
            .push(workspace)
            .push(storage.map_or("", StorageId::as_str));
        let reply = self.run(Name::Bind, taken.partition, &args).await?;
        match reply.tag.as_str() {
            "BOUND" => Ok(Bound::Here),
            "OTHER" => Ok(Bound::Elsewhere),
            "FENCED" => Ok(Bound::Fenced),
            _ => Err(reply.unknown()),
        }
    }
}
