//! The parts of a message as the content of a message to the model. Pure.
//!
//! Texts are themselves, JSON is text in its shortest form, images are content parts where the agent takes them. What a model cannot
//! be shown is refused by its place and type, never left out.

use a2a::{Message, Part, PartContent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use relevo_shared::agents::{essence, is_of};
use serde_json::{Value, json};

use super::conversation::{LONGEST, Sent, message};

/// What the user said.
#[derive(Debug)]
pub(super) struct Said {
    /// As it is sent now.
    pub(super) now: Sent,
    /// As it is remembered: the same, unless it is too long for that with the images in it.
    pub(super) kept: Sent,
}

/// A part of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// An image, and what is remembered of it when it is too large.
    Image {
        url: String,
        note: String,
    },
}

impl Piece {
    fn without_bytes(&self) -> Self {
        match self {
            Self::Image { url, note } if url.starts_with("data:") => Self::Text(note.clone()),
            other => other.clone(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Image { url, .. } => json!({ "type": "image_url", "image_url": { "url": url } }),
        }
    }
}

/// Reads the message of a turn; `prompt` is its one text where the profile makes one. The error is a sentence for its sender.
pub(super) fn said(asked: &Message, prompt: Option<&str>, images: bool) -> Result<Said, String> {
    let pieces = match prompt {
        Some(prompt) => vec![Piece::Text(prompt.to_owned())],
        None => asked
            .parts
            .iter()
            .zip(1..)
            .map(|(part, place)| piece(part, images).ok_or_else(|| unusable(part, place, images)))
            .collect::<Result<_, _>>()?,
    };
    let is_blank = |piece: &Piece| matches!(piece, Piece::Text(text) if text.trim().is_empty());
    if pieces.iter().all(is_blank) {
        return Err("The message says nothing.".to_owned());
    }
    let now = sent(&pieces)?;
    if now.get().len() <= LONGEST {
        return Ok(Said { kept: now.clone(), now });
    }
    let kept: Vec<Piece> = pieces.iter().map(Piece::without_bytes).collect();
    let kept = sent(&kept)?;
    if kept.get().len() > LONGEST {
        return Err(format!(
            "The message is too long for this agent: without images it may have at most {} KiB.",
            LONGEST >> 10
        ));
    }
    Ok(Said { now, kept })
}

/// Texts alone are one text, which every server understands.
fn sent(pieces: &[Piece]) -> Result<Sent, String> {
    let texts: Option<Vec<&str>> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Image { .. } => None,
        })
        .collect();
    let content = match texts {
        Some(texts) => Value::from(texts.join("\n")),
        None => pieces.iter().map(Piece::to_json).collect(),
    };
    message("user", &content).map_err(|error| error.to_string())
}

fn piece(part: &Part, images: bool) -> Option<Piece> {
    let media_type = essence(part.media_type.as_deref().unwrap_or_default());
    let image = images && is_of("image/*", &media_type);
    match &part.content {
        PartContent::Text(text) => Some(Piece::Text(text.clone())),
        PartContent::Data(data) => Some(Piece::Text(data.to_string())),
        PartContent::Raw(bytes) if image => Some(Piece::Image {
            url: format!("data:{media_type};base64,{}", STANDARD.encode(bytes)),
            note: note(part, &media_type, bytes.len()),
        }),
        PartContent::Raw(bytes) if is_of("text/*", &media_type) || media_type == "application/json" => {
            String::from_utf8(bytes.clone()).ok().map(Piece::Text)
        }
        PartContent::Url(url) if image && (url.starts_with("https://") || url.starts_with("http://")) => {
            Some(Piece::Image {
                url: url.clone(),
                note: String::new(),
            })
        }
        PartContent::Raw(_) | PartContent::Url(_) => None,
    }
}

fn note(part: &Part, media_type: &str, bytes: usize) -> String {
    let name = part
        .filename
        .as_deref()
        .map(|name| format!("{} ", short(name)))
        .unwrap_or_default();
    format!("[An image was here: {name}({media_type}, {bytes} bytes)]")
}

fn unusable(part: &Part, place: usize, images: bool) -> String {
    let what = match &part.content {
        PartContent::Text(_) => "text",
        PartContent::Data(_) => "data",
        PartContent::Raw(_) => "bytes",
        PartContent::Url(_) => "a URL",
    };
    let media_type = essence(part.media_type.as_deref().unwrap_or_default());
    let media_type = if media_type.is_empty() {
        "no media type".to_owned()
    } else {
        short(&media_type)
    };
    let name = part
        .filename
        .as_deref()
        .map(|name| format!(", {}", short(name)))
        .unwrap_or_default();
    let takes = if images {
        "text, JSON, and images as bytes or http(s) URLs with their media type"
    } else {
        "text and JSON"
    };
    format!("Part {place} of the message ({what}, {media_type}{name}) cannot be shown to this agent: it takes {takes}.")
}

/// A name as it is shown.
fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use a2a::Role;

    use super::*;

    fn part(content: PartContent, media_type: Option<&str>, filename: Option<&str>) -> Part {
        Part {
            content,
            filename: filename.map(str::to_owned),
            media_type: media_type.map(str::to_owned),
            metadata: None,
        }
    }

    fn content(sent: &Sent) -> Value {
        let message: Value = serde_json::from_str(sent.get()).unwrap();
        assert_eq!(message["role"], "user");
        message["content"].clone()
    }

    fn read(parts: Vec<Part>, images: bool) -> Result<Said, String> {
        said(&Message::new(Role::User, parts), None, images)
    }

    #[test]
    fn texts_and_json_are_one_text() {
        let parts = vec![
            Part::text("What is"),
            part(PartContent::Data(json!({"b": [1, 2.50]})), None, None),
            part(PartContent::Raw(b"a,b".to_vec()), Some("text/csv; charset=utf-8"), None),
        ];
        let said = read(parts, false).unwrap();
        assert_eq!(content(&said.now), json!("What is\n{\"b\":[1,2.5]}\na,b"));
        assert_eq!(said.kept.get(), said.now.get());
    }

    #[test]
    fn a_prompt_stands_for_all_parts() {
        let raw = part(PartContent::Raw(vec![0]), Some("video/mp4"), None);
        let said = said(&Message::new(Role::User, vec![raw]), Some("the prompt"), false).unwrap();
        assert_eq!(content(&said.now), json!("the prompt"));
    }

    #[test]
    fn images_are_content_parts_by_bytes_or_url() {
        let parts = vec![
            Part::text("look"),
            part(PartContent::Raw(b"png".to_vec()), Some("IMAGE/png"), None),
            part(PartContent::Url("https://h/a.jpg".to_owned()), Some("image/jpeg"), None),
        ];
        let said = read(parts, true).unwrap();
        let expected = json!([
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
            {"type": "image_url", "image_url": {"url": "https://h/a.jpg"}},
        ]);
        assert_eq!(content(&said.now), expected);
        assert_eq!(said.kept.get(), said.now.get());
    }

    #[test]
    fn a_large_image_is_sent_and_a_note_of_it_is_kept() {
        let parts = vec![
            Part::text("look"),
            part(PartContent::Raw(vec![7; 1 << 20]), Some("image/png"), Some("a\n.png")),
            part(PartContent::Url("https://h/a.jpg".to_owned()), Some("image/jpeg"), None),
        ];
        let said = read(parts, true).unwrap();
        assert!(said.now.get().len() > 1 << 20);
        let kept = content(&said.kept);
        assert_eq!(kept[1]["text"], "[An image was here: a.png (image/png, 1048576 bytes)]");
        assert_eq!(kept[2]["image_url"]["url"], "https://h/a.jpg");
    }

    #[test]
    fn what_cannot_be_shown_is_named() {
        for (part, images, words) in [
            (
                part(PartContent::Raw(vec![0]), Some("audio/mpeg"), Some("a.mp3")),
                true,
                "Part 2 of the message (bytes, audio/mpeg, a.mp3) cannot be shown to this agent: it takes text, JSON, and images",
            ),
            (
                part(PartContent::Raw(vec![0]), Some("image/png"), None),
                false,
                "Part 2 of the message (bytes, image/png) cannot be shown to this agent: it takes text and JSON.",
            ),
            (
                part(
                    PartContent::Url("file:///etc/passwd".to_owned()),
                    Some("image/png"),
                    None,
                ),
                true,
                "Part 2 of the message (a URL, image/png)",
            ),
            (
                part(PartContent::Url("https://h/a".to_owned()), None, None),
                true,
                "Part 2 of the message (a URL, no media type)",
            ),
            (
                part(PartContent::Raw(vec![0xff]), Some("text/plain"), None),
                true,
                "Part 2 of the message (bytes, text/plain)",
            ),
        ] {
            let refused = read(vec![Part::text("x"), part], images).unwrap_err();
            assert!(refused.starts_with(words), "{refused}");
        }
    }

    #[test]
    fn a_message_that_says_nothing_or_too_much_is_refused() {
        assert!(
            read(vec![Part::text(" \n")], true)
                .unwrap_err()
                .contains("says nothing")
        );
        assert!(read(Vec::new(), true).unwrap_err().contains("says nothing"));
        let long = "\u{1}".repeat(LONGEST / 6);
        assert!(
            read(vec![Part::text(&long)], true)
                .unwrap_err()
                .contains("at most 500 KiB")
        );
        let half = "x".repeat(LONGEST - 100);
        assert!(read(vec![Part::text(&half)], true).is_ok());
    }
}
