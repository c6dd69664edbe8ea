//! `relevo task get|list|watch|cancel`: tasks as their client sees them.

use std::time::Duration;

use a2a::methods::{CANCEL_TASK, GET_TASK, LIST_TASKS};
use a2a::{ListTasksResponse, Task, TaskState};
use clap::{Args, Subcommand};
use relevo_shared::domain::event::TURN;
use relevo_shared::domain::state;
use serde_json::{Value, json};

use crate::client::{ANSWER, Client};
use crate::exit::{Exit, Problem};
use crate::follow::{Follow, Until, show_ended, subscribe, within};
use crate::print::Screen;
use crate::server::ServerArgs;
use crate::show::{First, Show, state_name};

/// The largest page that a server must serve.
const PAGE: usize = 100;
/// CancelTask waits until the agent has stopped; servers bound that by tens of seconds.
const CANCEL: Duration = Duration::from_secs(90);

/// Looks at tasks and stops them.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a task as it is now
    #[command(after_help = crate::exit::HELP_ASK)]
    Get {
        /// The task
        id: String,
        #[command(flatten)]
        server: ServerArgs,
        /// Print the task as the server sent it
        #[arg(long)]
        json: bool,
    },
    /// List tasks, the latest change first
    #[command(after_help = crate::exit::HELP_ASK)]
    List {
        #[command(flatten)]
        server: ServerArgs,
        /// Only those of this conversation
        #[arg(long, value_name = "ID")]
        context_id: Option<String>,
        /// Only those in this state, as in working or input-required
        #[arg(long, value_name = "STATE", value_parser = parse_state)]
        status: Option<TaskState>,
        /// How many at the most
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Print them as the server sent them
        #[arg(long)]
        json: bool,
    },
    /// Print what a task says until it ends; on a task that waits for input, until it goes on and ends
    #[command(after_help = crate::exit::HELP)]
    Watch {
        /// The task
        id: String,
        #[command(flatten)]
        server: ServerArgs,
        /// Give up after this long, as in 30s or 10m; the task goes on without this command
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        timeout: Option<Duration>,
    },
    /// Stop a task; answers when its agent has stopped
    #[command(after_help = crate::exit::HELP_ASK)]
    Cancel {
        /// The task
        id: String,
        #[command(flatten)]
        server: ServerArgs,
        /// Print the task as the server sent it
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub(crate) async fn run(args: TaskArgs, screen: &Screen) -> Result<Exit, Problem> {
    match args.command {
        Command::Get { id, server, json } => {
            let client = server.connect().await?;
            let task = client.call(GET_TASK, json!({ "id": id }), Some(ANSWER)).await?;
            print(task, json, screen)
        }
        Command::List {
            server,
            context_id,
            status,
            limit,
            json,
        } => {
            let client = server.connect().await?;
            let filter = json!({ "contextId": context_id, "status": status });
            list(
                &client,
                filter,
                usize::try_from(limit).unwrap_or(usize::MAX),
                json,
                screen,
            )
            .await
        }
        Command::Watch { id, server, timeout } => within(timeout, watch(&server, &id, screen)).await,
        Command::Cancel { id, server, json } => {
            let client = server.connect().await?;
            let task = client.call(CANCEL_TASK, json!({ "id": id }), Some(CANCEL)).await?;
            print(task, json, screen)
        }
    }
}

/// A task for machines, or for people: the facts, then what the agent said.
fn print(task: Value, json: bool, screen: &Screen) -> Result<Exit, Problem> {
    if json {
        screen.json(&task)?;
        return Ok(Exit::Good);
    }
    let task: Task = serde_json::from_value(task).map_err(unreadable)?;
    screen.line(&format!("task:    {}", task.id))?;
    screen.line(&format!("context: {}", task.context_id))?;
    screen.line(&format!("state:   {}", state_name(&task.status.state)))?;
    screen.line(&format!("updated: {}", updated(&task)))?;
    if let Some(Value::Object(facts)) = task.metadata.as_ref().and_then(|metadata| metadata.get(TURN)) {
        for (name, value) in facts {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            screen.line(&format!("{name}: {value}"))?;
        }
    }
    screen.line("")?;
    let mut show = Show::new(First::New).of_known(&task.id, &task.context_id);
    screen.all(show.task(task))?;
    screen.all(show.end_text())?;
    Ok(Exit::Good)
}

async fn list(client: &Client, filter: Value, limit: usize, json: bool, screen: &Screen) -> Result<Exit, Problem> {
    let (mut tasks, mut total, mut token) = (Vec::new(), 0, String::new());
    while tasks.len() < limit {
        let mut params = filter.clone();
        if let Value::Object(params) = &mut params {
            params.retain(|_, value| !value.is_null());
            params.insert("pageSize".to_owned(), json!((limit - tasks.len()).min(PAGE)));
            params.insert("historyLength".to_owned(), json!(0));
            if !token.is_empty() {
                params.insert("pageToken".to_owned(), json!(token));
            }
        }
        let page: ListTasksResponse = client.call(LIST_TASKS, params, Some(ANSWER)).await?;
        let came = page.tasks.len();
        tasks.extend(page.tasks);
        (total, token) = (page.total_size, page.next_page_token);
        if token.is_empty() || came == 0 {
            break;
        }
    }
    if json {
        screen.json(&serde_json::to_value(&tasks).map_err(unreadable)?)?;
        return Ok(Exit::Good);
    }
    let row = |task: &Task| {
        vec![
            task.id.clone(),
            state_name(&task.status.state).to_owned(),
            updated(task),
            task.context_id.clone(),
        ]
    };
    screen.table(
        &["TASK", "STATE", "UPDATED", "CONTEXT"],
        &tasks.iter().map(row).collect::<Vec<_>>(),
    )?;
    screen.note(&format!("{} of {total}", tasks.len()));
    Ok(Exit::Good)
}

async fn watch(server: &ServerArgs, id: &str, screen: &Screen) -> Result<Exit, Problem> {
    let client = server.connect().await?;
    let show = Show::new(First::New);
    match subscribe(&client, id, None).await {
        Ok(stream) => {
            Follow::new(&client, screen, show, Until::StreamCloses)
                .run(stream)
                .await
        }
        Err(error) if error.is_unsupported() => Ok(show_ended(&client, screen, show, id).await?.exit()),
        Err(error) => Err(error.into()),
    }
}

fn updated(task: &Task) -> String {
    task.status
        .timestamp
        .map(|time| time.format("%Y-%m-%d %H:%M:%S UTC").to_string())
        .unwrap_or_default()
}

fn unreadable(error: serde_json::Error) -> anyhow::Error {
    anyhow::Error::from(error).context("the server's answer is not readable")
}

/// `working`, `input-required`, `TASK_STATE_WORKING`: whatever a person is likely to write.
fn parse_state(text: &str) -> Result<TaskState, String> {
    let word = text.to_ascii_uppercase().replace(['-', ' '], "_");
    state::from_word(word.strip_prefix("TASK_STATE_").unwrap_or(&word)).ok_or_else(|| {
        let known = state::ALL
            .iter()
            .map(|state| state::word(state).to_ascii_lowercase().replace('_', "-"));
        format!("must be one of {}", known.collect::<Vec<_>>().join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_may_be_written_as_people_do() {
        for text in [
            "input-required",
            "INPUT_REQUIRED",
            "Input Required",
            "TASK_STATE_INPUT_REQUIRED",
        ] {
            assert_eq!(parse_state(text), Ok(TaskState::InputRequired), "{text}");
        }
        assert!(parse_state("running").unwrap_err().contains("working"));
    }
}
