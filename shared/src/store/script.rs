//! Runs scripts: one text each, called by its hash, re-sent as text only when the server does not know it. Nothing else is
//! ever re-sent here: an unknown outcome is the caller's to resolve.

use std::time::Duration;

use redis::Value;

use super::connection::At;
use super::{Store, StoreError};
use crate::ids::Partition;

/// The parts that scripts share, put after their first line.
const LIBRARIES: [(&str, &str); 15] = [
    ("base", include_str!("lua/lib/base.lua")),
    ("storage", include_str!("lua/lib/storage.lua")),
    ("side", include_str!("lua/lib/side.lua")),
    ("index", include_str!("lua/lib/index.lua")),
    ("journal", include_str!("lua/lib/journal.lua")),
    ("fence", include_str!("lua/lib/fence.lua")),
    ("run", include_str!("lua/lib/run.lua")),
    ("queue", include_str!("lua/lib/queue.lua")),
    ("expect", include_str!("lua/lib/expect.lua")),
    ("wait", include_str!("lua/lib/wait.lua")),
    ("promote", include_str!("lua/lib/promote.lua")),
    ("place", include_str!("lua/lib/place.lua")),
    ("conclude", include_str!("lua/lib/conclude.lua")),
    ("release", include_str!("lua/lib/release.lua")),
    ("withdraw", include_str!("lua/lib/withdraw.lua")),
];

macro_rules! scripts {
    ($($variant:ident = $file:literal,)*) => {
        /// Names a script.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Name { $($variant),* }

        impl Name {
            /// The file name without its ending; the metric label.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $file),* }
            }
        }

        /// Every script as it is written.
        pub const SCRIPTS: &[ScriptText] = &[
            $(ScriptText { name: $file, text: include_str!(concat!("lua/", $file, ".lua")) }),*
        ];
    };
}

/// A script file.
#[derive(Debug, Clone, Copy)]
pub struct ScriptText {
    /// File name without its ending.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

scripts! {
    Reserve = "reserve",
    Submit = "submit",
    Refuse = "refuse",
    Take = "take",
    Emit = "emit",
    Finish = "finish",
    Suspend = "suspend",
    Answer = "answer",
    Renew = "renew",
    Bind = "bind",
    Cancel = "cancel",
    Close = "close",
    Withdraw = "withdraw",
    SettleRequeue = "settle_requeue",
    SettleEnd = "settle_end",
    SettleDue = "settle_due",
    ReadContext = "read_context",
    ReadTask = "read_task",
    Sweep = "sweep",
    PutOff = "put_off",
    Purge = "purge",
    Objects = "objects",
    Used = "used",
    Show = "show",
    Ring = "ring",
    Layout = "layout",
}

impl Name {
    /// Whether it writes the end of a turn, of a task, or of a turn's run. One that was refused for its size would be refused for ever, and with it
    /// everything that waits for the context: whatever a task has grown to, its end is written.
    const fn is_end(self) -> bool {
        matches!(
            self,
            Self::Finish | Self::Suspend | Self::SettleEnd | Self::Close | Self::Withdraw
        )
    }
}

impl ScriptText {
    /// The script as it is sent: its first line, the libraries that its header names, the rest.
    pub fn assembled(&self) -> String {
        let (first, rest) = self.text.split_once('\n').unwrap_or((self.text, ""));
        let uses = rest
            .lines()
            .find_map(|line| line.strip_prefix("-- USES"))
            .unwrap_or_default();
        let mut text = format!("{first}\n");
        for (name, library) in LIBRARIES {
            if uses.split_whitespace().any(|used| used == name) {
                text.push_str(library);
            }
        }
        text.push_str(rest);
        text
    }
}

struct Script {
    hash: String,
    text: String,
}

/// All scripts, assembled.
pub(super) struct Scripts(Vec<Script>);

impl Scripts {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub(super) fn new() -> Self {
        let assemble = |script: &ScriptText| {
            let text = script.assembled();
            Script {
                hash: redis::Script::new(&text).get_hash().to_owned(),
                text,
            }
        };
        Self(SCRIPTS.iter().map(assemble).collect())
    }

    fn get(&self, name: Name) -> Option<&Script> {
        self.0.get(name as usize)
    }

    /// Text and hash, for a connection of one's own (the renewal thread).
    pub(super) fn hash_and_text(&self, name: Name) -> (String, String) {
        self.get(name)
            .map(|s| (s.hash.clone(), s.text.clone()))
            .unwrap_or_default()
    }
}

/// The arguments of a call, one after the other in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
    listed: usize,
}

/// The most values of one call beside those of lists: Lua cannot unpack more than some thousand values.
const MAX_VALUES: usize = 1_000;
/// The most bytes and list items of one call: a long script holds up everyone. An end is exempt ([`Name::is_end`]).
/// `[turn]` allows agents no more than this.
pub(super) const MAX_BYTES: usize = 64 << 20;
const MAX_LISTED: usize = 60_000;

impl Args {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        self.bytes.extend_from_slice(value.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    fn values(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(from, to)| self.bytes.get(from..*to).unwrap_or_default())
    }

    /// Adds a value of a list that the script takes in pieces.
    pub(crate) fn list(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        self.listed += 1;
        self.push(value)
    }

    /// Refuses what would hold up everyone for too long.
    fn fit(&self, name: Name) -> Result<(), StoreError> {
        let fixed = self.ends.len() - self.listed;
        let large = self.listed > MAX_LISTED || self.bytes.len() > MAX_BYTES;
        if fixed > MAX_VALUES || (large && !name.is_end()) {
            let rule = format!(
                "{} takes at most {MAX_VALUES} values, {MAX_LISTED} list items and {MAX_BYTES} bytes",
                name.as_str()
            );
            return Err(StoreError::Refused { rule });
        }
        Ok(())
    }

    pub(crate) fn number(&mut self, value: u64) -> &mut Self {
        self.push(value.to_string())
    }

    pub(crate) fn flag(&mut self, value: bool) -> &mut Self {
        self.push(if value { "1" } else { "" })
    }
}

fn command(verb: &str, script: &str, key: &str, absent: Option<&str>, args: &Args) -> redis::Cmd {
    let names = key.len() + absent.map_or(0, str::len);
    let mut command = redis::Cmd::with_capacity(args.ends.len() + 5, args.bytes.len() + script.len() + names + 16);
    command.arg(verb).arg(script);
    match absent {
        None => command.arg(1).arg(key),
        Some(absent) => command.arg(2).arg(key).arg(absent),
    };
    for value in args.values() {
        command.arg(value);
    }
    command
}

impl Store {
    /// Runs a script of a partition.
    pub(super) async fn run(&self, name: Name, partition: Partition, args: &Args) -> Result<Reply, StoreError> {
        self.run_on(name, At::Partition(partition), &self.keys().meta(partition), args)
            .await
    }

    /// Runs a script on a key.
    pub(super) async fn run_on(&self, name: Name, at: At, key: &str, args: &Args) -> Result<Reply, StoreError> {
        args.fit(name)?;
        let started = tokio::time::Instant::now();
        let answer = self.evaluate(name, at, key, args).await;
        let reply = answer.and_then(|value| Reply::new(name.as_str(), value));
        self.observe(name, started.elapsed(), &reply);
        reply
    }

    fn observe(&self, name: Name, took: Duration, reply: &Result<Reply, StoreError>) {
        let outcome = match reply {
            Ok(reply) => reply.tag.to_ascii_lowercase(),
            Err(error) => error.label().to_owned(),
        };
        self.metrics().script(name.as_str(), &outcome, took);
    }

    /// The second key of a script of a partition in a cluster. While a slot moves, a script that got half-way before it came to a
    /// key that has moved would leave half of its work behind.
    pub(super) fn absent(&self, at: At) -> Option<String> {
        match at {
            At::Partition(partition) if self.is_clustered() => Some(self.keys().absent(partition)),
            _ => None,
        }
    }

    async fn evaluate(&self, name: Name, at: At, key: &str, args: &Args) -> Result<Value, StoreError> {
        let Some(script) = self.inner.scripts.get(name) else {
            return Err(StoreError::corrupt("script table", name.as_str()));
        };
        let absent = self.absent(at);
        let by_hash = command("EVALSHA", &script.hash, key, absent.as_deref(), args);
        match self.link().query(at, &by_hash).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let by_text = command("EVAL", &script.text, key, absent.as_deref(), args);
                self.link().query(at, &by_text).await
            }
            answer => answer,
        }
        .map_err(|source| StoreError::from_redis(name.as_str(), source))
    }
}

/// A tagged reply.
#[derive(Debug)]
pub(crate) struct Reply {
    what: &'static str,
    pub(super) tag: String,
    rest: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(super) fn new(what: &'static str, value: Value) -> Result<Self, StoreError> {
        let Value::Array(values) = value else {
            return Err(StoreError::corrupt(what, format!("not a list: {value:?}")));
        };
        let mut rest = values.into_iter();
        let tag = rest.next().and_then(|v| text(&v));
        let tag = tag.ok_or_else(|| StoreError::corrupt(what, "no tag"))?;
        Ok(Self { what, tag, rest })
    }

    /// An error for a tag that the wrapper does not know.
    pub(super) fn unknown(&self) -> StoreError {
        StoreError::corrupt(self.what, format!("unknown tag {}", self.tag))
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        let value = self.rest.next();
        value
            .as_ref()
            .and_then(text)
            .ok_or_else(|| StoreError::corrupt(self.what, "a text is missing"))
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.rest.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            other => Err(StoreError::corrupt(self.what, format!("bytes are missing: {other:?}"))),
        }
    }

    pub(super) fn parsed<T: std::str::FromStr>(&mut self) -> Result<T, StoreError> {
        let text = self.text()?;
        text.parse()
            .map_err(|_wrong| StoreError::corrupt(self.what, format!("`{text}` is not the expected kind")))
    }

    pub(super) fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.text()? == "1")
    }

    pub(super) fn list(&mut self) -> Result<Vec<Value>, StoreError> {
        match self.rest.next() {
            Some(Value::Array(values)) => Ok(values),
            other => Err(StoreError::corrupt(self.what, format!("a list is missing: {other:?}"))),
        }
    }

    /// A list of lists, each readable like a reply.
    pub(super) fn rows(&mut self) -> Result<Vec<Self>, StoreError> {
        let what = self.what;
        let row = |value| match value {
            Value::Array(values) => Ok(Self {
                what,
                tag: String::new(),
                rest: values.into_iter(),
            }),
            other => Err(StoreError::corrupt(what, format!("a row is missing: {other:?}"))),
        };
        self.list()?.into_iter().map(row).collect()
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, StoreError> {
        let what = self.what;
        let one = |value: &Value| text(value).ok_or_else(|| StoreError::corrupt(what, "a text is missing"));
        self.list()?.iter().map(one).collect()
    }
}

/// The text of a reply value; numbers are texts too.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

/// A number in a reply.
pub(super) fn number(value: &Value) -> Result<u64, StoreError> {
    let parsed = match value {
        Value::Int(n) => u64::try_from(*n).ok(),
        other => text(other).and_then(|t| t.parse().ok()),
    };
    parsed.ok_or_else(|| StoreError::corrupt("reply", "a number is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::config::{MOST_BYTES, MOST_EVENTS};

    #[test]
    fn only_an_end_may_be_as_large_as_it_is() {
        let (mut bytes, mut listed, mut values) = (Args::new(), Args::new(), Args::new());
        bytes.push(vec![0; MAX_BYTES + 1]);
        for _ in 0..=MAX_LISTED {
            listed.list("");
        }
        for _ in 0..=MAX_VALUES {
            values.push("");
        }
        for name in [Name::Finish, Name::SettleEnd, Name::Close, Name::Withdraw] {
            assert!(bytes.fit(name).is_ok() && listed.fit(name).is_ok());
            assert!(values.fit(name).is_err(), "Lua could not take them apart");
        }
        for name in [Name::Emit, Name::Submit, Name::Refuse] {
            assert!(bytes.fit(name).is_err() && listed.fit(name).is_err());
        }
    }

    #[test]
    fn the_settings_allow_what_a_call_takes() {
        assert_eq!(MOST_BYTES.as_len(), MAX_BYTES);
        assert_eq!(usize::try_from(MOST_EVENTS), Ok(MAX_LISTED));
    }
}
