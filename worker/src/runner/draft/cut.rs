//! Cuts what an agent said into pieces that fit into events. Texts are cut, other parts are not.

use a2a::{Artifact, Message, Part, PartContent};

use super::OverLimit;

/// What a piece may be, and how many there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes of JSON of its parts.
    pub(super) bytes: usize,
    pub(super) pieces: u64,
}

/// Cuts a message into messages of the same id that fit.
pub(super) fn message(mut message: Message, room: Room) -> Result<Vec<Message>, OverLimit> {
    // Taken out, so that no piece is made from a copy of the whole.
    let groups = groups(std::mem::take(&mut message.parts), room)?;
    let piece = |parts| Message {
        parts,
        ..message.clone()
    };
    Ok(groups.into_iter().map(piece).collect())
}

/// Cuts an artifact into chunks that fit.
pub(super) fn artifact(mut artifact: Artifact, room: Room) -> Result<Vec<Artifact>, OverLimit> {
    let groups = groups(std::mem::take(&mut artifact.parts), room)?;
    let piece = |parts| Artifact {
        parts,
        ..artifact.clone()
    };
    Ok(groups.into_iter().map(piece).collect())
}

/// Cuts texts and puts the parts together again, as many as fit into a piece. There is always one.
fn groups(parts: Vec<Part>, room: Room) -> Result<Vec<Vec<Part>>, OverLimit> {
    let mut groups: Vec<Vec<Part>> = vec![Vec::new()];
    let mut used = 0;
    for part in parts {
        for part in cut(part, room)? {
            let size = part_size(&part);
            if size > room.bytes {
                return Err(OverLimit);
            }
            if used + size > room.bytes && used > 0 {
                groups.push(Vec::new());
                used = 0;
            }
            used += size;
            if let Some(group) = groups.last_mut() {
                group.push(part);
            }
        }
        if groups.len() as u64 > room.pieces {
            return Err(OverLimit);
        }
    }
    Ok(groups)
}

/// Whether a part fits into no event, and cannot be cut.
pub(super) fn fits_nowhere(part: &Part, room: Room) -> bool {
    !matches!(part.content, PartContent::Text(_) if is_plain(part)) && part_size(part) > room.bytes
}

/// Whether there is nothing but its content.
fn is_plain(part: &Part) -> bool {
    part.filename.is_none() && part.media_type.is_none() && part.metadata.is_none()
}

/// Cuts a plain text; anything else is one piece.
fn cut(part: Part, room: Room) -> Result<Vec<Part>, OverLimit> {
    let PartContent::Text(text) = &part.content else {
        return Ok(vec![part]);
    };
    if !is_plain(&part) || json_len(text) <= room.bytes {
        return Ok(vec![part]);
    }
    let (mut cuts, mut piece, mut used) = (Vec::new(), String::new(), 0);
    for letter in text.chars() {
        let size = letter_len(letter);
        if used + size > room.bytes {
            cuts.push(Part::text(std::mem::take(&mut piece)));
            used = 0;
            if cuts.len() as u64 > room.pieces {
                return Err(OverLimit);
            }
        }
        piece.push(letter);
        used += size;
    }
    cuts.push(Part::text(piece));
    Ok(cuts)
}

/// What a letter needs in JSON: control characters become six.
fn letter_len(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if u32::from(c) < 0x20 => 6,
        c => c.len_utf8(),
    }
}

fn json_len(text: &str) -> usize {
    text.chars().map(letter_len).sum()
}

fn part_size(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => json_len(text),
        PartContent::Raw(bytes) => bytes.len().div_ceil(3) * 4,
        PartContent::Data(value) => value.to_string().len(),
    };
    let extra = part
        .metadata
        .as_ref()
        .map_or(0, |m| serde_json::to_string(m).map_or(0, |t| t.len()));
    content + extra
}
