//! Asking Redis, and counting what a stretch of work made it do.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A connection that asks by inline commands: enough for INFO and MONITOR.
pub struct Resp {
    socket: PathBuf,
}

impl Resp {
    pub fn new(socket: impl AsRef<Path>) -> Self {
        Self {
            socket: socket.as_ref().to_owned(),
        }
    }

    fn open(&self, command: &str) -> BufReader<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// The lines of a section of INFO, as names and values.
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let mut reader = self.open(&format!("INFO {section}"));
        let mut head = String::new();
        reader.read_line(&mut head).unwrap();
        let length: usize = head.trim_start_matches('$').trim().parse().unwrap();
        let mut bytes = vec![0; length];
        std::io::Read::read_exact(&mut reader, &mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let pair = |line: &str| {
            line.split_once(':')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        text.lines().filter_map(pair).collect()
    }

    /// How often each command was executed so far, in scripts or not.
    pub fn executed(&self) -> BTreeMap<String, u64> {
        let calls = |value: &str| value.strip_prefix("calls=")?.split(',').next()?.parse().ok();
        let stats = self.info("commandstats");
        stats
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?.to_owned(), calls(value)?)))
            .filter(|(name, _)| name != "info")
            .collect()
    }

    pub fn used_memory(&self) -> f64 {
        self.info("memory")["used_memory"].trim().parse().unwrap()
    }

    /// Watches what clients ask until it is stopped; returns how often each command was asked.
    pub fn monitor(&self) -> Monitor {
        let stream = self.open("MONITOR");
        let socket = stream.get_ref().try_clone().unwrap();
        let counting = std::thread::spawn(move || {
            let mut asked = BTreeMap::new();
            for line in stream.lines().map_while(Result::ok) {
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
}

pub struct Monitor {
    socket: UnixStream,
    counting: std::thread::JoinHandle<BTreeMap<String, u64>>,
}

impl Monitor {
    pub fn stop(self) -> BTreeMap<String, u64> {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
        self.counting.join().unwrap()
    }
}
