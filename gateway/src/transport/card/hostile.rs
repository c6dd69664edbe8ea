//! Hostile marks of caches: whatever they say, the card is sent, or known by exactly its own.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::tests::card;
use super::*;

/// What tags and times are made of; `OURS` stands for the card's own tag.
const PIECES: &[&str] = &[
    "*",
    "OURS",
    "W/",
    "W/OURS",
    "\"",
    "\"\"",
    "\"x\"",
    ",",
    ", ",
    "Fri, 01 Jan 2038 00:00:00 GMT",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    "-1",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => vec(select(PIECES), 0..5).prop_map(|pieces| pieces.concat().into_bytes()),
        1 => vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn marks_of_any_form_are_answered(tags in vec(value(), 0..4), since in option::of(value())) {
        let card = card("http://a", false);
        let ours = card.strict.etag.to_str().unwrap();
        let mut headers = HeaderMap::new();
        let mut own = false;
        let read = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes).replace("OURS", ours);
            HeaderValue::from_bytes(if bytes.is_ascii() { text.as_bytes() } else { &bytes }).ok()
        };
        for tag in tags.into_iter().filter_map(read) {
            let bytes = tag.as_bytes();
            own |= bytes.contains(&b'*') || bytes.windows(ours.len()).any(|part| part == ours.as_bytes());
            headers.append(IF_NONE_MATCH, tag);
        }
        if let Some(time) = since.and_then(read) {
            headers.insert(IF_MODIFIED_SINCE, time);
        }
        let status = card.respond(&headers, None).status().as_u16();
        prop_assert!(matches!(status, 200 | 304), "{status}");
        if headers.contains_key(IF_NONE_MATCH) && !own {
            prop_assert_eq!(status, 200);
        }
    }
}
