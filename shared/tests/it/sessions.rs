//! Sessions: appended under the fence with their events, once, and taken back by a boundary.

use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::janitor::{Why, give_back};
use relevo_shared::store::{Batch, EmitReply, Keep, NewEvent, Open, SessionItems};

use crate::fixture::{Running, World, is_done, is_repeat};

fn items(expect: u64, texts: &[&str]) -> SessionItems {
    SessionItems {
        expect,
        items: texts.iter().map(|text| text.as_bytes().to_vec()).collect(),
    }
}

impl Running {
    /// Sends a batch with session items. Events are folded in by hand.
    async fn remember(&mut self, world: &World, nonce: Nonce, texts: &[&str], session: &SessionItems) -> EmitReply {
        let (open, events) = if texts.is_empty() {
            (Open::No, Vec::new())
        } else {
            self.events(texts)
        };
        let reply = self.send(world, nonce, open, &events, session).await;
        if let EmitReply::Done { last, .. } = reply {
            self.fold_in(&events, nonce);
            self.prev = last;
            self.opened = true;
        }
        reply
    }

    async fn send(
        &self,
        world: &World,
        nonce: Nonce,
        open: Open,
        events: &[NewEvent],
        session: &SessionItems,
    ) -> EmitReply {
        let batch = Batch {
            session: Some(session),
            ..self.batch(nonce, open, events)
        };
        world.store.emit(&batch).await.unwrap()
    }

    async fn session(&self, world: &World, agent: &str) -> Vec<String> {
        let (taken, turn) = (&self.taken, self.taken.record.turn);
        let read = world.store.read_session(taken.partition, &taken.context, agent, turn);
        let read = read.await.unwrap();
        read.into_iter().map(|item| String::from_utf8(item).unwrap()).collect()
    }
}

fn stored(world: &World, turn: &Running) -> Vec<String> {
    let key = world
        .store
        .keys()
        .session(turn.taken.partition, &turn.taken.context, "demo");
    let text = world.redis.cli(&["LRANGE", &key, "0", "-1"]);
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn items_and_their_events_are_written_together_once() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    let first = items(0, &["1", "2"]);
    let (open, events) = turn.events(&["a"]);
    let before = turn.clone();
    assert!(is_done(&turn.remember(&world, Nonce(5), &["a"], &first).await));
    // The same call again: known by its nonce.
    assert!(is_repeat(&before.send(&world, Nonce(5), open, &events, &first).await));
    // Without events: known by its nonce, which the turn keeps.
    let second = items(2, &["3"]);
    assert!(is_done(&turn.remember(&world, Nonce(6), &[], &second).await));
    assert!(is_repeat(&turn.send(&world, Nonce(6), Open::No, &[], &second).await));
    assert_eq!(stored(&world, &turn), ["1", "2", "3"]);
    assert_eq!(world.journal(turn.taken.record.task).await.len(), 3);
}

/// An agent that counts wrongly and says every time that there was nothing before.
#[tokio::test]
async fn the_same_items_in_another_batch_are_no_repeat() {
    let world = World::start().await;
    let two = items(0, &["1", "2"]);
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["a"]).await;
    assert!(is_done(&turn.remember(&world, Nonce(5), &[], &two).await));
    let wrong = EmitReply::Session { length: 2 };
    assert_eq!(turn.remember(&world, Nonce(6), &[], &two).await, wrong);
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));

    let (record, _) = world.follow_up(turn.taken.record.task, "c-1").await;
    let mut turn = world.again(&record).await;
    turn.emit(&world.store, &["b"]).await;
    // Not even under the nonce of the turn before.
    for nonce in [Nonce(5), Nonce(7)] {
        assert_eq!(turn.remember(&world, nonce, &[], &two).await, wrong);
    }
    assert!(is_done(&turn.remember(&world, Nonce(8), &[], &items(2, &["3"])).await));
    assert_eq!(stored(&world, &turn), ["1", "2", "3"]);
}

#[tokio::test]
async fn the_length_is_compared_although_nothing_is_added() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.remember(&world, Nonce(5), &["a"], &items(0, &["1"])).await;
    for texts in [&[][..], &["b"]] {
        let reply = turn.remember(&world, Nonce(6), texts, &items(0, &[])).await;
        assert_eq!(reply, EmitReply::Session { length: 1 });
    }
    assert!(is_done(&turn.remember(&world, Nonce(6), &[], &items(1, &[])).await));
    assert_eq!(world.journal(turn.taken.record.task).await.len(), 3);
    assert_eq!(stored(&world, &turn), ["1"]);
}

#[tokio::test]
async fn another_length_than_expected_writes_nothing() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.remember(&world, Nonce(5), &["a"], &items(0, &["1"])).await;
    for expect in [0, 2] {
        let reply = turn.remember(&world, Nonce(6), &["b"], &items(expect, &["2"])).await;
        assert_eq!(reply, EmitReply::Session { length: 1 });
    }
    world.reached("emit", "SESSION");
    assert_eq!(stored(&world, &turn), ["1"]);
    assert_eq!(world.journal(turn.taken.record.task).await.len(), 3);
}

#[tokio::test]
async fn a_fenced_attempt_adds_nothing_and_a_boundary_takes_its_items_back() {
    let world = World::start().await;
    let mut before = world.running("c-1").await;
    before.remember(&world, Nonce(5), &["a"], &items(0, &["1"])).await;
    assert!(is_done(&before.finish(&world.store, End::InputRequired).await));

    let (record, _) = world.follow_up(before.taken.record.task, "c-1").await;
    let mut lost = world.again(&record).await;
    lost.remember(&world, Nonce(6), &["b"], &items(1, &["2", "3"])).await;
    give_back(
        &world.store,
        lost.taken.partition,
        &lost.taken.context,
        &lost.taken.token,
        Why::Crash,
        &Keep::default(),
    )
    .await
    .unwrap();
    let mut turn = world.again(&record).await;
    let late = lost.remember(&world, Nonce(7), &[], &items(3, &["4"])).await;
    assert_eq!(late, EmitReply::Fenced);
    // As the turn found it, although the boundary is not written yet.
    assert_eq!(turn.session(&world, "demo").await, ["1"]);
    assert_eq!(stored(&world, &turn), ["1", "2", "3"]);
    // What the boundary takes back in the same step does not count.
    let reply = turn.remember(&world, Nonce(8), &["c"], &items(3, &["4"])).await;
    assert_eq!(reply, EmitReply::Session { length: 1 });
    assert_eq!(stored(&world, &turn), ["1", "2", "3"]);
    assert!(is_done(
        &turn.remember(&world, Nonce(9), &["c"], &items(1, &["4"])).await
    ));
    assert_eq!(stored(&world, &turn), ["1", "4"]);
}

#[tokio::test]
async fn a_boundary_of_the_first_turn_leaves_nothing() {
    let world = World::start().await;
    let mut lost = world.running("c-1").await;
    lost.remember(&world, Nonce(5), &["a"], &items(0, &["1"])).await;
    let record = lost.taken.record.clone();
    let why = Why::HandOver(relevo_shared::domain::reason::FailReason::WorkerDrained);
    let (taken, keep) = (&lost.taken, Keep::default());
    give_back(&world.store, taken.partition, &taken.context, &taken.token, why, &keep)
        .await
        .unwrap();
    let turn = world.again(&record).await;
    assert_eq!(turn.session(&world, "demo").await, Vec::<String>::new());
    // Fast: its only batch opens and ends it.
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    assert_eq!(stored(&world, &turn), Vec::<String>::new());
}

#[tokio::test]
async fn every_agent_has_its_own_and_all_go_with_their_context() {
    let world = World::small().await;
    let mut turn = world.running("c-1").await;
    turn.remember(&world, Nonce(5), &["a"], &items(0, &["1"])).await;
    assert_eq!(turn.session(&world, "other").await, Vec::<String>::new());
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let (partition, keep) = (turn.taken.partition, Keep::default());
    let retain = world.store.keys().retain(partition);
    for member in [
        format!("t:{}", turn.taken.record.task),
        format!("c:{}", turn.taken.context),
    ] {
        world.probe.set_score(&retain, &member, 1);
        assert!(world.store.purge(partition, &member, &keep).await.unwrap(), "{member}");
    }
    assert_eq!(world.redis.cli(&["KEYS", "*sess:*"]).trim(), "");
}
