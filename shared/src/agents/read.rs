//! Reading `[agents.<name>]` tables, all errors at once.

use toml::{Table, Value};

use super::profile::{GENERIC, Profile, essence};
use super::{AgentConfig, AgentKind, Agents, DEFAULT_POOL, Profiles, a2a, limits, openai, process, skills, upstream};
use crate::domain::record::{BusyPolicy, CrashPolicy};
use crate::platform::config::{ConfigError, ConfigErrors, Setting, is_media_type, nearest};

const AGENT_KEYS: [&str; 11] = [
    "kind",
    "profile",
    "policy",
    "busy",
    "attempts",
    "pool",
    "name",
    "description",
    "skills",
    "default",
    "direct",
];
/// A key of the cluster's is called like the bell of this pool would be.
const RESERVED_POOL: &str = "workers";

/// Longest name of an agent or a pool: both are parts of keys and labels.
const LONGEST_NAME: usize = 32;

pub(super) fn agents(table: &Table, profiles: &Profiles, errors: &mut ConfigErrors) -> Agents {
    if table.is_empty() {
        return Agents::default();
    }
    let mut all = Vec::new();
    let mut defaults = Vec::new();
    for (name, value) in table {
        let path = format!("agents.{name}");
        if !is_name(name) {
            errors.refuse(path.clone(), "an agent's name is 1 to 32 of a-z, 0-9, _ and -");
        }
        let Some(table) = value.as_table() else {
            errors.refuse(path, format!("must be a table: [agents.{name}]"));
            continue;
        };
        let mut reader = Reader {
            path,
            table,
            errors: &mut *errors,
        };
        if reader.flag("default") {
            defaults.push(all.len());
        }
        all.push(agent(name, profiles, &mut reader));
    }
    skills::refuse_shared(table, &all, errors);
    limits::refuse_shared_pools(&all, errors);
    if all.is_empty() {
        return Agents::default();
    }
    let default = match defaults.as_slice() {
        [] if all.len() == 1 => 0,
        [one] => *one,
        [] => {
            errors.refuse("agents", "there are several: one of them must say `default = true`");
            0
        }
        _ => {
            errors.refuse("agents", "only one of them may say `default = true`");
            0
        }
    };
    Agents { all, default }
}

fn agent(name: &str, profiles: &Profiles, reader: &mut Reader<'_>) -> AgentConfig {
    let own = AgentKind::ALL.into_iter().flat_map(own_keys);
    let known: Vec<&str> = AGENT_KEYS.into_iter().chain(limits::KEYS).chain(own).collect();
    reader.refuse_unknown(&known);
    let named = kind(reader);
    let kind = named.unwrap_or(AgentKind::Demo);
    let policy = match reader.text("policy").as_deref() {
        None => kind.default_policy(),
        Some("restart") => CrashPolicy::Restart,
        Some("fail") => CrashPolicy::Fail,
        Some(other) => {
            reader.wrong("policy", other, "must be \"restart\" or \"fail\"");
            kind.default_policy()
        }
    };
    let wanted = reader.text("profile").unwrap_or_else(|| GENERIC.to_owned());
    let mut profile = profiles.get(&wanted).unwrap_or_else(|| {
        let rule = format!("is no profile: {} or a table [profiles.{wanted}]", profiles.names());
        reader.wrong("profile", &wanted, &rule);
        Profile::generic()
    });
    let description = reader.text("description").unwrap_or_else(|| {
        let own = profile.description.clone();
        own.unwrap_or_else(|| kind.default_description().to_owned())
    });
    let title = reader.text("name").or_else(|| profile.title.clone());
    let title = title.unwrap_or_else(|| name.to_owned());
    let pool = reader.text("pool").unwrap_or_else(|| DEFAULT_POOL.to_owned());
    if !is_name(&pool) {
        reader.wrong("pool", &pool, "must be 1 to 32 of a-z, 0-9, _ and -");
    } else if pool == RESERVED_POOL {
        reader.wrong("pool", &pool, "is kept for the list of workers");
    }
    let skills = skills::skills(reader);
    if let Some(kind) = named {
        reader.refuse_foreign(kind);
    }
    let process = (named == Some(AgentKind::Process)).then(|| process::process(reader));
    let a2a = if named == Some(AgentKind::A2a) {
        a2a::a2a(reader)
    } else {
        None
    };
    let openai = if named == Some(AgentKind::OpenAi) {
        openai::openai(reader)
    } else {
        None
    };
    if let Some(openai) = openai.as_ref().filter(|_| profile.name == GENERIC) {
        // What no model can be shown is refused by the gateway, before there is a task.
        profile.input_modes = openai.input_modes();
        profile.output_modes = vec!["text/plain".to_owned()];
    }
    AgentConfig {
        name: name.to_owned(),
        kind,
        policy,
        busy: busy(reader),
        attempts: reader.attempts(),
        pool,
        limits: limits::limits(reader),
        direct: reader.flag("direct"),
        title,
        description,
        skills,
        profile,
        process,
        openai,
        a2a,
    }
    .with_a_skill()
}

/// The keys that tables of this kind have beside those of every agent.
fn own_keys(kind: AgentKind) -> Vec<&'static str> {
    match kind {
        AgentKind::Demo => Vec::new(),
        AgentKind::Process => process::KEYS.to_vec(),
        AgentKind::OpenAi => [&upstream::KEYS[..], &openai::KEYS[..]].concat(),
        AgentKind::A2a => [&upstream::KEYS[..], &a2a::KEYS[..]].concat(),
    }
}

fn quoted(kind: AgentKind) -> String {
    format!("\"{}\"", kind.as_str())
}

fn busy(reader: &mut Reader<'_>) -> BusyPolicy {
    let Some(text) = reader.text("busy") else {
        return BusyPolicy::default();
    };
    let known = BusyPolicy::ALL.into_iter().find(|policy| policy.as_str() == text);
    known.unwrap_or_else(|| {
        reader.wrong("busy", &text, "must be \"reject\", \"queue\" or \"interrupt\"");
        BusyPolicy::default()
    })
}

fn kind(reader: &mut Reader<'_>) -> Option<AgentKind> {
    let text = reader.text("kind");
    let known = text
        .as_deref()
        .and_then(|text| AgentKind::ALL.into_iter().find(|kind| kind.as_str() == text));
    if known.is_none() {
        let kinds = AgentKind::ALL.map(quoted).join(", ");
        match text {
            Some(text) => reader.wrong("kind", &text, &format!("must be one of {kinds}")),
            None => reader.refuse("kind", &format!("is missing: one of {kinds}")),
        }
    }
    known
}

/// A list of media types, without their parameters; `None` when there is none, or none of use.
pub(super) fn media_types(key: &str, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    if !reader.table.contains_key(key) {
        return None;
    }
    let types: Vec<String> = reader.texts(key).iter().map(|text| essence(text)).collect();
    if types.is_empty() || !types.iter().all(|text| is_media_type(text)) {
        reader.refuse(key, "must be media types such as \"text/plain\" or \"image/*\"");
        return None;
    }
    Some(types)
}

pub(super) fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len())
        && text
            .bytes()
            .all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

pub(super) struct Reader<'a> {
    pub(super) path: String,
    pub(super) table: &'a Table,
    pub(super) errors: &'a mut ConfigErrors,
}

impl Reader<'_> {
    /// Reads each of the tables under a key, if it is there.
    pub(super) fn each_table(&mut self, key: &str, mut read: impl FnMut(&mut Reader<'_>)) {
        let Some(value) = self.table.get(key) else { return };
        let Some(tables) = value.as_array() else {
            let rule = format!("must be tables: [[{}.{key}]]", self.path);
            return self.refuse(key, &rule);
        };
        for (place, value) in tables.iter().enumerate() {
            let path = format!("{}.{key}[{place}]", self.path);
            match value.as_table() {
                None => self.errors.refuse(path, "must be a table"),
                Some(table) => read(&mut Reader {
                    path,
                    table,
                    errors: &mut *self.errors,
                }),
            }
        }
    }

    pub(super) fn refuse(&mut self, key: &str, rule: &str) {
        self.errors.refuse(format!("{}.{key}", self.path), rule);
    }

    pub(super) fn wrong(&mut self, key: &str, value: &str, rule: &str) {
        let value = Some(Value::String(value.to_owned()).to_string());
        self.errors.push(ConfigError {
            key: format!("{}.{key}", self.path),
            value,
            rule: rule.to_owned(),
        });
    }

    pub(super) fn refuse_unknown(&mut self, known: &[&str]) {
        for key in self.table.keys().filter(|key| !known.contains(&key.as_str())) {
            let hint = nearest(key, known.iter().copied()).map(|near| format!("; did you mean {}.{near}?", self.path));
            let rule = format!("is no known key{}", hint.unwrap_or_default());
            self.errors.refuse(format!("{}.{key}", self.path), rule);
        }
    }

    /// Refuses keys that only other kinds of agents have.
    fn refuse_foreign(&mut self, kind: AgentKind) {
        for key in self.table.keys() {
            let has = |kind: AgentKind| own_keys(kind).contains(&key.as_str());
            let kinds: Vec<String> = AgentKind::ALL
                .into_iter()
                .filter(|kind| has(*kind))
                .map(quoted)
                .collect();
            if !kinds.is_empty() && !has(kind) {
                self.errors.refuse(
                    format!("{}.{key}", self.path),
                    format!("belongs to kind = {}", kinds.join(" or ")),
                );
            }
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let value = self.table.get(key)?;
        match value.as_str().map(str::trim) {
            Some("") | None => {
                self.refuse(key, "must be text that is not empty");
                None
            }
            Some(text) => Some(text.to_owned()),
        }
    }

    pub(super) fn required_text(&mut self, key: &str) -> String {
        if !self.table.contains_key(key) {
            self.refuse(key, "is missing");
        }
        self.text(key).unwrap_or_default()
    }

    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        self.texts_that_are(key, "must be an array of texts")
    }

    /// The same; what is none is told what they are.
    pub(super) fn texts_such_as(&mut self, key: &str, words: &str) -> Vec<String> {
        self.texts_that_are(key, &format!("must be an array of texts: {words}"))
    }

    fn texts_that_are(&mut self, key: &str, rule: &str) -> Vec<String> {
        let Some(value) = self.table.get(key) else {
            return Vec::new();
        };
        let texts = value
            .as_array()
            .and_then(|all| all.iter().map(|one| one.as_str().map(str::to_owned)).collect());
        texts.unwrap_or_else(|| {
            self.refuse(key, rule);
            Vec::new()
        })
    }

    /// Reads a value of a setting's form.
    pub(super) fn setting<T: Setting>(&mut self, key: &str) -> Option<T> {
        let value = self.table.get(key)?;
        let read = T::from_toml(value);
        if read.is_none() {
            self.refuse(key, &format!("must be {}", T::EXPECTED));
        }
        read
    }

    pub(super) fn flag(&mut self, key: &str) -> bool {
        let Some(value) = self.table.get(key) else { return false };
        value.as_bool().unwrap_or_else(|| {
            self.refuse(key, "must be true or false");
            false
        })
    }

    fn attempts(&mut self) -> Option<u32> {
        let value = self.table.get("attempts")?;
        let attempts = value
            .as_integer()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| *n >= 1);
        if attempts.is_none() {
            self.refuse("attempts", "must be a whole number of at least 1");
        }
        attempts
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::read;
    use super::*;

    #[test]
    fn without_configuration_there_is_the_demo_agent() {
        let (agents, errors) = read("");
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(agents, Agents::default());
        assert_eq!(agents.default_agent().name, "demo");
        assert_eq!(agents.default_agent().policy, CrashPolicy::Restart);
        assert_eq!(agents.pools(), ["default"]);
    }

    #[test]
    fn a_table_says_everything_about_an_agent() {
        let (agents, errors) = read(
            "[a]\nkind = \"demo\"\n\
             [b]\nkind = \"demo\"\npolicy = \"fail\"\nbusy = \"queue\"\nattempts = 5\npool = \"large\"\ndescription = \"B.\"\ndefault = true\n\
             [[b.skills]]\nid = \"count\"\ndescription = \"Counts.\"\ntags = [\"numbers\"]\nexamples = [\"chunks=3\"]\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        let b = agents.default_agent();
        assert_eq!(
            (b.name.as_str(), b.policy, b.attempts),
            ("b", CrashPolicy::Fail, Some(5))
        );
        assert_eq!((b.pool.as_str(), b.description.as_str()), ("large", "B."));
        assert_eq!(b.busy, BusyPolicy::Queue);
        assert_eq!(agents.get("a").unwrap().busy, BusyPolicy::Reject);
        assert_eq!(b.skills[0].name, "count");
        assert_eq!(agents.get("a").unwrap().skills[0].id, "a");
        assert_eq!(agents.pools(), ["default", "large"]);
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let (_, errors) = read(
            "[a]\nkind = \"oracle\"\npolicy = \"retry\"\nbusy = \"wait\"\nattempts = 0\npool = \"A B\"\ncolour = 1\ndescripton = \"x\"\ndefault = 1\n\
             [[a.skills]]\nname = \"x\"\ntags = 1\n[B]\nkind = \"demo\"\nattempts = 0\ndefault = true\n",
        );
        for part in [
            "agents.a.kind = \"oracle\": must be one of \"demo\"",
            "agents.a.policy = \"retry\": must be",
            "agents.a.busy = \"wait\": must be",
            "agents.a.attempts: must be",
            "agents.a.pool = \"A B\": must be",
            "agents.a.colour: is no known key",
            "agents.a.descripton: is no known key; did you mean agents.a.description?",
            "agents.a.default: must be true or false",
            "agents.a.skills[0].id: is missing",
            "agents.a.skills[0].description: is missing",
            "agents.a.skills[0].tags: must be",
            "agents.B: an agent's name",
            "agents.B.attempts: must be",
        ] {
            assert!(
                errors.iter().any(|error| error.starts_with(part)),
                "{part} in {errors:#?}"
            );
        }
        assert_eq!(errors.len(), 13, "{errors:#?}");
    }

    #[test]
    fn of_several_agents_exactly_one_is_the_default() {
        let two = |a: &str, b: &str| {
            read(&format!("[a]\nkind = \"demo\"\n{a}\n[b]\nkind = \"demo\"\n{b}\n"))
                .1
                .len()
        };
        assert_eq!(two("", ""), 1);
        assert_eq!(two("default = true", ""), 0);
        assert_eq!(two("default = true", "default = true"), 1);
    }
}
