//! Which bytes of a content a client wants: one range, or everything. RFC 9110, section 14.

use axum::http::HeaderMap;
use axum::http::header::{IF_RANGE, RANGE};

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Range {
    /// Everything.
    All,
    /// These bytes, at least one.
    Bytes(std::ops::Range<u64>),
    /// A range that the content does not reach.
    Nowhere,
}

impl Range {
    /// Of a content of `size` bytes under this strong mark. What is not understood, or is several ranges, is passed over: the client
    /// gets everything, as it would from a server that knows no ranges.
    pub(super) fn of(headers: &HeaderMap, mark: &str, size: u64) -> Self {
        let mut values = headers.get_all(RANGE).into_iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Self::All;
        };
        // Dates are no strong marks of something that was written within the second.
        if headers
            .get(IF_RANGE)
            .is_some_and(|known| known.as_bytes() != mark.as_bytes())
        {
            return Self::All;
        }
        let range = value.to_str().ok().and_then(|text| read(text, size));
        range.unwrap_or(Self::All)
    }
}

fn read(text: &str, size: u64) -> Option<Range> {
    let (unit, set) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let range = match (first.trim(), last.trim()) {
        ("", last) => size.saturating_sub(number(last)?)..size,
        (first, "") => number(first)?..size,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(size)
        }
    };
    Some(if range.is_empty() {
        Range::Nowhere
    } else {
        Range::Bytes(range)
    })
}

/// Digits; more than fit are as many as there can be.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const MARK: &str = "\"abc\"";

    fn of(range: &str, if_range: Option<&str>, size: u64) -> Range {
        let mut headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_str(range).unwrap())]);
        if let Some(known) = if_range {
            headers.insert(IF_RANGE, HeaderValue::from_str(known).unwrap());
        }
        Range::of(&headers, MARK, size)
    }

    #[test]
    fn one_range_is_read_as_the_standard_says() {
        for (range, expected) in [
            ("bytes=0-0", Range::Bytes(0..1)),
            ("bytes=2-4", Range::Bytes(2..5)),
            ("Bytes= 2 - 4", Range::Bytes(2..5)),
            ("bytes=9-", Range::Bytes(9..10)),
            ("bytes=0-", Range::Bytes(0..10)),
            ("bytes=5-99999999999999999999999", Range::Bytes(5..10)),
            ("bytes=-3", Range::Bytes(7..10)),
            ("bytes=-11", Range::Bytes(0..10)),
            ("bytes=10-", Range::Nowhere),
            ("bytes=10-12", Range::Nowhere),
            ("bytes=99999999999999999999999-", Range::Nowhere),
            ("bytes=-0", Range::Nowhere),
            ("bytes=4-2", Range::All),
            ("bytes=0-1,3-4", Range::All),
            ("bytes=", Range::All),
            ("bytes=-", Range::All),
            ("bytes=+1-2", Range::All),
            ("bytes=a-b", Range::All),
            ("items=0-1", Range::All),
            ("0-1", Range::All),
        ] {
            assert_eq!(of(range, None, 10), expected, "{range}");
        }
    }

    #[test]
    fn of_nothing_there_is_no_range() {
        for range in ["bytes=0-", "bytes=0-0", "bytes=-1"] {
            assert_eq!(of(range, None, 0), Range::Nowhere, "{range}");
        }
    }

    #[test]
    fn a_range_of_something_else_is_everything() {
        assert_eq!(of("bytes=0-1", Some(MARK), 10), Range::Bytes(0..2));
        for other in ["\"abd\"", "W/\"abc\"", "Tue, 15 Nov 1994 08:12:31 GMT", "*"] {
            assert_eq!(of("bytes=0-1", Some(other), 10), Range::All, "{other}");
        }
        let mut twice = HeaderMap::new();
        twice.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        twice.append(RANGE, HeaderValue::from_static("bytes=2-3"));
        assert_eq!(Range::of(&twice, MARK, 10), Range::All);
        assert_eq!(Range::of(&HeaderMap::new(), MARK, 10), Range::All);
    }
}
