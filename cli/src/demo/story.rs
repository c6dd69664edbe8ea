//! What happens in the demo, and the check that nothing was lost.

use std::time::Duration;

use a2a::methods::{GET_TASK, SEND_STREAMING_MESSAGE};
use a2a::{Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState};
use relevo_shared::agents::Agents;
use relevo_shared::domain::event::{attempt, valid_through};
use relevo_shared::platform::config::Loader;
use reqwest::header::HeaderMap;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use super::cluster::Processes;
use crate::client::{ANSWER, Client, EventStream, Heard};
use crate::exit::{Exit, Problem};
use crate::operator::{self, Cluster};
use crate::print::Screen;
use crate::show::state_name;

/// The worker is killed when this many chunks have arrived.
const KILL_AFTER: usize = 8;

/// What a client saw.
#[derive(Debug, Default)]
struct Seen {
    task: Option<String>,
    state: Option<TaskState>,
    /// The numbers of the present attempt.
    numbers: Vec<u32>,
    /// How many the attempts before it had.
    void: usize,
    attempt: u64,
    /// Whether a line of numbers has not ended.
    unfinished: bool,
}

/// Streams an answer, kills the worker that gives it, and checks what arrived.
pub(super) async fn tell(
    chunks: u32,
    delay: u32,
    redis: &str,
    processes: &mut Processes,
    screen: &Screen,
) -> Result<Exit, Problem> {
    let (first, last) = processes.ends()?;
    let (client, other) = (
        Client::discover(first, HeaderMap::new()).await?,
        Client::discover(last, HeaderMap::new()).await?,
    );
    let settings = Loader::new().set("redis.url", redis).load()?;
    let cluster = operator::connect(&settings, &Agents::default()).await?;

    let text = format!("chunks={chunks} delay={delay} nonce=demo");
    screen.line("")?;
    screen.line(&format!("> relevo call \"{text}\" --stream --url {}", client.address()))?;
    screen.line("")?;
    let mut stream = send(&client, &text).await?;
    let mut seen = Seen {
        attempt: 1,
        ..Seen::default()
    };
    hear(&mut stream, &mut seen, Some(KILL_AFTER), screen).await?;
    seen.end_line(screen)?;
    let killed = kill(&cluster, &seen, processes, screen).await?;
    let start = Instant::now();
    hear(&mut stream, &mut seen, None, screen).await?;
    seen.end_line(screen)?;
    screen.line("")?;

    let task = seen.task.clone().unwrap_or_default();
    let task: Task = other.call(GET_TASK, json!({ "id": task }), Some(ANSWER)).await?;
    report(chunks, &seen, &task, &killed, start.elapsed(), screen)
}

async fn send(client: &Client, text: &str) -> Result<EventStream, Problem> {
    let request = SendMessageRequest {
        message: Message::new(Role::User, vec![Part::text(text)]),
        configuration: None,
        metadata: None,
        tenant: None,
    };
    let params = serde_json::to_value(request).map_err(anyhow::Error::from)?;
    Ok(client.stream(SEND_STREAMING_MESSAGE, params, None).await?)
}

/// Shows events until so many numbers have arrived, or to the end.
async fn hear(
    stream: &mut EventStream,
    seen: &mut Seen,
    enough: Option<usize>,
    screen: &Screen,
) -> Result<(), Problem> {
    while enough.is_none_or(|enough| seen.numbers.len() < enough) {
        match stream.next().await? {
            Some(Heard::Event(_, event)) => seen.take(*event, screen)?,
            Some(Heard::Alive | Heard::Retry(_)) => {}
            None if enough.is_none() => return Ok(()),
            None => return Err(Problem::failed("the answer ended before the worker could be killed")),
        }
    }
    Ok(())
}

impl Seen {
    fn end_line(&mut self, screen: &Screen) -> Result<(), Problem> {
        if std::mem::take(&mut self.unfinished) {
            screen.text("\n")?;
        }
        Ok(())
    }

    fn take(&mut self, event: StreamResponse, screen: &Screen) -> Result<(), Problem> {
        match event {
            StreamResponse::Task(task) => {
                self.state = Some(task.status.state);
                self.task = Some(task.id);
            }
            StreamResponse::StatusUpdate(update) => {
                if valid_through(&update).is_some() {
                    self.attempt = attempt(&update).unwrap_or_default();
                    self.void += self.numbers.len();
                    self.numbers.clear();
                    self.end_line(screen)?;
                    screen.line(&format!(
                        "-- attempt {}, the {} numbers above are void --",
                        self.attempt, self.void
                    ))?;
                }
                if let Some(text) = update.status.message.as_ref().map(text_of) {
                    for number in numbers(&text) {
                        self.numbers.push(number);
                        screen.text(&format!("{number} "))?;
                        self.unfinished = true;
                    }
                }
                self.state = Some(update.status.state);
            }
            StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => {}
        }
        Ok(())
    }
}

/// Kills the worker that runs the task. Returns its name.
async fn kill(cluster: &Cluster, seen: &Seen, processes: &mut Processes, screen: &Screen) -> Result<String, Problem> {
    let overview = cluster.store.overview_with_turns(&cluster.pools, usize::MAX).await?;
    let running = overview
        .turns
        .into_iter()
        .find(|turn| Some(&turn.task) == seen.task.as_ref());
    let name = running.and_then(|turn| turn.worker);
    let name = name.ok_or_else(|| Problem::failed("no worker runs the task although it streams"))?;
    let unknown = || Problem::failed(format!("{name} runs the task, and is none of this demo"));
    let worker = processes.worker(&name).ok_or_else(unknown)?;
    worker.process.signal(Signal::KILL);
    worker.process.wait().await;
    screen.line(&format!(
        "-- kill -9 {}: that was {name}, which ran the turn --",
        worker.process.pid()
    ))?;
    Ok(name)
}

fn report(
    chunks: u32,
    seen: &Seen,
    task: &Task,
    killed: &str,
    rest: Duration,
    screen: &Screen,
) -> Result<Exit, Problem> {
    let expected: Vec<u32> = (0..chunks).collect();
    let history = task
        .history
        .iter()
        .flatten()
        .filter(|message| message.role == Role::Agent);
    let whole: String = history.chain(&task.status.message).map(text_of).collect();
    let checks = [
        (
            seen.state == Some(TaskState::Completed),
            format!(
                "the stream went on without reconnecting and ended: {}",
                seen.state.as_ref().map_or("unknown", state_name)
            ),
        ),
        (
            seen.attempt == 2,
            format!("another worker took over: attempt {}", seen.attempt),
        ),
        (
            seen.numbers == expected,
            format!(
                "after the boundary the stream had every number from 0 to {} once, in order",
                chunks - 1
            ),
        ),
        (
            task.status.state == TaskState::Completed && numbers(&whole).collect::<Vec<_>>() == expected,
            "so has the task as the other gateway reads it (GetTask)".to_owned(),
        ),
    ];
    let mut good = true;
    for (holds, what) in checks {
        good &= holds;
        screen.line(&format!("{}  {what}", if holds { "ok    " } else { "FAILED" }))?;
    }
    screen.line("")?;
    let seconds = rest.as_secs_f64();
    screen.line(&if good {
        format!(
            "{killed} was killed after {} numbers; the answer was whole {seconds:.1} s later.",
            seen.void
        )
    } else {
        format!("{killed} was killed, and the answer did not survive it.")
    })?;
    Ok(if good { Exit::Good } else { Exit::Bad })
}

fn text_of(message: &Message) -> String {
    message.parts.iter().filter_map(Part::as_text).collect()
}

/// The numbers of the demo agent's chunks in a text.
fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace()
        .filter_map(|word| word.strip_prefix("seq=")?.parse().ok())
}
