//! Parts that name a file: what a process says in place of a content. Pure; the file is looked at by whoever writes the event.

use std::path::Path;

use a2a::Artifact;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::wrong;

/// The member of a part that names a file.
const FILE: &str = "file";
/// The members that hold a content: a part has one of them, or names a file.
const CONTENTS: [&str; 4] = ["text", "raw", "url", "data"];

/// Most files of one line: each becomes much more than its few letters.
const MOST: usize = 1_000;

/// A file that a part stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Named {
    /// Which part.
    pub(in super::super) part: usize,
    /// Its path: absolute, or as seen from the workspace.
    pub(in super::super) path: String,
}

/// Reads an artifact, and which of its parts stand for files. What is known of a file by its name is filled in. The error holds
/// nothing of what the artifact says.
pub(super) fn artifact(mut artifact: Map<String, Value>) -> Result<(Artifact, Vec<Named>), String> {
    let mut files = Vec::new();
    if let Some(Value::Array(parts)) = artifact.get_mut("parts") {
        for (n, part) in parts.iter_mut().enumerate() {
            if let Some(path) = named(part)? {
                files.push(Named { part: n, path });
                if files.len() > MOST {
                    return Err(format!("its artifact names more than {MOST} files at once"));
                }
            }
        }
    }
    // What serde says may quote the artifact.
    let artifact = Value::Object(artifact);
    let artifact = Artifact::deserialize(&artifact).map_err(|_quoted| wrong::artifact(&artifact))?;
    Ok((artifact, files))
}

/// Whether a message names a file, which only artifacts may.
pub(super) fn is_in(message: &Map<String, Value>) -> bool {
    let parts = message.get("parts").and_then(Value::as_array);
    parts.is_some_and(|parts| parts.iter().any(|part| part.get(FILE).is_some()))
}

/// Takes the path out of a part that names a file.
fn named(part: &mut Value) -> Result<Option<String>, String> {
    let Some(part) = part.as_object_mut() else {
        return Ok(None);
    };
    let Some(path) = part.remove(FILE) else { return Ok(None) };
    let Value::String(path) = path else {
        return Err("the `file` of a part is no text: it is the path of a file".to_owned());
    };
    if CONTENTS.iter().any(|content| part.contains_key(*content)) {
        return Err("a part has `file` beside `text`, `raw`, `url` or `data`".to_owned());
    }
    let Some(name) = Path::new(&path).file_name().and_then(|name| name.to_str()) else {
        return Err("the `file` of a part names no file".to_owned());
    };
    let filename = part.entry("filename").or_insert_with(|| json!(name));
    let guessed = filename.as_str().and_then(media_type).or_else(|| media_type(name));
    if let Some(guessed) = guessed {
        part.entry("mediaType").or_insert_with(|| json!(guessed));
    }
    // Stands there until the file is read.
    part.insert("raw".to_owned(), json!(""));
    Ok(Some(path))
}

/// What the ending of a name says.
fn media_type(name: &str) -> Option<&'static str> {
    mime_guess::from_path(name).first_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(part: &Value) -> Result<(Value, Vec<Named>), String> {
        let Value::Object(whole) = json!({ "artifactId": "a", "parts": [{ "text": "t" }, part] }) else {
            panic!("no object")
        };
        let (artifact, files) = artifact(whole)?;
        Ok((serde_json::to_value(&artifact.parts[1]).unwrap(), files))
    }

    #[test]
    fn a_file_has_its_name_and_what_its_ending_says_unless_the_agent_knows_better() {
        let named = |path: &str| {
            vec![Named {
                part: 1,
                path: path.to_owned(),
            }]
        };
        for (part, filename, media_type) in [
            (json!({ "file": "out/plan.pdf" }), "plan.pdf", Some("application/pdf")),
            (json!({ "file": "/srv/x/a.yaml" }), "a.yaml", Some("text/x-yaml")),
            (json!({ "file": "Makefile" }), "Makefile", None),
            (
                json!({ "file": "tmp123", "filename": "b.json" }),
                "b.json",
                Some("application/json"),
            ),
            (
                json!({ "file": "c.png", "filename": "picture" }),
                "picture",
                Some("image/png"),
            ),
            (json!({ "file": "c.png", "mediaType": "x/y" }), "c.png", Some("x/y")),
            (json!({ "file": "d.txt/." }), "d.txt", Some("text/plain")),
        ] {
            let path = part["file"].as_str().unwrap().to_owned();
            let (read, files) = read(&part).unwrap();
            assert_eq!(files, named(&path));
            assert_eq!(read["filename"], filename);
            assert_eq!(read.get("mediaType").and_then(Value::as_str), media_type, "{path}");
            assert_eq!(read["raw"], "");
        }
        let kept = json!({ "file": "a", "metadata": { "k": 1 } });
        assert_eq!(read(&kept).unwrap().0["metadata"], json!({ "k": 1 }));
    }

    #[test]
    fn what_names_no_file_is_refused_in_words() {
        for part in [
            json!({ "file": 1 }),
            json!({ "file": null }),
            json!({ "file": { "uri": "file:///a" } }),
            json!({ "file": "" }),
            json!({ "file": "/" }),
            json!({ "file": "a/.." }),
            json!({ "file": "a", "text": "b" }),
            json!({ "file": "a", "url": "b" }),
        ] {
            let why = read(&part).unwrap_err();
            assert!(why.contains("`file`"), "{part}: {why}");
        }
        let many = |count: usize| {
            let parts = vec![json!({ "file": "a" }); count];
            let Value::Object(whole) = json!({ "artifactId": "a", "parts": parts }) else {
                panic!("no object")
            };
            artifact(whole).map(|(_, files)| files.len())
        };
        assert_eq!(many(MOST), Ok(MOST));
        assert!(many(MOST + 1).unwrap_err().contains("1000"));
        assert!(read(&json!(1)).is_err());
    }
}
