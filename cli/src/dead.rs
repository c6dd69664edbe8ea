//! `relevo dead`: turns that nobody will run again, and sending one once more.
//!
//! A tool of the operator, below A2A: it reads and writes Redis. A retry is a new task in the same context; the dead one
//! stays as it ended, since an ended task never changes.

use clap::{Args, Subcommand};
use relevo_shared::domain::event;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::ids::{Nonce, TaskId, TurnId, takers};
use relevo_shared::platform::entropy;
use relevo_shared::store::{DeadTurn, Retry, Store, StoreError, Submit, Submitted};
use serde_json::{Value, json};

use crate::exit::{Exit, Problem};
use crate::operator::RedisArgs;
use crate::print::{Screen, age, excerpt};

/// How often a submit whose outcome is unknown is sent again.
const TRIES: usize = 5;
/// How much of a message is shown in a list.
const SHOWN: usize = 40;

/// Looks at dead letters and sends them once more.
#[derive(Debug, Args)]
pub(crate) struct DeadArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead letters, the latest first
    #[command(after_help = crate::exit::HELP_REDIS)]
    List {
        #[command(flatten)]
        redis: RedisArgs,
        /// How many at the most
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a dead letter with its message
    #[command(after_help = crate::exit::HELP_REDIS)]
    Show {
        /// The turn
        id: String,
        #[command(flatten)]
        redis: RedisArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Send a dead letter's message again: a new task in the same context, which names the dead one
    #[command(after_help = crate::exit::HELP_REDIS)]
    Retry {
        /// The turn
        id: String,
        #[command(flatten)]
        redis: RedisArgs,
    },
}

/// Runs the subcommand.
pub(crate) async fn run(args: DeadArgs, screen: &Screen) -> Result<Exit, Problem> {
    match args.command {
        Command::List { redis, limit, json } => {
            let store = redis.connect(screen).await?.store;
            list(&store, limit, json, screen).await?;
        }
        Command::Show { id, redis, json } => {
            let store = redis.connect(screen).await?.store;
            show(&find(&store, &id).await?, json, screen)?;
        }
        Command::Retry { id, redis } => {
            let store = redis.connect(screen).await?.store;
            let dead = find(&store, &id).await?;
            let again = retry(&store, &dead.record).await?;
            screen.note(&format!(
                "sent again as task {} in context {}",
                again.task, again.context_id
            ));
            screen.line(&again.task.to_string())?;
        }
    }
    Ok(Exit::Good)
}

async fn find(store: &Store, id: &str) -> Result<DeadTurn, Problem> {
    let unknown = || Problem::failed(format!("there is no dead letter of turn {id} (see relevo dead list)"));
    let turn = TurnId::parse(id).ok_or_else(unknown)?;
    store.dead_turn(turn).await?.ok_or_else(unknown)
}

async fn list(store: &Store, limit: usize, json: bool, screen: &Screen) -> Result<(), Problem> {
    let now = store.now().await?;
    let dead = store.dead_turns(limit).await?;
    if json {
        let all = dead.iter().map(as_json).collect::<Result<Vec<_>, _>>()?;
        return screen.json(&Value::Array(all));
    }
    let row = |dead: &DeadTurn| {
        vec![
            dead.record.turn.to_string(),
            dead.reason.clone(),
            format!("{} ago", age(now.saturating_sub(dead.at))),
            dead.record.agent.clone(),
            excerpt(dead.record.message.text().unwrap_or_default(), SHOWN),
        ]
    };
    screen.table(
        &["TURN", "REASON", "DIED", "AGENT", "MESSAGE"],
        &dead.iter().map(row).collect::<Vec<_>>(),
    )
}

fn show(dead: &DeadTurn, json: bool, screen: &Screen) -> Result<(), Problem> {
    if json {
        return screen.json(&as_json(dead)?);
    }
    let record = &dead.record;
    let died = event::timestamp(dead.at).map(|time| time.format("%Y-%m-%d %H:%M:%S UTC").to_string());
    for (name, value) in [
        ("turn", record.turn.to_string()),
        ("task", record.task.to_string()),
        ("context", record.context_id.clone()),
        ("agent", record.agent.clone()),
        ("tenant", record.sender.tenant.clone()),
        ("subject", record.sender.subject.clone()),
        ("reason", dead.reason.clone()),
        ("died", died.unwrap_or_default()),
    ] {
        if !value.is_empty() {
            screen.line(&format!("{:<9}{value}", format!("{name}:")))?;
        }
    }
    screen.line("")?;
    for part in &record.message.parts {
        match part.as_text() {
            Some(text) => screen.line(text)?,
            None => screen.line("[a part that is not text; see --json]")?,
        }
    }
    Ok(())
}

fn as_json(dead: &DeadTurn) -> Result<Value, Problem> {
    let record = serde_json::to_value(&dead.record).map_err(anyhow::Error::from)?;
    Ok(json!({ "diedMs": dead.at, "reason": dead.reason, "record": record }))
}

/// Submits the message of a dead turn as a new task. Returns the new turn.
async fn retry(store: &Store, dead: &TurnRecord) -> Result<TurnRecord, Problem> {
    let now = store.now().await?;
    let record = again(dead, store.place(&dead.scope(), &dead.context_id).1, now);
    let first = event::submitted(&record, now);
    let submit = Submit {
        record: &record,
        first: &first,
        nonce: Nonce(entropy::u64()),
        scope_limit: None,
        follows: None,
        history: &[],
        interrupt: None,
    };
    match submit_surely(store, &submit).await? {
        Submitted::Accepted { now, storage, .. } => {
            // A lost bell costs a second: the janitor rings again.
            let takers = takers(&record.pool, storage.as_ref());
            let _ = store.ring(&takers, record.task.partition(), now).await;
            Ok(record)
        }
        Submitted::Busy | Submitted::Working => {
            let text = format!(
                "context {} has a running turn; try again when it has ended",
                dead.context_id
            );
            Err(Problem::failed(text))
        }
        Submitted::Terminal | Submitted::NotFound | Submitted::Changed | Submitted::Limited => Err(Problem::failed(
            "the new task was not accepted, although nothing stands against it",
        )),
    }
}

/// A submit repeated with the same ids has one effect, so an unknown outcome is resolved by repeating it.
async fn submit_surely(store: &Store, submit: &Submit<'_>) -> Result<Submitted, StoreError> {
    for _ in 1..TRIES {
        match store.submit(submit).await {
            Err(error) if error.retry() == Retry::Later => {}
            outcome => return outcome,
        }
    }
    store.submit(submit).await
}

/// The same message in a turn and a task of its own.
fn again(dead: &TurnRecord, partition: relevo_shared::ids::Partition, now: u64) -> TurnRecord {
    let mut record = dead.clone();
    record.turn = TurnId::new(now, partition, entropy::u64());
    record.task = TaskId::new(now, partition, entropy::u64());
    record.new_task = true;
    // Nobody waits for its answer: it needs a task.
    record.direct = false;
    record.submitted = now;
    // Of a turn that its user had answered it is the last answer, in the context that remembers the rest.
    record.suspension = None;
    // Its time is over by now; the operator wants it to run.
    record.deadline = None;
    record.traceparent = None;
    record.message.message_id = a2a::new_message_id();
    record.message.task_id = Some(record.task.to_string());
    let references = record.message.reference_task_ids.get_or_insert_default();
    let dead = dead.task.to_string();
    if !references.contains(&dead) {
        references.push(dead);
    }
    record.versioned()
}
