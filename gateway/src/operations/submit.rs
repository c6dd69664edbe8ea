//! Submitting a message as a turn: what SendMessage and SendStreamingMessage have in common.
//!
//! ORDER: choose the ids, listen, then submit. So nothing that follows can be missed, and an unknown outcome is resolved
//! by sending the same submit again: it has one effect, whoever sends it.

use a2a::{Message, StreamResponse, Task, TaskState, TaskStatus};
use relevo_shared::agents::AgentConfig;
use relevo_shared::domain::event::{self, Event, timestamp};
use relevo_shared::domain::fold::Fold;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord, VERSION};
use relevo_shared::ids::{Cursor, EntryId, Nonce, TaskId, TurnId, takers};
use relevo_shared::platform::entropy;
use relevo_shared::store::{HistoryLength, Reservation, StoreError, StoredTask, Submit, Submitted, millis};

use super::held::Waiting;
use super::opening::Opening;
use super::takes::takes;
use super::{answer, busy, keyed, read_visible, route, until_answered};
use crate::auth::Principal;
use crate::error::ApiError;
use crate::hub::{Listener, Want};
use crate::request::SendMessage;
use crate::services::{Call, Inner, Services};

/// The words of the reference server, for a task and for a context.
pub(super) const WORKING: &str = "Task is already working.";
pub(super) const TERMINAL: &str = "Task has ended and accepts no further message.";
/// How often a message is judged anew because what it concerns changed between reading and submitting.
pub(super) const ROUNDS: usize = 8;

/// What became of a message.
pub(super) enum Sent {
    /// Its turn waits for a worker, or for its context.
    Accepted(Box<Accepted>),
    /// It is answered already: by a task that is born FAILED, or by what an earlier send with its key led to.
    Answered(Box<Opening>),
    /// It is answered by a message, and there is no task for clients.
    Direct(Box<Message>, Cursor),
}

/// An accepted turn.
pub(super) struct Accepted {
    /// Which turn of its task.
    pub(super) number: u32,
    /// Listens from the turn's first entry on, if that was wanted.
    pub(super) listener: Option<Listener>,
    /// The task at the turn's first entry.
    pub(super) opening: Opening,
    /// Whether that is all there is of the task: it has just begun.
    pub(super) fresh: bool,
    /// Who waits for an answer without a task for clients, if there may be one.
    pub(super) held: Option<Waiting>,
    /// How many turns of its context come before it.
    pub(super) place: u64,
}

impl Accepted {
    /// A turn of a task that was there before, next in its context.
    pub(super) fn of_a_known_task(number: u32, listener: Option<Listener>, opening: Opening) -> Self {
        Self {
            number,
            listener,
            opening,
            fresh: false,
            held: None,
            place: 0,
        }
    }

    /// What the listener hears is to be folded into this; of an older task more would have to be known.
    pub(super) fn fold(&self) -> Option<Fold> {
        let opening = &self.opening;
        self.fresh
            .then(|| Fold::begin(opening.cursor.entry, self.number, opening.task.clone()))
    }
}

/// Submits a message; listens to its turn before that if `want` says for what.
pub(super) async fn submit(
    services: &Services,
    principal: &Principal,
    call: &Call,
    request: SendMessage,
    want: Option<Want>,
) -> Result<Sent, ApiError> {
    if request.inline_push {
        return Err(ApiError::PushNotSupported);
    }
    for id in request.message.reference_task_ids.iter().flatten() {
        read_visible(services, principal, id, HistoryLength::Latest(0), call.deadline).await?;
    }
    match &request.message.task_id {
        Some(_) => follow_up(services, principal, call, request, want).await,
        None => new_task(services, principal, call, request, want).await,
    }
}

/// What a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum New {
    /// A turn.
    Turn,
    /// That a suspended turn goes on: its scope has it already.
    Answer,
}

/// Says whether a message may be submitted, as far as cluster and scope are concerned.
pub(super) async fn admit(services: &Services, principal: &Principal, kind: New) -> Result<(), ApiError> {
    services.admission.admit()?;
    match kind {
        New::Turn => services.admission.admit_scope(&services.store, principal.scope()).await,
        New::Answer => Ok(()),
    }
}

/// The same before anything is read, unless a key may tell that the message has been accepted before.
async fn admit_unkeyed(services: &Services, principal: &Principal, call: &Call, kind: New) -> Result<(), ApiError> {
    match call.idempotency_key {
        None => admit(services, principal, kind).await,
        Some(_) => Ok(()),
    }
}

async fn new_task(
    services: &Services,
    principal: &Principal,
    call: &Call,
    request: SendMessage,
    want: Option<Want>,
) -> Result<Sent, ApiError> {
    let agent = route::begins(&services.agents, &request)?;
    takes(agent, call, &request.message)?;
    admit_unkeyed(services, principal, call, New::Turn).await?;
    let now = services.clock.now();
    let context_id = request
        .message
        .context_id
        .clone()
        .unwrap_or_else(|| context_id(entropy::u128()));
    let (_, partition) = services.store.place(principal.scope(), &context_id);
    let wanted = Reservation {
        task: TaskId::new(now, partition, entropy::u64()),
        turn: TurnId::new(now, partition, entropy::u64()),
        context_id,
    };
    let ids = keyed::reserve(services, principal, call, &request, wanted, New::Turn).await?;
    let task = ids.task;
    let place = Place {
        task,
        turn: ids.turn,
        context_id: ids.context_id,
        new_task: true,
        now,
        remember: keyed::remember(services, call),
    };
    // Who does not wait gets a task.
    let direct = want.is_some() && agent.direct;
    let record = TurnRecord {
        direct,
        ..record(services, agent, principal, call, request, place)
    }
    .versioned();
    let first = event::submitted(&record, now);
    let nonce = Nonce(entropy::u64());
    let at = EntryId::START.after(1, nonce);
    let listener = listen(services, task, at, want).await;
    let submit = Submit {
        record: &record,
        first: &first,
        nonce,
        scope_limit: services.admission.scope_share(services.store.partitions()),
        follows: None,
        history: &[],
        interrupt: None,
    };
    let waiting = direct.then(|| Waiting::new(services, task));
    let submitted = busy::send(services, call, &submit).await;
    let fresh = matches!(&submitted, Ok(Submitted::Accepted { first, .. }) if *first == at);
    let unknown = matches!(&submitted, Err(error) if error.is_unknown());
    let held = match waiting {
        Some(waiting) if !fresh && !unknown => {
            waiting.over();
            None
        }
        held => held,
    };
    match submitted? {
        Submitted::Accepted { first, number, .. } if !fresh => {
            keyed::attach(services, call, task, number, first, want).await
        }
        Submitted::Accepted { number, place, .. } => {
            let opening = opening(first, task, at);
            Ok(Sent::Accepted(Box::new(Accepted {
                number,
                listener,
                opening,
                fresh: true,
                held,
                place,
            })))
        }
        // A repeat may still submit the ids of the key: the refusal is a task of its own.
        Submitted::Busy if call.idempotency_key.is_some() => busy::refuse(services, call, &busy::apart(record)).await,
        Submitted::Busy => busy::refuse(services, call, &record).await,
        Submitted::Limited => Err(services.admission.over_limit()),
        // Only tasks that exist can be in such a state; this one does not.
        Submitted::Working | Submitted::Terminal | Submitted::NotFound | Submitted::Changed => {
            Err(ApiError::TaskNotFound(task.to_string()))
        }
    }
}

async fn follow_up(
    services: &Services,
    principal: &Principal,
    call: &Call,
    request: SendMessage,
    want: Option<Want>,
) -> Result<Sent, ApiError> {
    let id = request.message.task_id.clone().unwrap_or_default();
    for _ in 0..ROUNDS {
        let stored = read_visible(services, principal, &id, request.history, call.deadline).await?;
        if request
            .message
            .context_id
            .as_ref()
            .is_some_and(|given| *given != stored.context_id)
        {
            return Err(ApiError::invalid("message.contextId", "is not the context of the task"));
        }
        // A keyed message may have been accepted before: only the submit can tell whether it comes too late.
        if call.idempotency_key.is_none() && stored.terminal {
            return Err(ApiError::Unsupported(TERMINAL));
        }
        let agent = route::goes_on(&services.agents, &request, &stored.agent)?;
        takes(agent, call, &request.message)?;
        if stored.suspended {
            match answer::answer(services, principal, call, &request, &stored, want).await? {
                Some(sent) => return Ok(sent),
                None => continue,
            }
        }
        if call.idempotency_key.is_none() && stored.live.is_some() {
            return Err(ApiError::Unsupported(WORKING));
        }
        admit_unkeyed(services, principal, call, New::Turn).await?;
        let now = services.clock.now().max(stored.updated);
        let wanted = Reservation {
            task: stored.task,
            turn: TurnId::new(now, stored.task.partition(), entropy::u64()),
            context_id: stored.context_id.clone(),
        };
        let ids = keyed::reserve(services, principal, call, &request, wanted, New::Turn).await?;
        let place = Place {
            task: stored.task,
            turn: ids.turn,
            context_id: stored.context_id.clone(),
            new_task: false,
            now,
            remember: keyed::remember(services, call),
        };
        let record = record(services, agent, principal, call, request.clone(), place).versioned();
        let first = event::submitted(&record, now);
        let nonce = Nonce(entropy::u64());
        let at = stored.last.after(1, nonce);
        let listener = listen(services, stored.task, at, want).await;
        let (opening, history) = continued(stored.clone(), &record, at, request.history);
        let submit = Submit {
            record: &record,
            first: &first,
            nonce,
            scope_limit: services.admission.scope_share(services.store.partitions()),
            follows: Some(stored.last),
            history: &history,
            interrupt: None,
        };
        match send(services, call, &submit).await? {
            Submitted::Accepted { first, number, .. } if first != at => {
                return keyed::attach(services, call, stored.task, number, first, want).await;
            }
            Submitted::Accepted { number, .. } => {
                return Ok(Sent::Accepted(Box::new(Accepted::of_a_known_task(
                    number, listener, opening,
                ))));
            }
            Submitted::Changed => {}
            Submitted::Limited => return Err(services.admission.over_limit()),
            Submitted::Busy | Submitted::Working => return Err(ApiError::Unsupported(WORKING)),
            Submitted::Terminal => return Err(ApiError::Unsupported(TERMINAL)),
            Submitted::NotFound => return Err(ApiError::TaskNotFound(id)),
        }
    }
    Err(ApiError::Unsupported(WORKING))
}

/// Where a turn belongs.
struct Place {
    task: TaskId,
    turn: TurnId,
    context_id: String,
    new_task: bool,
    now: u64,
    /// How long a repeated submit is answered, in ms.
    remember: u64,
}

fn record(
    services: &Inner,
    agent: &AgentConfig,
    principal: &Principal,
    call: &Call,
    request: SendMessage,
    place: Place,
) -> TurnRecord {
    let turn = &services.settings.turn;
    let mut message = request.message;
    message.context_id = Some(place.context_id.clone());
    message.task_id = Some(place.task.to_string());
    TurnRecord {
        v: VERSION,
        turn: place.turn,
        task: place.task,
        context_id: place.context_id,
        sender: principal.sender().clone(),
        message,
        agent: agent.name.clone(),
        pool: agent.pool.clone(),
        policy: agent.policy,
        stop_after_crash: agent.a2a.is_some() && agent.policy == CrashPolicy::Fail,
        attempts: agent.attempts.unwrap_or(turn.attempts),
        handbacks: turn.handbacks,
        submitted: place.now,
        deadline: None,
        queue_age: millis(services.settings.limits.queue_age),
        busy: agent.busy,
        remember_ms: place.remember,
        new_task: place.new_task,
        direct: false,
        workspace: agent.profile.ingest.is_some(),
        accepted_output_modes: request.accepted_output_modes,
        extensions: call.extensions.uris(),
        traceparent: call.traceparent.clone(),
        metadata: request.metadata,
        suspension: None,
    }
}

pub(super) async fn listen(services: &Inner, task: TaskId, at: EntryId, want: Option<Want>) -> Option<Listener> {
    match want {
        Some(want) => Some(services.hub.join(task, at, want).await),
        None => None,
    }
}

/// Sends a submit until its outcome is known, and rings for a worker.
pub(super) async fn send(services: &Services, call: &Call, submit: &Submit<'_>) -> Result<Submitted, ApiError> {
    accepted(services, call, submit.record, || services.store.submit(submit)).await
}

/// The same of whatever makes this turn go on.
pub(super) async fn accepted<F>(
    services: &Services,
    call: &Call,
    record: &TurnRecord,
    send: impl FnMut() -> F,
) -> Result<Submitted, ApiError>
where
    F: Future<Output = Result<Submitted, StoreError>>,
{
    let answer = until_answered(call.deadline, send).await;
    let answer = answer.map_err(|unanswered| {
        let unknown = unanswered.unknown;
        let error = ApiError::from(unanswered);
        if unknown {
            error.unknown_outcome(record.task)
        } else {
            error
        }
    })?;
    if let Submitted::Accepted {
        now, place, storage, ..
    } = &answer
    {
        tracing::info!(
            task.id = %record.task, context.id = record.context_id, turn.id = %record.turn, place, "turn accepted"
        );
        services.admission.submitted();
        services.clock.learn(*now);
        if *place == 0 {
            let takers = takers(&record.pool, storage.as_ref());
            services.ringer.ring(takers, record.task.partition(), *now);
        }
    }
    Ok(answer)
}

/// The opening of a stream whose first event is the whole task.
pub(super) fn opening(event: Event, task: TaskId, at: EntryId) -> Opening {
    let bytes = event.bytes();
    let cursor = Cursor { task, entry: at };
    match event.body {
        StreamResponse::Task(task) => Opening {
            task,
            cursor,
            bytes: Some(bytes),
        },
        // Only used for events that are tasks.
        StreamResponse::Message(_) | StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => {
            let status = TaskStatus {
                state: TaskState::Submitted,
                message: None,
                timestamp: None,
            };
            let id = task.to_string();
            let task = Task {
                id,
                context_id: String::new(),
                status,
                artifacts: None,
                history: None,
                metadata: None,
            };
            Opening {
                task,
                cursor,
                bytes: Some(bytes),
            }
        }
    }
}

/// A task at the first entry of a further turn, and what its stored history receives: the answer that is no longer the
/// status message, and the user's message.
pub(super) fn continued(
    mut stored: StoredTask,
    record: &TurnRecord,
    at: EntryId,
    limit: HistoryLength,
) -> (Opening, Vec<Message>) {
    let mut history: Vec<Message> = stored.folded.begin_turn().into_iter().collect();
    history.push(record.message.clone());
    stored.folded.status = TaskStatus {
        state: TaskState::Submitted,
        message: None,
        timestamp: timestamp(record.submitted),
    };
    stored.history.extend(history.iter().cloned());
    let opening = Opening {
        cursor: Cursor {
            task: stored.task,
            entry: at,
        },
        task: stored.into_task(limit),
        bytes: None,
    };
    (opening, history)
}

/// A new context's id: a random UUID.
fn context_id(random: u128) -> String {
    let bits = (random & !(0xf << 76) & !(0b11 << 62)) | (4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_id_is_a_uuid_of_version_4() {
        assert_eq!(context_id(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(context_id(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
