//! `relevo card`: who answers at an address.

use a2a::AgentCard;
use clap::Args;

use crate::client;
use crate::exit::{Exit, Problem};
use crate::print::Screen;
use crate::server::ServerArgs;

/// Shows the agent card of a server.
#[derive(Debug, Args)]
#[command(after_help = crate::exit::HELP_ASK)]
pub(crate) struct CardArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the card as the server sent it
    #[arg(long)]
    json: bool,
}

/// Reads the card and shows it.
pub(crate) async fn run(args: CardArgs, screen: &Screen) -> Result<Exit, Problem> {
    let raw = client::card(&args.server.url, args.server.credentials()?).await?;
    if args.json {
        screen.json(&raw)?;
        return Ok(Exit::Good);
    }
    let unreadable =
        |error| anyhow::Error::from(error).context("the card is not that of an A2A 1.0 server (see --json)");
    let card: AgentCard = serde_json::from_value(raw).map_err(unreadable)?;
    screen.line(&format!("{} {}", card.name, card.version))?;
    screen.line(&card.description)?;
    let streaming = card.capabilities.streaming == Some(true);
    screen.line(&format!("streaming: {}", if streaming { "yes" } else { "no" }))?;
    for interface in &card.supported_interfaces {
        let tenant = interface
            .tenant
            .as_ref()
            .map(|tenant| format!(", tenant {tenant}"))
            .unwrap_or_default();
        let (binding, version) = (&interface.protocol_binding, &interface.protocol_version);
        screen.line(&format!("{binding} {version} at {}{tenant}", interface.url))?;
    }
    for skill in &card.skills {
        screen.line(&format!("skill {}: {}", skill.id, skill.description))?;
        for example in skill.examples.iter().flatten() {
            screen.line(&format!("    {example}"))?;
        }
    }
    Ok(Exit::Good)
}
