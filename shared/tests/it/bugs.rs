use relevo_shared::domain::due::{Charge, Verdict, judge};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::janitor::{Conclusion, Why, conclude, give_back};
use relevo_shared::store::{EmitReply, Keep, LiveTurn, Settled};

use crate::fixture::World;

#[tokio::test]
async fn a_look_that_came_too_late_does_not_put_off_a_later_one() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let old = world.view(&record).await;
    for _ in 0..3 {
        let turn = world.again(&record).await;
        let why = Why::HandOver(FailReason::WorkerDrained);
        give_back(
            &world.store,
            turn.taken.partition,
            &turn.taken.context,
            &turn.taken.token,
            why,
            &Keep::default(),
        )
        .await
        .unwrap();
        if world.live(&record).await.at.is_some() {
            break;
        }
    }
    let at = world.live(&record).await.at.unwrap();
    let settled = world.store.settle_due(&old, old.now + 30_000).await.unwrap();
    assert_eq!(settled, Settled::Changed);
    assert_eq!(world.due(&record), Some(at));
}

#[tokio::test]
async fn a_cancel_that_came_first_wins_over_a_give_back() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["x"]).await;
    let record = turn.taken.record.clone();
    let old = world.view(&record).await;
    world
        .store
        .request_cancel(old.partition, &old.context, record.turn, Nonce(1))
        .await
        .unwrap();
    let conclusion = Conclusion {
        end: End::Failed,
        reason: Some(FailReason::WorkerDrained),
        dead: false,
        only_expired: false,
    };
    assert_eq!(
        conclude(&world.store, &old, conclusion, &Keep::default())
            .await
            .unwrap(),
        Settled::Changed
    );
    assert_eq!(
        world
            .store
            .settle_requeue(&old, false, Charge::Handback, false, 0)
            .await
            .unwrap(),
        Settled::Changed
    );
}

#[tokio::test]
async fn group_with_dollar() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let queue = world.store.keys().queue(world.partition(&record), "default", "");
    world.probe.ask(&["XGROUP", "CREATE", &queue, "workers", "$"]);
    let view = world.view(&record).await;
    let verdict = judge(view.live.as_ref().map(LiveTurn::facts), view.now, view.grace);
    assert!(matches!(verdict, Verdict::Requeue { .. }), "{verdict:?}");
}

#[tokio::test]
async fn deleted_queue_half() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let record = turn.taken.record.clone();
    give_back(
        &world.store,
        turn.taken.partition,
        &turn.taken.context,
        &turn.taken.token,
        Why::HandOver(FailReason::WorkerDrained),
        &Keep::default(),
    )
    .await
    .unwrap();
    let queue = world.store.keys().queue(world.partition(&record), "default", "");
    world.probe.ask(&["DEL", &queue]);
    let taken = world.take_as(&world.worker, world.partition(&record), 60_000, 2).await;
    assert_eq!(taken.len(), 1);
}

#[tokio::test]
async fn clock_back() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let p = world.partition(&record);
    world
        .probe
        .set(&world.store.keys().meta(p), "swept", world.probe.now() + 3_600_000);
    assert!(world.store.unswept().await.unwrap().contains(&p));
    assert!(world.store.sweep(p, 1, 10, &[]).await.unwrap().is_some());
}

#[tokio::test]
async fn full_memory() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let ended = world.ended("c-2", End::Completed).await;
    let p = ended.taken.partition;
    world.probe.set_score(
        &world.store.keys().retain(p),
        &format!("t:{}", ended.taken.record.task),
        1,
    );
    world.probe.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let janitor = world.janitor();
    let passed = janitor.pass().await;
    assert!(
        world
            .store
            .read_task(ended.taken.record.task, relevo_shared::store::HistoryLength::All)
            .await
            .unwrap()
            .is_none(),
        "{passed:?}"
    );
    let taken = world.try_take(world.partition(&record)).await;
    assert!(taken.is_ok(), "{taken:?}");
}

#[tokio::test]
async fn deadline_in_queue() {
    let world = World::start().await;
    let mut record = world.record("c-1").await;
    record.deadline = Some(record.submitted + 5_000);
    world.queue(&record).await;
    assert!(world.due(&record).unwrap() <= record.submitted + 5_000);
}
#[tokio::test]
async fn many_messages() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.opened = true;
    for n in 0..3 {
        let texts: Vec<_> = (0..400)
            .map(|m| {
                let message =
                    relevo_shared::domain::event::agent_message(&turn.taken.record, &format!("{}", n * 400 + m), "x");
                let update =
                    relevo_shared::domain::event::status(&turn.taken.record, a2a::TaskState::Working, Some(message), 1);
                turn.event(
                    a2a::StreamResponse::StatusUpdate(update),
                    relevo_shared::domain::class::Class::Normal,
                )
            })
            .collect();
        let nonce = Nonce(n + 77);
        let reply = world
            .store
            .emit(&turn.batch(nonce, relevo_shared::store::Open::No, &texts))
            .await
            .unwrap();
        let EmitReply::Done { last, .. } = reply else { panic!() };
        turn.fold_in(&texts, nonce);
        turn.prev = last;
    }
    turn.finish(&world.store, End::Completed).await;
}
