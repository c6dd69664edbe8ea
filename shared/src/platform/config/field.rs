//! What the `settings!` declaration leaves behind for readers of the configuration: the table of sections and fields.

use super::environment::PREFIX;
use super::{ConfigErrors, Source};

/// One key of one section.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The section it is in.
    pub section: &'static str,
    /// Its name there.
    pub key: &'static str,
    /// Its default as an operator would write it; empty for an unset optional one.
    pub default: &'static str,
    /// Its doc comment, raw.
    pub doc: &'static str,
    /// The form of its value.
    pub expected: &'static str,
    /// Whether it may be left unset.
    pub optional: bool,
    /// Whether its value is never shown.
    pub secret: bool,
    /// Whether it is an array in TOML and a comma-separated list in the environment.
    pub list: bool,
}

impl Field {
    /// `lease.ttl`
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// `RELEVO_LEASE_TTL`
    pub fn env(&self) -> String {
        format!("{}{}", section_env_prefix(self.section), self.key.to_ascii_uppercase())
    }

    /// The doc comment as one paragraph.
    pub fn doc_text(&self) -> String {
        one_paragraph(self.doc)
    }
}

/// One section: its name, its text and its keys.
#[derive(Clone, Copy, Debug)]
pub struct SectionInfo {
    /// `lease`
    pub name: &'static str,
    /// Its doc comment, raw.
    pub doc: &'static str,
    /// Its keys in the order declared.
    pub fields: &'static [Field],
}

impl SectionInfo {
    /// The doc comment as one paragraph.
    pub fn doc_text(&self) -> String {
        one_paragraph(self.doc)
    }

    pub(super) fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.key == key)
    }
}

/// A section declared by `settings!`.
pub trait Section: Sized + Validate {
    /// Its name, text and keys.
    const INFO: SectionInfo;

    /// Reads every key; what cannot be read is reported to `errors` and stands at its default.
    fn read(source: &Source, errors: &mut ConfigErrors) -> Self;

    /// The values in the order of the keys, as TOML; `None` where unset; secrets masked.
    fn printed(&self) -> Vec<Option<String>>;
}

/// The rules inside one section. They run only when every key of the section could be read.
pub trait Validate {
    /// Reports every rule that does not hold, and with it the failure the rule prevents.
    fn validate(&self, errors: &mut ConfigErrors);
}

/// `RELEVO_LEASE_`
pub(super) fn section_env_prefix(section: &str) -> String {
    format!("{PREFIX}{}_", section.to_ascii_uppercase())
}

fn one_paragraph(doc: &str) -> String {
    doc.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
