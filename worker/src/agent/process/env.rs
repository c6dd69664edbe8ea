//! The environment of an agent's process: a few variables of the worker, those of its table, and the turn's numbers. Nothing else of
//! the worker is inherited, least of all its settings and secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use relevo_shared::agents::{AgentConfig, ProcessConfig};
use relevo_shared::platform::config::{ConfigErrors, env_var};
use rustix::fs::Access;

/// What programs cannot do without, or behave oddly: where things are, in which language and time zone.
const INHERITED: [&str; 9] = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
];

/// Programs whose first word, if it is no option, is the file that they run; `python3.11` is one of them, too.
const INTERPRETERS: [&str; 11] = [
    "python", "node", "deno", "bun", "ruby", "perl", "php", "bash", "sh", "dash", "Rscript",
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
        let value = value.read().map_err(|rule| Missing {
            variable: name.clone(),
            rule,
        })?;
        all.insert(name.clone(), value.expose().to_owned());
    }
    Ok(all)
}

/// Refuses what could not be started on this machine, before the first turn finds out.
pub(crate) fn check(agent: &AgentConfig, errors: &mut ConfigErrors) {
    let Some(config) = &agent.process else { return };
    let key = |key: &str| format!("agents.{}.{key}", agent.name);
    if config.cwd.as_ref().is_some_and(|cwd| !cwd.is_dir()) {
        errors.refuse(key("cwd"), "is no directory on this machine");
    } else if let Some(program) = config.command.first().filter(|program| !program.is_empty())
        && let Err(rule) = find(program, config.cwd.as_deref())
    {
        errors.refuse(key("command"), rule);
    } else if let Some(script) = script_of(&config.command)
        && !below(config.cwd.as_deref(), script).is_file()
    {
        errors.refuse(key("command"), format!("there is no file `{script}` on this machine"));
    }
    for (name, value) in &config.env {
        if let Err(rule) = value.read() {
            errors.refuse(key(&format!("env.{name}")), rule);
        }
    }
}

/// Whether the system would find a program that it may run; the error is the rule that is broken.
fn find(program: &str, cwd: Option<&Path>) -> Result<(), String> {
    let places = if program.contains('/') {
        vec![below(cwd, program)]
    } else {
        let path = env_var("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .collect()
    };
    let mut files = places.iter().filter(|place| place.is_file()).peekable();
    if files.peek().is_none() {
        return Err(format!("there is no program `{program}` on this machine"));
    }
    if files.any(|file| rustix::fs::access(file, Access::EXEC_OK).is_ok()) {
        return Ok(());
    }
    Err(format!(
        "the file `{program}` may not be executed by this worker: `chmod +x`, or an interpreter before it"
    ))
}

fn below(cwd: Option<&Path>, path: &str) -> PathBuf {
    cwd.map_or_else(|| PathBuf::from(path), |cwd| cwd.join(path))
}

/// What a command of an interpreter runs. The interpreter is there without it, and every turn would fail.
fn script_of(command: &[String]) -> Option<&str> {
    let name = Path::new(command.first()?).file_name()?.to_str()?;
    let script = command.get(1).filter(|word| !word.starts_with('-'))?;
    let plain = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    INTERPRETERS.contains(&plain).then_some(script.as_str())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use relevo_shared::agents::{Agents, EnvValue};
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

    #[test]
    fn a_script_that_is_not_here_is_refused_wherever_the_agent_runs() {
        let scratch = Scratch::new("script");
        std::fs::write(scratch.path().join("agent.py"), "").unwrap();
        let here = scratch.path().display();
        let table = format!(
            "[a]\nkind = \"process\"\ndefault = true\ncommand = [\"sh\", \"{here}/gone.sh\"]\n\
             [b]\nkind = \"process\"\ncommand = [\"sh\", \"{here}/agent.py\"]\n\
             [c]\nkind = \"process\"\ncommand = [\"/bin/sh\", \"agent.py\", \"gone\"]\ncwd = \"{here}\"\n\
             [d]\nkind = \"process\"\ncommand = [\"sh\", \"-c\", \"gone\"]\n\
             [e]\nkind = \"process\"\ncommand = [\"env\", \"gone\"]\n"
        );
        let mut errors = ConfigErrors::new();
        let agents = Agents::from_table(&toml_table(&table), &mut errors);
        agents.all().iter().for_each(|agent| check(agent, &mut errors));
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [format!(
                "agents.a.command: there is no file `{here}/gone.sh` on this machine"
            )]
        );
    }

    #[test]
    fn a_program_that_may_not_be_executed_is_refused() {
        let scratch = Scratch::new("execute");
        let file = scratch.path().join("agent.py");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let program = file.to_str().unwrap();
        for (mode, refused) in [(0o644, true), (0o755, false)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            for found in [find(program, None), find("./agent.py", Some(scratch.path()))] {
                assert_eq!(
                    found.is_err_and(|rule| rule.contains("may not be executed")),
                    refused,
                    "{mode:o}"
                );
            }
        }
    }

    #[test]
    fn interpreters_are_known_with_their_versions() {
        let script = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            script_of(&words).map(str::to_owned)
        };
        assert_eq!(script(&["/usr/bin/python3.11", "a.py"]).as_deref(), Some("a.py"));
        assert_eq!(script(&["node", "a.mjs", "--x"]).as_deref(), Some("a.mjs"));
        for none in [
            &["python3"][..],
            &["python3", "-m", "agent"],
            &["pythonic", "a.py"],
            &[],
        ] {
            assert_eq!(script(none), None, "{none:?}");
        }
    }

    fn toml_table(text: &str) -> toml::Table {
        toml::from_str(text).unwrap()
    }
}
