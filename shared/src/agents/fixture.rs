//! What the tests of agents' tables read them with.

use super::Agents;
use crate::platform::config::ConfigErrors;

/// The agents of `[agents]`, and what is wrong with them.
pub(super) fn read(text: &str) -> (Agents, Vec<String>) {
    let mut errors = ConfigErrors::new();
    let agents = Agents::from_table(&toml::from_str(text).unwrap(), &mut errors);
    (agents, errors.iter().map(ToString::to_string).collect())
}
