//! Counting what a stretch of work made Redis do.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use relevo_testkit::RedisServer;

/// How often each command was executed so far, in scripts or not.
pub fn executed(redis: &RedisServer) -> BTreeMap<String, u64> {
    let calls = |value: &str| value.strip_prefix("calls=")?.split(',').next()?.parse().ok();
    let stats = redis.info("commandstats");
    stats
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?.to_owned(), calls(value)?)))
        .filter(|(name, _)| name != "info")
        .collect()
}

/// Watches what clients ask until it is stopped.
pub fn monitor(redis: &RedisServer) -> Monitor {
    let mut stream = UnixStream::connect(redis.socket()).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let socket = stream.try_clone().unwrap();
    let counting = std::thread::spawn(move || {
        let mut asked = BTreeMap::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // What scripts do is marked as theirs.
            if line.starts_with('+') && !line.contains(" lua] ") {
                let command = line.split('"').nth(1).unwrap_or_default().to_ascii_lowercase();
                *asked.entry(command).or_insert(0_u64) += 1;
            }
        }
        asked.remove("");
        asked
    });
    Monitor { socket, counting }
}

pub struct Monitor {
    socket: UnixStream,
    counting: std::thread::JoinHandle<BTreeMap<String, u64>>,
}

impl Monitor {
    /// Ends it; returns how often each command was asked.
    pub fn stop(self) -> BTreeMap<String, u64> {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
        self.counting.join().unwrap()
    }
}
