//! Follows a task to its end over however many connections that takes.
//!
//! Owns the decision whether a stream that ended is over or was cut, and the waits between attempts to resume it. It never
//! sends a message: what it repeats is SubscribeToTask, which changes nothing. Called by `call` and `task watch`.

use std::time::Duration;

use a2a::methods::{GET_TASK, SUBSCRIBE_TO_TASK};
use a2a::{Task, TaskState};
use relevo_shared::platform::entropy;
use serde_json::json;
use tokio::time::Instant;

use crate::client::{ANSWER, Client, ClientError, EventStream, Heard};
use crate::exit::{Exit, Problem, chain};
use crate::print::Screen;
use crate::show::Show;

/// The first wait before a stream is resumed, unless the server names another.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A server that is lost for longer is given up.
const PATIENCE: Duration = Duration::from_mins(2);

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the turn has ended: also when the task waits for input.
    TurnEnds,
    /// When the server says that nothing follows.
    StreamCloses,
}

/// How a connection ended.
enum Ended {
    /// Nothing follows.
    Over,
    /// Something may follow.
    Cut(String),
}

/// A task that is being followed.
#[derive(Debug)]
pub(crate) struct Follow<'a> {
    client: &'a Client,
    screen: &'a Screen,
    show: Show,
    until: Until,
    cursor: Option<String>,
    /// How many events were heard.
    heard: u64,
    wait: Duration,
    /// Since when nothing came through.
    lost: Option<Instant>,
}

impl<'a> Follow<'a> {
    /// Shows events through `show`.
    pub(crate) fn new(client: &'a Client, screen: &'a Screen, show: Show, until: Until) -> Self {
        Self {
            client,
            screen,
            show,
            until,
            cursor: None,
            heard: 0,
            wait: FIRST_WAIT,
            lost: None,
        }
    }

    /// Reads `stream` and whatever must be opened after it.
    pub(crate) async fn run(self, stream: EventStream) -> Result<Exit, Problem> {
        Ok(self.shown(stream).await?.exit())
    }

    /// The same; returns what was shown.
    pub(crate) async fn shown(mut self, mut stream: EventStream) -> Result<Show, Problem> {
        loop {
            let why = match self.read(&mut stream).await? {
                Ended::Over => break,
                Ended::Cut(why) => why,
            };
            drop(stream);
            match self.resume(why).await? {
                Some(next) => stream = next,
                None => break,
            }
        }
        self.screen.all(self.show.end())?;
        Ok(self.show)
    }

    async fn read(&mut self, stream: &mut EventStream) -> Result<Ended, Problem> {
        loop {
            match stream.next().await {
                Ok(Some(Heard::Event(cursor, event))) => {
                    self.arrived();
                    self.heard += 1;
                    let out = self.show.event(cursor.as_deref(), *event);
                    self.cursor = cursor.or_else(|| self.cursor.take());
                    self.screen.all(out)?;
                    if self.is_over() {
                        return Ok(Ended::Over);
                    }
                }
                Ok(Some(Heard::Alive)) => self.arrived(),
                Ok(Some(Heard::Retry(wait))) => self.wait = wait.min(LONGEST_WAIT),
                // A stream also ends when its server drains or finds it too old.
                Ok(None) if self.may_close() => return Ok(Ended::Over),
                Ok(None) => return Ok(Ended::Cut("the server closed the stream".to_owned())),
                Err(error) if error.is_passing() => return Ok(Ended::Cut(chain(&error))),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn arrived(&mut self) {
        self.lost = None;
        self.wait = FIRST_WAIT;
    }

    /// Whether nothing can follow, whatever the server does with the connection.
    fn is_over(&self) -> bool {
        let waits = self.until == Until::TurnEnds && self.show.state() == Some(&TaskState::InputRequired);
        waits || self.show.answered() || self.show.state().is_some_and(TaskState::is_terminal)
    }

    /// Whether an orderly end of the stream is the end of the turn. While credentials are awaited a turn may go on. A watched
    /// task that has been waiting since before it was watched goes on some day: its stream was closed for another reason.
    fn may_close(&self) -> bool {
        let waits = matches!(
            self.show.state(),
            Some(TaskState::InputRequired | TaskState::AuthRequired)
        );
        let unchanged = self.until == Until::StreamCloses && self.heard <= 1;
        (waits && !unchanged) || self.is_over()
    }

    /// Opens another stream where the last one ended; `None` when there is nothing left to stream.
    async fn resume(&mut self, why: String) -> Result<Option<EventStream>, Problem> {
        let Some(task) = self.show.task_id().map(str::to_owned) else {
            let lost = "before it said which task this is; whether it was accepted is not known";
            return Err(Problem::unreachable(format!("{why}, {lost}")));
        };
        if self.lost.is_none() {
            self.screen.note(&format!("-- {why}; resuming --"));
        }
        let lost = *self.lost.get_or_insert_with(Instant::now);
        let mut last = why;
        while lost.elapsed() < PATIENCE {
            tokio::time::sleep(self.wait / 2 + entropy::up_to(self.wait / 2)).await;
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
            let error = match subscribe(self.client, &task, self.cursor.as_deref()).await {
                Ok(stream) => return Ok(Some(stream)),
                Err(error) if error.is_unsupported() => return self.read_whole(&task).await,
                Err(error) if error.is_passing() => error,
                Err(error) => return Err(error.into()),
            };
            if let Some(asked) = error.retry_after() {
                self.wait = self.wait.max(asked.min(LONGEST_WAIT));
            }
            last = chain(&error);
        }
        let patience = humantime::format_duration(PATIENCE);
        Err(Problem::unreachable(format!("{last}; given up after {patience}")))
    }

    /// For servers that do not replay: what has ended is read as a whole.
    async fn read_whole(&mut self, task: &str) -> Result<Option<EventStream>, Problem> {
        let whole: Task = self.client.call(GET_TASK, json!({ "id": task }), Some(ANSWER)).await?;
        let out = self.show.task(whole);
        self.screen.all(out)?;
        if self.may_close() {
            return Ok(None);
        }
        Err(Problem::unreachable(
            "the stream broke and this server does not resume it",
        ))
    }
}

/// Shows a task that has ended: there is nothing to follow, but something to show.
pub(crate) async fn show_ended(client: &Client, screen: &Screen, mut show: Show, task: &str) -> Result<Show, Problem> {
    let whole: Task = client.call(GET_TASK, json!({ "id": task }), Some(ANSWER)).await?;
    screen.all(show.task(whole))?;
    screen.all(show.end())?;
    Ok(show)
}

/// Opens a stream of a task.
pub(crate) async fn subscribe(client: &Client, task: &str, cursor: Option<&str>) -> Result<EventStream, ClientError> {
    client.stream(SUBSCRIBE_TO_TASK, json!({ "id": task }), cursor).await
}

/// Runs a command within a limit.
pub(crate) async fn within(
    limit: Option<Duration>,
    work: impl Future<Output = Result<Exit, Problem>>,
) -> Result<Exit, Problem> {
    let Some(limit) = limit else { return work.await };
    let late = |_| {
        let limit = humantime::format_duration(limit);
        Problem::unreachable(format!(
            "given up after {limit}; what was begun goes on: see `relevo task list`"
        ))
    };
    tokio::time::timeout(limit, work).await.map_err(late)?
}
