//! What the tests of this crate's modules share.

use std::collections::BTreeMap;

use a2a::{Message, Part, Role};
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, Sender, TurnRecord, VERSION};
use relevo_shared::ids::{Partition, TaskId, TurnId};

/// The first turn of a task.
pub(crate) fn record() -> TurnRecord {
    TurnRecord {
        v: VERSION,
        turn: TurnId::new(1, Partition(3), 2),
        task: TaskId::new(1, Partition(3), 1),
        context_id: "c-1".into(),
        sender: Sender::default(),
        message: Message {
            message_id: "m-1".into(),
            ..Message::new(Role::User, vec![Part::text("hello")])
        },
        agent: "demo".into(),
        pool: "default".into(),
        policy: CrashPolicy::Restart,
        attempts: 3,
        handbacks: 20,
        submitted: 1_000,
        deadline: None,
        queue_age: 60_000,
        busy: BusyPolicy::Reject,
        remember_ms: 0,
        new_task: true,
        direct: false,
        workspace: false,
        accepted_output_modes: Vec::new(),
        extensions: Vec::new(),
        traceparent: None,
        metadata: BTreeMap::new(),
        stop_after_crash: false,
        suspension: None,
    }
}
