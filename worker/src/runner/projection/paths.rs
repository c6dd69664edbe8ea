//! Directories of this machine that clients need not know, and texts without them.

use std::path::PathBuf;

/// What stands for such a directory.
const SHOWN: &str = "[root]";

/// The directories, the longest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Paths(Vec<String>);

impl Paths {
    /// Of absolute paths; `/` itself says nothing.
    pub(crate) fn new(known: impl IntoIterator<Item = PathBuf>) -> Self {
        let name = |path: PathBuf| {
            let text = path.to_str()?.trim_end_matches('/').to_owned();
            (path.is_absolute() && !text.is_empty()).then_some(text)
        };
        let mut all: Vec<String> = known.into_iter().filter_map(name).collect();
        all.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Self(all)
    }

    /// The text with something else in the place of every such directory. A name that only begins or ends alike is another one.
    pub(super) fn hidden(&self, text: &str) -> String {
        let mut hidden = text.to_owned();
        for path in &self.0 {
            if hidden.contains(path.as_str()) {
                hidden = without(&hidden, path);
            }
        }
        hidden
    }
}

fn without(text: &str, path: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in text.match_indices(path) {
        let (before, after) = (text.get(..at), text.get(at + path.len()..));
        if !before.unwrap_or_default().ends_with(is_of_name) && !goes_on(after.unwrap_or_default()) {
            hidden.push_str(text.get(done..at).unwrap_or_default());
            hidden.push_str(SHOWN);
            done = at + path.len();
        }
    }
    hidden.push_str(text.get(done..).unwrap_or_default());
    hidden
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

/// Whether the name of the directory is longer. A full stop at the end of a sentence is no part of it.
fn goes_on(after: &str) -> bool {
    let mut letters = after.chars();
    match letters.next() {
        Some('.') => letters.next().is_some_and(is_of_name),
        Some(letter) => is_of_name(letter),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_directories_are_hidden_wherever_they_stand_and_others_are_not() {
        let paths = Paths::new(["/srv/ws", "/srv/ws/deep/", "/", "relative", "/srv/ws"].map(PathBuf::from));
        for (text, shown) in [
            ("/srv/ws", "[root]"),
            ("/srv/ws/a.tf", "[root]/a.tf"),
            ("/srv/ws/deep/a.tf", "[root]/a.tf"),
            ("file:///srv/ws/a", "file://[root]/a"),
            ("wrote \"/srv/ws\". Then /srv/ws/b", "wrote \"[root]\". Then [root]/b"),
            ("In /srv/ws.", "In [root]."),
            (
                "/srv/ws-2 /srv/ws.bak /srv/wsx /other/srv/ws",
                "/srv/ws-2 /srv/ws.bak /srv/wsx /other/srv/ws",
            ),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(paths.hidden(text), shown, "{text}");
        }
    }
}
