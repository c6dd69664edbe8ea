//! What a journal entry means for streams and waiters: field `k` = `<turn number>.<class>`.

use std::fmt;
use std::str::FromStr;

/// The class of a journal entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The turn goes on.
    Normal,
    /// Interrupted (AUTH_REQUIRED) while the turn lives.
    Waiting,
    /// Opens a later attempt; says which earlier entries are void.
    Boundary,
    /// The turn ended, the task is interrupted.
    Interrupted,
    /// The turn ended, the task is terminal.
    Terminal,
}

impl Class {
    /// The letter in the journal.
    pub fn letter(self) -> char {
        match self {
            Self::Normal => 'n',
            Self::Waiting => 'w',
            Self::Boundary => 'b',
            Self::Interrupted => 'i',
            Self::Terminal => 't',
        }
    }

    /// Whether the turn has ended with this entry.
    pub fn ends_turn(self) -> bool {
        matches!(self, Self::Interrupted | Self::Terminal)
    }
}

/// Turn number and class of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Which turn of the task, from 1.
    pub turn: u32,
    /// What the entry means.
    pub class: Class,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.class.letter())
    }
}

/// The text is not `<turn number>.<class>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an entry kind")]
pub struct KindError;

impl FromStr for Kind {
    type Err = KindError;

    fn from_str(text: &str) -> Result<Self, KindError> {
        let (turn, class) = text.split_once('.').ok_or(KindError)?;
        let class = match class {
            "n" => Class::Normal,
            "w" => Class::Waiting,
            "b" => Class::Boundary,
            "i" => Class::Interrupted,
            "t" => Class::Terminal,
            _ => return Err(KindError),
        };
        Ok(Self {
            turn: turn.parse().map_err(|_wrong| KindError)?,
            class,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_read_back_as_written() {
        for class in [
            Class::Normal,
            Class::Waiting,
            Class::Boundary,
            Class::Interrupted,
            Class::Terminal,
        ] {
            let kind = Kind { turn: 12, class };
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for bad in ["", "1", "1.", ".n", "1.x", "x.n", "-1.n"] {
            assert_eq!(bad.parse::<Kind>(), Err(KindError), "{bad}");
        }
    }
}
