//! What a Redis Cluster says of itself, read; and which of its errors say that what we know of it is out of date.

use redis::{ErrorKind, RedisError, Value};

use super::super::error::breaks_connection;
use super::super::script::text;

/// Slots that one primary serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Reads the reply of CLUSTER SLOTS. A node that announces no address is where the asked node is.
pub(super) fn parse(value: &Value, asked: &str) -> Result<Vec<Range>, RedisError> {
    let Value::Array(rows) = value else { return Err(wrong()) };
    rows.iter().map(|row| range(row, asked).ok_or_else(wrong)).collect()
}

fn range(row: &Value, asked: &str) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let [from, to, Value::Array(primary), ..] = row.as_slice() else {
        return None;
    };
    let host = primary
        .first()
        .and_then(text)
        .filter(|host| !matches!(host.as_str(), "" | "?"));
    Some(Range {
        from: text(from)?.parse().ok()?,
        to: text(to)?.parse().ok()?,
        host: host.unwrap_or_else(|| asked.to_owned()),
        port: text(primary.get(1)?)?.parse().ok()?,
    })
}

fn wrong() -> RedisError {
    RedisError::from((ErrorKind::Parse, "CLUSTER SLOTS is not readable"))
}

/// The error of a key whose slot nobody serves.
pub(in super::super) fn unserved() -> RedisError {
    RedisError::from((ErrorKind::ClusterConnectionNotFound, "no node serves the slot"))
}

/// Whether the cluster may be another than we know.
pub(super) fn is_stale(error: &RedisError) -> bool {
    breaks_connection(error)
        || error.kind() == ErrorKind::ClusterConnectionNotFound
        || matches!(error.code(), Some("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN"))
}

/// Where a MOVED says that the slot is, if it says so: host (empty: that of the asked node) and port.
pub(super) fn moved_to(error: &RedisError) -> Option<(&str, u16)> {
    if error.code() != Some("MOVED") {
        return None;
    }
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn error(line: &str) -> RedisError {
        parse_redis_value(line.as_bytes()).unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn ranges_name_their_primary() {
        let node = |host: &str| {
            Value::Array(vec![
                Value::BulkString(host.into()),
                Value::Int(7001),
                Value::BulkString("id".into()),
                Value::Array(Vec::new()),
            ])
        };
        let row = |host| Value::Array(vec![Value::Int(0), Value::Int(99), node(host), node("replica")]);
        let read = parse(&Value::Array(vec![row("10.0.0.1"), row("")]), "here").unwrap();
        let hosts: Vec<_> = read.iter().map(|r| (r.from, r.to, r.host.as_str(), r.port)).collect();
        assert_eq!(hosts, [(0, 99, "10.0.0.1", 7001), (0, 99, "here", 7001)]);
        assert_eq!(parse(&Value::Array(Vec::new()), "here").unwrap(), []);
        for bad in [Value::Nil, Value::Array(vec![Value::Int(1)])] {
            assert!(parse(&bad, "here").is_err());
        }
    }

    #[test]
    fn a_redirection_makes_the_map_stale_and_names_the_node() {
        let moved = error("-MOVED 7 ::1:7001\r\n");
        assert!(is_stale(&moved));
        assert_eq!(moved_to(&moved), Some(("::1", 7001)));
        assert_eq!(moved_to(&error("-MOVED 7 :7001\r\n")), Some(("", 7001)));
        for line in ["-ASK 7 a:1\r\n", "-TRYAGAIN x\r\n", "-CLUSTERDOWN x\r\n"] {
            assert!(is_stale(&error(line)) && moved_to(&error(line)).is_none(), "{line}");
        }
        for line in ["-NOSCRIPT x\r\n", "-OOM x\r\n", "-ERR x\r\n"] {
            assert!(!is_stale(&error(line)), "{line}");
        }
    }
}
