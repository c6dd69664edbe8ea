//! A Redis in cluster mode (one node that owns all slots): a script that touched a key of another slot would be refused, which
//! a plain server never does.

use std::collections::BTreeSet;

use a2a::TaskState;
use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::janitor::{Conclusion, conclude};
use relevo_shared::store::{Asked, Keep, ListFilter, SCRIPTS, Settled};
use relevo_testkit::{RedisCluster, RedisServer};

use crate::fixture::{World, is_done};
use crate::scenes::{self, Break};

#[tokio::test]
async fn a_conversation_survives_a_crash_a_cancel_and_its_retention_in_cluster_mode() {
    Box::pin(conversations(&World::on(RedisServer::start_cluster_node()).await)).await;
}

#[tokio::test]
async fn a_conversation_survives_a_crash_a_cancel_and_its_retention_on_three_nodes() {
    let redis = RedisCluster::start(3);
    Box::pin(conversations(&World::spread(&redis).await)).await;
}

async fn conversations(world: &World) {
    let janitor = world.janitor();
    // Contexts of many partitions, and so of many slots.
    let mut partitions = BTreeSet::new();
    for n in 0..8 {
        let context = format!("c-{n}");
        let record = world.queued(&context).await;
        let partition = world.partition(&record);
        partitions.insert(partition);
        world.store.ring("default", partition, world.probe.now()).await.unwrap();
        let mut heard = Vec::new();
        while let Some(partition) = world.store.answer_bell("default").await.unwrap() {
            heard.push(partition);
        }
        assert!(heard.contains(&partition));

        let mut turn = world.again(&record).await;
        turn.emit_with_snapshot(&world.store, &["void"]).await;
        world.pass(&janitor).await;
        world.expire(&record);
        world.pass(&janitor).await;
        let mut turn = world.again(&record).await;
        assert!(is_done(&turn.emit(&world.store, &["answer"]).await));
        assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));

        let (next, _) = world.follow_up(record.task, &context).await;
        let turn = world.again(&next).await;
        let asked = world
            .store
            .request_cancel(partition, &turn.taken.context, next.turn, Nonce(1));
        assert_eq!(asked.await.unwrap(), Asked::Told);
        assert!(is_done(&turn.finish(&world.store, End::Canceled).await));
        assert_eq!(world.stored(record.task).await.state, TaskState::Canceled);

        let other = world.queued(&context).await;
        let view = world.view(&other).await;
        let end = Conclusion {
            end: End::Canceled,
            reason: None,
            dead: false,
            only_expired: false,
        };
        let settled = conclude(&world.store, &view, end, &Keep::default()).await;
        assert_eq!(settled.unwrap(), Settled::Done);
    }
    assert!(partitions.len() > 3, "{partitions:?}");

    // What spans partitions is pipelined, slot by slot.
    let filter = ListFilter {
        scope: world.record("x").await.scope(),
        context: None,
        state: Some(TaskState::Canceled),
        since: None,
    };
    assert_eq!(world.store.list_tasks(&filter, None, 5).await.unwrap().total, 16);
    assert_eq!(world.store.overview(&["default".to_owned()]).await.unwrap().backlog, 0);
    for partition in partitions {
        let retain = world.store.keys().retain(partition);
        for member in world.probe.texts(&["ZRANGE", &retain, "0", "-1"]) {
            world.probe.set_score(&retain, &member, 1);
        }
    }
    world.pass(&janitor).await;
    assert_eq!(world.store.list_tasks(&filter, None, 5).await.unwrap().total, 0);
}

#[tokio::test]
async fn every_script_stays_in_its_slot() {
    // The calls are recorded on a plain server and replayed on one in cluster mode.
    let plain = World::small().await;
    let scenes = Box::pin(scenes::all(&plain)).await;
    let names: BTreeSet<&str> = scenes.iter().map(|scene| scene.call.script).collect();
    let quiet = ["read_context", "read_task"];
    let all: BTreeSet<&str> = SCRIPTS.iter().map(|s| s.name).filter(|n| !quiet.contains(n)).collect();
    assert_eq!(names, all);

    let cluster = World::on(RedisServer::start_cluster_node()).await;
    let run_id = cluster.store.preflight().await.unwrap().run_ids.concat();
    for scene in &scenes {
        let (script, name) = (scene.call.script, scene.name);
        plain_and_cluster_agree(&plain, &cluster, &run_id, scene, &format!("{script}: {name}"));
    }
    // The two that only read.
    let record = cluster.queued("c-1").await;
    assert!(cluster.view(&record).await.live.is_some());
    assert_eq!(cluster.stored(record.task).await.task, record.task);
}

fn plain_and_cluster_agree(plain: &World, cluster: &World, run_id: &str, scene: &scenes::Scene, what: &str) {
    scene.set(&plain.probe);
    scene.set(&cluster.probe);
    // What was settled on the one server must not look like a restart on the other.
    let run = cluster.probe.field(&scene.call.key, "run");
    if run.is_some_and(|run| run != "another") {
        cluster.probe.set(&scene.call.key, "run", run_id);
    }
    let one = scene.run(&plain.probe, Break::Never);
    let other = scene.run(&cluster.probe, Break::Never);
    assert_eq!(other.outcome, "ok", "{what}: {:?}", other.answer);
    assert_eq!(other.tag(), one.tag(), "{what}");
    if scene.name == scenes::HEARD {
        return; // On the other server nobody hears it, and it is listed.
    }
    let keys = |run: &scenes::Run| run.after.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(&other), keys(&one), "{what}");
}

#[tokio::test]
async fn a_script_that_reached_into_another_slot_would_be_refused() {
    let world = World::on(RedisServer::start_cluster_node()).await;
    let mut all = world.store.keys().layout().all();
    let [one, other] = [all.next().unwrap(), all.next().unwrap()].map(|p| world.store.keys().meta(p));
    let text = format!("#!lua\nreturn redis.call('HGET', '{other}', 'x')");
    let error = world.probe.try_ask(&["EVAL", &text, "1", &one]).unwrap_err();
    assert!(
        error.to_string().contains("slot"),
        "this is what the other tests rely on: {error}"
    );
}

#[tokio::test]
async fn a_cluster_that_does_not_serve_all_slots_is_unavailable() {
    let world = World::on(RedisServer::start_cluster_node()).await;
    world.probe.ask(&["CLUSTER", "DELSLOTSRANGE", "0", "16383"]);
    let partition = world.store.keys().layout().all().next().unwrap();
    let down = world.try_take(partition).await;
    assert!(
        matches!(down, Err(relevo_shared::store::StoreError::Unavailable(_))),
        "{down:?}"
    );
}
