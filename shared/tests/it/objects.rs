//! What tasks have in the artifact store goes with them, and nothing before: whoever dies, whatever is away.

use std::path::Path;

use bytes::Bytes;
use prometheus::Registry;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{OwnerKey, TaskId};
use relevo_shared::janitor::{Reaper, ReaperMetrics};
use relevo_shared::objects::{Digest, Objects, Wanted};
use relevo_shared::platform::config::{ArtifactSettings, ArtifactStore};
use relevo_shared::store::{GoneTasks, Keep};

use crate::fixture::World;

fn objects(path: &Path) -> Objects {
    let settings = ArtifactSettings {
        store: ArtifactStore::Directory(path.to_owned()),
        ..ArtifactSettings::default()
    };
    Objects::open_shared(&settings).unwrap().unwrap()
}

fn owner() -> OwnerKey {
    OwnerKey::of("somebody")
}

fn reaper(world: &World, objects: &Objects) -> (Reaper, Registry) {
    let registry = Registry::new();
    let metrics = ReaperMetrics::register(&registry).unwrap();
    (Reaper::new(world.store.clone(), objects.clone(), metrics), registry)
}

async fn put(world: &World, objects: &Objects, task: TaskId) -> Digest {
    let digest = Digest::of(b"content");
    world.store.note_objects(task, Some(&owner())).await.unwrap();
    objects.put(task, digest, Bytes::from_static(b"content")).await.unwrap();
    digest
}

async fn is_there(objects: &Objects, task: TaskId, digest: Digest) -> bool {
    objects.get(task, digest, Wanted::Nothing).await.unwrap().is_some()
}

/// Deletes an ended task as the janitor does when its time has come.
async fn purge(world: &World, task: TaskId) {
    let member = format!("t:{task}");
    world
        .probe
        .set_score(&world.store.keys().retain(task.partition()), &member, 1);
    let purged = world.store.purge(task.partition(), &member, &Keep::default()).await;
    assert!(purged.unwrap());
}

fn note(world: &World, task: TaskId) -> Option<u64> {
    world
        .probe
        .score(&world.store.keys().objects(task.partition()), &task.to_string())
}

async fn ended(world: &World, context: &str) -> TaskId {
    world.ended(context, End::Completed).await.taken.record.task
}

#[tokio::test]
async fn objects_go_with_their_task_and_not_before() {
    let (world, folder) = (World::start().await, tempfile::tempdir().unwrap());
    let objects = objects(folder.path());
    let (reaper, _) = reaper(&world, &objects);
    let (one, other) = (ended(&world, "c-1").await, ended(&world, "c-2").await);
    let digest = put(&world, &objects, one).await;
    put(&world, &objects, other).await;
    world.reached("objects", "NOTED");
    reaper.pass().await.unwrap();
    assert!(is_there(&objects, one, digest).await);
    // Also when somebody looks before its time.
    world
        .probe
        .set_score(&world.store.keys().objects(one.partition()), &one.to_string(), 1);
    reaper.pass().await.unwrap();
    assert!(is_there(&objects, one, digest).await);
    assert!(note(&world, one).unwrap() > world.probe.now(), "looked at again later");

    purge(&world, one).await;
    reaper.pass().await.unwrap();
    assert!(!is_there(&objects, one, digest).await);
    assert_eq!(note(&world, one), None);
    world.reached("objects", "GONE");
    world.reached("objects", "DONE");
    assert!(
        is_there(&objects, other, digest).await,
        "the same content of another task"
    );
    assert!(note(&world, other).is_some());
}

#[tokio::test]
async fn a_task_without_objects_leaves_nothing_to_look_at() {
    let world = World::start().await;
    let task = ended(&world, "c-1").await;
    purge(&world, task).await;
    assert_eq!(note(&world, task), None);
    assert_eq!(world.store.noted_partitions().await.unwrap(), []);
}

#[tokio::test]
async fn whoever_dies_half_way_leaves_the_rest_to_the_next() {
    let (world, folder) = (World::start().await, tempfile::tempdir().unwrap());
    let objects = objects(folder.path());
    let task = ended(&world, "c-1").await;
    let digest = put(&world, &objects, task).await;
    purge(&world, task).await;
    let partition = task.partition();
    // It asked, and died.
    let asked = world.store.gone_with_objects(partition, 10).await.unwrap();
    assert_eq!(asked.tasks, [(task, Some(owner()))]);
    assert_eq!(
        world.store.gone_with_objects(partition, 10).await.unwrap().tasks,
        [],
        "nobody else is told of it meanwhile"
    );
    // Its time is over.
    world
        .probe
        .set_score(&world.store.keys().objects(partition), &task.to_string(), 1);
    let (reaper, _) = reaper(&world, &objects);
    reaper.pass().await.unwrap();
    assert!(!is_there(&objects, task, digest).await);
    assert_eq!(note(&world, task), None);
    // Or it was only slow.
    assert!(world.store.objects_deleted(task, asked.claim).await.unwrap());
}

#[tokio::test]
async fn what_a_writer_that_was_too_late_leaves_is_found() {
    let (world, folder) = (World::start().await, tempfile::tempdir().unwrap());
    let objects = objects(folder.path());
    let task = ended(&world, "c-1").await;
    put(&world, &objects, task).await;
    purge(&world, task).await;
    let GoneTasks { claim, tasks } = world.store.gone_with_objects(task.partition(), 10).await.unwrap();
    assert_eq!(tasks, [(task, Some(owner()))]);
    objects.delete_all(task).await.unwrap();
    // A worker that was stopped all the while writes, and notes it.
    let digest = put(&world, &objects, task).await;
    assert!(!world.store.objects_deleted(task, claim).await.unwrap());
    world.reached("objects", "KEPT");
    world
        .probe
        .set_score(&world.store.keys().objects(task.partition()), &task.to_string(), 1);
    let (reaper, _) = reaper(&world, &objects);
    reaper.pass().await.unwrap();
    assert!(!is_there(&objects, task, digest).await);
}

#[tokio::test]
async fn a_store_that_is_away_keeps_nothing_waiting_and_loses_nothing() {
    let (world, folder) = (World::start().await, tempfile::tempdir().unwrap());
    let (root, aside) = (folder.path().join("root"), folder.path().join("aside"));
    let objects = objects(&root);
    let task = ended(&world, "c-1").await;
    let digest = put(&world, &objects, task).await;
    std::fs::rename(&root, &aside).unwrap();
    std::fs::write(&root, "no directory").unwrap();
    let (reaper, registry) = reaper(&world, &objects);

    // The janitor deletes the task all the same.
    let member = format!("t:{task}");
    let retain = world.store.keys().retain(task.partition());
    world.probe.set_score(&retain, &member, 1);
    world.pass(&world.janitor()).await;
    assert_eq!(world.probe.score(&retain, &member), None);
    reaper.pass().await.unwrap();
    let failed = |registry: &Registry| {
        let families = registry.gather();
        let metrics = families[0].get_metric().iter();
        let failed = metrics.filter(|m| m.get_label().iter().any(|label| label.value() == "failed"));
        failed.map(|m| m.get_counter().get_value()).sum::<f64>()
    };
    assert!((failed(&registry) - 1.0).abs() < 0.1);
    assert!(note(&world, task).unwrap() > world.probe.now());

    std::fs::remove_file(&root).unwrap();
    std::fs::rename(&aside, &root).unwrap();
    assert!(is_there(&objects, task, digest).await);
    world
        .probe
        .set_score(&world.store.keys().objects(task.partition()), &task.to_string(), 1);
    reaper.pass().await.unwrap();
    assert!(!is_there(&objects, task, digest).await);
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
}

#[tokio::test]
async fn more_than_fit_into_one_look_all_go() {
    let (world, folder) = (World::small().await, tempfile::tempdir().unwrap());
    let objects = objects(folder.path());
    for n in 0..150_u64 {
        let task = TaskId::new(1_700_000_000_000, relevo_shared::ids::Partition(0), n);
        put(&world, &objects, task).await;
        world
            .probe
            .set_score(&world.store.keys().objects(task.partition()), &task.to_string(), 1);
    }
    let (reaper, _) = reaper(&world, &objects);
    reaper.pass().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(world.store.noted_partitions().await.unwrap(), []);
}
