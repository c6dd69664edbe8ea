//! Saves files that came inside an answer: parts with a name that are bytes or text.
//!
//! A name is the agent's: only its last segment counts, so nothing is written outside of the directory, and nothing that is there is
//! overwritten.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use a2a::{Part, PartContent};
use anyhow::Context as _;

use crate::exit::Problem;

/// Writes each into the directory, which is made if it is not there, and says where. One that is there with the same content is saved already.
pub(crate) fn save(dir: &Path, parts: &[Part]) -> Result<Vec<PathBuf>, Problem> {
    let mut saved = Vec::new();
    for part in parts {
        let bytes = match &part.content {
            PartContent::Raw(bytes) => bytes.as_slice(),
            PartContent::Text(text) => text.as_bytes(),
            PartContent::Url(_) | PartContent::Data(_) => continue,
        };
        let Some(filename) = &part.filename else { continue };
        let Some(name) = name(filename) else {
            return Err(Problem::failed(format!("--save: {filename:?} is no name of a file")));
        };
        fs::create_dir_all(dir).with_context(|| format!("--save {}", dir.display()))?;
        let path = dir.join(name);
        write(&path, bytes)?;
        saved.push(path);
    }
    Ok(saved)
}

/// The last segment, of either kind of path.
fn name(filename: &str) -> Option<&str> {
    let name = filename.rsplit(['/', '\\']).next()?;
    let usable = !matches!(name, "" | "." | "..") && !name.chars().any(char::is_control);
    usable.then_some(name)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let failed = || format!("--save: {}", path.display());
    // Never through a link that is there.
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let plain = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
            if plain && fs::read(path).is_ok_and(|there| there == bytes) {
                return Ok(());
            }
            let rule = format!("--save: {} is there already and is not overwritten", path.display());
            return Err(Problem::failed(rule));
        }
        Err(error) => return Err(anyhow::Error::from(error).context(failed()).into()),
    };
    if let Err(error) = file.write_all(bytes) {
        drop(file);
        // Half of a file is none.
        let _ = fs::remove_file(path);
        return Err(anyhow::Error::from(error).context(failed()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_segment_of_a_name_counts() {
        for (filename, expected) in [
            ("a.txt", Some("a.txt")),
            ("../../etc/passwd", Some("passwd")),
            ("/etc/passwd", Some("passwd")),
            ("..\\x", Some("x")),
            (".hidden", Some(".hidden")),
            ("", None),
            ("a/", None),
            ("..", None),
            ("a/..", None),
            ("a\0b", None),
            ("a\nb", None),
        ] {
            assert_eq!(name(filename), expected, "{filename:?}");
        }
    }
}
