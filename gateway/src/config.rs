//! The configuration of one gateway: the sections of `platform::config` and the agents.

use std::path::PathBuf;

use relevo_shared::agents::Agents;
use relevo_shared::platform::config::{ConfigErrors, Loader, Settings};
use relevo_shared::store::ConnectOptions;

/// Everything a gateway is built from; see [`Config::build`].
#[derive(Debug, Clone)]
pub struct Config {
    /// The sections.
    pub settings: Settings,
    /// The agents.
    pub agents: Agents,
    /// Where to say that it is ready.
    pub ready_file: Option<PathBuf>,
    /// Whether it has an admin listener of its own. Several parts of one process share one.
    pub own_admin: bool,
}

impl Config {
    /// A gateway with its own admin listener.
    pub fn new(settings: Settings, agents: Agents) -> Self {
        Self {
            settings,
            agents,
            ready_file: None,
            own_admin: true,
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// Everything that is wrong, together.
    pub fn load(loader: Loader) -> Result<Self, ConfigErrors> {
        let (settings, agents) = loader.load_with(|settings, errors| Agents::from_table(&settings.agents, errors))?;
        Ok(Self::new(settings, agents))
    }

    /// How to reach Redis.
    pub(crate) fn redis(&self) -> ConnectOptions {
        let redis = &self.settings.redis;
        ConnectOptions {
            url: redis.url.expose().to_owned(),
            username: redis.username.clone(),
            password: redis.password.as_ref().map(|password| password.expose().to_owned()),
            prefix: redis.prefix.clone(),
            partitions: redis.partitions,
            timeout: redis.timeout,
            pool_size: redis.pool_size.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_sections_and_agents_are_reported_together() {
        let text = "[lease]\nttl = 1\n[agents.a]\nkind = \"oracle\"\n";
        let errors = Config::load(Loader::new().text("f", text)).unwrap_err();
        assert_eq!(errors.len(), 2, "{errors}");
    }

    #[test]
    fn without_a_file_there_is_the_demo_agent() {
        let config = Config::load(Loader::new()).unwrap();
        assert_eq!(config.agents, Agents::default());
    }
}
