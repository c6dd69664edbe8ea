//! Tasks that have grown over many turns: whatever they hold, they can end.

use a2a::{Artifact, Part, TaskState};
use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::store::{Batch, Finish, Keep};

use crate::fixture::{World, is_done};

/// More than any call but an end takes.
const TOO_MUCH: usize = 65 << 20;

#[tokio::test]
async fn an_end_is_written_whatever_the_task_has_grown_to() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let (events, open, mut snapshot, history) = turn.ending(End::Completed, Nonce(9));
    snapshot.artifacts = vec![Artifact {
        artifact_id: "a".to_owned(),
        name: None,
        description: None,
        // Six bytes each, written as `\u0001`: it takes a debug build long enough.
        parts: vec![Part::text("\u{1}".repeat(TOO_MUCH / 6 + 1))],
        metadata: None,
        extensions: None,
    }];
    let finish = Finish {
        end: End::Completed,
        snapshot: &snapshot,
        history: &history,
        trim_below: None,
        keep: &Keep::default(),
        remember_ms: 0,
        direct: false,
        queued: &turn.taken.queued,
    };
    let batch = Batch {
        state: TaskState::Completed,
        ..turn.batch(Nonce(9), open, &events)
    };
    assert!(is_done(&world.store.finish(&batch, &finish).await.unwrap()));
    let record = &turn.taken.record;
    assert!(world.view(record).await.live.is_none(), "its context is free");
    let key = world.store.keys().task(record.task);
    assert!(
        world
            .probe
            .text(&["HSTRLEN", &key, "snap"])
            .unwrap()
            .parse::<usize>()
            .unwrap()
            > TOO_MUCH
    );
}

#[tokio::test]
async fn a_snapshot_that_is_too_large_is_left_out_of_its_batch() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one "]).await;
    let (open, events) = turn.events(&["two"]);
    // Nobody reads it.
    let snapshot = vec![b' '; TOO_MUCH];
    let batch = Batch {
        snapshot: Some(&snapshot),
        ..turn.batch(Nonce(9), open, &events)
    };
    assert!(is_done(&world.store.emit(&batch).await.unwrap()));
    let stored = world.stored(turn.taken.record.task).await.folded;
    assert_eq!(stored.status.message.unwrap().parts[0].as_text(), Some("one two"));
}
