//! The layout: written once, by the first process of a cluster; compared by everyone who connects.

use redis::Value;

use super::connection::{At, command};
use super::script::{Args, Name, text};
use super::{Store, StoreError};

/// What this build writes and reads.
const VERSION: &str = "1";
const SCOPE_MODE: &str = "tenant+principal";
const KEY_VERSION: &str = "1";

impl Store {
    /// Writes the layout into an empty Redis; refuses a Redis that has another.
    pub(super) async fn agree_on_layout(&self) -> Result<(), StoreError> {
        let ours = self.our_layout();
        let mut args = Args::new();
        for (field, value) in &ours {
            args.push(field).push(value);
        }
        let mut reply = self
            .run_on(Name::Layout, At::Layout, &self.keys().layout_key(), &args)
            .await?;
        compare(&ours, &reply.list()?)
    }

    /// Refuses a Redis that has another layout, or none: whoever only looks must not decide for ever how it is laid out.
    pub(super) async fn find_layout(&self) -> Result<(), StoreError> {
        let key = self.keys().layout_key();
        let mut read = command("HGETALL");
        read.arg(&key);
        let found = match self.one("HGETALL", At::Layout, &read).await? {
            Value::Array(found) => found,
            Value::Map(found) => found.into_iter().flat_map(|(field, value)| [field, value]).collect(),
            _ => return Err(StoreError::corrupt("layout", "not a hash")),
        };
        if found.is_empty() {
            let rule =
                format!("no cluster has used this Redis yet: there is no {key}; check the address and redis.prefix");
            return Err(StoreError::Refused { rule });
        }
        compare(&self.our_layout(), &found)
    }

    fn our_layout(&self) -> [(&'static str, String); 5] {
        let tags = self.keys().layout().tags_text();
        [
            ("v", VERSION.to_owned()),
            ("partitions", self.partitions().to_string()),
            ("tags", tags),
            ("scope_mode", SCOPE_MODE.to_owned()),
            ("key_version", KEY_VERSION.to_owned()),
        ]
    }
}

fn compare(ours: &[(&str, String)], found: &[Value]) -> Result<(), StoreError> {
    for (field, value) in ours {
        let theirs = found.chunks(2).find_map(|pair| match pair {
            [name, value] if text(name).as_deref() == Some(field) => text(value),
            _ => None,
        });
        if theirs.as_ref() != Some(value) {
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
