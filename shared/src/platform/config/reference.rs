//! docs/configuration.md and the commented default file, generated from the declarations.

use std::fmt::Write as _;

use super::value::quoted;
use super::{Field, SECTIONS, Settings};

const HEAD: &str = "\
# Configuration

<!-- Generated from shared/src/platform/config/sections; regenerate with `make bless`. -->

Gateway and worker read the same settings, so one file serves both. Each setting is looked up in this order, and the
first place that has it wins:

1. the command line,
2. the environment: `RELEVO_<SECTION>_<KEY>`,
3. the TOML or YAML file named by `--config`,
4. the default.

An empty variable leaves an optional setting unset; an empty credential of `[auth]` is refused. Lists are arrays in TOML and comma-separated in the environment.
Unknown sections, keys and `RELEVO_<SECTION>_…` variables are errors, as are values that break a rule below. All errors
are reported together, and the process exits with 64; a configuration that is right but cannot be used now (a port in
use, no Redis) exits with 1. `--check-config` stops after the check, `--print-config` prints what is in effect, with
secrets masked.

Agents and their profiles are tables of their own, `[agents.<name>]` and `[profiles.<name>]`, and are set in the file only; see
[agents.md](agents.md). So are callers with credentials of their own, `[principals.<name>]`; see [security.md](security.md).

A file called `.yaml` or `.yml` is read as YAML, with the same sections and keys.

## From the reference server

Its variables are understood, unless ours are set: `IACCODE_A2A_HTTP_TOKEN`, `IACCODE_A2A_BASIC_USERNAME`,
`IACCODE_A2A_BASIC_PASSWORD`, `IACCODE_A2A_API_KEY` and `IACCODE_A2A_API_KEY_HEADER` for `[auth]`, `IACCODE_A2A_ALLOWED_CWDS`
(separated by colons), `IACCODE_A2A_TEXT_MIME_TYPES` and `IACCODE_A2A_MULTIMODAL_MIME_TYPES` (by commas or semicolons) for `[workspace]`.

So are the keys of its YAML file, at the top of a YAML file of ours, spelled with `-` or `_`, beside our sections:

| its key | here |
| --- | --- |
| `host`, `port` | `gateway.listen`; the host is an address or `localhost` |
| `grpc-host`, `grpc-port` | `gateway.grpc_listen`, if there is a `grpc-port`; the host is that of HTTP unless it is given |
| `transport` | `http` and its other spellings, or `grpc`, which needs a `grpc-port`; HTTP is always served |
| `token`, `basic-username`, `basic-password`, `api-key`, `api-key-header` | those of `[auth]`; credentials are texts in quotes where YAML would see a number |
| `redis-url` | `redis.url` |
| `artifact-dir` | `artifacts.store`; an absolute path |
| `thinking-exposure` | `compat.thinking_exposure`: a list, a text with commas or semicolons, `all` or `none` |
| `push-notifications`, `signing-secret`, `persistence-dir`, `auto-approve-permissions`, `idle-shutdown-seconds`, `log-to-stdout`, `debug` | refused with the reason, unless empty or off: there is nothing like it here |
| details of those and of other transports (`push-queue`, `ws-path`, `request-stream` and their like) | passed over, since they mean nothing without them |
";

/// The whole of docs/configuration.md.
pub fn reference_markdown() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n## [{}]\n\n{}\n\n", section.name, section.doc_text());
        text.push_str("| key, variable | default | form | meaning |\n| --- | --- | --- | --- |\n");
        for field in section.fields {
            let _ = writeln!(
                text,
                "| `{}`<br>`{}` | {} | {} | {} |",
                field.key,
                field.env(),
                default_cell(field),
                cell(field.expected),
                cell(&field.doc_text()),
            );
        }
    }
    text
}

fn default_cell(field: &Field) -> String {
    if field.default.is_empty() {
        "unset".to_owned()
    } else {
        format!("`{}`", cell(field.default))
    }
}

/// `text` inside a cell of a table. Outside of code, `*` and `_` would be emphasis.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A TOML file with every setting at its default and its text above it; what is unset is commented out.
pub fn default_file() -> String {
    let mut text = String::from("# Every setting at its default. See docs/configuration.md.\n");
    for (section, values) in Settings::default().printed() {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}[{}]\n", comment(&section.doc_text()), section.name);
        for (field, value) in section.fields.iter().zip(values) {
            text.push_str(&comment(&field.doc_text()));
            let _ = match value {
                Some(value) => writeln!(text, "{} = {value}", field.key),
                None => writeln!(text, "# {} = {}", field.key, quoted(field.default)),
            };
        }
    }
    text
}

/// `text` as comment lines of at most 100 characters.
fn comment(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push_str(&line);
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Loader, env_var};
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        let generated = reference_markdown();
        if env_var("BLESS").is_some_and(|value| value == "1") {
            std::fs::write(path, &generated).unwrap();
        }
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            stored == generated,
            "docs/configuration.md is out of date: run `make bless`"
        );
    }

    #[test]
    fn every_key_is_in_the_page() {
        let page = reference_markdown();
        for field in SECTIONS.iter().flat_map(|section| section.fields) {
            assert!(
                page.contains(&format!("| `{}`<br>`{}` |", field.key, field.env())),
                "{}",
                field.path()
            );
        }
    }

    #[test]
    fn the_default_file_is_the_default_configuration() {
        let settings = Loader::new().text("default", &default_file()).load().unwrap();
        assert_eq!(settings, Settings::default());
        assert!(default_file().lines().all(|line| line.len() <= 120));
    }

    #[test]
    fn a_comment_is_broken_between_words() {
        let text = "word ".repeat(40);
        let comment = comment(text.trim());
        assert_eq!(comment.lines().count(), 3);
        assert!(
            comment
                .lines()
                .all(|line| line.starts_with("# word") && line.len() <= 100)
        );
    }
}
