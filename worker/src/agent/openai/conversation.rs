//! What was said before in a context, as items of the agent's session: each is one message just as it was sent to the model. Pure.
//!
//! An exchange, what the user said and what the model answered, is added in one step when its answer is whole. So a turn that failed
//! or was canceled leaves nothing, and no attempt meets what another one of the same turn said.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::agent::SESSION_ITEMS;

/// Most bytes of a message as JSON: two of them fit into what a session takes at once.
pub(super) const LONGEST: usize = 500 << 10;

/// A message as it is sent, byte for byte.
pub(super) type Sent = Box<RawValue>;

/// The conversation of a context.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// How many items the session has.
    length: u64,
    exchanges: Vec<[Sent; 2]>,
}

#[derive(Deserialize)]
struct Item {
    role: String,
    #[serde(rename = "content")]
    _content: IgnoredAny,
}

impl Conversation {
    /// Reads a session. What is no exchange was left by an agent of another kind under the same name, and is passed over.
    pub(super) fn read(items: &[Vec<u8>]) -> Self {
        let mut exchanges = Vec::new();
        let mut asked: Option<Sent> = None;
        for item in items {
            let role = serde_json::from_slice::<Item>(item).map(|item| item.role);
            let sent = serde_json::from_slice::<Sent>(item);
            match (role.as_deref(), sent) {
                (Ok("user"), Ok(sent)) => asked = Some(sent),
                (Ok("assistant"), Ok(sent)) => exchanges.extend(asked.take().map(|asked| [asked, sent])),
                _ => asked = None,
            }
        }
        Self {
            length: items.len() as u64,
            exchanges,
        }
    }

    /// How many items the session has.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Whether nothing can be added.
    pub(super) const fn is_full(&self) -> bool {
        self.length + 2 > SESSION_ITEMS
    }

    /// The newest exchanges that are at most so many messages and bytes together, in their order.
    pub(super) fn recent(&self, messages: u32, bytes: u64) -> impl Iterator<Item = &Sent> {
        let mut left = (u64::from(messages) / 2, bytes);
        let fits = |exchange: &&[Sent; 2]| {
            let size: u64 = exchange.iter().map(|sent| sent.get().len() as u64).sum();
            let fits = left.0 > 0 && size <= left.1;
            left = (left.0.saturating_sub(1), left.1.saturating_sub(size));
            fits
        };
        let count = self.exchanges.iter().rev().take_while(fits).count();
        self.exchanges.iter().skip(self.exchanges.len() - count).flatten()
    }
}

/// A message of this role.
pub(super) fn message(role: &str, content: &Value) -> Result<Sent, serde_json::Error> {
    to_raw_value(&json!({ "role": role, "content": content }))
}

/// An exchange as items of the session.
pub(super) fn exchange(asked: &Sent, answer: &str) -> Result<Vec<Vec<u8>>, serde_json::Error> {
    let answer = message("assistant", &Value::from(answer))?;
    Ok([asked.get(), answer.get()].map(|sent| sent.as_bytes().to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::SESSION_BYTES;

    fn items(count: usize) -> Vec<Vec<u8>> {
        let one = |n: usize| exchange(&message("user", &json!(format!("q{n}"))).unwrap(), &format!("a{n}")).unwrap();
        (0..count).flat_map(one).collect()
    }

    fn recent(items: &[Vec<u8>], messages: u32, bytes: u64) -> Vec<String> {
        let conversation = Conversation::read(items);
        let content = |sent: &Sent| serde_json::from_str::<Value>(sent.get()).unwrap()["content"].to_string();
        conversation.recent(messages, bytes).map(content).collect()
    }

    #[test]
    fn messages_come_back_byte_for_byte() {
        let asked = message("user", &json!([{"type": "text", "text": "ä\u{1}\"1.0\""}])).unwrap();
        let items = exchange(&asked, "1e3 \u{2028}").unwrap();
        let conversation = Conversation::read(&items);
        let sent: Vec<&[u8]> = conversation
            .recent(2, 1 << 20)
            .map(|sent| sent.get().as_bytes())
            .collect();
        assert_eq!(sent, items);
        assert_eq!(conversation.length(), 2);
    }

    #[test]
    fn the_newest_whole_exchanges_are_sent() {
        let items = items(3);
        assert_eq!(recent(&items, 100, 1 << 20).len(), 6);
        for messages in [2, 3] {
            assert_eq!(recent(&items, messages, 1 << 20), ["\"q2\"", "\"a2\""]);
        }
        for none in [0, 1] {
            assert_eq!(recent(&items, none, 1 << 20), Vec::<String>::new());
        }
        let one = items.iter().take(2).map(Vec::len).sum::<usize>() as u64;
        assert_eq!(recent(&items, 100, 2 * one), ["\"q1\"", "\"a1\"", "\"q2\"", "\"a2\""]);
        assert_eq!(recent(&items, 100, 2 * one - 1), ["\"q2\"", "\"a2\""]);
        assert_eq!(recent(&items, 100, 1), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_exchange_is_passed_over() {
        let foreign: [&[u8]; 5] = [
            b"1",
            b"\"x\"",
            b"{\"role\":\"user\"}",
            b"no json",
            b"{\"role\":\"tool\",\"content\":1}",
        ];
        let mut all = items(1);
        all.extend(foreign.map(<[u8]>::to_vec));
        // Half an exchange.
        all.extend(items(1).into_iter().take(1));
        all.extend(items(2).into_iter().skip(2));
        assert_eq!(recent(&all, 100, 1 << 20), ["\"q0\"", "\"a0\"", "\"q1\"", "\"a1\""]);
        assert_eq!(Conversation::read(&all).length(), all.len() as u64);
    }

    #[test]
    fn two_of_the_longest_fit_into_one_step_and_a_session_has_an_end() {
        const { assert!(2 * LONGEST + 1024 < SESSION_BYTES) };
        let full = vec![b"1".to_vec(); usize::try_from(SESSION_ITEMS).unwrap() - 1];
        assert!(Conversation::read(&full).is_full());
        assert!(!Conversation::read(&full[1..]).is_full());
    }
}
