//! The layout: written once, compared by every process that starts.

use super::script::{Args, Name, text};
use super::{Store, StoreError};

/// What this build writes and reads.
const VERSION: &str = "1";
const SCOPE_MODE: &str = "tenant+principal";
const KEY_VERSION: &str = "1";

impl Store {
    /// Writes the layout into an empty Redis; refuses a Redis that has another.
    pub(super) async fn agree_on_layout(&self) -> Result<(), StoreError> {
        let tags = self.keys().layout().tags_text();
        let partitions = self.partitions().to_string();
        let ours = [
            ("v", VERSION),
            ("partitions", partitions.as_str()),
            ("tags", tags.as_str()),
            ("scope_mode", SCOPE_MODE),
            ("key_version", KEY_VERSION),
        ];
        let mut args = Args::new();
        for (field, value) in ours {
            args.push(field).push(value);
        }
        let mut reply = self.run_on(Name::Layout, 0, &self.keys().layout_key(), &args).await?;
        let found = reply.list()?;
        for (field, value) in ours {
            let theirs = found.chunks(2).find_map(|pair| match pair {
                [name, value] if text(name).as_deref() == Some(field) => text(value),
                _ => None,
            });
            if theirs.as_deref() != Some(value) {
                let theirs = theirs.unwrap_or_else(|| "nothing".to_owned());
                let rule = format!(
                    "this Redis was laid out with {field} = {theirs}, this process has {value}: \
                     the layout is fixed for ever; use the same settings or another redis.prefix"
                );
                return Err(StoreError::Refused { rule });
            }
        }
        Ok(())
    }
}
