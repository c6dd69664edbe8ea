//! The environment of an agent's process: a few variables of the worker, those of its table, and the turn's numbers. Nothing else of
//! the worker is inherited, least of all its settings and secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use relevo_shared::agents::{AgentConfig, EnvValue, ProcessConfig};
use relevo_shared::platform::config::{ConfigErrors, env_var};

/// What programs cannot do without, or behave oddly: where things are, in which language and time zone.
const INHERITED: [&str; 9] = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
];

/// A variable that cannot be set. Names its source, never its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    variable: String,
    rule: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "env.{}: {}", self.variable, self.rule)
    }
}

/// The variables of a process, apart from the turn's; secrets are read now.
pub(super) fn variables(config: &ProcessConfig) -> Result<BTreeMap<String, String>, Missing> {
    let inherited = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), env_var(name)?)));
    let mut all: BTreeMap<String, String> = inherited.collect();
    for (name, value) in &config.env {
        let value = value_of(value).map_err(|rule| Missing {
            variable: name.clone(),
            rule,
        })?;
        all.insert(name.clone(), value);
    }
    Ok(all)
}

fn value_of(value: &EnvValue) -> Result<String, String> {
    match value {
        EnvValue::Text(text) => Ok(text.expose().to_owned()),
        EnvValue::Env(name) => env_var(name).ok_or_else(|| format!("{name} is not set for the worker")),
        EnvValue::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("{} cannot be read: {}", path.display(), error.kind()))?;
            let text = text.trim_end_matches(['\r', '\n']);
            if text.contains('\0') {
                return Err(format!("{} holds a NUL", path.display()));
            }
            Ok(text.to_owned())
        }
    }
}

/// Refuses what could not be started on this machine, before the first turn finds out.
pub(crate) fn check(agent: &AgentConfig, errors: &mut ConfigErrors) {
    let Some(config) = &agent.process else { return };
    let key = |key: &str| format!("agents.{}.{key}", agent.name);
    if config.cwd.as_ref().is_some_and(|cwd| !cwd.is_dir()) {
        errors.refuse(key("cwd"), "is no directory on this machine");
    } else if let Some(program) = config.command.first().filter(|program| !program.is_empty())
        && !is_found(program, config.cwd.as_deref())
    {
        errors.refuse(
            key("command"),
            format!("there is no program `{program}` on this machine"),
        );
    }
    for (name, value) in &config.env {
        if let Err(rule) = value_of(value) {
            errors.refuse(key(&format!("env.{name}")), rule);
        }
    }
}

fn is_found(program: &str, cwd: Option<&Path>) -> bool {
    if program.contains('/') {
        return cwd
            .map_or_else(|| PathBuf::from(program), |cwd| cwd.join(program))
            .is_file();
    }
    let path = env_var("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use relevo_shared::agents::Agents;
    use relevo_shared::platform::config::Secret;
    use relevo_testkit::Scratch;

    use super::*;

    #[test]
    fn only_what_is_named_is_inherited_and_secrets_come_from_files() {
        let scratch = Scratch::new("env");
        let file = scratch.path().join("key");
        std::fs::write(&file, "hunter2\n").unwrap();
        let mut config = ProcessConfig::of_command(vec!["true".into()]);
        config.env = BTreeMap::from([
            ("MODE".into(), EnvValue::Text(Secret::new("fast"))),
            ("KEY".into(), EnvValue::File(file)),
            ("WHERE".into(), EnvValue::Env("PATH".into())),
        ]);
        let all = variables(&config).unwrap();
        assert_eq!((all["MODE"].as_str(), all["KEY"].as_str()), ("fast", "hunter2"));
        assert_eq!(all["WHERE"], all["PATH"]);
        assert!(
            all.keys()
                .all(|name| INHERITED.contains(&name.as_str()) || config.env.contains_key(name))
        );
        config.env.insert("KEY".into(), EnvValue::File("/nowhere/key".into()));
        let missing = variables(&config).unwrap_err().to_string();
        assert!(missing.starts_with("env.KEY: /nowhere/key cannot be read"), "{missing}");
    }

    #[test]
    fn what_could_not_be_started_here_is_refused_together() {
        let table = "[a]\nkind = \"process\"\ndefault = true\ncommand = [\"no-such-program\"]\n\
                     [a.env]\nKEY = { file = \"/nowhere/key\" }\nTOKEN = { env = \"NO_SUCH_VARIABLE\" }\n\
                     [b]\nkind = \"process\"\ncommand = [\"sh\"]\ncwd = \"/nowhere\"\n[c]\nkind = \"process\"\ncommand = [\"sh\"]\n";
        let mut errors = ConfigErrors::new();
        let agents = Agents::from_table(&toml_table(table), &mut errors);
        assert!(errors.is_empty());
        agents.all().iter().for_each(|agent| check(agent, &mut errors));
        let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "agents.a.command",
                "agents.a.env.KEY",
                "agents.a.env.TOKEN",
                "agents.b.cwd"
            ]
        );
    }

    fn toml_table(text: &str) -> toml::Table {
        toml::from_str(text).unwrap()
    }
}
