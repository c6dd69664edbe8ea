//! Paging through tasks: newest status first, ties by id; a page token names the last task seen and the filter it belongs to.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::ids::TaskId;

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

/// Writes a token. `filter` is any text that describes filter and scope; the token is only good with the same text.
pub fn write(place: Place, filter: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("1.{}.{}.{}", place.time, place.task, mark(filter)))
}

/// Reads a token back.
///
/// # Errors
/// [`PageTokenError`] for anything that [`write`] did not write for this filter.
pub fn read(token: &str, filter: &str) -> Result<Place, PageTokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_wrong| PageTokenError)?;
    let text = String::from_utf8(bytes).map_err(|_wrong| PageTokenError)?;
    let mut parts = text.split('.');
    let (Some("1"), Some(time), Some(task), Some(found), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(PageTokenError);
    };
    if found != mark(filter) {
        return Err(PageTokenError);
    }
    let time = time.parse().map_err(|_wrong| PageTokenError)?;
    Ok(Place {
        time,
        task: TaskId::parse(task).ok_or(PageTokenError)?,
    })
}

fn mark(filter: &str) -> String {
    let mut mark = URL_SAFE_NO_PAD.encode(Sha256::digest(filter.as_bytes()));
    mark.truncate(16);
    mark
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
}
