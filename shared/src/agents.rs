//! The agents of a deployment, from `[agents.<name>]`: who answers, on which workers, and what a crash does.
//!
//! Both processes read the same tables: the gateway for the card and for what it writes into a turn, the worker for the
//! agents it can run. Owns their form and their rules; refuses to know how an agent works. Without configuration there
//! is one agent, `demo`.

mod a2a;
#[cfg(test)]
mod fixture;
mod limits;
mod openai;
mod process;
mod profile;
mod read;
mod skills;
mod upstream;
mod value;

pub use a2a::A2aConfig;
pub use limits::AgentLimits;
pub use openai::{OpenAiConfig, System};
pub use process::ProcessConfig;
pub use profile::{Extension, GoodEnd, Ingest, Profile, Profiles, Thinking, essence, is_of};
pub use upstream::UpstreamConfig;
pub use value::EnvValue;

use crate::domain::record::{BusyPolicy, CrashPolicy};
use crate::platform::config::{ConfigErrors, Settings};

/// The pool of an agent that names none.
pub const DEFAULT_POOL: &str = "default";

/// How an agent is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentKind {
    /// The built-in demonstration agent.
    Demo,
    /// A program that speaks lines of JSON (docs/agents.md).
    Process,
    /// A chat model behind an OpenAI-compatible endpoint.
    OpenAi,
    /// An A2A server behind a URL.
    A2a,
}

impl AgentKind {
    /// Every kind there is.
    pub const ALL: [Self; 4] = [Self::Demo, Self::Process, Self::OpenAi, Self::A2a];

    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Process => "process",
            Self::OpenAi => "openai",
            Self::A2a => "a2a",
        }
    }

    /// What a crash does unless the table says otherwise.
    pub const fn default_policy(self) -> CrashPolicy {
        match self {
            Self::Demo => CrashPolicy::Restart,
            // Nobody knows what the program did before it died; every request to a model costs, and its second answer is another one;
            // nobody knows whether a server has got the message.
            Self::Process | Self::OpenAi | Self::A2a => CrashPolicy::Fail,
        }
    }

    const fn default_description(self) -> &'static str {
        match self {
            Self::Demo => {
                "Streams numbered chunks when told to (\"chunks=5 delay=200\"), echoes any other text; for trying things out."
            }
            Self::Process | Self::A2a => "An agent.",
            Self::OpenAi => "A chat model.",
        }
    }
}

/// What an agent says that it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillConfig {
    /// Unique in the card.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// For searching.
    pub tags: Vec<String>,
    /// Messages to try.
    pub examples: Vec<String>,
    /// The media types that it takes, unless they are the agent's.
    pub input_modes: Vec<String>,
    /// The media types of its answers, unless they are the agent's.
    pub output_modes: Vec<String>,
    /// Whether only the extended card shows it.
    pub extended: bool,
}

/// One `[agents.<name>]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// The name in the table's title.
    pub name: String,
    /// How it is made.
    pub kind: AgentKind,
    /// What a crash of its worker does to a turn.
    pub policy: CrashPolicy,
    /// What a message does that begins a task while another turn of its context is live.
    pub busy: BusyPolicy,
    /// How many attempts its turns have; `turn.attempts` when unset.
    pub attempts: Option<u32>,
    /// The workers that serve it.
    pub pool: String,
    /// Bounds of its turns.
    pub limits: AgentLimits,
    /// Whether it may answer with a message alone, without a task.
    pub direct: bool,
    /// For the card: what people call it.
    pub title: String,
    /// For the card.
    pub description: String,
    /// For the card; at least one that is public.
    pub skills: Vec<SkillConfig>,
    /// How it speaks.
    pub profile: Profile,
    /// How its process is started, when it is one.
    pub process: Option<ProcessConfig>,
    /// Where its model is, when it is one.
    pub openai: Option<OpenAiConfig>,
    /// Where it is, when it is an A2A server.
    pub a2a: Option<A2aConfig>,
}

impl AgentConfig {
    /// An agent with nothing but defaults.
    pub fn of_kind(name: &str, kind: AgentKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            policy: kind.default_policy(),
            busy: BusyPolicy::default(),
            attempts: None,
            pool: DEFAULT_POOL.to_owned(),
            limits: AgentLimits::default(),
            direct: false,
            title: name.to_owned(),
            description: kind.default_description().to_owned(),
            skills: Vec::new(),
            profile: Profile::generic(),
            process: None,
            openai: None,
            a2a: None,
        }
        .with_a_skill()
    }

    /// With the skills of its profile if it lists none, and with itself as one if nobody lists any.
    fn with_a_skill(mut self) -> Self {
        if self.skills.is_empty() {
            self.skills.clone_from(&self.profile.skills);
        }
        if self.skills.iter().all(|skill| skill.extended) {
            self.skills.insert(0, own_skill(&self.name, &self.description));
        }
        self
    }
}

/// The skill of an agent that lists none: itself.
fn own_skill(name: &str, description: &str) -> SkillConfig {
    SkillConfig {
        id: name.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        tags: vec![name.to_owned()],
        examples: Vec::new(),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
        extended: false,
    }
}

/// All agents; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    all: Vec<AgentConfig>,
    default: usize,
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            all: vec![AgentConfig::of_kind("demo", AgentKind::Demo)],
            default: 0,
        }
    }
}

impl Agents {
    /// Reads the tables of `[agents]` and of the `[profiles]` that they name. What is wrong goes to `errors`; what is returned
    /// then is only good for finding further errors.
    pub fn read(settings: &Settings, errors: &mut ConfigErrors) -> Self {
        let profiles = Profiles::read(&settings.profiles, &settings.workspace, &settings.compat, errors);
        read::agents(&settings.agents, &profiles, errors)
    }

    /// Reads the tables of `[agents]` with the built-in profiles.
    pub fn from_table(table: &toml::Table, errors: &mut ConfigErrors) -> Self {
        read::agents(table, &Profiles::default(), errors)
    }

    /// Every agent, by name.
    pub fn all(&self) -> &[AgentConfig] {
        &self.all
    }

    /// The one that answers messages which name none.
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "the list is never empty, the place is one of it"
    )]
    pub fn default_agent(&self) -> &AgentConfig {
        self.all.get(self.default).expect("the default is one of the agents")
    }

    /// The agent of a name.
    pub fn get(&self, name: &str) -> Option<&AgentConfig> {
        self.all.iter().find(|agent| agent.name == name)
    }

    /// The agent that a skill belongs to; each is one by its own name, too. Of several that took it from a profile the default, else the
    /// first.
    pub fn of_skill(&self, id: &str) -> Option<&AgentConfig> {
        let has = |agent: &&AgentConfig| agent.skills.iter().any(|skill| skill.id == id);
        self.in_order().find(has).or_else(|| self.get(id))
    }

    /// The default one, then the others by name.
    pub fn in_order(&self) -> impl Iterator<Item = &AgentConfig> {
        let others = self.all.iter().enumerate().filter(|(place, _)| *place != self.default);
        std::iter::once(self.default_agent()).chain(others.map(|(_, agent)| agent))
    }

    /// The pools that serve them, each once.
    pub fn pools(&self) -> Vec<String> {
        let mut pools: Vec<String> = self.all.iter().map(|agent| agent.pool.clone()).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }
}
