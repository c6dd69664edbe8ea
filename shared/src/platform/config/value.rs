//! Value types of settings: how each is written, read and printed.
//!
//! A value is parsed into its real type at once; nothing but text stays a `String`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Ten years. A longer wait is a typing error, and adding it to a clock could overflow.
const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// A type a setting can have.
pub trait Setting: Sized {
    /// The form of the value: completes "must be …".
    const EXPECTED: &'static str;
    /// Whether the empty text leaves it unset.
    const OPTIONAL: bool = false;
    /// Whether its value is never shown.
    const SECRET: bool = false;
    /// Whether it is an array in TOML.
    const LIST: bool = false;

    /// Reads the value as an operator writes it in the environment or on the command line.
    fn parse(text: &str) -> Option<Self>;

    /// Reads the value from TOML. A scalar is read like its text, so `slots = 64` and `slots = "64"` are one.
    fn from_toml(value: &toml::Value) -> Option<Self> {
        scalar_text(value).and_then(|text| Self::parse(&text))
    }

    /// The value as TOML, `None` when unset, masked where secret.
    fn print(&self) -> Option<String>;

    /// How a text that may not even parse is shown in an error.
    fn mask(text: &str) -> String {
        text.to_owned()
    }
}

/// `text` as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// The text of a TOML scalar; `None` for an array or a table.
pub(super) fn scalar_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}

/// Types whose text is what `FromStr` reads and `Display` writes: numbers and truth bare, the rest quoted.
macro_rules! plain {
    ($($type:ty, $expected:literal, $print:expr;)+) => {$(
        impl Setting for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Option<Self> {
                text.trim().parse().ok()
            }

            fn print(&self) -> Option<String> {
                let print: fn(String) -> String = $print;
                Some(print(self.to_string()))
            }
        }
    )+};
}

plain! {
    bool, "true or false", |text| text;
    u16, "a whole number up to 65535", |text| text;
    u32, "a whole number up to 4294967295", |text| text;
    u64, "a whole number", |text| text;
    usize, "a whole number", |text| text;
    NonZeroUsize, "a whole number above zero", |text| text;
    SocketAddr, "an address and port such as \"127.0.0.1:41242\"", |text| quoted(&text);
}

impl Setting for f64 {
    const EXPECTED: &'static str = "a number such as 0.85";

    fn parse(text: &str) -> Option<Self> {
        text.trim().parse().ok().filter(|number: &Self| number.is_finite())
    }

    fn print(&self) -> Option<String> {
        Some(toml::Value::Float(*self).to_string())
    }
}

impl Setting for String {
    const EXPECTED: &'static str = "text that is not empty";

    fn parse(text: &str) -> Option<Self> {
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    }

    fn print(&self) -> Option<String> {
        Some(quoted(self))
    }
}

impl Setting for PathBuf {
    const EXPECTED: &'static str = "a path";

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self::from(text))
    }

    fn print(&self) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a duration such as \"250ms\", \"15s\" or \"24h\" (at most ten years)";

    fn parse(text: &str) -> Option<Self> {
        humantime::parse_duration(text.trim())
            .ok()
            .filter(|duration| *duration <= LONGEST)
    }

    fn print(&self) -> Option<String> {
        Some(quoted(&print_duration(*self)))
    }
}

/// A duration in the largest unit that holds it exactly: `"90s"`, `"7d"`, `"1500ms"`.
pub fn print_duration(duration: Duration) -> String {
    const UNITS: [(u128, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let nanos = duration.as_nanos();
    let exact = UNITS.iter().find(|(size, _)| nanos > 0 && nanos.is_multiple_of(*size));
    exact.map_or_else(|| "0s".to_owned(), |(size, unit)| format!("{}{unit}", nanos / size))
}

impl<T: Setting> Setting for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const OPTIONAL: bool = true;
    const SECRET: bool = T::SECRET;
    const LIST: bool = T::LIST;

    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            Some(None)
        } else {
            T::parse(text).map(Some)
        }
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::String(text) => Self::parse(text),
            other => T::from_toml(other).map(Some),
        }
    }

    fn print(&self) -> Option<String> {
        self.as_ref().and_then(Setting::print)
    }

    fn mask(text: &str) -> String {
        T::mask(text)
    }
}

impl Setting for Vec<String> {
    const EXPECTED: &'static str = "a list of texts: an array in TOML, comma-separated elsewhere";
    const LIST: bool = true;

    fn parse(text: &str) -> Option<Self> {
        Some(
            text.split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        let item = |item: &toml::Value| item.as_str().and_then(String::parse);
        value.as_array()?.iter().map(item).collect()
    }

    fn print(&self) -> Option<String> {
        Some(toml::Value::Array(self.iter().cloned().map(toml::Value::String).collect()).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit_only() {
        assert_eq!(Duration::parse("15s"), Some(Duration::from_secs(15)));
        assert_eq!(Duration::parse(" 250ms "), Some(Duration::from_millis(250)));
        assert_eq!(Duration::parse("24h"), Some(Duration::from_hours(24)));
        assert_eq!(Duration::parse("0s"), Some(Duration::ZERO));
        for wrong in ["15", "", "-1s", "s", "11y", "1e3s"] {
            assert_eq!(Duration::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_printed_duration_reads_back_as_itself() {
        for (text, printed) in [
            ("0s", "0s"),
            ("90s", "90s"),
            ("60s", "1m"),
            ("48h", "2d"),
            ("1500ms", "1500ms"),
            ("3us", "3us"),
            ("7ns", "7ns"),
        ] {
            let duration = Duration::parse(text).unwrap();
            assert_eq!(print_duration(duration), printed);
            assert_eq!(Duration::parse(printed), Some(duration));
        }
    }

    #[test]
    fn the_empty_text_leaves_an_optional_value_unset() {
        assert_eq!(Option::<Duration>::parse(""), Some(None));
        assert_eq!(Option::<Duration>::parse("1s"), Some(Some(Duration::from_secs(1))));
        assert_eq!(Option::<Duration>::parse("soon"), None);
        assert_eq!(None::<Duration>.print(), None);
    }

    #[test]
    fn numbers_are_refused_beyond_their_range() {
        assert_eq!(u16::parse("65536"), None);
        assert_eq!(NonZeroUsize::parse("0"), None);
        assert_eq!(u32::parse("-1"), None);
        assert_eq!(f64::parse("NaN"), None);
        assert_eq!(f64::parse("inf"), None);
    }

    #[test]
    fn lists_are_arrays_in_toml_and_comma_separated_elsewhere() {
        let list = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(Vec::<String>::parse(" a, b,,"), Some(list.clone()));
        assert_eq!(
            Vec::<String>::from_toml(&toml::Value::from(vec!["a", "b"])),
            Some(list.clone())
        );
        assert_eq!(Vec::<String>::from_toml(&toml::Value::from("a,b")), None);
        assert_eq!(Vec::<String>::from_toml(&toml::Value::from(vec![1, 2])), None);
        assert_eq!(list.print().unwrap(), r#"["a", "b"]"#);
    }

    #[test]
    fn a_toml_scalar_is_read_like_its_text() {
        assert_eq!(u32::from_toml(&toml::Value::Integer(64)), Some(64));
        assert_eq!(u32::from_toml(&toml::Value::from("64")), Some(64));
        assert_eq!(f64::from_toml(&toml::Value::Float(0.5)), Some(0.5));
        assert_eq!(bool::from_toml(&toml::Value::Boolean(true)), Some(true));
        assert_eq!(Duration::from_toml(&toml::Value::Integer(15)), None);
        assert_eq!(u32::from_toml(&toml::Value::Table(toml::Table::new())), None);
    }
}
