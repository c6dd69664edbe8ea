//! Reading `[profiles.<name>]` tables, all errors at once.

use std::collections::BTreeMap;

use toml::Table;

use super::super::read::{Reader, is_name, media_types};
use super::super::skills::skills;
use super::{Extension, GENERIC, GoodEnd, Profile, Profiles, SEED, Thinking};
use crate::platform::config::ConfigErrors;

const KEYS: [&str; 14] = [
    "base",
    "name",
    "description",
    "organization",
    "organization_url",
    "skills",
    "input_modes",
    "output_modes",
    "extensions",
    "end",
    "answer_artifact",
    "thinking",
    "text_types",
    "media_types",
];
const EXTENSION_KEYS: [&str; 4] = ["uri", "description", "required", "params"];

/// URIs under this are the server's own.
const OURS: &str = "urn:relevo:";

pub(super) fn profiles(tables: &Table, built_in: &Profiles, errors: &mut ConfigErrors) -> Profiles {
    let mut all = built_in.clone();
    for (name, value) in tables {
        let path = format!("profiles.{name}");
        if !is_name(name) {
            errors.refuse(path, "a profile's name is 1 to 32 of a-z, 0-9, _ and -");
            continue;
        }
        if built_in.get(name).is_some() {
            let rule = format!("is built in; make another one with `base = \"{name}\"`");
            errors.refuse(path, rule);
            continue;
        }
        let Some(table) = value.as_table() else {
            errors.refuse(path, format!("must be a table: [profiles.{name}]"));
            continue;
        };
        let mut reader = Reader {
            path,
            table,
            errors: &mut *errors,
        };
        all.0.insert(name.clone(), profile(name, built_in, &mut reader));
    }
    all
}

fn profile(name: &str, built_in: &Profiles, reader: &mut Reader<'_>) -> Profile {
    reader.refuse_unknown(&KEYS);
    let base = reader.text("base").unwrap_or_else(|| GENERIC.to_owned());
    let mut profile = built_in.get(&base).unwrap_or_else(|| {
        reader.wrong("base", &base, &format!("must be \"{GENERIC}\" or \"{SEED}\""));
        Profile::generic()
    });
    name.clone_into(&mut profile.name);
    profile.title = reader.text("name").or(profile.title);
    profile.description = reader.text("description").or(profile.description);
    organization(&mut profile, reader);
    let own = skills(reader);
    if !own.is_empty() {
        profile.skills = own;
    }
    if let Some(modes) = media_types("output_modes", reader) {
        profile.output_modes = modes;
    }
    match reader.text("end").as_deref() {
        None => {}
        Some("completed") => profile.good_end = GoodEnd::Completed,
        Some("input-required") => profile.good_end = GoodEnd::InputRequired,
        Some(other) => reader.wrong("end", other, "must be \"completed\" or \"input-required\""),
    }
    if reader.table.contains_key("answer_artifact") {
        profile.answer_artifact = reader.flag("answer_artifact");
    }
    thinking(&mut profile, reader);
    profile.extensions.extend(extensions(reader));
    input(&mut profile, reader);
    profile
}

/// What is shown of an agent's thinking; without a key of its own there is no place for it.
fn thinking(profile: &mut Profile, reader: &mut Reader<'_>) {
    if !reader.table.contains_key("thinking") {
        return;
    }
    match Thinking::read(&reader.texts("thinking")) {
        Ok(_) if profile.namespace.is_none() => {
            let rule = format!("needs base = \"{SEED}\": in other profiles it is a matter of the agent");
            reader.refuse("thinking", &rule);
        }
        Ok(shown) => profile.show(shown),
        Err(other) => reader.wrong("thinking", &other, "must be of \"tool-trace\" and \"raw-thinking\""),
    }
}

fn organization(profile: &mut Profile, reader: &mut Reader<'_>) {
    let name = reader.text("organization");
    let url = reader.text("organization_url");
    match (name, url) {
        (None, None) => {}
        (Some(name), Some(url)) if url::Url::parse(&url).is_ok() => profile.organization = Some((name, url)),
        (Some(_), Some(url)) => reader.wrong("organization_url", &url, "must be a URL"),
        (Some(_), None) => reader.refuse("organization_url", "is missing: the protocol wants both"),
        (None, Some(_)) => reader.refuse("organization", "is missing: the protocol wants both"),
    }
}

/// What parts are taken. Further types of a profile that makes texts of parts are taken by it, too.
fn input(profile: &mut Profile, reader: &mut Reader<'_>) {
    let further = [
        ("text_types", media_types("text_types", reader)),
        ("media_types", media_types("media_types", reader)),
    ];
    let [texts, media] = further
        .each_ref()
        .map(|(_, types)| types.as_deref().unwrap_or_default());
    if !profile.take_also(texts, media) {
        for (key, _) in further.iter().filter(|(_, given)| given.is_some()) {
            let rule = format!("needs base = \"{SEED}\": other profiles pass parts on as they are");
            reader.refuse(key, &rule);
        }
    }
    if let Some(modes) = media_types("input_modes", reader) {
        profile.input_modes = modes;
    }
}

fn extensions(reader: &mut Reader<'_>) -> Vec<Extension> {
    let mut all: Vec<Extension> = Vec::new();
    reader.each_table("extensions", |reader| {
        reader.refuse_unknown(&EXTENSION_KEYS);
        let uri = reader.required_text("uri");
        if uri.contains([',', ' ']) || url::Url::parse(&uri).is_err() || uri.starts_with(OURS) {
            reader.wrong(
                "uri",
                &uri,
                "must be a URI, without commas and spaces, and not one of the server's own",
            );
        } else if all.iter().any(|other| other.uri == uri) {
            reader.wrong("uri", &uri, "is used twice");
        }
        all.push(Extension {
            uri,
            description: reader.text("description").unwrap_or_default(),
            required: reader.flag("required"),
            params: params(reader),
        });
    });
    all
}

fn params(reader: &mut Reader<'_>) -> BTreeMap<String, serde_json::Value> {
    let Some(value) = reader.table.get("params") else {
        return BTreeMap::new();
    };
    if let Ok(serde_json::Value::Object(members)) = serde_json::to_value(value) {
        members.into_iter().collect()
    } else {
        reader.refuse("params", "must be a table");
        BTreeMap::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Profiles, Vec<String>) {
        let mut errors = ConfigErrors::new();
        let profiles = profiles(&toml::from_str(text).unwrap(), &Profiles::default(), &mut errors);
        (profiles, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_table_begins_with_its_base_and_says_what_is_different() {
        let (profiles, errors) = read(
            "[team]\nbase = \"iac-code\"\nname = \"Team\"\nend = \"completed\"\ntext_types = [\"text/x-hcl\"]\n\
             organization = \"O\"\norganization_url = \"https://o.example\"\n\
             thinking = [\"tool-trace\", \"raw-thinking\"]\n\
             [[team.extensions]]\nuri = \"urn:o:x:v1\"\nrequired = true\nparams = { a = [1, \"b\"] }\n\
             [quiet]\nbase = \"iac-code\"\nthinking = []\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        let team = profiles.get("team").unwrap();
        assert_eq!(
            (team.title.as_deref(), team.good_end),
            (Some("Team"), GoodEnd::Completed)
        );
        assert!(team.takes("text/x-hcl") && team.takes("image/png"));
        assert!(team.ingest.unwrap().text_types.contains(&"text/x-hcl".to_owned()));
        let last = team.extensions.last().unwrap();
        assert!(last.required && last.params["a"] == serde_json::json!([1, "b"]));
        assert_eq!(team.extensions.len(), 3);
        assert_eq!(team.thinking, Thinking::ALL);
        let quiet = profiles.get("quiet").unwrap();
        assert_eq!((quiet.thinking.len(), quiet.extensions.len()), (0, 1));
        assert_eq!(team.skills.len(), 5);
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let (_, errors) = read(
            "[generic]\nname = \"x\"\n[A]\n[b]\nbase = \"other\"\nend = \"failed\"\ncolour = 1\nthinking = [\"tool-trace\"]\ninput_modes = [\"text\"]\n\
             text_types = [\"text/x\"]\norganization = \"O\"\n[[b.extensions]]\nuri = \"urn:relevo:x\"\nparams = 1\n",
        );
        for part in [
            "profiles.generic: is built in",
            "profiles.A: a profile's name",
            "profiles.b.base = \"other\": must be",
            "profiles.b.end = \"failed\": must be",
            "profiles.b.colour: is no known key",
            "profiles.b.thinking: needs base",
            "profiles.b.input_modes: must be media types",
            "profiles.b.text_types: needs base",
            "profiles.b.organization_url: is missing",
            "profiles.b.extensions[0].uri = \"urn:relevo:x\": must be",
            "profiles.b.extensions[0].params: must be a table",
        ] {
            assert!(
                errors.iter().any(|error| error.starts_with(part)),
                "{part} in {errors:#?}"
            );
        }
        assert_eq!(errors.len(), 11, "{errors:#?}");
    }
}
