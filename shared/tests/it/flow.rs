//! One turn after another through the scripts.

use a2a::TaskState;
use relevo_shared::domain::state::End;
use relevo_shared::store::{EmitReply, HistoryLength, JournalRead, ListFilter, Submitted};

use crate::fixture::{Running, World};

#[tokio::test]
async fn a_turn_goes_from_submit_to_its_end_and_the_task_can_be_read() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    let task = turn.taken.record.task;
    assert!(matches!(
        turn.emit(&world.store, &["seq=0 ", "seq=1 "]).await,
        EmitReply::Done { repeat: false, .. }
    ));
    let during = world.store.read_task(task, HistoryLength::All).await.unwrap().unwrap();
    assert_eq!(during.state, TaskState::Working);
    assert_eq!(during.last, turn.prev);
    assert!(matches!(
        turn.finish(&world.store, End::Completed).await,
        EmitReply::Done { .. }
    ));

    let stored = world.store.read_task(task, HistoryLength::All).await.unwrap().unwrap();
    assert!(stored.terminal && stored.live.is_none());
    let task_json = stored.clone().into_task(HistoryLength::All);
    assert_eq!(task_json.status.state, TaskState::Completed);
    let text = task_json.status.message.unwrap().parts[0].as_text().unwrap().to_owned();
    assert_eq!(text, "seq=0 seq=1 ");
    assert_eq!(task_json.history.unwrap().len(), 1);

    let JournalRead::Entries(all) = world
        .store
        .read_journal(task, relevo_shared::ids::EntryId::START, 100)
        .await
        .unwrap()
    else {
        panic!("a gap")
    };
    assert_eq!(
        all.iter().map(|e| e.kind.to_string()).collect::<Vec<_>>(),
        ["1.n", "1.n", "1.n", "1.n", "1.t"]
    );
    assert_eq!(all.iter().map(|e| e.id.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_follow_up_continues_the_task_and_its_history() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["first answer"]).await;
    turn.finish(&world.store, End::InputRequired).await;
    let task = turn.taken.record.task;
    let before = world.store.read_task(task, HistoryLength::All).await.unwrap().unwrap();

    let mut record = world.record("c-1").await;
    record.task = task;
    record.new_task = false;
    let history = [before.folded.status.message.clone().unwrap(), record.message.clone()];
    let nonce = relevo_shared::ids::Nonce(7);
    let accepted = world.submit_with(&record, nonce, Some(before.last), &history).await;
    assert!(
        matches!(
            accepted,
            Submitted::Accepted {
                number: 2,
                repeat: false,
                ..
            }
        ),
        "{accepted:?}"
    );

    let queued = world.store.read_task(task, HistoryLength::All).await.unwrap().unwrap();
    assert_eq!(queued.history.len(), 3);
    assert!(queued.folded.status.message.is_none());

    let mut second = Running::new(world.take(task.partition()).await.pop().unwrap());
    second.emit(&world.store, &["second answer"]).await;
    second.finish(&world.store, End::Completed).await;
    let after = world
        .store
        .read_task(task, HistoryLength::All)
        .await
        .unwrap()
        .unwrap()
        .into_task(HistoryLength::All);
    let texts: Vec<_> = after
        .history
        .unwrap()
        .iter()
        .map(|m| m.parts[0].as_text().unwrap().to_owned())
        .collect();
    assert_eq!(texts, ["hello", "first answer", "hello"]);
    assert_eq!(after.status.message.unwrap().parts[0].as_text(), Some("second answer"));
}

#[tokio::test]
async fn tasks_are_listed_newest_first_and_in_pages() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for n in 0..7 {
        let record = world.record(&format!("c-{n}")).await;
        world.submit(&record).await;
        tasks.push((record.submitted, record.task));
    }
    tasks.sort_unstable_by(|a, b| b.cmp(a));
    let filter = ListFilter {
        scope: world.record("x").await.scope(),
        context: None,
        state: None,
        since: None,
    };
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = world.store.list_tasks(&filter, after, 3).await.unwrap();
        assert_eq!(page.total, 7);
        seen.extend(page.places.iter().map(|p| (p.time, p.task)));
        after = page.places.last().copied();
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, tasks);
}
