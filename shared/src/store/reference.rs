//! The generated tables of docs/redis.md: every key class, every script.

use std::fmt::Write as _;

use super::keys::documented;
use super::script::SCRIPTS;

/// Every key class.
pub fn keys_table() -> String {
    let mut table = String::from("| key after the tag | type | holds | bounded by |\n| --- | --- | --- | --- |\n");
    for key in documented() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} |",
            key.name,
            key.kind,
            cell(key.holds),
            cell(key.bound)
        );
    }
    table
}

/// Every script, from its header.
pub fn scripts_table() -> String {
    let mut table = String::from("| script | what it does | answers | out of memory |\n| --- | --- | --- | --- |\n");
    for script in SCRIPTS {
        let first = script.text.lines().next().unwrap_or_default();
        let memory = match first {
            line if line.contains("allow-oom") => "goes on",
            line if line.contains("no-writes") => "reads only",
            _ => "refused",
        };
        let purpose = header(script.text, 1, "KEYS");
        let returns = header_field(script.text, "RETURNS");
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {memory} |",
            script.name,
            cell(&purpose),
            cell(&returns)
        );
    }
    table
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// The comment lines from line `from` up to the field `until`.
fn header(text: &str, from: usize, until: &str) -> String {
    let lines = text.lines().skip(from).map_while(|line| line.strip_prefix("-- "));
    lines
        .take_while(|line| !line.starts_with(until))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A field of the header with its continuation lines.
fn header_field(text: &str, name: &str) -> String {
    let lines = text.lines().skip(1).map_while(|line| line.strip_prefix("--"));
    let mut found = Vec::new();
    for line in lines {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if let Some(first) = line.strip_prefix(name) {
            found.push(first.trim());
        } else if !found.is_empty() && line.starts_with("  ") {
            found.push(line.trim());
        } else if !found.is_empty() {
            break;
        }
    }
    found.join(" ")
}

#[cfg(test)]
mod tests {
    use relevo_testkit::docs::check_block;

    use super::*;

    #[test]
    fn the_tables_of_keys_and_scripts_are_current() {
        check_block("redis.md", "keys", &keys_table());
        check_block("redis.md", "scripts", &scripts_table());
    }

    #[test]
    fn every_script_says_what_it_does_and_what_it_answers() {
        for script in SCRIPTS {
            assert!(header(script.text, 1, "KEYS").ends_with('.'), "{}", script.name);
            assert!(!header_field(script.text, "RETURNS").is_empty(), "{}", script.name);
        }
    }
}
