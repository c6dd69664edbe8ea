//! Listings: exact counts, pages without holes, and what operators see.

use std::collections::BTreeSet;

use a2a::{Artifact, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event;
use relevo_shared::domain::page::Place;
use relevo_shared::domain::record::{Sender, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Nonce, TaskId};
use relevo_shared::store::{Batch, EmitReply, ListFilter, Open};

use crate::fixture::{World, serves, worker};

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
    ListFilter {
        scope,
        context,
        state,
        since: None,
    }
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
        since: None,
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

/// Tasks that exist in the indexes only, one per ms; every third is in the state.
fn many(world: &World, context: &str, state: &str, n: u64) -> Vec<TaskId> {
    let scope = Sender::default().scope();
    let (key, partition) = world.store.place(&scope, context);
    let keys = world.store.keys();
    let (all, some) = (
        keys.context_index(partition, &key),
        keys.state_index(partition, &scope, state),
    );
    let tasks: Vec<TaskId> = (0..n).map(|n| TaskId::new(n, partition, n)).collect();
    for (n, task) in (1_000..).zip(&tasks) {
        let (score, task) = (n.to_string(), task.to_string());
        world.probe.ask(&["ZADD", &all, &score, &task]);
        if n % 3 == 0 {
            world.probe.ask(&["ZADD", &some, &score, &task]);
        }
    }
    tasks
}

/// What Redis has sent so far, to anyone.
fn sent(world: &World) -> u64 {
    let stats = world.probe.text(&["INFO", "stats"]).unwrap();
    let mut lines = stats.lines();
    let field = lines.find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    field.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_page_of_a_long_context_reads_its_share_and_no_more() {
    let world = World::start().await;
    let mut tasks = many(&world, "long", "COMPLETED", 3_000);
    tasks.reverse();
    let third: Vec<TaskId> = (0..3_000)
        .rev()
        .filter(|n| (1_000 + n) % 3 == 0)
        .map(|n| tasks[2_999 - n])
        .collect();
    let cases = [(None, &tasks, 101), (Some(TaskState::Completed), &third, 400)];
    for (state, expected, most) in cases {
        let filter = filter(&world, Some("long"), state);
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let before = sent(&world);
            let page = world.store.list_tasks(&filter, after, 100).await.unwrap();
            // A member and its score are less than 64 bytes; what INFO and HELLO answer is a few thousand.
            let bytes = sent(&world) - before;
            assert!(bytes < most * 64 + 20_000, "{bytes} bytes");
            assert_eq!(page.total, expected.len() as u64);
            seen.extend(page.places.iter().map(|p| p.task));
            after = page.places.last().copied();
            if !page.more {
                break;
            }
        }
        assert_eq!(&seen, expected);
    }
}

#[tokio::test]
async fn pages_of_a_context_in_one_state_have_no_holes_whatever_their_size() {
    let world = World::start().await;
    many(&world, "long", "COMPLETED", 600);
    let filter = filter(&world, Some("long"), Some(TaskState::Completed));
    for size in [1, 7, 199, 200, 201] {
        let seen = walk(&world, &filter, size, 200).await;
        assert_eq!(seen.len(), 200, "{size}");
        assert!(seen.is_sorted_by(|a, b| a > b));
    }
}

#[tokio::test]
async fn a_page_of_many_indexes_reads_its_share_however_the_tasks_lie_in_them() {
    let world = World::start().await;
    let keys = world.store.keys();
    let scope = Sender::default().scope();
    let mut all = Vec::new();
    for (nth, partition) in (0_u64..).zip(keys.layout().all()) {
        // One holds the newest, some hold what lies between, many share their times.
        let (count, from) = match nth {
            0 => (400, 90_000),
            1..=9 => (60, 1_000 * nth),
            _ => (20, 5_000),
        };
        let mut add = vec!["ZADD".to_owned(), keys.index(partition, &scope)];
        for n in 0..count {
            let place = Place {
                time: from + n / 2 * 7,
                task: TaskId::new(n, partition, n),
            };
            add.extend([place.time.to_string(), place.task.to_string()]);
            all.push(place);
        }
        world.probe.ask(&add.iter().map(String::as_str).collect::<Vec<_>>());
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    let filter = filter(&world, None, None);
    for size in [1, 7, 50, 100, 1_000] {
        let seen = walk(&world, &filter, size, all.len()).await;
        assert!(seen == all, "{size}");
    }
    let middle = all[1_200];
    let before = sent(&world);
    world.store.list_tasks(&filter, Some(middle), 50).await.unwrap();
    let bytes = sent(&world) - before;
    // All of them have more than a page of members together: 64 times 51 would be 200,000 bytes.
    assert!(bytes < 100_000, "{bytes} bytes");
}

/// A2A 1.0, section 3.1.4: the status is not older than the time, which counts itself.
#[tokio::test]
async fn a_listing_since_a_time_is_counted_exactly_and_has_no_holes() {
    let world = World::start().await;
    let tasks = many(&world, "long", "COMPLETED", 5_000);
    // The listing of the whole scope reads the indexes of all partitions.
    let (key, partition) = world.store.place(&Sender::default().scope(), "long");
    let (from, to) = (
        world.store.keys().context_index(partition, &key),
        world.store.keys().index(partition, &Sender::default().scope()),
    );
    world.probe.ask(&["ZUNIONSTORE", &to, "1", &from]);
    let third = |n: &u64| n.is_multiple_of(3);
    let cases = [
        (None, None),
        (Some("long"), None),
        (None, Some(TaskState::Completed)),
        (Some("long"), Some(TaskState::Completed)),
        (Some("long"), Some(TaskState::Working)),
    ];
    for (context, state) in cases {
        for since in [0, 999, 1_000, 1_001, 3_000, 5_998, 5_999, 6_000, u64::MAX] {
            let times = (since.max(1_000)..6_000).rev();
            let expected: Vec<TaskId> = match &state {
                None => times.map(|n| n - 1_000).collect::<Vec<_>>(),
                Some(TaskState::Completed) => times.filter(third).map(|n| n - 1_000).collect(),
                Some(_) => Vec::new(),
            }
            .into_iter()
            .map(|n| tasks[usize::try_from(n).unwrap()])
            .collect();
            let filter = ListFilter {
                since: Some(since),
                ..filter(&world, context, state.clone())
            };
            let seen = walk(&world, &filter, 1_000, expected.len()).await;
            let seen: Vec<TaskId> = seen.into_iter().map(|place| place.task).collect();
            assert!(
                seen == expected,
                "{context:?} {state:?} {since}: {} of {}",
                seen.len(),
                expected.len()
            );
        }
    }
}

async fn working(world: &World, context: Option<&str>) -> Vec<Place> {
    let filter = filter(world, context, Some(TaskState::Working));
    world.store.list_tasks(&filter, None, 10).await.unwrap().places
}

/// A2A 1.0, section 3.1.4: by status time, and a status is new with every update, not only with another state.
#[tokio::test]
async fn the_task_with_the_latest_status_comes_first() {
    let world = World::start().await;
    let contexts = ["c-1", "c-2"];
    let mut turns = Vec::new();
    for context in contexts {
        let mut turn = world.running(context).await;
        turn.emit(&world.store, &["x"]).await;
        turns.push(turn);
    }
    let base = turns[1].taken.record.submitted;
    for (turn, at) in [(0, 7), (1, 8), (0, 9)] {
        let turn = &mut turns[turn];
        let at = base + at;
        let message = event::agent_message(&turn.taken.record, "0", "more");
        let update = event::status(&turn.taken.record, TaskState::Working, Some(message), at);
        let update = turn.event(StreamResponse::StatusUpdate(update), Class::Normal);
        let artifact = StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: turn.taken.record.task.to_string(),
            context_id: turn.taken.record.context_id.clone(),
            artifact: Artifact {
                artifact_id: "a".to_owned(),
                name: None,
                description: None,
                parts: vec![Part::text("x")],
                metadata: None,
                extensions: None,
            },
            append: None,
            last_chunk: None,
            metadata: None,
        });
        let artifact = turn.event(artifact, Class::Normal);
        // The status that counts is the last one, whatever stands beside it; an artifact alone moves nothing.
        for (nonce, events) in [(1, vec![update, artifact.clone()]), (2, vec![artifact])] {
            let stamp = at + 1_000 * nonce;
            let batch = Batch {
                stamp,
                ..turn.batch(Nonce(nonce), Open::No, &events)
            };
            let EmitReply::Done { last, .. } = world.store.emit(&batch).await.unwrap() else {
                panic!("not written")
            };
            turn.prev = last;
            let task = turn.taken.record.task;
            let context = turn.taken.record.context_id.as_str();
            let newest = Place { time: at, task };
            assert_eq!(working(&world, None).await[0], newest);
            assert_eq!(working(&world, Some(context)).await, [newest]);
            let status = world.stored(task).await.folded.status;
            assert_eq!(status.timestamp, event::timestamp(at));
        }
    }
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
    let overview = world.store.overview(&pools).await.unwrap();
    assert_eq!(overview.backlog, 1);
    assert_eq!(
        overview.pools.into_iter().collect::<Vec<_>>(),
        [("default".to_owned(), 1)]
    );
}

#[tokio::test]
async fn workers_and_their_pools_are_remembered_for_a_day() {
    let world = World::start().await;
    let now = world.probe.now();
    let both = serves(&["default", "large"], None);
    let seen = [
        ("w-old", both.clone(), now - 90_000_000),
        ("w-1", both.clone(), now),
        ("w-2", serves(&["large"], None), now - 20_000),
        ("w-3", serves(&["default"], None), now),
    ];
    for (name, serves, at) in seen {
        world.store.worker_seen(&worker(name), &serves, at).await.unwrap();
    }
    let names = async || {
        let seen = world.store.workers().await.unwrap();
        seen.into_iter().map(|seen| seen.worker).collect::<Vec<_>>()
    };
    let serving = async || {
        let all = world.store.serving().await.unwrap();
        let mut live: Vec<_> = all
            .into_iter()
            .map(|entry| (entry.pool.clone(), entry.worker.clone(), entry.is_live(now)))
            .collect();
        live.sort();
        live
    };
    let entry = |pool: &str, worker: &str, live| (pool.to_owned(), worker.to_owned(), live);
    assert_eq!(names().await, ["w-2", "w-1", "w-3"]);
    let expected = [
        entry("default", "w-1", true),
        entry("default", "w-3", true),
        entry("large", "w-1", true),
        entry("large", "w-2", false),
    ];
    assert_eq!(serving().await, expected);
    world.store.worker_left(&worker("w-1"), &both).await.unwrap();
    assert_eq!(names().await, ["w-2", "w-3"]);
    assert_eq!(
        serving().await,
        [entry("default", "w-3", true), entry("large", "w-2", false)]
    );
}
