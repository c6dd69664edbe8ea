//! What the tasks of a principal have in the artifact store: counted once whatever is repeated, begun anew or too late, and given back
//! when they are gone.

use bytes::Bytes;
use prometheus::Registry;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Epoch, OwnerKey, Partition, TaskId};
use relevo_shared::janitor::{Reaper, ReaperMetrics};
use relevo_shared::objects::object_store::memory::InMemory;
use relevo_shared::objects::{Digest, Objects};
use relevo_shared::store::{Keep, Use, Used};

use crate::fixture::World;

fn task(n: u64) -> TaskId {
    TaskId::new(1_700_000_000_000, Partition(u16::try_from(n).unwrap()), n)
}

async fn set(world: &World, owner: &OwnerKey, task: TaskId, bytes: u64, epoch: u64) -> Used {
    let wanted = Use {
        owner,
        task,
        bytes,
        most: 100,
        epoch: Epoch(epoch),
    };
    world.store.use_bytes(&wanted).await.unwrap()
}

fn key_exists(world: &World, owner: &OwnerKey) -> bool {
    let key = world.store.keys().used(owner);
    world.probe.text(&["EXISTS", &key]).unwrap() == "1"
}

#[tokio::test]
async fn a_principal_has_so_many_bytes_in_all_its_tasks_and_no_more() {
    let world = World::start().await;
    let owner = OwnerKey::of("somebody");
    // Tasks of different partitions are counted in one place.
    assert_eq!(set(&world, &owner, task(1), 60, 1).await, Used::Counted(60));
    assert_eq!(set(&world, &owner, task(2), 40, 1).await, Used::Counted(100));
    assert_eq!(set(&world, &owner, task(3), 1, 1).await, Used::Over(100));
    assert_eq!(set(&world, &owner, task(2), 41, 1).await, Used::Over(100));
    world.reached("used", "USED");
    world.reached("used", "OVER");
    // Another has its own.
    let other = OwnerKey::of("somebody else");
    assert_eq!(set(&world, &other, task(3), 100, 1).await, Used::Counted(100));
    // What a task has is never refused, and less is always well.
    assert_eq!(set(&world, &owner, task(2), 40, 1).await, Used::Counted(100));
    assert_eq!(set(&world, &owner, task(2), 39, 1).await, Used::Counted(99));
    assert_eq!(set(&world, &owner, task(3), 1, 1).await, Used::Counted(100));
}

#[tokio::test]
async fn a_run_that_is_repeated_or_begun_anew_counts_once_and_one_that_is_too_late_not_at_all() {
    let world = World::start().await;
    let owner = OwnerKey::of("somebody");
    for _ in 0..3 {
        assert_eq!(set(&world, &owner, task(1), 70, 5).await, Used::Counted(70));
    }
    // The next run finds less there, because the one before died on its way.
    assert_eq!(set(&world, &owner, task(1), 50, 6).await, Used::Counted(50));
    assert_eq!(set(&world, &owner, task(1), 70, 5).await, Used::Late);
    world.reached("used", "LATE");
    assert_eq!(set(&world, &owner, task(2), 50, 1).await, Used::Counted(100));
}

#[tokio::test]
async fn what_is_given_back_twice_is_given_back_once_and_nothing_is_left() {
    let world = World::start().await;
    let owner = OwnerKey::of("somebody");
    set(&world, &owner, task(1), 60, 1).await;
    set(&world, &owner, task(2), 40, 1).await;
    for _ in 0..2 {
        assert_eq!(world.store.free_bytes(&owner, task(1)).await.unwrap(), 40);
    }
    world.reached("used", "FREED");
    assert!(key_exists(&world, &owner));
    assert_eq!(set(&world, &owner, task(3), 60, 1).await, Used::Counted(100));
    for n in [2, 3] {
        world.store.free_bytes(&owner, task(n)).await.unwrap();
    }
    assert!(!key_exists(&world, &owner));
    assert_eq!(world.store.free_bytes(&owner, task(2)).await.unwrap(), 0);
    assert!(!key_exists(&world, &owner));
}

#[tokio::test]
async fn numbers_of_any_store_are_counted_exactly() {
    let world = World::start().await;
    let owner = OwnerKey::of("somebody");
    let large = (1 << 50) + 1;
    let wanted = |task, bytes| Use {
        owner: &owner,
        task,
        bytes,
        most: 2 * large,
        epoch: Epoch(1_796_036_630_438),
    };
    assert_eq!(
        world.store.use_bytes(&wanted(task(1), large)).await.unwrap(),
        Used::Counted(large)
    );
    assert_eq!(
        world.store.use_bytes(&wanted(task(2), large)).await.unwrap(),
        Used::Counted(2 * large)
    );
    assert_eq!(
        world.store.use_bytes(&wanted(task(3), 1)).await.unwrap(),
        Used::Over(2 * large)
    );
    assert_eq!(world.store.free_bytes(&owner, task(1)).await.unwrap(), large);
}

#[tokio::test]
async fn the_deletion_of_a_task_gives_back_what_it_had_also_when_a_writer_was_too_late() {
    let world = World::start().await;
    let objects = Objects::new(std::sync::Arc::new(InMemory::new()));
    let owner = OwnerKey::of("somebody");
    let (one, other) = (
        world.ended("c-1", End::Completed).await,
        world.ended("c-2", End::Completed).await,
    );
    let (one, other) = (one.taken.record.task, other.taken.record.task);
    let digest = Digest::of(b"content");
    let store = async |task| {
        world.store.note_objects(task, Some(&owner)).await.unwrap();
        assert!(matches!(set(&world, &owner, task, 50, 1).await, Used::Counted(_)));
        objects.put(task, digest, Bytes::from_static(b"content")).await.unwrap();
    };
    store(one).await;
    store(other).await;
    assert_eq!(set(&world, &owner, task(3), 50, 1).await, Used::Over(100));
    let registry = Registry::new();
    let reaper = Reaper::new(
        world.store.clone(),
        objects.clone(),
        ReaperMetrics::register(&registry).unwrap(),
    );
    for again in [false, true] {
        if again {
            // A worker that was stopped all the while goes on, and notes it.
            store(one).await;
            let due = world.store.keys().objects(one.partition());
            world.probe.set_score(&due, &one.to_string(), 1);
        } else {
            let member = format!("t:{one}");
            world
                .probe
                .set_score(&world.store.keys().retain(one.partition()), &member, 1);
            assert!(
                world
                    .store
                    .purge(one.partition(), &member, &Keep::default())
                    .await
                    .unwrap()
            );
        }
        reaper.pass().await.unwrap();
        assert_eq!(set(&world, &owner, task(3), 50, 1).await, Used::Counted(100));
        assert_eq!(world.store.free_bytes(&owner, task(3)).await.unwrap(), 50);
        let owners = world.store.keys().owners(one.partition());
        assert_eq!(world.probe.field(&owners, &one.to_string()), None);
    }
}
