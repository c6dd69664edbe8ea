//! What a worker is built from its configuration with: the agents of its pools, their bounds and slots.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use relevo_shared::agents::{AgentConfig, AgentKind, Agents, ProcessConfig};
use relevo_shared::platform::config::Settings;
use relevo_shared::platform::egress::Egress;
use relevo_shared::platform::tasks::Tasks;
use relevo_shared::store::Keep;

use super::StartError;
use crate::agent::Agent;
use crate::agent::a2a::{self, A2a};
use crate::agent::demo::Demo;
use crate::agent::openai::{self, ModelMetrics, OpenAi};
use crate::agent::process::{Process, Warden};
use crate::input::Roots;
use crate::runner::draft::OutputLimits;
use crate::runner::take::{Bounds, Served, TurnSettings};

/// Where agents may work.
pub(super) fn roots(settings: &Settings, agents: &Agents) -> Roots {
    let roots = Roots::new(&settings.workspace.roots);
    let mut served = agents
        .all()
        .iter()
        .filter(|agent| settings.worker.pools.contains(&agent.pool));
    if served.any(|agent| agent.profile.ingest.is_some()) && !roots.hold_default() {
        tracing::warn!("messages that name no directory will be refused: workspace.roots leaves out the worker's own");
    }
    roots
}

pub(super) fn turn_settings(settings: &Settings, slots: usize, keep: Keep) -> TurnSettings {
    TurnSettings {
        ttl: settings.lease.ttl,
        bounds: bounds(settings),
        max_suspended: settings.turn.max_suspended,
        slots,
        keep,
    }
}

fn bounds(settings: &Settings) -> Bounds {
    Bounds {
        max_duration: settings.turn.max_duration,
        output: OutputLimits {
            events: settings.turn.max_events,
            bytes: settings.turn.max_bytes.get(),
            event_bytes: settings.turn.event_bytes.as_len(),
        },
    }
}

/// Pools whose agents have slots of their own here, and how many.
pub(super) fn own_slots(settings: &Settings, agents: &Agents) -> BTreeMap<String, usize> {
    let served = agents
        .all()
        .iter()
        .filter(|agent| settings.worker.pools.contains(&agent.pool));
    let own = served.filter_map(|agent| Some((agent.pool.clone(), agent.limits.concurrency?.get())));
    own.collect()
}

/// What agents that are elsewhere are reached with.
pub(super) struct Outside {
    pub(super) egress: Egress,
    pub(super) models: ModelMetrics,
}

/// The agents that this worker can run.
pub(super) fn serve(
    agents: &Agents,
    settings: &Settings,
    tasks: &Tasks,
    supervisor: Option<&PathBuf>,
    outside: &Outside,
) -> Result<HashMap<String, Served>, StartError> {
    let mut served = HashMap::new();
    let warden = Warden::new(supervisor.map(PathBuf::as_path), tasks);
    for config in agents.all() {
        let slots = config.limits.concurrency.unwrap_or(settings.worker.slots).get();
        let program = |program| Process::new(program, supervisor.cloned(), Arc::clone(&warden), tasks, slots);
        let agent = match build_agent(config, &program, outside) {
            Ok(agent) => agent,
            Err(error) if settings.worker.pools.contains(&config.pool) => return Err(error),
            // Its credentials are where its workers are.
            Err(_not_here) => continue,
        };
        let known = Served {
            agent,
            profile: Arc::new(config.profile.clone()),
            bounds: bounds(settings).within(&config.limits),
        };
        served.insert(config.name.clone(), known);
    }
    Ok(served)
}

fn build_agent(
    agent: &AgentConfig,
    program: &dyn Fn(ProcessConfig) -> Process,
    outside: &Outside,
) -> Result<Arc<dyn Agent>, StartError> {
    Ok(match agent.kind {
        AgentKind::Demo => Arc::new(Demo),
        AgentKind::Process => {
            // A table of this kind always says how.
            let config = agent.process.clone();
            Arc::new(program(config.unwrap_or_else(|| ProcessConfig::of_command(Vec::new()))))
        }
        AgentKind::OpenAi => {
            let failed = |error| StartError::Agent(agent.name.clone(), error);
            let config = agent
                .openai
                .clone()
                .ok_or(openai::StartError::NoEndpoint)
                .map_err(failed)?;
            let model = OpenAi::new(&agent.name, config, &outside.egress, outside.models.clone());
            Arc::new(model.map_err(failed)?)
        }
        AgentKind::A2a => {
            let failed = |error| StartError::Upstream(agent.name.clone(), error);
            let config = agent.a2a.as_ref().ok_or(a2a::StartError::NoUrl).map_err(failed)?;
            Arc::new(A2a::new(&agent.name, config, &outside.egress).map_err(failed)?)
        }
    })
}
