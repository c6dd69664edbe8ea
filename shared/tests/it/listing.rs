//! Listings: exact counts, pages without holes, and what operators see.

use std::collections::BTreeSet;

use a2a::TaskState;
use relevo_shared::domain::page::Place;
use relevo_shared::domain::record::{Sender, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::TaskId;
use relevo_shared::store::ListFilter;

use crate::fixture::World;

/// All pages of a listing; asserts that each says how many match in all.
async fn walk(world: &World, filter: &ListFilter, size: usize, total: usize) -> Vec<Place> {
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.list_tasks(filter, after, size).await.unwrap();
        assert_eq!(page.total, total as u64);
        assert!(page.places.len() <= size);
        seen.extend(page.places.iter().copied());
        after = page.places.last().copied();
        if !page.more {
            return seen;
        }
        assert_eq!(page.places.len(), size, "more is only said of full pages");
    }
}

fn filter(world: &World, context: Option<&str>, state: Option<TaskState>) -> ListFilter {
    let scope = Sender::default().scope();
    let context = context.map(|id| world.store.place(&scope, id));
    ListFilter { scope, context, state }
}

/// Tasks of one context, one after the other, all of the same millisecond.
async fn tasks(world: &World, context: &str, n: usize, at: u64) -> Vec<TaskId> {
    let mut tasks = Vec::new();
    for _ in 0..n {
        let record = TurnRecord {
            submitted: at,
            ..world.record(context).await
        };
        let turn = world.run(&record).await;
        turn.finish(&world.store, End::Completed).await;
        tasks.push(record.task);
    }
    tasks
}

#[tokio::test]
async fn tasks_of_the_same_millisecond_are_listed_once_each() {
    let world = World::start().await;
    let at = world.probe.now();
    let mut all = BTreeSet::new();
    for context in ["c-1", "c-2", "c-3"] {
        all.extend(tasks(&world, context, 7, at).await);
    }
    for size in [1, 2, 4, 20, 21, 22] {
        let seen = walk(&world, &filter(&world, None, None), size, 21).await;
        assert!(seen.is_sorted_by(|a, b| a > b), "newest first, without repeats");
        assert_eq!(seen.iter().map(|p| p.task).collect::<BTreeSet<_>>(), all, "{size}");
        let one = walk(&world, &filter(&world, Some("c-2"), None), size, 7).await;
        assert_eq!(one.len(), 7, "{size}");
    }
}

#[tokio::test]
async fn counts_by_state_and_context_are_exact() {
    let world = World::start().await;
    world.ended("c-1", End::Completed).await;
    world.ended("c-1", End::InputRequired).await;
    world.ended("c-2", End::Completed).await;
    let mut working = world.running("c-3").await;
    working.emit(&world.store, &["x"]).await;
    world.queued("c-4").await;
    let cases = [
        (None, None, 5),
        (None, Some(TaskState::Completed), 2),
        (None, Some(TaskState::Working), 1),
        (None, Some(TaskState::Submitted), 1),
        (None, Some(TaskState::Canceled), 0),
        (Some("c-1"), None, 2),
        (Some("c-1"), Some(TaskState::Completed), 1),
        (Some("c-1"), Some(TaskState::Working), 0),
        (Some("nobody"), None, 0),
        (Some("nobody"), Some(TaskState::Working), 0),
    ];
    for (context, state, total) in cases {
        let seen = walk(&world, &filter(&world, context, state.clone()), 10, total).await;
        assert_eq!(seen.len(), total, "{context:?} {state:?}");
    }
    let foreign = ListFilter {
        scope: relevo_shared::ids::ScopeKey::of("another", ""),
        context: None,
        state: None,
    };
    assert!(walk(&world, &foreign, 10, 0).await.is_empty());
}

#[tokio::test]
async fn a_task_that_is_not_updated_appears_exactly_once_whatever_else_happens_between_pages() {
    let world = World::start().await;
    let old = world.probe.now() - 1_000;
    let still = tasks(&world, "still", 6, old).await;
    let idle = world.ended("moving", End::InputRequired).await.taken.record.task;
    let filter = filter(&world, None, None);
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = world.store.list_tasks(&filter, after, 2).await.unwrap();
        seen.extend(page.places.iter().map(|p| p.task));
        after = page.places.last().copied();
        // One task is updated, and new ones come, between every two pages.
        let (record, _) = world.follow_up(idle, "moving").await;
        let turn = world.again(&record).await;
        turn.finish(&world.store, End::InputRequired).await;
        world.ended("new", End::Completed).await;
        if !page.more {
            break;
        }
    }
    let seen_still: Vec<_> = seen.iter().filter(|task| still.contains(task)).collect();
    assert_eq!(seen_still.len(), still.len());
    assert_eq!(seen_still.into_iter().collect::<BTreeSet<_>>().len(), still.len());
}

#[tokio::test]
async fn operators_see_what_waits_and_what_runs() {
    let world = World::start().await;
    let pools = ["default".to_owned()];
    assert_eq!(world.store.overview(&pools).await.unwrap().backlog, 0);
    let mut running = world.running("c-1").await;
    running.emit(&world.store, &["x"]).await;
    let queued = world.queued("c-2").await;
    let overview = world.store.overview_with_turns(&pools, 10).await.unwrap();
    assert_eq!(overview.backlog, 2, "waiting and running");
    let mut turns: Vec<_> = overview
        .turns
        .iter()
        .map(|turn| (turn.turn.clone(), turn.worker.clone(), turn.attempt))
        .collect();
    turns.sort_unstable();
    let mut expected = [
        (running.taken.record.turn.to_string(), Some("w-1".to_owned()), 1),
        (queued.turn.to_string(), None, 1),
    ];
    expected.sort_unstable();
    assert_eq!(turns, expected);
    running.finish(&world.store, End::Completed).await;
    assert_eq!(world.store.overview(&pools).await.unwrap().backlog, 1);
}

#[tokio::test]
async fn workers_are_remembered_for_a_day() {
    let world = World::start().await;
    let now = world.probe.now();
    for (name, seen) in [("w-old", now - 90_000_000), ("w-1", now)] {
        world
            .store
            .worker_seen(&crate::fixture::worker(name), seen)
            .await
            .unwrap();
    }
    world
        .store
        .worker_seen(&crate::fixture::worker("w-2"), now)
        .await
        .unwrap();
    let names = |seen: Vec<relevo_shared::store::WorkerSeen>| seen.into_iter().map(|w| w.worker).collect::<Vec<_>>();
    assert_eq!(names(world.store.workers().await.unwrap()), ["w-1", "w-2"]);
    world.store.worker_left(&crate::fixture::worker("w-1")).await.unwrap();
    assert_eq!(names(world.store.workers().await.unwrap()), ["w-2"]);
}
