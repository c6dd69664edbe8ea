//! Paging through tasks: newest status first, ties by id. A page token names the last task seen and is good for one listing.
//!
//! A token carries a digest over the place and the listing it belongs to, so that a token of another listing or one that was
//! changed is refused. The digest has no key: who computes one gains a place in a listing of its own, no more.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::ids::TaskId;

/// What tokens begin with: their form and what they are for.
const FORM: &str = "2t";
/// Characters of a digest: 132 bits.
const DIGEST: usize = 22;

/// Where a page ended. Tasks are ordered by (status time, id), both descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Status time, ms.
    pub time: u64,
    /// Task.
    pub task: TaskId,
}

/// The token is not one of ours, or belongs to another filter or scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a page token of this listing")]
pub struct PageTokenError;

/// Writes a token. `listing` is any text that describes scope and filters; the token is only good with the same text.
pub fn write(place: Place, listing: &str) -> String {
    let place = format!("{FORM}.{}.{}", place.time, place.task);
    let digest = digest(&place, listing);
    URL_SAFE_NO_PAD.encode(format!("{place}.{digest}"))
}

/// Reads a token back.
///
/// # Errors
/// [`PageTokenError`] for anything that [`write`] did not write for this listing.
pub fn read(token: &str, listing: &str) -> Result<Place, PageTokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_wrong| PageTokenError)?;
    let text = String::from_utf8(bytes).map_err(|_wrong| PageTokenError)?;
    let (place, found) = text.rsplit_once('.').ok_or(PageTokenError)?;
    if found != digest(place, listing) {
        return Err(PageTokenError);
    }
    let mut parts = place.split('.');
    let (Some(FORM), Some(time), Some(task), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(PageTokenError);
    };
    Ok(Place {
        time: time.parse().map_err(|_wrong| PageTokenError)?,
        task: TaskId::parse(task).ok_or(PageTokenError)?,
    })
}

/// Over two texts that cannot run into each other: the first is preceded by its length.
fn digest(place: &str, listing: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update((place.len() as u64).to_be_bytes());
    hasher.update(place);
    hasher.update(listing);
    let mut digest = URL_SAFE_NO_PAD.encode(hasher.finalize());
    digest.truncate(DIGEST);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Partition;

    #[test]
    fn a_token_is_good_only_for_its_own_listing() {
        let place = Place {
            time: 17,
            task: TaskId::new(17, Partition(3), 9),
        };
        let token = write(place, "scope|WORKING");
        assert_eq!(read(&token, "scope|WORKING"), Ok(place));
        assert_eq!(read(&token, "other|WORKING"), Err(PageTokenError));
        for bad in ["", "!", "AAAA", &token[1..], &format!("{token}AA")] {
            assert_eq!(read(bad, "scope|WORKING"), Err(PageTokenError), "{bad}");
        }
    }

    #[test]
    fn a_token_that_was_changed_anywhere_is_refused() {
        let task = TaskId::new(1_796_035_146_000, Partition(63), 9);
        let token = write(
            Place {
                time: 1_796_035_146_380,
                task,
            },
            "listing",
        );
        for place in 0..token.len() {
            for other in ('A'..='Z')
                .chain('a'..='z')
                .chain('0'..='9')
                .chain(['-', '_', '=', 'é'])
            {
                let changed: String = token
                    .chars()
                    .enumerate()
                    .map(|(at, letter)| if at == place { other } else { letter })
                    .collect();
                assert_eq!(read(&changed, "listing").is_ok(), changed == token, "{changed}");
            }
        }
    }
}

#[cfg(test)]
mod hostile {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_not_written_for_a_listing_is_no_token_of_it(
            text in any::<String>(),
            inner in "2t[.][0-9]{0,21}[.][0-9a-f-]{0,40}[.][A-Za-z0-9_-]{22}",
            listing in any::<String>(),
        ) {
            prop_assert_eq!(read(&text, &listing), Err(PageTokenError));
            prop_assert_eq!(read(&URL_SAFE_NO_PAD.encode(inner), &listing), Err(PageTokenError));
        }
    }
}
