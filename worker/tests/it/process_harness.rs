//! Agents of `kind = "process"` under test: their tables, what they were told, and whether anything of them is left.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use a2a::{Message, Part, Role};
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_testkit::{Scratch, poll};

use crate::fixture::World;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A name in the environment of every process of one test's agent, however far it ran away.
pub struct Mark {
    name: String,
    scratch: Scratch,
}

impl Mark {
    pub fn new() -> Self {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            name: format!("{}-{n}", std::process::id()),
            scratch: Scratch::new("process-agent"),
        }
    }

    /// The table of an agent `a` that runs a program of the repository, with more lines of TOML.
    pub fn table(&self, program: &[&str], more: &str) -> String {
        let runtime = program[0];
        let file = format!("{}/{}", env!("CARGO_MANIFEST_DIR"), program[1]);
        format!(
            "[a]\nkind = \"process\"\ncommand = [{runtime:?}, {file:?}]\n{more}\n[a.env]\nAGENT_MARK = {:?}\n",
            self.name
        )
    }

    /// The table of the driven agent.
    pub fn driven(&self, more: &str) -> String {
        self.table(&["python3", "tests/agents/driven.py"], more)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Living processes that bear the mark, supervisors too.
    pub fn living(&self) -> Vec<String> {
        let mark = format!("AGENT_MARK={}", self.name);
        let mut living = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let folder = entry.path();
            let Ok(environment) = std::fs::read(folder.join("environ")) else {
                continue;
            };
            // A zombie has no environment any more.
            if environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
            {
                let command = std::fs::read(folder.join("cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&command).replace('\0', " ");
                living.push(format!("{} {command}", entry.file_name().to_string_lossy()));
            }
        }
        living
    }

    /// The same without supervisors, which leave right after the last of their tree.
    pub fn agents(&self) -> Vec<String> {
        let mut living = self.living();
        living.retain(|line| !line.contains("relevo-supervise"));
        living
    }

    pub async fn until_gone(&self) {
        poll::until("nothing of the agent is left", || async {
            let living = self.living();
            if living.is_empty() {
                Ok(())
            } else {
                Err(living.join("; "))
            }
        })
        .await;
    }

    pub async fn until_living(&self, count: usize) {
        poll::until("so many processes of the agent live", || async {
            let living = self.living();
            if living.len() == count {
                Ok(())
            } else {
                Err(living.join("; "))
            }
        })
        .await;
    }

    pub async fn until_file(&self, name: &str) -> String {
        poll::until("a file is written", || async {
            match std::fs::read_to_string(self.path(name)) {
                Ok(text) if !text.is_empty() => Ok(text),
                Ok(_) => Err("empty".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Every test ends with `until_gone`; one that failed before must not leave anything either.
        for line in self.living() {
            let pid = line.split(' ').next().and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

impl World {
    /// A first message to agent `a`, as its table's policy has it.
    pub async fn ask(&self, context_id: &str, text: &str, policy: CrashPolicy) -> TurnRecord {
        let message = Message::new(Role::User, vec![Part::text(text)]);
        self.submit(self.record(context_id, "a", policy, message).await).await
    }

    /// A further message to the same task and agent.
    pub async fn ask_again(&self, before: &TurnRecord, text: &str) -> TurnRecord {
        let message = Message::new(Role::User, vec![Part::text(text)]);
        self.say_again(before, message).await
    }

    /// The same with a whole message.
    pub async fn say_again(&self, before: &TurnRecord, message: Message) -> TurnRecord {
        let mut record = self
            .record(&before.context_id, &before.agent, before.policy, message)
            .await;
        record.task = before.task;
        record.new_task = false;
        self.submit(record).await
    }
}
