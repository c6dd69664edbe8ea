//! A look into Redis past the store: what tests compare, and what they break by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use redis::{Cmd, Connection, ConnectionLike as _, RedisError, Value};
use relevo_testkit::{RedisCluster, RedisServer};

/// A plain connection over the unix socket. It blocks, which is what a test wants between two steps.
pub struct Probe {
    url: String,
    connection: Mutex<Connection>,
    /// Of the other nodes of a cluster.
    others: Vec<Probe>,
}

/// Everything that a key holds, without what time alone changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(String),
    Hash(BTreeMap<String, String>),
    List(Vec<String>),
    Scores(BTreeMap<String, String>),
    Stream(Stream),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stream {
    pub entries: Vec<(String, BTreeMap<String, String>)>,
    pub last: String,
    pub groups: BTreeMap<String, Group>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    pub delivered: String,
    /// Entry and consumer.
    pub pending: Vec<(String, String)>,
}

/// Every key and whether it expires.
pub type Dump = BTreeMap<String, (Content, bool)>;

/// Every key as bytes that [`Probe::restore`] brings back.
pub type Saved = Vec<(String, Vec<u8>, u64)>;

fn open(url: &str) -> Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

impl Probe {
    pub fn new(redis: &RedisServer) -> Self {
        let url = format!("unix://{}", redis.socket().display());
        Self {
            connection: Mutex::new(open(&url)),
            url,
            others: Vec::new(),
        }
    }

    /// Asks whichever node serves the key.
    pub fn of_cluster(cluster: &RedisCluster) -> Self {
        let mut nodes = cluster.nodes().iter().map(|node| Self::new(node));
        let first = nodes.next().unwrap();
        Self {
            others: nodes.collect(),
            ..first
        }
    }

    /// After a restart of the server.
    pub fn reconnect(&self) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = open(&self.url);
        self.others.iter().for_each(Self::reconnect);
    }

    pub fn try_ask<A: AsRef<[u8]>>(&self, words: &[A]) -> Result<Value, RedisError> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        let mut answer = self.exchange(&command);
        for other in &self.others {
            match answer {
                Err(error) if error.code() == Some("MOVED") => answer = other.exchange(&command),
                _ => break,
            }
        }
        answer
    }

    fn exchange(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.req_command(command)?.extract_error()
    }

    #[track_caller]
    pub fn ask<A: AsRef<[u8]>>(&self, words: &[A]) -> Value {
        self.try_ask(words).unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    pub fn text<A: AsRef<[u8]>>(&self, words: &[A]) -> Option<String> {
        let value = self.ask(words);
        (value != Value::Nil).then(|| text(&value))
    }

    #[track_caller]
    pub fn texts<A: AsRef<[u8]>>(&self, words: &[A]) -> Vec<String> {
        list(&self.ask(words)).iter().map(text).collect()
    }

    pub fn field(&self, key: &str, field: &str) -> Option<String> {
        self.text(&["HGET", key, field])
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and texts are handed in as they are"
    )]
    pub fn set(&self, key: &str, field: &str, value: impl ToString) {
        self.ask(&["HSET", key, field, &value.to_string()]);
    }

    pub fn hash(&self, key: &str) -> BTreeMap<String, String> {
        pairs(&self.ask(&["HGETALL", key]))
    }

    pub fn score(&self, key: &str, member: &str) -> Option<u64> {
        self.text(&["ZSCORE", key, member]).map(|score| score.parse().unwrap())
    }

    pub fn set_score(&self, key: &str, member: &str, score: u64) {
        self.ask(&["ZADD", key, "XX", &score.to_string(), member]);
    }

    pub fn length(&self, command: &str, key: &str) -> usize {
        self.text(&[command, key]).unwrap().parse().unwrap()
    }

    pub fn keys(&self) -> BTreeSet<String> {
        self.texts(&["KEYS", "*"]).into_iter().collect()
    }

    /// Every key in the slot of a key, on whichever node of a cluster it is.
    pub fn keys_of(&self, key: &str) -> BTreeSet<String> {
        let slot = self.text(&["CLUSTER", "KEYSLOT", key]).unwrap();
        let nodes = [self].into_iter().chain(&self.others);
        let here = |node: &Self| {
            let mut command = Cmd::new();
            command.arg(&["CLUSTER", "GETKEYSINSLOT", &slot, "10000"]);
            list(&node.exchange(&command).unwrap())
                .iter()
                .map(text)
                .collect::<Vec<_>>()
        };
        nodes.flat_map(here).collect()
    }

    /// Redis ms.
    pub fn now(&self) -> u64 {
        let time = self.texts(&["TIME"]);
        let (seconds, micros): (u64, u64) = (time[0].parse().unwrap(), time[1].parse().unwrap());
        seconds * 1_000 + micros / 1_000
    }

    pub fn dump(&self) -> Dump {
        let content = |key: String| {
            let expires = self.text(&["PTTL", &key]).unwrap() != "-1";
            (self.content(&key), expires, key)
        };
        let all = self.keys().into_iter().map(content);
        all.filter_map(|(content, expires, key)| Some((key, (content?, expires))))
            .collect()
    }

    pub fn content(&self, key: &str) -> Option<Content> {
        let kind = self.text(&["TYPE", key]).unwrap();
        Some(match kind.as_str() {
            "string" => Content::Text(self.text(&["GET", key])?),
            "hash" => Content::Hash(self.hash(key)),
            "list" => Content::List(self.texts(&["LRANGE", key, "0", "-1"])),
            "zset" => Content::Scores(pairs(&self.ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]))),
            "stream" => Content::Stream(self.try_stream(key)?),
            "none" => return None,
            other => panic!("{key} is a {other}"),
        })
    }

    pub fn stream(&self, key: &str) -> Stream {
        self.try_stream(key).unwrap_or_default()
    }

    /// None if there is none, or if it went while it was looked at: others may be at work.
    fn try_stream(&self, key: &str) -> Option<Stream> {
        if self.text(&["TYPE", key]).as_deref() != Some("stream") {
            return None;
        }
        let groups = self.unless_gone(&["XINFO", "GROUPS", key])?;
        let groups = list(&groups).iter().map(|group| {
            let facts = pairs(group);
            let name = facts["name"].clone();
            let pending = self.unless_gone(&["XPENDING", key, &name, "-", "+", "1000"])?;
            let pending = list(&pending).iter().map(|row| {
                let row: Vec<String> = list(row).iter().map(text).collect();
                (row[0].clone(), row[1].clone())
            });
            let group = Group {
                delivered: facts["last-delivered-id"].clone(),
                pending: pending.collect(),
            };
            Some((name, group))
        });
        let groups = groups.collect::<Option<_>>()?;
        let facts = self.unless_gone(&["XINFO", "STREAM", key])?;
        let last = list(&facts)
            .chunks(2)
            .find(|pair| text(&pair[0]) == "last-generated-id")
            .map(|pair| text(&pair[1]));
        let entries = self.ask(&["XRANGE", key, "-", "+"]);
        let entries = list(&entries).iter().map(|row| {
            let row = list(row);
            (text(&row[0]), pairs(&row[1]))
        });
        Some(Stream {
            entries: entries.collect(),
            last: last.unwrap(),
            groups,
        })
    }

    #[track_caller]
    fn unless_gone(&self, words: &[&str]) -> Option<Value> {
        match self.try_ask(words) {
            Ok(answer) => Some(answer),
            Err(error) if error.code() == Some("NOGROUP") || error.to_string().contains("no such key") => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Who has ever taken from a queue and is not forgotten. Not part of what is compared: reading makes it.
    pub fn consumers(&self, queue: &str) -> Vec<String> {
        let consumers = self.ask(&["XINFO", "CONSUMERS", queue, "workers"]);
        let mut names: Vec<String> = list(&consumers)
            .iter()
            .map(|facts| pairs(facts)["name"].clone())
            .collect();
        names.sort_unstable();
        names
    }

    pub fn save(&self) -> Saved {
        let save = |key: String| {
            let Value::BulkString(bytes) = self.ask(&["DUMP", &key]) else {
                panic!("{key} is gone")
            };
            let ttl = self.text(&["PTTL", &key]).unwrap().parse().unwrap_or(0);
            (key, bytes, ttl)
        };
        self.keys().into_iter().map(save).collect()
    }

    pub fn restore(&self, saved: &Saved) {
        self.ask(&["FLUSHALL"]);
        for (key, bytes, ttl) in saved {
            let ttl = ttl.to_string();
            let words: [&[u8]; 4] = [b"RESTORE", key.as_bytes(), ttl.as_bytes(), bytes];
            self.ask(&words);
        }
    }
}

pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Nil => String::new(),
        other => panic!("not a text: {other:?}"),
    }
}

pub fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        other => panic!("not a list: {other:?}"),
    }
}

fn pairs(value: &Value) -> BTreeMap<String, String> {
    list(value)
        .chunks(2)
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .collect()
}
