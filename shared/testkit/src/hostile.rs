//! Hostile input for property tests: JSON that is nearly what a reader expects, and texts that were damaged on their way.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Number, Value};

/// JSON of any form whose members have mostly these names, and whose texts are often these.
pub fn json(names: &'static [&'static str], texts: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Number::from),
        (-2_i64..102).prop_map(Number::from),
        any::<f64>().prop_map(|number| Number::from_f64(number).unwrap_or_else(|| 0.into())),
    ];
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => number.prop_map(Value::Number),
        1 => any::<String>().prop_map(Value::String),
        4 => select(texts).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, move |inner| {
        let name = prop_oneof![
            8 => select(names).prop_map(str::to_owned),
            1 => ".{0,8}",
        ];
        let object = vec((name, inner.clone()), 0..8).prop_map(|members| Value::Object(Map::from_iter(members)));
        prop_oneof![3 => object, 1 => vec(inner, 0..6).prop_map(Value::Array)]
    })
}

/// What may happen to a text.
#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Cut(Index, usize),
    Put(Index, Vec<u8>),
    Double(Index, usize),
}

/// One of these texts with up to five places damaged.
pub fn damaged(samples: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), select(br#"{}[]",:\0123456789-+.eEu/%&=?"#.as_slice())];
    let damage = prop_oneof![
        (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<Index>(), 1_usize..20).prop_map(|(at, length)| Damage::Cut(at, length)),
        (any::<Index>(), vec(byte, 1..8)).prop_map(|(at, bytes)| Damage::Put(at, bytes)),
        (any::<Index>(), 1_usize..40).prop_map(|(at, length)| Damage::Double(at, length)),
    ];
    (select(samples), vec(damage, 0..6)).prop_map(|(sample, damages)| {
        let mut text = sample.as_bytes().to_vec();
        for damage in damages {
            text = damage.done_to(text);
        }
        text
    })
}

impl Damage {
    fn done_to(self, mut text: Vec<u8>) -> Vec<u8> {
        let place = |at: Index| at.index(text.len() + 1);
        match self {
            Self::Set(at, byte) => {
                let at = place(at);
                if let Some(found) = text.get_mut(at) {
                    *found = byte;
                }
            }
            Self::Cut(at, length) => {
                let at = place(at);
                text.drain(at..text.len().min(at + length));
            }
            Self::Put(at, bytes) => {
                let at = place(at);
                text.splice(at..at, bytes);
            }
            Self::Double(at, length) => {
                let at = place(at);
                let part: Vec<u8> = text.iter().skip(at).take(length).copied().collect();
                text.splice(at..at, part);
            }
        }
        text
    }
}
