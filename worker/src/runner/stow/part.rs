//! Which parts belong into the artifact store, what is stored of them, and what is left. Pure.

use std::fmt::Write as _;

use a2a::{Part, PartContent};
use bytes::Bytes;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::objects::Digest;
use serde_json::json;

/// The media type of what nobody knows.
pub(super) const ANY_TYPE: &str = "application/octet-stream";

/// What is stored of a part.
pub(super) struct Content {
    pub(super) bytes: Bytes,
    pub(super) media_type: String,
}

/// Whether a part belongs into the store: many bytes, or something that fits into no event.
pub(super) fn takes(part: &Part, inline_max: usize, fits_nowhere: bool) -> bool {
    match &part.content {
        PartContent::Raw(bytes) => bytes.len() > inline_max || fits_nowhere,
        PartContent::Text(_) | PartContent::Data(_) => fits_nowhere,
        PartContent::Url(_) => false,
    }
}

/// Takes the content out of a part; `None` when it has more than `most` bytes, or is a URL.
pub(super) fn content(part: &mut Part, most: u64) -> Option<Content> {
    let (length, media_type) = match &part.content {
        PartContent::Raw(bytes) => (bytes.len(), ANY_TYPE),
        PartContent::Text(text) => (text.len(), "text/plain; charset=utf-8"),
        PartContent::Data(value) => (value.to_string().len(), "application/json"),
        PartContent::Url(_) => return None,
    };
    if length as u64 > most {
        return None;
    }
    let bytes = match std::mem::replace(&mut part.content, PartContent::Url(String::new())) {
        PartContent::Raw(bytes) => bytes,
        PartContent::Text(text) | PartContent::Url(text) => text.into_bytes(),
        PartContent::Data(value) => value.to_string().into_bytes(),
    };
    Some(Content {
        bytes: bytes.into(),
        media_type: part.media_type.clone().unwrap_or_else(|| media_type.to_owned()),
    })
}

/// Where a content is.
pub(super) struct Place {
    pub(super) url: String,
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// Whether the metadata is to have everything that the reference server's has.
    pub(super) seed: bool,
}

impl Place {
    /// Makes the part one that says where its content is. Metadata of these names is the server's.
    pub(super) fn put_into(self, part: &mut Part) {
        let metadata = part.metadata.get_or_insert_default();
        metadata.insert("byteSize".to_owned(), json!(self.size));
        metadata.insert("sha256".to_owned(), json!(self.digest.to_string()));
        if self.seed {
            metadata.insert("uri".to_owned(), json!(self.url));
            metadata.insert("mediaType".to_owned(), json!(self.media_type));
        }
        part.media_type = Some(self.media_type);
        part.content = PartContent::Url(self.url);
    }
}

/// Where a gateway serves it: below the tenant in which the task is, if there is one.
pub(super) fn url(base: &str, record: &TurnRecord, digest: Digest) -> String {
    let tenant = match record.sender.tenant.as_str() {
        "" => String::new(),
        tenant => format!("/{}", segment(tenant)),
    };
    format!("{base}{tenant}/artifacts/{}/{digest}", record.task)
}

/// A text as one segment of a path.
fn segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
}

#[cfg(test)]
mod tests;
