//! Reads a whole configuration: fills the layers, refuses what nobody knows, reads and checks every section.

use std::fmt;
use std::path::PathBuf;

use super::environment::{EMPTY_CREDENTIAL, PREFIX, SET_FOR_AGENTS, is_service_link, under_our_names};
use super::field::section_env_prefix;
use super::sections::{FREE_FORM, SECTIONS};
use super::source::FileLayer;
use super::suggest::nearest;
use super::{ConfigErrors, Field, SectionInfo, Settings, Source, reference_keys, yaml};

/// Gathers the layers, then loads them.
#[derive(Clone, Default)]
pub struct Loader {
    file: Option<PathBuf>,
    text: Option<(String, String)>,
    env: Vec<(String, String)>,
    overrides: Vec<(String, String)>,
}

// By hand: the layers hold secrets.
impl fmt::Debug for Loader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Loader")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Loader {
    /// The defaults alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// The file, if there is one: YAML if it is called `.yaml` or `.yml`, else TOML. It is read by `load`, so that its errors come with the others.
    #[must_use]
    pub fn file(mut self, path: Option<PathBuf>) -> Self {
        self.file = path;
        self
    }

    /// Text instead of a file; `name` is what errors call it, and says which form it has, as that of a file does.
    #[must_use]
    pub fn text(mut self, name: &str, text: &str) -> Self {
        self.text = Some((name.to_owned(), text.to_owned()));
        self
    }

    /// The environment: [`super::process_env`], or what a test pretends it to be. Other variables than `RELEVO_…` and
    /// the reference server's are passed over.
    #[must_use]
    pub fn env(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.env.extend(variables);
        self
    }

    /// One value from the command line, the highest layer: `set("redis.url", …)`. The last one of a key wins.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.overrides.push((key.into(), value.into()));
        self
    }

    /// Reads everything.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load(self) -> Result<Settings, ConfigErrors> {
        self.load_with(|_, _| ()).map(|(settings, ())| settings)
    }

    /// Reads everything and lets the process add its own part: the agents' tables, rules across sections. `build` runs
    /// even when something is already wrong, so that its errors are reported with the others; a key that could not be
    /// read stands at its default there.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_with<T>(
        self,
        build: impl FnOnce(&Settings, &mut ConfigErrors) -> T,
    ) -> Result<(Settings, T), ConfigErrors> {
        let mut errors = ConfigErrors::new();
        let source = self.into_source(&mut errors);
        refuse_unknown_in_file(&source, &mut errors);
        refuse_unknown_variables(&source, &mut errors);
        refuse_empty_credentials(&source, &mut errors);
        refuse_unknown_overrides(&source, &mut errors);
        let settings = Settings::read(&source, &mut errors);
        let built = build(&settings, &mut errors);
        errors.into_result((settings, built))
    }

    fn into_source(self, errors: &mut ConfigErrors) -> Source {
        let text = self.text.or_else(|| {
            let path = self.file?;
            let name = path.display().to_string();
            match std::fs::read_to_string(&path) {
                Ok(text) => Some((name, text)),
                Err(error) => {
                    errors.refuse(name, format!("cannot be read: {error}"));
                    None
                }
            }
        });
        let file = text.and_then(|(name, text)| {
            if yaml::is_yaml(&name) {
                read_yaml(name, &text, errors)
            } else {
                read_toml(name, &text, errors)
            }
        });
        Source {
            file,
            env: under_our_names(self.env, errors),
            overrides: self.overrides.into_iter().collect(),
        }
    }
}

fn read_toml(name: String, text: &str, errors: &mut ConfigErrors) -> Option<FileLayer> {
    match toml::from_str(text) {
        Ok(table) => Some(FileLayer::new(name, table)),
        Err(error) => {
            let line = line_of(text, error.span().map(|span| span.start));
            errors.refuse(
                format!("{name}, line {line}"),
                format!("is not TOML: {}", first_line(error.message())),
            );
            None
        }
    }
}

fn read_yaml(name: String, text: &str, errors: &mut ConfigErrors) -> Option<FileLayer> {
    match yaml::read(text) {
        Ok(table) => Some(reference_keys::translate(name, table, errors)),
        Err((line, rule)) => {
            let place = line.map_or_else(|| name.clone(), |line| format!("{name}, line {line}"));
            errors.refuse(place, rule);
            None
        }
    }
}

/// The line, from 1, a byte offset is in. The error's own text shows the line's content, which may be a secret.
fn line_of(text: &str, offset: Option<usize>) -> usize {
    let before = offset.and_then(|offset| text.get(..offset)).unwrap_or_default();
    before.matches('\n').count() + 1
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

fn refuse_unknown_in_file(source: &Source, errors: &mut ConfigErrors) {
    let Some(file) = &source.file else { return };
    for (name, value) in &file.table {
        let section = SECTIONS.iter().find(|section| section.name == name);
        if section.is_none() && !FREE_FORM.contains(&name.as_str()) {
            let known = SECTIONS.iter().map(|section| section.name).chain(FREE_FORM);
            let hint = nearest(name, known).map(|near| format!("[{near}]"));
            errors.refuse(format!("[{name}] in {}", file.name), unknown("section", hint));
            continue;
        }
        let Some(table) = value.as_table() else {
            errors.refuse(
                format!("{name} in {}", file.name),
                format!("must be a section: [{name}]"),
            );
            continue;
        };
        let Some(section) = section else { continue };
        for key in table.keys().filter(|key| section.field(key).is_none()) {
            errors.refuse(
                format!("{}.{key} in {}", section.name, file.name),
                unknown("key", near_key(section, key)),
            );
        }
    }
}

fn refuse_unknown_variables(source: &Source, errors: &mut ConfigErrors) {
    for (name, value) in &source.env {
        let ours = name.starts_with(PREFIX) && !SET_FOR_AGENTS.contains(&name.as_str());
        if !ours || all_fields().any(|field| field.env() == *name) || is_service_link(name, value) {
            continue;
        }
        if let Some(free) = FREE_FORM
            .iter()
            .find(|section| name.starts_with(&section_env_prefix(section)))
        {
            errors.refuse(name, format!("[{free}] is set in the file only"));
        } else if let Some(section) = SECTIONS
            .iter()
            .find(|info| name.starts_with(&section_env_prefix(info.name)))
        {
            let names: Vec<String> = section.fields.iter().map(Field::env).collect();
            let hint = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
            errors.refuse(name, unknown("variable", hint));
        }
        // Any other is not about a section of ours; an option of the command line may be named like that.
    }
}

/// An empty text leaves a setting unset. For a credential of callers that would mean that everyone may call, and it is what a
/// command that failed leaves behind.
fn refuse_empty_credentials(source: &Source, errors: &mut ConfigErrors) {
    let credentials =
        || all_fields().filter(|field| field.section == "auth" && (field.secret || field.key == "basic_username"));
    let rule = EMPTY_CREDENTIAL;
    for (name, _) in source.env.iter().filter(|(_, value)| value.trim().is_empty()) {
        if credentials().any(|field| field.env() == *name) {
            errors.refuse(name, rule);
        }
    }
    let Some(file) = &source.file else { return };
    let Some(table) = file.table.get("auth").and_then(toml::Value::as_table) else {
        return;
    };
    for field in credentials() {
        let text = table.get(field.key).and_then(toml::Value::as_str);
        if text.is_some_and(|text| text.trim().is_empty()) {
            errors.refuse(file.path(&field.path()), rule);
        }
    }
}

fn refuse_unknown_overrides(source: &Source, errors: &mut ConfigErrors) {
    for path in source
        .overrides
        .keys()
        .filter(|path| all_fields().all(|field| field.path() != **path))
    {
        let names: Vec<String> = all_fields().map(Field::path).collect();
        let hint = nearest(path, names.iter().map(String::as_str)).map(str::to_owned);
        errors.refuse(format!("{path} on the command line"), unknown("key", hint));
    }
}

fn all_fields() -> impl Iterator<Item = &'static Field> {
    SECTIONS.iter().flat_map(|section| section.fields)
}

/// The key that was meant: one spelled nearly like it here, or one of that name in another section, which it may name, too, as flags
/// and variables do.
fn near_key(section: &SectionInfo, key: &str) -> Option<String> {
    let near =
        nearest(key, section.fields.iter().map(|field| field.key)).map(|near| format!("{}.{near}", section.name));
    let elsewhere = || all_fields().find(|field| field.key == key || field.path().replace('.', "_") == key);
    near.or_else(|| elsewhere().map(Field::path))
}

fn unknown(what: &str, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("is no known {what}; did you mean {hint}?"),
        None => format!("is no known {what}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn errors_of(loader: Loader) -> Vec<String> {
        loader
            .load()
            .err()
            .map(|errors| errors.iter().map(ToString::to_string).collect())
            .unwrap_or_default()
    }

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn an_empty_credential_is_refused_wherever_it_is() {
        for key in ["token", "basic_username", "basic_password", "api_key"] {
            let name = format!("RELEVO_AUTH_{}", key.to_ascii_uppercase());
            for empty in ["", " "] {
                let found = errors_of(Loader::new().env(env(&[(&name, empty)])));
                assert!(found[0].starts_with(&format!("{name}: is empty")), "{found:?}");
                let file = format!("[auth]\n{key} = \"{empty}\"\n");
                let found = errors_of(Loader::new().text("x.toml", &file));
                assert!(
                    found[0].starts_with(&format!("auth.{key} in x.toml: is empty")),
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(errors_of(Loader::new()), Vec::<String>::new());
    }

    #[test]
    fn one_file_serves_both_processes() {
        let settings = Loader::new()
            .text(
                "relevo.toml",
                "[gateway]\nbody_limit = \"1MiB\"\n[worker]\nslots = 8\n[agents.demo]\nkind = \"demo\"",
            )
            .load()
            .unwrap();
        assert_eq!(settings.gateway.body_limit.get(), 1 << 20);
        assert_eq!(settings.worker.slots.get(), 8);
        assert!(settings.agents.contains_key("demo"));
    }

    #[test]
    fn all_errors_of_all_layers_are_reported_together() {
        let errors = errors_of(
            Loader::new()
                .text(
                    "relevo.toml",
                    "[lease]\ntll = \"15s\"\n[retentoin]\n[drain]\ndeadline = 5\n[gateway]\nadmin_listen = \"h:1\"",
                )
                .env(env(&[("RELEVO_WORKER_SLOT", "8"), ("RELEVO_TURN_ATTEMPTS", "0")]))
                .set("redis.uri", "redis://h"),
        );
        assert_eq!(errors.len(), 7, "{errors:#?}");
        for part in [
            "gateway.admin_listen in relevo.toml: is no known key; did you mean admin.listen?",
            "lease.tll in relevo.toml: is no known key; did you mean lease.ttl?",
            "[retentoin] in relevo.toml: is no known section; did you mean [retention]?",
            "drain.deadline in relevo.toml = 5: must be a duration",
            "RELEVO_WORKER_SLOT: is no known variable; did you mean RELEVO_WORKER_SLOTS?",
            "turn.attempts = 0: must be at least 1",
            "redis.uri on the command line: is no known key; did you mean redis.url?",
        ] {
            assert!(
                errors.iter().any(|error| error.starts_with(part)),
                "{part} in {errors:#?}"
            );
        }
    }

    #[test]
    fn a_key_in_the_wrong_section_is_pointed_to_its_own() {
        let errors = errors_of(Loader::new().text("f", "[worker]\nmax_duration = \"1h\""));
        assert_eq!(
            errors,
            ["worker.max_duration in f: is no known key; did you mean turn.max_duration?"]
        );
    }

    #[test]
    fn variables_that_are_not_settings_are_passed_over() {
        let loader = Loader::new().env(env(&[
            ("RELEVO_TURN_ID", "0190"),
            ("RELEVO_EPOCH", "3"),
            ("RELEVO_ATTEMPT", "1"),
            ("RELEVO_CONFIG", "x"),
            ("RELEVO_REDIS_PORT", "tcp://10.0.0.1:6379"),
            ("PATH", "/bin"),
        ]));
        assert_eq!(errors_of(loader), Vec::<String>::new());
    }

    #[test]
    fn agents_are_not_set_by_the_environment() {
        let errors = errors_of(Loader::new().env(env(&[("RELEVO_AGENTS_DEMO_KIND", "demo")])));
        assert_eq!(errors, ["RELEVO_AGENTS_DEMO_KIND: [agents] is set in the file only"]);
    }

    #[test]
    fn a_section_must_be_a_table() {
        let errors = errors_of(Loader::new().text("f", "lease = 5\nagents = []"));
        assert_eq!(
            errors,
            [
                "agents in f: must be a section: [agents]",
                "lease in f: must be a section: [lease]"
            ]
        );
    }

    #[test]
    fn a_syntax_error_names_file_and_line_and_shows_no_content() {
        let errors = errors_of(Loader::new().text("relevo.toml", "[redis]\nprefix = \"x\"\npassword = hunter2\n"));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with("relevo.toml, line 3: is not TOML: "),
            "{errors:?}"
        );
        assert!(!errors[0].contains("hunter2"), "{errors:?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported_with_the_other_errors() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.toml");
        let errors = errors_of(Loader::new().file(Some(missing.clone())).set("lease.ttl", "x"));
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(
            errors[0].starts_with(&format!("{}: cannot be read: ", missing.display())),
            "{errors:?}"
        );
    }

    #[test]
    fn a_file_is_read_below_the_environment() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"[redis]\nprefix = \"fromfile\"\npartitions = 8\n")
            .unwrap();
        let settings = Loader::new()
            .file(Some(file.path().to_owned()))
            .env(env(&[("RELEVO_REDIS_PREFIX", "fromenv")]))
            .load()
            .unwrap();
        assert_eq!(
            (settings.redis.prefix.as_str(), settings.redis.partitions),
            ("fromenv", 8)
        );
    }

    #[test]
    fn what_the_process_builds_is_checked_with_the_rest() {
        let errors = Loader::new()
            .set("lease.ttl", "x")
            .load_with(|settings, errors| {
                errors.refuse("agents.demo.kind", "is missing");
                settings.lease.ttl
            })
            .unwrap_err();
        assert_eq!(errors.len(), 2);
    }
}
