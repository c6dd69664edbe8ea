//! Asking Redis without starting a program for each question: tests ask often, on machines that have better to do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::{io, iter};

/// The nodes of a Redis; whichever serves a key answers.
pub struct Resp(Vec<Node>);

/// One connection, opened when it is needed and again after Redis was restarted.
struct Node {
    socket: PathBuf,
    connection: Mutex<Option<BufReader<UnixStream>>>,
}

impl Resp {
    pub fn new(sockets: impl IntoIterator<Item = PathBuf>) -> Self {
        let node = |socket| Node {
            socket,
            connection: Mutex::new(None),
        };
        Self(sockets.into_iter().map(node).collect())
    }

    /// The reply as its texts in order, however they are nested; nothing for nil.
    pub fn ask(&self, command: &[&str]) -> Vec<String> {
        let mut answer = Err(String::from("there is no node"));
        for node in &self.0 {
            answer = node.ask(command);
            if !matches!(&answer, Err(error) if error.starts_with("MOVED")) {
                break;
            }
        }
        answer.unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The same of every node.
    pub fn ask_all(&self, command: &[&str]) -> Vec<String> {
        let all = self.0.iter().flat_map(|node| node.ask(command).unwrap());
        all.collect()
    }

    /// The only text of a reply; empty for nil.
    pub fn text(&self, command: &[&str]) -> String {
        self.ask(command).concat()
    }
}

impl Node {
    fn ask(&self, command: &[&str]) -> Result<Vec<String>, String> {
        let mut connection = self.connection.lock().unwrap();
        // A connection of before a restart fails at once, and these commands may be repeated.
        let kept = connection.as_mut().and_then(|open| exchange(open, command).ok());
        kept.unwrap_or_else(|| {
            let stream = UnixStream::connect(&self.socket).unwrap();
            exchange(connection.insert(BufReader::new(stream)), command).unwrap()
        })
    }
}

/// `Ok(Err)`: Redis answered with an error.
fn exchange(open: &mut BufReader<UnixStream>, command: &[&str]) -> io::Result<Result<Vec<String>, String>> {
    let head = format!("*{}\r\n", command.len());
    let words = command.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let request: String = iter::once(head).chain(words).collect();
    open.get_mut().write_all(request.as_bytes())?;
    let mut texts = Vec::new();
    let mut wanted = 1_usize;
    while wanted > 0 {
        wanted -= 1;
        let mut line = String::new();
        open.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let (kind, rest) = line.split_at(1);
        match kind {
            "-" => return Ok(Err(rest.to_owned())),
            "*" => wanted += rest.parse::<usize>().unwrap_or(0),
            "$" => {
                if let Ok(length) = rest.parse::<usize>() {
                    let mut bytes = vec![0; length + 2];
                    open.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    texts.push(String::from_utf8_lossy(&bytes).into_owned());
                }
            }
            _ => texts.push(rest.to_owned()),
        }
    }
    Ok(Ok(texts))
}
