//! Answers without a task: what nobody may see, until something shows it.

use a2a::TaskState;
use relevo_shared::domain::record::{BusyPolicy, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::janitor::{Conclusion, conclude};
use relevo_shared::store::{EmitReply, Keep, ListFilter, Shown};

use crate::fixture::{World, is_done};

async fn listed(world: &World, record: &TurnRecord) -> u64 {
    let filter = ListFilter {
        scope: record.scope(),
        context: None,
        state: None,
        since: None,
    };
    world.store.list_tasks(&filter, None, 10).await.unwrap().total
}

async fn shown(world: &World, record: &TurnRecord) -> Shown {
    world.stored(record.task).await.shown
}

#[tokio::test]
async fn an_answer_without_a_task_is_never_seen() {
    let world = World::start().await;
    let record = world.unseen("c-1").await;
    let turn = world.run(&record).await;
    world.hear(record.task).await;
    assert_eq!(
        (shown(&world, &record).await, listed(&world, &record).await),
        (Shown::NotYet, 0)
    );
    assert!(is_done(&turn.answer(&world.store).await));
    assert_eq!(
        (shown(&world, &record).await, listed(&world, &record).await),
        (Shown::Never, 0)
    );
    let stored = world.stored(record.task).await;
    assert!(stored.terminal && stored.state == TaskState::Completed);
    let before = world.probe.dump();
    assert!(!world.store.show_task(record.task, false).await.unwrap());
    world.reached("show", "DIRECT");
    assert_eq!(world.probe.dump(), before);
    // It goes like every other task.
    let member = format!("t:{}", record.task);
    let partition = world.partition(&record);
    world.probe.set_score(&world.store.keys().retain(partition), &member, 1);
    assert!(world.store.purge(partition, &member, &Keep::default()).await.unwrap());
    assert!(!world.store.show_task(record.task, false).await.unwrap());
    world.reached("show", "GONE");
}

#[tokio::test]
async fn an_answer_that_reaches_nobody_is_a_tasks() {
    let world = World::start().await;
    // Nobody hears it: whoever waited is gone, and so is its gateway.
    let record = world.unseen("c-1").await;
    let turn = world.run(&record).await;
    assert!(is_done(&turn.answer(&world.store).await));
    assert_eq!(
        (shown(&world, &record).await, listed(&world, &record).await),
        (Shown::Yes, 1)
    );
    // A gateway heard it and could not hand it on.
    let record = world.unseen("c-2").await;
    let turn = world.run(&record).await;
    world.hear(record.task).await;
    assert!(is_done(&turn.answer(&world.store).await));
    assert_eq!(shown(&world, &record).await, Shown::Never);
    for _ in 0..2 {
        assert!(world.store.show_task(record.task, true).await.unwrap());
        assert_eq!(
            (shown(&world, &record).await, listed(&world, &record).await),
            (Shown::Yes, 2)
        );
    }
    let filter = ListFilter {
        scope: record.scope(),
        context: None,
        state: Some(TaskState::Completed),
        since: None,
    };
    assert_eq!(world.store.list_tasks(&filter, None, 10).await.unwrap().total, 2);
}

#[tokio::test]
async fn what_was_shown_before_the_answer_is_a_task() {
    let world = World::start().await;
    let record = world.unseen("c-1").await;
    let mut turn = world.run(&record).await;
    turn.emit(&world.store, &[]).await;
    assert_eq!(listed(&world, &record).await, 0, "WORKING shows nothing");
    for _ in 0..2 {
        assert!(world.store.show_task(record.task, false).await.unwrap());
        world.reached("show", "SHOWN");
        assert_eq!(
            (shown(&world, &record).await, listed(&world, &record).await),
            (Shown::Yes, 1)
        );
    }
    let filter = ListFilter {
        scope: record.scope(),
        context: None,
        state: Some(TaskState::Working),
        since: None,
    };
    assert_eq!(world.store.list_tasks(&filter, None, 10).await.unwrap().total, 1);
    let before = world.probe.dump();
    assert_eq!(turn.answer(&world.store).await, EmitReply::Seen);
    world.reached("finish", "SEEN");
    assert_eq!(world.probe.dump(), before);
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    assert_eq!(
        (shown(&world, &record).await, listed(&world, &record).await),
        (Shown::Yes, 1)
    );
}

#[tokio::test]
async fn every_other_end_shows_the_task() {
    let world = World::start().await;
    let record = world.unseen("c-1").await;
    let turn = world.run(&record).await;
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));
    assert_eq!(
        (shown(&world, &record).await, listed(&world, &record).await),
        (Shown::Yes, 1)
    );

    // Ended by somebody else, in a queue.
    let record = world.unseen("c-2").await;
    world.queue(&record).await;
    let end = Conclusion {
        end: End::Canceled,
        reason: None,
        dead: false,
        only_expired: false,
    };
    conclude(&world.store, &world.view(&record).await, end, &Keep::default())
        .await
        .unwrap();
    assert_eq!(
        (shown(&world, &record).await, listed(&world, &record).await),
        (Shown::Yes, 2)
    );

    // And behind another turn.
    world.running("c-3").await;
    let record = TurnRecord {
        busy: BusyPolicy::Queue,
        ..world.unseen("c-3").await
    };
    world.queue(&record).await;
    let context = world.context(&record);
    relevo_shared::janitor::withdraw(&world.store, &context, record.turn, &Keep::default())
        .await
        .unwrap();
    assert_eq!(
        (shown(&world, &record).await, listed(&world, &record).await),
        (Shown::Yes, 4)
    );
}
