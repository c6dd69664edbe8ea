//! Tasks whose agents have suspended their turns: what clients see, and what a message does then.

use relevo_shared::domain::state::End;
use relevo_testkit::poll;
use serde_json::{Value, json};

use crate::binding::{ALL, Caller};
use crate::client::{Client, Frame, Stream, message, message_in, message_to};
use crate::gateway::{Gateway, World, world, world_with};
use crate::old;

const FACTS: &str = "urn:relevo:a2a:turn:v1";

fn id(answer: &Value) -> String {
    answer["task"]["id"].as_str().unwrap().to_owned()
}

fn at_once(mut params: Value) -> Value {
    params["configuration"] = json!({ "returnImmediately": true });
    params
}

fn states(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(Frame::state).collect()
}

/// A task whose agent asks its user.
async fn asked(world: &World, params: Value) -> String {
    let client = world.gateway.client();
    let (answer, ()) = tokio::join!(client.call("SendMessage", params), async {
        let mut turn = world.hand.take().await;
        turn.say("working").await;
        turn.suspend(End::InputRequired, " which?").await;
    });
    id(&answer)
}

#[tokio::test]
async fn a_question_is_answered_on_every_binding_and_the_same_turn_goes_on() {
    for (binding, end) in ALL
        .into_iter()
        .zip([End::InputRequired, End::AuthRequired, End::InputRequired])
    {
        let world = world(&[]).await;
        let caller = Caller::new(binding, &world.gateway);
        let (answer, turn) = tokio::join!(caller.result("SendMessage", message("hi")), async {
            let mut turn = world.hand.take().await;
            turn.say("one").await;
            let id = turn.taken.record.turn;
            turn.suspend(end, " which?").await;
            id
        });
        let task = id(&answer);
        let state = answer["task"]["status"]["state"].as_str().unwrap().to_owned();
        assert!(matches!(
            &*state,
            "TASK_STATE_INPUT_REQUIRED" | "TASK_STATE_AUTH_REQUIRED"
        ));
        assert_eq!(answer["task"]["metadata"][FACTS], json!({ "suspended": true }));
        let read = caller.result("GetTask", json!({ "id": task })).await;
        assert_eq!(read["status"], answer["task"]["status"]);
        let listed = caller.result("ListTasks", json!({ "status": state })).await;
        assert_eq!(listed["tasks"][0]["id"], task);

        let (answer, ()) = tokio::join!(caller.result("SendMessage", message_to(&task, "this")), async {
            let resumed = world.hand.take().await;
            assert_eq!((resumed.taken.record.turn, resumed.asked()), (turn, "this".to_owned()));
            resumed.finish(End::Completed, "done").await;
        });
        let task = &answer["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        let history = task["history"].as_array().unwrap().iter();
        let texts: Vec<&str> = history.map(|m| m["parts"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["hi", "one which?", "this"]);
        assert_eq!(task["status"]["message"]["parts"][0]["text"], "done");
        let ids = [
            &task["history"][1]["messageId"],
            &task["status"]["message"]["messageId"],
        ];
        assert_ne!(ids[0], ids[1], "two answers are two messages");
        assert_eq!(task["metadata"], json!(null));
    }
}

#[tokio::test]
async fn clients_of_0_3_answer_too() {
    for binding in old::BOTH {
        let world = world(&[]).await;
        let caller = old::Caller::new(binding, world.gateway.client());
        let (answer, ()) = tokio::join!(caller.call("message/send", old::message("hi")), async {
            world.hand.take().await.suspend(End::InputRequired, "which?").await;
        });
        let id = answer.unwrap()["id"].as_str().unwrap().to_owned();
        let mut more = old::message("this");
        more["message"]["taskId"] = id.clone().into();
        let mut stream = caller.open("message/stream", &more, None).await;
        world.hand.take().await.suspend(End::InputRequired, "and?").await;
        assert_eq!(stream.rest().await.len(), 3, "the task, at work, the question");
        let (answer, ()) = tokio::join!(caller.call("message/send", more), async {
            world.hand.take().await.finish(End::Completed, "done").await;
        });
        assert_eq!(answer.unwrap()["id"], *id);
    }
}

#[tokio::test]
async fn the_stream_of_a_send_ends_with_the_question_and_a_subscription_goes_on_to_the_end() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut sent = client.stream("SendStreamingMessage", message("hi")).await;
    let task = sent.event().await.result()["task"]["id"].as_str().unwrap().to_owned();
    let mut turn = world.hand.take().await;
    turn.say("one").await;
    turn.suspend(End::InputRequired, " which?").await;
    let frames = sent.rest().await;
    assert_eq!(states(&frames), ["WORKING", "WORKING", "INPUT_REQUIRED"]);
    let question = frames.last().unwrap();
    assert_eq!(
        question.result()["statusUpdate"]["metadata"][FACTS],
        json!({ "suspended": true })
    );

    let mut all = client.stream("SubscribeToTask", json!({ "id": task })).await;
    assert_eq!(all.event().await.result()["task"], client.task(&task).await);
    let mut resumed = client
        .resume("SubscribeToTask", json!({ "id": task }), &question.cursor())
        .await;
    let mut again = client
        .resume("SendStreamingMessage", message("hi"), &question.cursor())
        .await;
    assert!(again.ended().await, "the stream that is resumed was over");

    let mut answer = client.stream("SendStreamingMessage", message_to(&task, "this")).await;
    let mut turn = world.hand.take().await;
    turn.say("two").await;
    turn.finish(End::Completed, " done").await;
    let frames = answer.rest().await;
    assert_eq!(states(&frames), ["SUBMITTED", "WORKING", "WORKING", "COMPLETED"]);
    assert_eq!(
        states(&all.rest().await),
        ["SUBMITTED", "WORKING", "WORKING", "COMPLETED"]
    );
    assert_eq!(
        states(&resumed.rest().await),
        ["SUBMITTED", "WORKING", "WORKING", "COMPLETED"]
    );
}

#[tokio::test]
async fn of_answers_through_two_gateways_at_once_exactly_one_counts() {
    let world = world(&[]).await;
    let other = Gateway::start(&world.redis, &[]).await;
    let clients = [world.gateway.client(), other.client()];
    for n in 0..10 {
        let task = asked(&world, message_in(&format!("c-{n}"), "hi")).await;
        let params = at_once(message_to(&task, "this"));
        let sends = (0..6).map(|n| clients[n % 2].answer("SendMessage", params.clone()));
        let answers = futures_util::future::join_all(sends).await;
        let taken: Vec<&Value> = answers.iter().filter(|answer| answer["error"].is_null()).collect();
        assert_eq!(taken.len(), 1, "{answers:?}");
        for late in answers.iter().filter(|answer| !answer["error"].is_null()) {
            assert_eq!(late["error"]["code"], -32004, "{late}");
        }
        world.hand.take().await.finish(End::Completed, "done").await;
        assert!(world.hand.try_take().await.is_none());
        let texts = client_history(&clients[1], &task).await;
        assert_eq!(texts, ["hi", "working which?", "this"]);
    }
}

async fn client_history(client: &Client, task: &str) -> Vec<String> {
    let task = client.task(task).await;
    let text = |message: &Value| message["parts"][0]["text"].as_str().unwrap().to_owned();
    task["history"].as_array().unwrap().iter().map(text).collect()
}

#[tokio::test]
async fn an_answer_that_is_sent_again_under_its_key_is_one_answer() {
    let world = world(&[]).await;
    let other = Gateway::start(&world.redis, &[]).await;
    let client = world.gateway.client();
    let (first, second) = ("the-key-of-the-first", "the-key-of-the-second");
    let began = client.keyed(first, &at_once(message("hi"))).await.unwrap();
    let task = id(&began);
    world.hand.take().await.suspend(End::InputRequired, "which?").await;
    // What began the turn does not answer it.
    let again = client.keyed(first, &at_once(message("hi"))).await.unwrap();
    assert_eq!(again["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let params = at_once(message_to(&task, "this"));
    let request = |client: &Client| {
        let stream = client.request("SendStreamingMessage", &params);
        stream.header("idempotency-key", second)
    };
    let mut answer = Stream::of(request(&client).send().await.unwrap());
    let mut turn = world.hand.take().await;
    turn.say("two").await;
    let mut repeat = Stream::of(request(&other.client()).send().await.unwrap());
    turn.suspend(End::InputRequired, " and?").await;
    assert_eq!(states(&answer.rest().await).last().unwrap(), "INPUT_REQUIRED");
    assert_eq!(states(&repeat.rest().await).last().unwrap(), "INPUT_REQUIRED");
    let late = Stream::of(request(&client).send().await.unwrap()).rest().await;
    assert_eq!(
        states(&late).last().unwrap(),
        "INPUT_REQUIRED",
        "the second question stands"
    );
    assert!(world.hand.try_take().await.is_none());
    assert_eq!(client_history(&client, &task).await, ["hi", "which?", "this"]);
    let another = client.keyed(second, &at_once(message_to(&task, "that"))).await;
    assert_eq!(another.unwrap_err()["code"], -32602);
}

#[tokio::test]
async fn a_suspended_task_is_canceled_at_once() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let task = asked(&world, message_in("c", "hi")).await;
    let mut stream = client.stream("SubscribeToTask", json!({ "id": task })).await;
    stream.event().await;
    let answer = client.call("CancelTask", json!({ "id": task })).await;
    assert_eq!(answer["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(states(&stream.rest().await), ["CANCELED"]);
    let late = client.refused("SendMessage", message_to(&task, "this")).await;
    assert_eq!(late, (-32004, "UNSUPPORTED_OPERATION".to_owned()));
    let next = client.call("SendMessage", at_once(message_in("c", "next"))).await;
    assert_eq!(
        next["task"]["status"]["state"], "TASK_STATE_SUBMITTED",
        "the context is free"
    );
}

#[tokio::test]
async fn only_who_sees_the_task_answers_it_and_only_in_its_context() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let task = asked(&world, message("hi")).await;
    let mut elsewhere = message_to(&task, "this");
    elsewhere["message"]["contextId"] = "another".into();
    let refused = client.refused("SendMessage", elsewhere).await;
    assert_eq!(refused, (-32602, "INVALID_PARAMS".to_owned()));
    let mut foreign = message_to(&task, "this");
    foreign["tenant"] = "another".into();
    let refused = client.refused("SendMessage", foreign).await;
    assert_eq!(refused, (-32001, "TASK_NOT_FOUND".to_owned()));
    assert!(world.hand.try_take().await.is_none());
    assert_eq!(client.task(&task).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

#[tokio::test]
async fn the_policy_of_a_busy_context_holds_while_its_turn_is_suspended() {
    for policy in ["reject", "queue", "interrupt"] {
        let agents = format!("[agents.demo]\nkind = \"demo\"\nbusy = \"{policy}\"\n");
        let world = world_with(&agents, &[]).await;
        let client = world.gateway.client();
        let task = asked(&world, message_in("c", "hi")).await;
        let next = client.call("SendMessage", at_once(message_in("c", "next"))).await;
        let state = async |task: String| client.task(&task).await["status"]["state"].clone();
        match policy {
            "reject" => {
                assert_eq!(next["task"]["status"]["state"], "TASK_STATE_FAILED");
                assert_eq!(
                    next["task"]["status"]["message"]["parts"][0]["text"],
                    format!("Task {task} of this conversation waits for your answer: send it with its taskId.")
                );
            }
            "queue" => {
                assert_eq!(next["task"]["metadata"][FACTS]["queuePosition"], 1);
                assert!(world.hand.try_take().await.is_none());
            }
            _ => {
                assert_eq!(state(task.clone()).await, "TASK_STATE_CANCELED");
                let turn = world.hand.take().await;
                assert_eq!(turn.task(), id(&next));
                turn.finish(End::Completed, "done").await;
                continue;
            }
        }
        let (answer, ()) = tokio::join!(client.call("SendMessage", message_to(&task, "this")), async {
            let turn = world.hand.take().await;
            assert_eq!(turn.task(), task, "the answer comes before what waits");
            turn.finish(End::Completed, "done").await;
        });
        assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        if policy == "queue" {
            assert_eq!(world.hand.take().await.task(), id(&next));
        }
    }
}

#[tokio::test]
async fn a_scope_that_has_all_its_turns_suspended_can_answer_them() {
    let world = world(&[("limits.scope_turns", "2")]).await;
    let client = world.gateway.client();
    let tasks = [asked(&world, message("one")).await, asked(&world, message("two")).await];
    let refused = client.refused("SendMessage", at_once(message("three"))).await;
    assert_eq!(refused.1, "RATE_LIMITED");
    for (n, task) in tasks.iter().enumerate() {
        let params = at_once(message_to(task, "this"));
        let answer = match n {
            0 => client.call("SendMessage", params).await,
            _ => client.keyed("a-key-of-some-length", &params).await.unwrap(),
        };
        assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
        world.hand.take().await.finish(End::Completed, "done").await;
    }
}

#[tokio::test]
async fn a_suspended_turn_outlives_the_gateways_that_it_came_through() {
    let world = world(&[]).await;
    let task = asked(&world, message("hi")).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SubscribeToTask", json!({ "id": task })).await;
    let at = stream.event().await.cursor();
    let other = Gateway::start(&world.redis, &[]).await;
    world.gateway.stop().await.unwrap();
    assert!(
        stream.ended().await,
        "an idle subscription is closed when its gateway stops"
    );
    gauge(&other, 1.0).await;
    let client = other.client();
    let mut stream = client.resume("SubscribeToTask", json!({ "id": task }), &at).await;
    let (answer, ()) = tokio::join!(client.call("SendMessage", message_to(&task, "this")), async {
        world.hand.take().await.finish(End::Completed, "done").await;
    });
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(states(&stream.rest().await), ["SUBMITTED", "WORKING", "COMPLETED"]);
    gauge(&other, 0.0).await;
}

async fn gauge(gateway: &Gateway, wanted: f64) {
    poll::until("the gauge is right", || async {
        let suspended = gateway.metric("relevo_cluster_suspended_turns").await;
        let right = (suspended - wanted).abs() < 0.5;
        if right { Ok(()) } else { Err(suspended) }
    })
    .await;
}
