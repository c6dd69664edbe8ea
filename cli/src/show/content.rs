//! The parts of a message or artifact as a reader meets them: text, and things that are not text.

use a2a::{Part, PartContent};

/// A part, or several texts in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Text.
    Text(String),
    /// What is not shown, in a few words.
    Other(String),
}

impl Content {
    /// What is quoted of it.
    pub(super) fn quote(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Other(what) => format!("[{what}]"),
        }
    }
}

/// Parts as contents.
pub(super) fn contents(parts: Vec<Part>) -> Vec<Content> {
    merged(parts.into_iter().map(content))
}

fn content(part: Part) -> Content {
    let Part {
        content,
        filename,
        media_type,
        ..
    } = part;
    let size = match content {
        PartContent::Text(text) => return Content::Text(text),
        PartContent::Raw(bytes) => format!("{} bytes", bytes.len()),
        PartContent::Url(url) => format!("at {url}"),
        PartContent::Data(value) => format!("{} bytes of JSON", value.to_string().len()),
    };
    let name = filename.map(|name| format!("file {name}"));
    Content::Other(
        [name, media_type, Some(size)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// Joins texts that follow each other.
pub(super) fn merged(contents: impl Iterator<Item = Content>) -> Vec<Content> {
    let mut all: Vec<Content> = Vec::new();
    for content in contents {
        match (all.last_mut(), content) {
            (Some(Content::Text(text)), Content::Text(more)) => text.push_str(&more),
            (_, content) => all.push(content),
        }
    }
    all
}

/// What `whole` has beyond `shown`; `None` when it does not begin with it.
pub(super) fn rest_of(shown: &[Content], whole: &[Content]) -> Option<Vec<Content>> {
    let Some((last, before)) = shown.split_last() else {
        return Some(whole.to_vec());
    };
    let at = whole.get(before.len())?;
    if whole.get(..before.len())? != before {
        return None;
    }
    let mut rest = match (last, at) {
        (Content::Text(shown), Content::Text(text)) => {
            vec![Content::Text(text.strip_prefix(shown.as_str())?.to_owned())]
        }
        (shown, other) if shown == other => Vec::new(),
        _ => return None,
    };
    rest.extend(whole.iter().skip(shown.len()).cloned());
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    fn other(what: &str) -> Content {
        Content::Other(what.to_owned())
    }

    #[test]
    fn only_what_is_beyond_the_shown_is_the_rest() {
        assert_eq!(rest_of(&[], &[text("ab")]), Some(vec![text("ab")]));
        assert_eq!(
            rest_of(&[text("a")], &[text("ab"), other("f")]),
            Some(vec![text("b"), other("f")])
        );
        assert_eq!(
            rest_of(&[text("a"), other("f")], &[text("a"), other("f")]),
            Some(vec![])
        );
        assert_eq!(rest_of(&[text("b")], &[text("ab")]), None);
        assert_eq!(rest_of(&[text("a"), other("f")], &[text("a")]), None);
        assert_eq!(rest_of(&[text("a"), other("f")], &[text("a"), other("g")]), None);
    }

    #[test]
    fn parts_that_are_not_text_are_described() {
        let file = Part::raw(vec![0; 3])
            .with_filename("a.bin")
            .with_media_type("image/png");
        let parts = vec![
            Part::text("a"),
            Part::text("b"),
            file,
            Part::url("http://x/y"),
            Part::data(serde_json::json!({})),
        ];
        let expected = [
            text("ab"),
            other("file a.bin, image/png, 3 bytes"),
            other("at http://x/y"),
            other("2 bytes of JSON"),
        ];
        assert_eq!(contents(parts), expected);
    }
}
