//! The configuration of one gateway: the sections of `platform::config` and the agents.

use std::path::PathBuf;

use relevo_shared::agents::Agents;
use relevo_shared::objects::Objects;
use relevo_shared::platform::config::{ConfigErrors, Loader, Settings};

use crate::auth::Credentials;

/// Everything a gateway is built from; see [`Config::build`].
#[derive(Debug, Clone)]
pub struct Config {
    /// The sections.
    pub settings: Settings,
    /// The agents.
    pub agents: Agents,
    /// Where to say that it is ready.
    pub ready_file: Option<PathBuf>,
    /// Its name among the parts of one process. A part has no admin listener of its own: whoever runs the parts shows
    /// them all on one, where the name tells their metrics apart.
    pub part: Option<String>,
    /// The artifact store; the settings' when unset. The parts of one process share it.
    pub objects: Option<Objects>,
}

impl Config {
    /// A gateway with its own admin listener.
    pub fn new(settings: Settings, agents: Agents) -> Self {
        Self {
            settings,
            agents,
            ready_file: None,
            part: None,
            objects: None,
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// Everything that is wrong, together.
    pub fn load(loader: Loader) -> Result<Self, ConfigErrors> {
        let (settings, agents) = loader.load_with(|settings, errors| {
            check_credentials(settings, errors);
            Agents::read(settings, errors)
        })?;
        Ok(Self::new(settings, agents))
    }
}

/// Refuses credentials of callers that cannot be read, before the listener is open.
pub fn check_credentials(settings: &Settings, errors: &mut ConfigErrors) {
    Credentials::read(settings, errors);
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
