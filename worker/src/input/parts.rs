//! Parts as one text: texts as they are, JSON in its shortest form, files by their content, anything else by a manifest of
//! six lines. Limits and words are the reference server's; media types are read without their parameters, which it refuses.

use a2a::{Message, Part, PartContent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use relevo_shared::agents::{Ingest, essence, is_of};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Unusable;
use super::file::Place;

/// Most bytes of a text or of JSON, wherever it is.
const TEXT_BYTES: usize = 1 << 20;
/// Most bytes of anything else inside a message.
const INLINE_BYTES: usize = 5 << 20;
/// Most bytes of anything else in a file.
const FILE_BYTES: u64 = 25 << 20;

/// Most bytes of all parts together as the agent gets them: what its line may hold.
const PROMPT_BYTES: usize = 4 << 20;
/// Most bytes that are read for one message, from files and out of what is described only.
const READ_BYTES: u64 = 64 << 20;

const TEXT: &str = "text/plain";
const JSON: &str = "application/json";

const EMPTY: Unusable = Unusable::new("A2A server currently accepts text input only.");
const UNSUPPORTED: Unusable = Unusable::new("A2A part has unsupported media type.");
const NO_JSON: Unusable = Unusable::new("A2A data parts must use application/json media type.");
const LONG_JSON: Unusable = Unusable::new("A2A data part content is too large.");
const NO_OBJECT: Unusable = Unusable::new("A2A binary data parts must contain an object.");
const NO_BYTES: Unusable = Unusable::new("A2A binary data parts must include base64 bytes.");
const NO_BASE64: Unusable = Unusable::new("A2A binary data part bytes must be valid base64.");
const LONG_DATA: Unusable = Unusable::new("A2A binary data part content is too large.");
const LONG_RAW: Unusable = Unusable::new("A2A raw part content is too large.");
const NO_UTF8: Unusable = Unusable::new("A2A raw parts must contain valid UTF-8.");
const LONG_BINARY: Unusable = Unusable::new("A2A binary raw part content is too large.");
const LONG_FILE: Unusable = Unusable::new("A2A file URL part content is too large.");
const NO_UTF8_FILE: Unusable = Unusable::new("A2A file URL parts must contain valid UTF-8.");
const LONG_PROMPT: Unusable = Unusable::new("The parts of the message make more than 4 MiB of text together.");
const LONG_READ: Unusable = Unusable::new("The parts of the message hold more than 64 MiB together.");
const LONG_BINARY_FILE: Unusable = Unusable::new("A2A binary file URL part content is too large.");

/// The whole message.
pub(super) fn text(message: &Message, ingest: &Ingest, place: &Place<'_>) -> Result<String, Unusable> {
    let mut whole = String::new();
    let mut left = READ_BYTES;
    for part in &message.parts {
        let text = one(part, ingest, place, &mut left)?;
        let line = if text.is_empty() || whole.is_empty() { "" } else { "\n" };
        if whole.len() + line.len() + text.len() > PROMPT_BYTES {
            return Err(LONG_PROMPT);
        }
        whole.push_str(line);
        whole.push_str(&text);
    }
    if whole.trim().is_empty() {
        return Err(EMPTY);
    }
    Ok(whole)
}

/// What a media type is for the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Media,
}

fn one(part: &Part, ingest: &Ingest, place: &Place<'_>, left: &mut u64) -> Result<String, Unusable> {
    let given = essence(part.media_type.as_deref().unwrap_or_default());
    let media_type = if given.is_empty() { TEXT.to_owned() } else { given };
    let listed = |types: &[String]| types.iter().any(|known| is_of(known, &media_type));
    let kind = if listed(&ingest.text_types) {
        Some(Kind::Text)
    } else {
        listed(&ingest.media_types).then_some(Kind::Media)
    };
    match (&part.content, kind) {
        (PartContent::Text(text), Some(Kind::Text)) => Ok(text.clone()),
        (PartContent::Data(data), Some(Kind::Media)) => media_data(data, part, &media_type),
        (PartContent::Data(_), _) if media_type != JSON => Err(NO_JSON),
        (PartContent::Data(data), _) => {
            let text = data.to_string();
            if text.len() > TEXT_BYTES {
                Err(LONG_JSON)
            } else {
                Ok(text)
            }
        }
        (PartContent::Raw(bytes), Some(Kind::Text)) => {
            if bytes.len() > TEXT_BYTES {
                return Err(LONG_RAW);
            }
            String::from_utf8(bytes.clone()).map_err(|_wrong| NO_UTF8)
        }
        (PartContent::Raw(bytes), Some(Kind::Media)) => {
            if bytes.len() > INLINE_BYTES {
                return Err(LONG_BINARY);
            }
            Ok(manifest(
                &filename(part.filename.as_deref()),
                &media_type,
                bytes,
                "inline",
            ))
        }
        (PartContent::Url(url), kind) => {
            // Where it points is judged first: that it may not be read outweighs what it is.
            let opened = place.open(url)?;
            *left = left.checked_sub(opened.length()).ok_or(LONG_READ)?;
            match kind.ok_or(UNSUPPORTED)? {
                Kind::Text => {
                    let content = opened.read(TEXT_BYTES as u64).ok_or(LONG_FILE)?;
                    String::from_utf8(content).map_err(|_wrong| NO_UTF8_FILE)
                }
                Kind::Media => {
                    let (name, source) = (filename(Some(&opened.name())), opened.url());
                    let content = opened.read(FILE_BYTES).ok_or(LONG_BINARY_FILE)?;
                    Ok(manifest(&name, &media_type, &content, &source))
                }
            }
        }
        (PartContent::Text(_), Some(Kind::Media) | None) | (PartContent::Raw(_), None) => Err(UNSUPPORTED),
    }
}

/// `{"bytes" or "base64": ..., "filename": ...}`.
fn media_data(data: &Value, part: &Part, media_type: &str) -> Result<String, Unusable> {
    let object = data.as_object().ok_or(NO_OBJECT)?;
    let encoded = object.get("bytes").or_else(|| object.get("base64"));
    let encoded = encoded.and_then(Value::as_str).ok_or(NO_BYTES)?;
    let bytes = STANDARD.decode(encoded).map_err(|_wrong| NO_BASE64)?;
    if bytes.len() > INLINE_BYTES {
        return Err(LONG_DATA);
    }
    let named = object.get("filename").and_then(Value::as_str);
    Ok(manifest(
        &filename(named.or(part.filename.as_deref())),
        media_type,
        &bytes,
        "data",
    ))
}

/// The last piece of a name. One that says where else to go, or would break the manifest's lines, is not repeated.
fn filename(given: Option<&str>) -> String {
    let Some(given) = given.filter(|name| !name.is_empty()) else {
        return "inline".to_owned();
    };
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe = !last.trim().is_empty() && last != "." && last != ".." && !last.chars().any(char::is_control);
    if safe { last.to_owned() } else { "attachment".to_owned() }
}

fn manifest(name: &str, media_type: &str, content: &[u8], source: &str) -> String {
    let digest = hex::encode(Sha256::digest(content));
    let size = content.len();
    format!(
        "A2A multimodal attachment:\n- filename={name}\n- mediaType={media_type}\n- byteSize={size}\n- sha256={digest}\n- source={source}"
    )
}

#[cfg(test)]
mod tests {
    use relevo_shared::agents::Profiles;
    use serde_json::json;

    use super::super::Roots;
    use super::*;

    fn part(content: PartContent, media_type: &str, filename: &str) -> Part {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Part {
            content,
            filename: some(filename),
            media_type: some(media_type),
            metadata: None,
        }
    }

    fn read(parts: Vec<Part>) -> Result<String, &'static str> {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().canonicalize().unwrap();
        std::fs::write(workspace.join("t.md"), "from a file").unwrap();
        std::fs::write(workspace.join("bad.txt"), [0xff]).unwrap();
        let sized = |name: &str, len: u64| {
            let file = std::fs::File::create(workspace.join(name)).unwrap();
            file.set_len(len).unwrap();
        };
        sized("1m", 1 << 20);
        sized("1m+", (1 << 20) + 1);
        sized("25m", 25 << 20);
        sized("25m+", (25 << 20) + 1);
        sized("14m", 14 << 20);
        sized("14m+", (14 << 20) + 1);
        let parts = parts.into_iter().map(|mut part| {
            if let PartContent::Url(url) = &mut part.content {
                *url = url.replace("WS", &workspace.display().to_string());
            }
            part
        });
        let message = Message::new(a2a::Role::User, parts.collect());
        let ingest = Profiles::default().get("iac-code").unwrap().ingest.unwrap();
        let roots = Roots::new(&[workspace.display().to_string()]);
        let place = Place {
            workspace: &workspace,
            roots: &roots,
        };
        text(&message, &ingest, &place).map_err(|unusable| unusable.words)
    }

    fn one(content: PartContent, media_type: &str) -> Result<String, &'static str> {
        read(vec![part(content, media_type, "")])
    }

    fn url(name: &str) -> PartContent {
        PartContent::Url(format!("file://WS/{name}"))
    }

    #[test]
    fn parts_are_joined_line_by_line_and_empty_ones_dropped() {
        let text = |text: &str| part(PartContent::Text(text.to_owned()), "", "");
        let parts = vec![
            text("a"),
            text(""),
            part(
                PartContent::Data(json!({ "b": [1, "x"], "a": null })),
                "application/json",
                "",
            ),
            part(PartContent::Raw(b"raw".to_vec()), "text/markdown; charset=utf-8", ""),
            part(url("t.md"), "TEXT/markdown", ""),
        ];
        assert_eq!(
            read(parts).unwrap(),
            "a\n{\"a\":null,\"b\":[1,\"x\"]}\nraw\nfrom a file"
        );
        assert_eq!(read(vec![text(""), text(" \n")]), Err(EMPTY.words));
        assert_eq!(read(Vec::new()), Err(EMPTY.words));
    }

    #[test]
    fn anything_else_is_described() {
        let picture = PartContent::Raw(b"abc".to_vec());
        let expected = "A2A multimodal attachment:\n- filename=b.png\n- mediaType=image/png\n- byteSize=3\n\
             - sha256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n- source=inline";
        assert_eq!(
            read(vec![part(picture.clone(), "image/png", "../a/b.png")]).unwrap(),
            expected
        );
        assert!(one(picture, "image/png").unwrap().contains("- filename=inline\n"));
        let data = json!({ "base64": "YWJj", "filename": "c.wav" });
        let said = one(PartContent::Data(data), "audio/wav").unwrap();
        assert!(
            said.contains("- filename=c.wav\n") && said.ends_with("- source=data"),
            "{said}"
        );
        let said = one(url("1m"), "application/octet-stream").unwrap();
        assert!(said.contains("- filename=1m\n- mediaType=application/octet-stream\n- byteSize=1048576\n"));
        assert!(said.contains("- source=file:///"), "{said}");
    }

    #[test]
    fn names_that_are_no_names_are_not_repeated() {
        for (given, shown) in [
            (Some("a.png"), "a.png"),
            (Some("C:\\x\\a.png"), "a.png"),
            (None, "inline"),
            (Some(""), "inline"),
            (Some("a/"), "attachment"),
            (Some(".."), "attachment"),
            (Some("a\n- source=x"), "attachment"),
        ] {
            assert_eq!(filename(given), shown, "{given:?}");
        }
    }

    #[test]
    fn many_parts_are_bounded_together() {
        let text = |len: usize| part(PartContent::Text("a".repeat(len)), "", "");
        // With the line's end between them.
        let whole = read(vec![text(1 << 21), text((1 << 21) - 1)]).unwrap();
        assert_eq!(whole.len(), 4 << 20);
        assert_eq!(read(vec![text(1 << 21), text(1 << 21)]), Err(LONG_PROMPT.words));
        let files = |names: &[&str]| names.iter().map(|name| part(url(name), "image/png", "")).collect();
        assert!(read(files(&["25m", "25m", "14m"])).is_ok());
        assert_eq!(read(files(&["25m", "25m", "14m+"])), Err(LONG_READ.words));
    }

    #[test]
    fn every_rule_has_its_words() {
        let raw = |len: usize| PartContent::Raw(vec![b'a'; len]);
        // JSON of exactly `len` bytes.
        let data = |len: usize| PartContent::Data(Value::String("a".repeat(len - 2)));
        let binary = |len: usize| PartContent::Data(json!({ "bytes": STANDARD.encode(vec![0; len]) }));
        for (content, media_type, words) in [
            (PartContent::Text("a".into()), "image/png", UNSUPPORTED.words),
            (PartContent::Text("a".into()), "video/mp4", UNSUPPORTED.words),
            (PartContent::Data(json!({})), "", NO_JSON.words),
            (PartContent::Data(json!({})), "text/plain", NO_JSON.words),
            (data((1 << 20) + 1), JSON, LONG_JSON.words),
            (PartContent::Data(json!([])), "image/png", NO_OBJECT.words),
            (PartContent::Data(json!({ "bytes": 1 })), "image/png", NO_BYTES.words),
            (PartContent::Data(json!({ "bytes": "!" })), "image/png", NO_BASE64.words),
            (binary((5 << 20) + 1), "image/png", LONG_DATA.words),
            (raw((1 << 20) + 1), "text/plain", LONG_RAW.words),
            (PartContent::Raw(vec![0xff]), "", NO_UTF8.words),
            (raw((5 << 20) + 1), "image/png", LONG_BINARY.words),
            (raw(1), "video/mp4", UNSUPPORTED.words),
            (
                PartContent::Url("https://example.com/a".into()),
                "text/plain",
                "A2A file URL parts must use local file:// URLs.",
            ),
            (
                PartContent::Url("file:///etc/passwd".into()),
                "text/plain",
                "A2A file URL part is outside the allowed workspace.",
            ),
            (
                url("none"),
                "text/plain",
                "A2A file URL part must reference an existing file.",
            ),
            (url("1m+"), "text/plain", LONG_FILE.words),
            (url("bad.txt"), "text/plain", NO_UTF8_FILE.words),
            (url("25m+"), "image/png", LONG_BINARY_FILE.words),
            (url("t.md"), "video/mp4", UNSUPPORTED.words),
        ] {
            assert_eq!(one(content, media_type), Err(words), "{media_type}");
        }
        for (content, media_type) in [
            (data(1 << 20), JSON),
            (binary(5 << 20), "image/png"),
            (raw(1 << 20), "text/plain"),
            (raw(5 << 20), "image/png"),
            (url("1m"), "text/plain"),
            (url("25m"), "image/png"),
        ] {
            assert!(one(content, media_type).is_ok(), "{media_type}");
        }
    }
}
