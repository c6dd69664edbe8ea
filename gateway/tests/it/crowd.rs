//! Many at once: every stream is whole, and nobody is busy who is not.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use relevo_shared::domain::state::End;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};

use crate::client::{Client, Frame, message_in, message_to};
use crate::gateway::{Gateway, World, store, world};
use crate::hand::{Hand, Turn};

/// Answers every turn with five numbers, several turns at a time.
async fn answer_everything(world: &World) -> AbortOnDrop<()> {
    let hand = Arc::new(Hand::new(store(&world.redis).await));
    tasks::background(&Tasks::new(Shutdown::new()), "hand", Kind::BestEffort, async move {
        let turns = stream::unfold(hand, |hand| async move {
            let turn = hand.take().await;
            Some((turn, hand))
        });
        turns.for_each_concurrent(64, answer).await;
    })
}

async fn answer(mut turn: Turn) {
    let asked = turn.asked();
    for n in 0..5 {
        turn.say(&format!("{asked}/{n} ")).await;
    }
    turn.finish(End::InputRequired, &asked).await;
}

fn numbers(frames: &[Frame]) -> Vec<String> {
    frames
        .iter()
        .map(Frame::text)
        .filter(|text| text.contains('/'))
        .collect()
}

async fn conversation(client: Client, name: String) {
    let mut task: Option<String> = None;
    for round in 0..3 {
        let text = format!("{name}-{round}");
        let params = match &task {
            None => message_in(&name, &text),
            // The very moment the answer has come: it is never busy.
            Some(task) => message_to(task, &text),
        };
        let mut stream = client.stream("SendStreamingMessage", params).await;
        let frames = stream.rest().await;
        let expected: Vec<String> = (0..5).map(|n| format!("{text}/{n} ")).collect();
        assert_eq!(numbers(&frames), expected);
        assert_eq!(frames.last().unwrap().state(), "INPUT_REQUIRED");
        task = Some(frames[0].cursor().split_once('.').unwrap().0.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_conversations_on_two_gateways_get_their_own_events_in_order() {
    let world = world(&[]).await;
    let other = Gateway::start(&world.redis, &[]).await;
    let _hands = answer_everything(&world).await;
    let clients = [world.gateway.client(), other.client()];
    let all = (0..100).map(|n: usize| conversation(clients[n % 2].clone(), format!("c{n}")));
    stream::iter(all)
        .for_each_concurrent(100, |conversation| conversation)
        .await;
    // 300 turns: doorbells carry nearly everything, only some follow-ups are looked for.
    let mut reads = 0.0;
    for gateway in [&world.gateway, &other] {
        reads += gateway.metric("relevo_gateway_journal_reads_total").await;
    }
    assert!(reads < 30.0, "{reads} reads");
}
