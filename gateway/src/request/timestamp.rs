//! Moments as clients write them: RFC 3339 in UTC with `Z`, nothing else.

use chrono::{DateTime, Utc};

/// Reads `2026-11-30T10:39:06Z` with up to nine digits of fraction. An offset is refused even when it is zero, and so is a
/// leap second: the time would not be what was written.
pub(super) fn parse(text: &str) -> Option<DateTime<Utc>> {
    let (whole, rest) = text.split_at_checked(19)?;
    let fits = whole
        .bytes()
        .zip(*b"0000-00-00T00:00:00")
        .all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            mark => byte == mark,
        });
    let fraction = match rest.strip_suffix('Z')? {
        "" => true,
        digits => {
            let digits = digits.strip_prefix('.')?;
            (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
    };
    // Zero is no year of the protocol's timestamps.
    if !fits || !fraction || whole.ends_with(":60") || whole.starts_with("0000") {
        return None;
    }
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_utc_are_read_with_up_to_nine_digits() {
        for (text, nanos) in [
            ("2026-11-30T10:39:06Z", 0),
            ("2026-11-30T10:39:06.3Z", 300_000_000),
            ("2026-11-30T10:39:06.380Z", 380_000_000),
            ("2026-11-30T10:39:06.380123456Z", 380_123_456),
            ("2026-11-30T10:39:06.000000001Z", 1),
        ] {
            let time = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (time.timestamp(), time.timestamp_subsec_nanos()),
                (1_796_035_146, nanos),
                "{text}"
            );
        }
        for text in [
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
            "2024-02-29T00:00:00Z",
        ] {
            assert!(parse(text).is_some(), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "Z",
            "2026-11-30",
            "2026-11-30T10:39:06",
            "2026-11-30T10:39:06+00:00",
            "2026-11-30T10:39:06.380+01:00",
            "2026-11-30T10:39:06-00:00",
            "2026-11-30T10:39:06.Z",
            "2026-11-30T10:39:06.1234567890Z",
            "2026-11-30T10:39:06,5Z",
            "2026-11-30 10:39:06Z",
            "2026-11-30t10:39:06z",
            "2026-11-30T10:39Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T10:39:60Z",
            "2026-13-30T10:39:06Z",
            "2026-02-29T10:39:06Z",
            "0000-01-01T00:00:00Z",
            "+2026-11-30T10:39:06Z",
            "1796035146",
            "\u{662}026-11-30T10:39:06Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
