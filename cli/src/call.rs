//! `relevo call`: one message to an agent, its answer on standard output.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use a2a::methods::{GET_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE};
use a2a::{Message, Part, Role, SendMessageRequest, SendMessageResponse, StreamResponse, Task};
use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::client::{ANSWER, Client};
use crate::exit::{Exit, Problem};
use crate::follow::{Follow, Until, show_ended, subscribe, within};
use crate::print::Screen;
use crate::save::save;
use crate::server::ServerArgs;
use crate::show::{First, Show};

/// The key of metadata that agents of the reference server's profile read.
const NAMESPACE: &str = "iac_code";

/// The key of metadata that names a skill.
const SKILL: &str = "urn:relevo:a2a:skill:v1";

/// Sends a message to an agent and prints what it answers.
#[derive(Debug, Args)]
#[command(after_help = crate::exit::HELP)]
pub(crate) struct CallArgs {
    /// The message
    text: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the answer as it is produced; a connection that breaks is resumed where it broke
    #[arg(long)]
    stream: bool,
    /// The conversation to go on with; a new one begins without it
    #[arg(long, value_name = "ID")]
    context_id: Option<String>,
    /// The task to go on with, one that waits for input
    #[arg(long, value_name = "ID")]
    task_id: Option<String>,
    /// The skill of the agent card that it is for, by its id; without it the default agent answers
    #[arg(long, value_name = "ID")]
    skill: Option<String>,
    /// Metadata of the message: a JSON object
    #[arg(long, value_name = "JSON", value_parser = parse_metadata)]
    metadata: Option<Metadata>,
    /// The directory that the agent is to work in, where its profile knows such: `iac_code.cwd` in the metadata. `.` is this one
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Give up after this long, as in 30s or 10m; the task goes on without this command
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Write files that come inside the answer to this directory, under their names; none that is there is overwritten
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

/// Sends the message and shows the answer.
pub(crate) async fn run(args: CallArgs, screen: &Screen) -> Result<Exit, Problem> {
    within(args.timeout, call(&args, screen)).await
}

type Metadata = HashMap<String, Value>;

fn parse_metadata(text: &str) -> Result<Metadata, String> {
    serde_json::from_str(text).map_err(|error| format!("must be a JSON object: {error}"))
}

/// What is said with the message beside its text.
fn metadata(args: &CallArgs) -> Result<Option<Metadata>, Problem> {
    let mut metadata = args.metadata.clone().unwrap_or_default();
    if let Some(id) = &args.skill
        && metadata.insert(SKILL.to_owned(), json!({ "id": id })).is_some()
    {
        return Err(Problem::Usage(format!(
            "--metadata: {SKILL} is --skill, which is there, too"
        )));
    }
    if let Some(dir) = &args.cwd {
        // The server has its own directories: this one counts only where it is named from here.
        let dir = if dir.is_relative() {
            std::path::absolute(dir).with_context(|| format!("--cwd {}", dir.display()))?
        } else {
            dir.clone()
        };
        let Some(dir) = dir.to_str() else {
            return Err(Problem::Usage(format!("--cwd {} is not UTF-8", dir.display())));
        };
        let own = metadata.entry(NAMESPACE.to_owned()).or_insert_with(|| json!({}));
        let Some(own) = own.as_object_mut() else {
            return Err(Problem::Usage(format!(
                "--metadata: {NAMESPACE} must be an object beside --cwd"
            )));
        };
        if own.insert("cwd".to_owned(), json!(dir)).is_some() {
            return Err(Problem::Usage(format!(
                "--metadata: {NAMESPACE}.cwd is --cwd, which is there, too"
            )));
        }
    }
    Ok((!metadata.is_empty()).then_some(metadata))
}

async fn call(args: &CallArgs, screen: &Screen) -> Result<Exit, Problem> {
    let client = args.server.connect().await?;
    let show = answer(args, &client, screen).await?;
    if let Some(dir) = &args.save {
        // The task as it is stored: without what a lost attempt said, and every artifact in one piece.
        let parts = match show.task_id() {
            Some(id) => made(client.call(GET_TASK, json!({ "id": id }), Some(ANSWER)).await?),
            None => show.answer().to_vec(),
        };
        for path in save(dir, &parts)? {
            screen.note(&format!("saved: {}", path.display()));
        }
    }
    Ok(show.exit())
}

/// What the agent made, and what it said last.
fn made(task: Task) -> Vec<Part> {
    let artifacts = task.artifacts.into_iter().flatten().flat_map(|artifact| artifact.parts);
    let said = task.status.message.into_iter().flat_map(|message| message.parts);
    artifacts.chain(said).collect()
}

/// Sends the message and shows what comes, to the end of the turn.
async fn answer(args: &CallArgs, client: &Client, screen: &Screen) -> Result<Show, Problem> {
    let mut message = Message::new(Role::User, vec![Part::text(args.text.as_str())]);
    message.context_id.clone_from(&args.context_id);
    message.task_id.clone_from(&args.task_id);
    message.metadata = metadata(args)?;
    let request = SendMessageRequest {
        message,
        configuration: None,
        metadata: None,
        tenant: None,
    };
    let params = serde_json::to_value(request).map_err(anyhow::Error::from)?;
    if args.stream {
        let first = if args.task_id.is_some() {
            First::Earlier
        } else {
            First::New
        };
        let stream = client.stream(SEND_STREAMING_MESSAGE, params, None).await?;
        return Follow::new(client, screen, Show::new(first), Until::TurnEnds)
            .shown(stream)
            .await;
    }
    let mut show = Show::new(First::New);
    let answer = match client.call(SEND_MESSAGE, params, None).await? {
        SendMessageResponse::Task(task) => StreamResponse::Task(task),
        SendMessageResponse::Message(message) => StreamResponse::Message(message),
    };
    screen.all(show.event(None, answer))?;
    if let (Some(task), true) = (show.task_id().map(str::to_owned), show.goes_on()) {
        // The server waits only so long; the turn goes on, and so does this command.
        return match subscribe(client, &task, None).await {
            Ok(stream) => Follow::new(client, screen, show, Until::TurnEnds).shown(stream).await,
            // It ended in between.
            Err(error) if error.is_unsupported() => show_ended(client, screen, show, &task).await,
            Err(error) => Err(error.into()),
        };
    }
    screen.all(show.end())?;
    Ok(show)
}
