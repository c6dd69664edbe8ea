//! A new task for a context whose turn is live. What becomes of it is the policy of its agent: it is refused, it waits, or it takes
//! the place of everything that is there.
//!
//! ORDER: what interrupts is accepted in the step that marks the live turn and ends what waits. A gateway that dies after it
//! leaves nothing undone that a worker or a janitor would not do.

use a2a::StreamResponse;
use relevo_shared::domain::due::Standing;
use relevo_shared::domain::event;
use relevo_shared::domain::fold::Folded;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{BusyPolicy, TurnRecord};
use relevo_shared::ids::{Nonce, TaskId, TurnId};
use relevo_shared::janitor::{end_interrupted, interrupt};
use relevo_shared::platform::entropy;
use relevo_shared::store::{Refused, Submit, Submitted};

use super::submit::{ROUNDS, Sent, WORKING, opening};
use super::{submit, until_answered};
use crate::error::ApiError;
use crate::services::{Call, Services};

/// Submits a turn that creates its task, and interrupts for it what its policy allows.
pub(super) async fn send(services: &Services, call: &Call, wanted: &Submit<'_>) -> Result<Submitted, ApiError> {
    let (store, keep, record) = (&services.store, &services.keep, wanted.record);
    let (context, partition) = store.place(&record.scope(), &record.context_id);
    let mut answer = submit::send(services, call, wanted).await?;
    for _ in 0..ROUNDS {
        let stopped = matches!(answer, Submitted::Busy | Submitted::Changed);
        if record.busy != BusyPolicy::Interrupt || !stopped {
            return Ok(answer);
        }
        let read = || interrupt(store, partition, &context, keep);
        let found = until_answered(call.deadline, read).await?;
        let interrupting = Submit {
            interrupt: found.as_ref(),
            ..*wanted
        };
        answer = submit::send(services, call, &interrupting).await?;
        if let (Submitted::Accepted { .. }, Some(found)) = (&answer, &found) {
            let end = || end_interrupted(store, partition, &context, found.live, keep);
            if let Err(unanswered) = until_answered(call.deadline, end).await {
                tracing::debug!(?unanswered, "the interrupted turn is left to the janitor");
            }
        }
    }
    Ok(match answer {
        Submitted::Changed => Submitted::Busy,
        answer => answer,
    })
}

/// The same turn under other ids.
pub(super) fn apart(mut record: TurnRecord) -> TurnRecord {
    let (now, partition) = (record.submitted, record.task.partition());
    record.task = TaskId::new(now, partition, entropy::u64());
    record.turn = TurnId::new(now, partition, entropy::u64());
    record.message.task_id = Some(record.task.to_string());
    record
}

/// The task of the same context that waits for an answer of its user, who is the sender: contexts are of one scope.
async fn asks(services: &Services, call: &Call, record: &TurnRecord) -> Result<Option<TaskId>, ApiError> {
    let (context, partition) = services.store.place(&record.scope(), &record.context_id);
    let view = until_answered(call.deadline, || services.store.read_context(partition, &context)).await?;
    let live = view
        .live
        .filter(|live| !live.canceled && matches!(live.standing(), Standing::Suspended { .. }));
    Ok(live.map(|live| live.record.task))
}

/// Stores and answers a task that is born FAILED, because its context is busy.
pub(super) async fn refuse(services: &Services, call: &Call, record: &TurnRecord) -> Result<Sent, ApiError> {
    let reason = FailReason::ContextBusy;
    let asks = asks(services, call, record).await?;
    let words = asks.map_or_else(
        || reason.text().to_owned(),
        |task| format!("Task {task} of this conversation waits for your answer: send it with its taskId."),
    );
    let event = event::refused_saying(record, reason, &words, record.submitted);
    let StreamResponse::Task(task) = &event.body else {
        return Err(ApiError::Unsupported(WORKING));
    };
    let state = Folded {
        v: 1,
        status: task.status.clone(),
        artifacts: Vec::new(),
        messages: Vec::new(),
        metadata: task.metadata.clone().unwrap_or_default(),
    };
    let refused = Refused {
        record,
        event: &event,
        state: &state,
        nonce: Nonce(entropy::u64()),
        keep_ms: services.keep.refused_ms,
    };
    let (at, now) = until_answered(call.deadline, || services.store.refuse(&refused)).await?;
    services.clock.learn(now);
    Ok(Sent::Answered(Box::new(opening(event, record.task, at))))
}
