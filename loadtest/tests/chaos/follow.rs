//! One turn as its client lives it: sent, sent again where that is safe, followed across every break, perhaps canceled, and
//! checked.

use std::future::pending;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use a2a::{StreamResponse, Task, TaskState};
use relevo_loadtest::chaos::cancel::{Cancel, Said};
use relevo_loadtest::chaos::history::{Breach, End, Policy, Promise, Turn};
use relevo_loadtest::chaos::random::Random;
use relevo_loadtest::client::{CallError, EventStream, Outgoing, StreamEvent};
use relevo_loadtest::expect::Expect;
use relevo_loadtest::verify::{Kind, StreamCheck, Violation, check_task, is_end};
use relevo_shared::domain::event::TURN;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cluster::Group;
use crate::load::Shared;

/// A turn that has not ended after this time will not.
const LIMIT: Duration = Duration::from_mins(2);
/// A stream that is silent for longer is broken: gateways send a comment every four seconds.
const SILENT: Duration = Duration::from_secs(9);
/// A blocking call that takes longer is asked for again.
const PATIENT: Duration = Duration::from_secs(20);
/// Silences from here on are written down.
const LONG: u64 = 300;
const PAUSE: Duration = Duration::from_millis(50);

/// A turn to be carried out.
pub struct Ask {
    pub nonce: String,
    pub context: String,
    pub task: Option<String>,
    pub text: String,
    /// What was asked in the same task before.
    pub before: Vec<Expect>,
    pub group: Group,
    pub keyed: bool,
    pub streamed: bool,
    /// Whether its events are kept for a replay.
    pub kept: bool,
    /// When it is canceled after its beginning.
    pub cancel: Option<Duration>,
    /// The addresses of its agent's gateways.
    pub doors: Vec<usize>,
}

/// What ended an attempt to hear.
enum Heard {
    /// The end of the turn.
    End,
    /// Its message may have arrived, and may not be sent again.
    Unknown,
    /// What no honest server answers.
    Refused(CallError),
}

struct Following<'a> {
    shared: &'a Shared,
    random: Random,
    ask: &'a Ask,
    turn: Turn,
    check: StreamCheck,
    state: TaskState,
    reason: Option<String>,
    cursor: Option<String>,
    heard: u64,
    /// Tells the cancel which task it is.
    begun: watch::Sender<Option<String>>,
}

/// Carries out a turn, and checks all that can be checked at once.
pub async fn carry_out(shared: &Shared, mut random: Random, ask: &Ask) -> (Turn, Vec<Breach>) {
    let expect = Expect::of(&ask.text).unwrap();
    let (begun, task) = watch::channel(None);
    let canceling = Random::new(random.next(), 0);
    let now = shared.now();
    let mut following = Following {
        shared,
        ask,
        turn: Turn {
            nonce: ask.nonce.clone(),
            context: ask.context.clone(),
            task: ask.task.clone(),
            keyed: ask.keyed,
            policy: match ask.group {
                Group::Demo => Policy::Restart,
                Group::Once => Policy::Fail,
            },
            wanted: expect.end.clone(),
            sent: now,
            first: None,
            ended: None,
            end: None,
            cancel: None,
            holds: None,
            resumes: 0,
            resends: 0,
            restarts: 0,
            silences: Vec::new(),
            events: Vec::new(),
            unknown: false,
        },
        check: StreamCheck::new(expect.clone(), &ask.context),
        state: TaskState::Unspecified,
        reason: None,
        cursor: None,
        heard: now,
        begun,
        random,
    };
    let both = async {
        let (over, ended) = watch::channel(false);
        let follow = async {
            let heard = if ask.streamed {
                following.stream().await
            } else {
                following.send().await
            };
            over.send(true).ok();
            heard
        };
        tokio::join!(follow, cancel(shared, canceling, ask, task, ended))
    };
    let outcome = timeout(LIMIT, both).await;
    let mut breaches = Vec::new();
    if let Ok((heard, canceled)) = outcome {
        match heard {
            Heard::End => {}
            Heard::Unknown => following.turn.unknown = true,
            Heard::Refused(error) => breaches.push(Breach::new(
                Promise::Stream,
                format!("turn {} of task {:?}: {error}", ask.nonce, following.turn.task),
            )),
        }
        match canceled {
            Some(Ok(cancel)) => following.turn.cancel = Some(cancel),
            Some(Err(detail)) => breaches.push(Breach::new(Promise::Cancel, detail)),
            None => {}
        }
    } else if ask.cancel.is_some() {
        following.turn.cancel = Some(Cancel::Unknown);
    }
    let mut turn = following.finish(&mut breaches);
    if turn.end.is_some() {
        breaches.extend(check(shared, ask, &mut turn, expect).await);
    }
    (turn, breaches)
}

/// What the task is at another gateway, after its end.
async fn check(shared: &Shared, ask: &Ask, turn: &mut Turn, expect: Expect) -> Vec<Breach> {
    let id = turn.task.as_deref().unwrap();
    let Some(task) = shared.read_task(id).await else {
        return vec![Breach::new(Promise::Task, format!("task {id} cannot be read"))];
    };
    turn.holds = Some(Said::of(&task, &ask.nonce));
    let end = turn.end.as_ref().unwrap();
    let early = turn.ended_early();
    let mut turns = ask.before.clone();
    turns.push(Expect {
        end: end.state.clone(),
        ..expect
    });
    let found = check_task(&task, &ask.context, &turns).into_iter();
    // What an answer that ended early did not say is not lost.
    let passed = |violation: &Violation| early && violation.kind == Kind::Lost && violation.detail.contains(&ask.nonce);
    let question = |violation: &Violation| violation.detail.contains("question");
    found
        .filter(|violation| !passed(violation) || question(violation))
        .map(|violation| Breach::new(Promise::Task, violation.to_string()))
        .collect()
}

/// Asks for the end of the turn until there is an answer.
async fn cancel(
    shared: &Shared,
    mut random: Random,
    ask: &Ask,
    mut task: watch::Receiver<Option<String>>,
    mut ended: watch::Receiver<bool>,
) -> Option<Result<Cancel, String>> {
    let after = ask.cancel?;
    let begun = async {
        let known = task.wait_for(Option::is_some).await.map(|task| task.clone());
        let Ok(task) = known else { return pending().await };
        tokio::time::sleep(after).await; // pace: cancels come at any moment
        task
    };
    let task = tokio::select! {
        task = begun => task?,
        _ = ended.wait_for(|over| *over) => return None,
    };
    loop {
        let door = random.place(shared.gateways);
        let answer = timeout(PATIENT, shared.client.cancel(door, &task)).await;
        return Some(match answer {
            Ok(Ok(task)) => answered(&task, &ask.nonce),
            Ok(Err(CallError::Rpc(error))) if error.code == -32002 => Ok(Cancel::TooLate),
            Ok(Err(error)) if !passing(&error) => Err(format!("the cancel of task {task}: {error}")),
            Ok(Err(error)) => {
                shared.trouble(&error.kind());
                tokio::time::sleep(PAUSE).await; // pace: of trying again
                continue;
            }
            Err(_) => {
                shared.trouble("cancel_slow");
                continue;
            }
        });
    }
}

fn answered(task: &Task, nonce: &str) -> Result<Cancel, String> {
    let said = || Said::of(task, nonce);
    let state = &task.status.state;
    let facts = task.metadata.as_ref().and_then(|metadata| metadata.get(TURN));
    let requested = facts
        .and_then(|facts| facts.get("cancelRequested"))
        .and_then(Value::as_bool);
    match (state, requested) {
        (TaskState::Canceled, _) => Ok(Cancel::Canceled(said())),
        (state, _) if is_end(state) => Ok(Cancel::Ended(state.clone())),
        (_, Some(true)) => Ok(Cancel::Requested(said())),
        _ => Err(format!("the cancel of task {} was answered {state:?}", task.id)),
    }
}

/// Whether another address, or the same one later, may answer.
fn passing(error: &CallError) -> bool {
    match error {
        CallError::Connect(_) | CallError::Broken(_) | CallError::Silent(_) | CallError::Overload { .. } => true,
        CallError::Rpc(error) => error.reason() == "UNAVAILABLE",
        // The load balancer found no gateway, or lost it.
        CallError::Foreign(text) => ["status 502", "status 503", "status 504"]
            .iter()
            .any(|way| text.starts_with(way)),
    }
}

/// Whether a call that failed has certainly not begun anything.
fn never_arrived(error: &CallError) -> bool {
    match error {
        CallError::Connect(_) => true,
        CallError::Overload { error, .. } => !error.data.to_string().contains("unknown"),
        _ => false,
    }
}

impl Following<'_> {
    fn headers(&self) -> Vec<(&'static str, String)> {
        let key = format!("chaos-of-the-turn-{}", self.ask.nonce);
        self.ask.keyed.then_some(("idempotency-key", key)).into_iter().collect()
    }

    fn params(&self) -> Value {
        let id = format!("m-{}", self.ask.nonce);
        let message = Outgoing {
            message_id: &id,
            context: &self.ask.context,
            task: self.ask.task.as_deref(),
            text: &self.ask.text,
        };
        message.params()
    }

    fn door(&mut self) -> usize {
        self.ask.doors[self.random.place(self.ask.doors.len())]
    }

    /// After a send that failed: whether it may be sent again.
    async fn again(&mut self, error: Result<CallError, &str>) -> Option<Heard> {
        let kind = error.as_ref().map_or_else(|kind| (*kind).to_owned(), CallError::kind);
        self.shared.trouble(&kind);
        if let Ok(error) = error {
            if !passing(&error) {
                return Some(Heard::Refused(error));
            }
            if !self.ask.keyed && !never_arrived(&error) {
                return Some(Heard::Unknown);
            }
        } else if !self.ask.keyed {
            return Some(Heard::Unknown);
        }
        self.turn.resends += 1;
        tokio::time::sleep(PAUSE * u32::try_from(self.turn.resends.min(10)).unwrap()).await; // pace: of trying again
        None
    }

    /// A blocking call, whose answer is the end.
    async fn send(&mut self) -> Heard {
        loop {
            let (door, params, headers) = (self.door(), self.params(), self.headers());
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let limit = if self.ask.keyed { PATIENT } else { LIMIT };
            let call = self
                .shared
                .client
                .call_with::<Value>(door, "SendMessage", &params, &headers);
            let error = match timeout(limit, call).await {
                Ok(Ok(answer)) => {
                    let task: Task = serde_json::from_value(answer["task"].clone()).unwrap();
                    return self.answer(task).await;
                }
                Ok(Err(error)) => Ok(error),
                Err(_) => Err("slow"),
            };
            if let Some(heard) = self.again(error).await {
                return heard;
            }
        }
    }

    /// The answer of a gateway that stops, or whose patience is over, is the task as it stands.
    async fn answer(&mut self, mut task: Task) -> Heard {
        self.turn.task = Some(task.id.clone());
        while !is_end(&task.status.state) {
            tokio::time::sleep(PAUSE).await; // pace: of asking again
            let Some(now) = self.shared.read_task(&task.id).await else {
                continue;
            };
            task = now;
        }
        self.turn.ended = Some(self.shared.now());
        self.shared.event();
        self.state = task.status.state;
        self.reason = reason(task.metadata.as_ref().map(|metadata| json!(metadata)).as_ref());
        Heard::End
    }

    async fn stream(&mut self) -> Heard {
        loop {
            let (door, params, headers) = (self.door(), self.params(), self.headers());
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let open = self.shared.client.open(door, "SendStreamingMessage", &params, &headers);
            let error = match timeout(SILENT, open).await {
                Ok(Ok(mut stream)) => match self.listen(&mut stream).await {
                    Ok(()) => return Heard::End,
                    Err(Some(error)) if !passing(&error) => return Heard::Refused(error),
                    Err(error) if self.cursor.is_some() => {
                        self.shared
                            .trouble(&error.map_or_else(|| "cut".to_owned(), |error| error.kind()));
                        return self.resume().await;
                    }
                    Err(error) => error.ok_or("cut"),
                },
                Ok(Err(error)) => Ok(error),
                Err(_) => Err("slow"),
            };
            if let Some(heard) = self.again(error).await {
                return heard;
            }
        }
    }

    /// Goes on where the stream broke, at any gateway, until the end.
    async fn resume(&mut self) -> Heard {
        loop {
            let door = self.random.place(self.shared.gateways);
            let (task, cursor) = (self.turn.task.clone().unwrap(), self.cursor.clone());
            // One in four sends the message again with its place, which begins nothing.
            let headers = [("last-event-id", cursor.as_deref().unwrap())];
            let params = self.params();
            let client = &self.shared.client;
            let open = async {
                if self.random.chance(25) {
                    client.open(door, "SendStreamingMessage", &params, &headers).await
                } else {
                    client.subscribe(door, &task, cursor.as_deref()).await
                }
            };
            let error = match timeout(SILENT, open).await {
                Ok(Ok(mut stream)) => {
                    self.turn.resumes += 1;
                    match self.listen(&mut stream).await {
                        Ok(()) => return Heard::End,
                        Err(error) => error,
                    }
                }
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            if let Some(error) = error {
                if !passing(&error) {
                    return Heard::Refused(error);
                }
                self.shared.trouble(&error.kind());
            } else {
                self.shared.trouble("cut");
            }
            tokio::time::sleep(PAUSE).await; // pace: of trying again
        }
    }

    /// Hears a stream to the end of the turn; the error is `None` when it just ended or fell silent before.
    async fn listen(&mut self, stream: &mut EventStream) -> Result<(), Option<CallError>> {
        loop {
            let comments = stream.comments();
            let broken = match timeout(SILENT, stream.next()).await {
                Ok(Ok(Some(event))) => {
                    self.hear(&event);
                    continue;
                }
                Ok(Ok(None)) => None,
                Ok(Err(error)) => Some(error),
                // `next` goes on past comments: signs of life.
                Err(_) if stream.comments() > comments => continue,
                Err(_) => None,
            };
            return if is_end(&self.state) { Ok(()) } else { Err(broken) };
        }
    }

    fn hear(&mut self, event: &StreamEvent) {
        let now = self.shared.event();
        self.turn.first.get_or_insert(now);
        if now - self.heard >= LONG {
            self.turn.silences.push((self.heard, now));
        }
        self.heard = now;
        self.check.event(event.id.as_deref(), &event.event);
        if let Some(id) = &event.id {
            self.cursor = Some(id.clone());
            if self.ask.kept {
                self.turn.events.push((id.clone(), digest(&event.event)));
            }
        }
        let (status, metadata) = match &event.event {
            StreamResponse::Task(task) => {
                self.turn.task = Some(task.id.clone());
                self.begun.send_replace(Some(task.id.clone()));
                (&task.status, task.metadata.as_ref().map(|metadata| json!(metadata)))
            }
            StreamResponse::StatusUpdate(update) => {
                (&update.status, update.metadata.as_ref().map(|metadata| json!(metadata)))
            }
            StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => return,
        };
        self.state = status.state.clone();
        if is_end(&self.state) {
            self.turn.ended = Some(now);
            self.reason = reason(metadata.as_ref());
        }
    }

    fn finish(mut self, breaches: &mut Vec<Breach>) -> Turn {
        if self.turn.ended.is_some() {
            self.turn.end = Some(End {
                state: self.state.clone(),
                reason: self.reason.take(),
            });
        }
        self.turn.restarts = u64::from(self.check.boundaries());
        if self.ask.streamed && self.turn.end.is_some() {
            let early = self.turn.ended_early();
            let found = if early {
                self.check.finish_early()
            } else {
                self.check.finish()
            };
            let found = found.into_iter().map(|violation| violation.to_string());
            breaches.extend(found.map(|detail| Breach::new(Promise::Stream, detail)));
        }
        self.turn
    }
}

fn reason(metadata: Option<&Value>) -> Option<String> {
    let facts: &Map<String, Value> = metadata?.get(TURN)?.as_object()?;
    facts.get("reason")?.as_str().map(str::to_owned)
}

/// What an event says, short.
pub fn digest(event: &StreamResponse) -> u64 {
    let mut hasher = DefaultHasher::new();
    json!(event).to_string().hash(&mut hasher);
    hasher.finish()
}
