//! What a table of `kind = "process"` says beside what every agent's table says.
//!
//! Owns the form and the rules of these keys. It reads no secret: `{ file = … }` and `{ env = … }` are looked up by the worker
//! that starts the process, never by the gateway.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::read::Reader;
use super::value::{EnvValue, FORM, is_variable};
use crate::platform::config::ByteSize;

/// The keys that only these tables have.
pub(super) const KEYS: [&str; 6] = ["command", "cwd", "env", "keep", "kill_grace", "max_line"];

/// Set by the worker for every turn; a table cannot say otherwise.
const RESERVED: [&str; 3] = ["RELEVO_TURN_ID", "RELEVO_EPOCH", "RELEVO_ATTEMPT"];

/// Shorter, and every turn starts a process of its own; say so by leaving `keep` out.
const SHORTEST_KEEP: Duration = Duration::from_secs(1);
/// Longer, and a cancel is answered before its agent is gone.
const LONGEST_GRACE: Duration = Duration::from_mins(1);
/// Shorter lines hold no message, longer ones no journal entry.
const LINES: std::ops::RangeInclusive<u64> = 1 << 10..=16 << 20;

/// How a process is started and talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Program and arguments; never through a shell.
    pub command: Vec<String>,
    /// Where it runs; the worker's directory when unset.
    pub cwd: Option<PathBuf>,
    /// Variables beside the few that it inherits.
    pub env: BTreeMap<String, EnvValue>,
    /// How long an idle process of a context is kept; one process per turn when unset.
    pub keep: Option<Duration>,
    /// How long a process that was told to stop has until it is killed.
    pub kill_grace: Duration,
    /// Longest line that it may write.
    pub max_line: ByteSize,
}

impl ProcessConfig {
    /// A process with nothing but defaults.
    pub fn of_command(command: Vec<String>) -> Self {
        Self {
            command,
            cwd: None,
            env: BTreeMap::new(),
            keep: None,
            kill_grace: Duration::from_secs(2),
            max_line: ByteSize::new(1 << 20),
        }
    }
}

/// Reads the keys of a table of this kind.
pub(super) fn process(reader: &mut Reader<'_>) -> ProcessConfig {
    let mut process = ProcessConfig::of_command(command(reader));
    process.cwd = reader.text("cwd").map(PathBuf::from);
    process.env = env(reader);
    process.keep = reader.setting("keep");
    if process.keep.is_some_and(|keep| keep < SHORTEST_KEEP) {
        reader.refuse(
            "keep",
            "must be at least \"1s\"; without it every turn has a process of its own",
        );
    }
    if let Some(grace) = reader.setting::<Duration>("kill_grace") {
        if grace.is_zero() || grace > LONGEST_GRACE {
            reader.refuse("kill_grace", "must be above zero and at most \"1m\"");
        }
        process.kill_grace = grace;
    }
    if let Some(max) = reader.setting::<ByteSize>("max_line") {
        if !LINES.contains(&max.get()) {
            reader.refuse("max_line", "must be \"1KiB\" to \"16MiB\"");
        }
        process.max_line = max;
    }
    process
}

/// What a command is.
const WORDS: &str = "program and arguments, such as [\"python3\", \"agent.py\"]";

fn command(reader: &mut Reader<'_>) -> Vec<String> {
    if !reader.table.contains_key("command") {
        reader.refuse("command", &format!("is missing: {WORDS}"));
        return Vec::new();
    }
    let before = reader.errors.len();
    let command = reader.texts_such_as("command", WORDS);
    let bad = command.first().is_none_or(|program| program.trim().is_empty())
        || command.iter().any(|word| word.contains('\0'));
    if bad && reader.errors.len() == before {
        reader.refuse("command", "must begin with a program and hold no NUL");
    }
    command
}

fn env(reader: &mut Reader<'_>) -> BTreeMap<String, EnvValue> {
    let Some(value) = reader.table.get("env") else {
        return BTreeMap::new();
    };
    let Some(table) = value.as_table() else {
        reader.refuse("env", "must be a table of variables");
        return BTreeMap::new();
    };
    let mut env = BTreeMap::new();
    for (name, value) in table {
        let key = format!("env.{name}");
        if !is_variable(name) {
            reader.refuse(
                &key,
                "a variable's name is A-Z, a-z, 0-9 and _, and begins with no digit",
            );
        } else if RESERVED.contains(&name.as_str()) {
            reader.refuse(&key, "is set by the worker for every turn");
        }
        match EnvValue::parse(value) {
            Some(value) => {
                env.insert(name.clone(), value);
            }
            // The value is not shown: it may be a secret in the wrong form.
            None => reader.refuse(&key, FORM),
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use super::super::AgentKind;
    use super::super::fixture::read;
    use super::*;
    use crate::domain::record::CrashPolicy;
    use crate::platform::config::Secret;

    #[test]
    fn a_command_is_enough() {
        let (agents, errors) = read("[a]\nkind = \"process\"\ncommand = [\"python3\", \"agent.py\"]\n");
        assert_eq!(errors, Vec::<String>::new());
        let agent = agents.default_agent();
        assert_eq!((agent.kind, agent.policy), (AgentKind::Process, CrashPolicy::Fail));
        let process = agent.process.as_ref().unwrap();
        assert_eq!(
            process,
            &ProcessConfig::of_command(vec!["python3".into(), "agent.py".into()])
        );
        assert_eq!(
            (process.kill_grace, process.max_line),
            (Duration::from_secs(2), ByteSize::new(1 << 20))
        );
    }

    #[test]
    fn a_table_says_everything_about_a_process() {
        let (agents, errors) = read(
            "[a]\nkind = \"process\"\npolicy = \"restart\"\ncommand = [\"./agent\", \"\"]\ncwd = \"/srv\"\nkeep = \"10m\"\n\
             kill_grace = \"5s\"\nmax_line = \"64KiB\"\n\
             [a.env]\nMODE = \"fast\"\nEMPTY = \"\"\nKEY = { file = \"/run/key\" }\nTOKEN = { env = \"OTHER\" }\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        let agent = agents.default_agent();
        assert_eq!(agent.policy, CrashPolicy::Restart);
        let process = agent.process.as_ref().unwrap();
        assert_eq!(process.command, ["./agent", ""]);
        assert_eq!(process.cwd, Some(PathBuf::from("/srv")));
        assert_eq!(process.keep, Some(Duration::from_mins(10)));
        assert_eq!(process.kill_grace, Duration::from_secs(5));
        assert_eq!(process.max_line, ByteSize::new(64 << 10));
        assert_eq!(process.env["MODE"], EnvValue::Text(Secret::new("fast")));
        assert_eq!(process.env["EMPTY"], EnvValue::Text(Secret::new("")));
        assert_eq!(process.env["KEY"], EnvValue::File(PathBuf::from("/run/key")));
        assert_eq!(process.env["TOKEN"], EnvValue::Env("OTHER".into()));
    }

    #[test]
    fn all_mistakes_are_reported_together_and_show_no_value_of_a_variable() {
        let (agents, errors) = read(
            "[a]\nkind = \"process\"\ncommand = [\"\"]\ncwd = 1\nkeep = \"0s\"\nkill_grace = \"2m\"\nmax_line = \"17MiB\"\n\
             [a.env]\n\"A-B\" = \"x\"\nRELEVO_EPOCH = \"1\"\nKEY = { text = \"hunter2\" }\nTWO = { env = \"A\", file = \"b\" }\n\
             [b]\nkind = \"process\"\nkeep = 5\nenv = 1\ndefault = true\n[c]\nkind = \"demo\"\ncommand = [\"x\"]\n\
             [d]\nkind = \"process\"\ncommand = \"python3 x\"\n",
        );
        for part in [
            "agents.a.command: must begin with a program",
            "agents.a.cwd: must be text",
            "agents.a.keep: must be at least",
            "agents.a.kill_grace: must be above zero",
            "agents.a.max_line: must be",
            "agents.a.env.A-B: a variable's name",
            "agents.a.env.RELEVO_EPOCH: is set by the worker",
            "agents.a.env.KEY: must be a text",
            "agents.a.env.TWO: must be a text",
            "agents.b.command: is missing",
            "agents.b.keep: must be a duration",
            "agents.b.env: must be a table",
            "agents.c.command: belongs to kind = \"process\"",
            "agents.d.command: must be an array of texts: program and arguments, such as [\"python3\", \"agent.py\"]",
        ] {
            assert!(errors.iter().any(|e| e.starts_with(part)), "{part} in {errors:#?}");
        }
        assert_eq!(errors.len(), 14, "{errors:#?}");
        assert!(!format!("{errors:?}{agents:?}").contains("hunter2"));
    }
}
