//! The example requests of the protocol reference that this server follows, letter by letter.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::client::{Client, Frame, Stream};
use crate::gateway::{World, world};
use crate::reference::Cluster;

const SEND: &str = r#"{
  "jsonrpc": "2.0",
  "id": "1",
  "method": "SendMessage",
  "params": {
    "message": {
      "messageId": "msg-1",
      "role": "ROLE_USER",
      "parts": [{"text": "Create a VPC with two vSwitches."}],
      "metadata": {
        "iac_code": {"cwd": "/absolute/path/to/project"}
      }
    },
    "configuration": {
      "acceptedOutputModes": ["text/plain"]
    }
  }
}"#;
const STREAM: &str = r#"{
  "jsonrpc": "2.0",
  "id": "2",
  "method": "SendStreamingMessage",
  "params": {
    "message": {
      "messageId": "msg-2",
      "role": "ROLE_USER",
      "parts": [{"text": "Review this ROS template."}],
      "metadata": {
        "iac_code": {"cwd": "/absolute/path/to/project"}
      }
    },
    "configuration": {
      "acceptedOutputModes": ["text/plain"]
    }
  }
}"#;
const GET: &str = r#"{
  "jsonrpc": "2.0",
  "id": "3",
  "method": "GetTask",
  "params": {
    "id": "task-id",
    "historyLength": 10
  }
}"#;
const LIST: &str = r#"{
  "jsonrpc": "2.0",
  "id": "4",
  "method": "ListTasks",
  "params": {
    "contextId": "ctx-id",
    "status": "TASK_STATE_WORKING",
    "pageSize": 20,
    "includeArtifacts": false
  }
}"#;
const CANCEL: &str = r#"{
  "jsonrpc": "2.0",
  "id": "5",
  "method": "CancelTask",
  "params": {
    "id": "task-id"
  }
}"#;
const SUBSCRIBE: &str = r#"{
  "jsonrpc": "2.0",
  "id": "6",
  "method": "SubscribeToTask",
  "params": {
    "id": "task-id"
  }
}"#;
const PUSH: &str = r#"{
  "jsonrpc": "2.0",
  "id": "7",
  "method": "CreateTaskPushNotificationConfig",
  "params": {
    "taskId": "task-id",
    "id": "webhook-1",
    "url": "https://hooks.example.com/a2a",
    "token": "notification-token",
    "authentication": {
      "scheme": "bearer",
      "credentials": "callback-token"
    }
  }
}"#;
const EXTENDED: &str = r#"{
  "jsonrpc": "2.0",
  "id": "8",
  "method": "GetExtendedAgentCard",
  "params": {}
}"#;

async fn post(client: &Client, body: &str) -> Value {
    client.post(body.to_owned()).send().await.unwrap().json().await.unwrap()
}

/// The task that the example of a blocking send leads to.
async fn sent(world: &World, client: &Client) -> Value {
    let (answer, ()) = tokio::join!(post(client, SEND), async {
        let turn = world.hand.take().await;
        assert_eq!(turn.asked(), "Create a VPC with two vSwitches.");
        turn.finish(End::InputRequired, "Done.").await;
    });
    assert_eq!(answer["id"], "1");
    answer["result"]["task"].clone()
}

#[tokio::test]
async fn messages_are_answered_and_streamed() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let task = sent(&world, &client).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let cwd = json!({ "iac_code": { "cwd": "/absolute/path/to/project" } });
    assert_eq!(task["history"][0]["metadata"], cwd);
    let mut stream = Stream::of(client.post(STREAM).send().await.unwrap());
    let mut turn = world.hand.take().await;
    turn.say("Here is the ROS template...").await;
    turn.finish(End::InputRequired, "").await;
    let events = stream.rest().await;
    assert!(events.iter().all(|event| event.json()["id"] == "2"));
    let states: Vec<String> = events.iter().map(Frame::state).collect();
    assert_eq!(states, ["SUBMITTED", "WORKING", "WORKING", "INPUT_REQUIRED"]);
    assert_eq!(events[2].text(), "Here is the ROS template...");
}

#[tokio::test]
async fn ids_that_are_nobodys_are_refused_and_what_is_not_served_says_so() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    for (example, id, code, reason) in [
        (GET, "3", -32001, "TASK_NOT_FOUND"),
        (CANCEL, "5", -32001, "TASK_NOT_FOUND"),
        (SUBSCRIBE, "6", -32001, "TASK_NOT_FOUND"),
        (PUSH, "7", -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (EXTENDED, "8", -32004, "UNSUPPORTED_OPERATION"),
    ] {
        let answer = post(&client, example).await;
        assert_eq!(answer["id"], id);
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert_eq!(answer["error"]["data"][0]["reason"], reason);
    }
    let listed = post(&client, LIST).await;
    let nothing = json!({ "tasks": [], "nextPageToken": "", "pageSize": 20, "totalSize": 0 });
    assert_eq!((&listed["id"], &listed["result"]), (&json!("4"), &nothing));
}

/// The same with ids that exist.
#[tokio::test]
async fn tasks_are_read_listed_followed_and_canceled() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut first = Stream::of(client.post(STREAM).send().await.unwrap());
    let task = first.event().await.result()["task"].clone();
    let mut turn = world.hand.take().await;
    turn.begin().await;
    let named = |example: &str| {
        let example = example.replace("task-id", task["id"].as_str().unwrap());
        example.replace("ctx-id", task["contextId"].as_str().unwrap())
    };
    let read = post(&client, &named(GET)).await;
    assert_eq!(read["result"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(read["result"]["history"].as_array().unwrap().len(), 1);
    let listed = post(&client, &named(LIST)).await;
    assert_eq!(listed["result"]["tasks"][0]["id"], task["id"]);
    assert_eq!(listed["result"]["totalSize"], 1);
    let mut second = Stream::of(client.post(named(SUBSCRIBE)).send().await.unwrap());
    assert_eq!(second.event().await.state(), "WORKING");
    let canceling = named(CANCEL);
    let (canceled, ()) = tokio::join!(post(&client, &canceling), async {
        crate::cancel::told(&turn, &world.hand.store).await;
        crate::hand::Turn::again(turn).finish(End::Canceled, "").await;
    });
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
    for mut stream in [first, second] {
        assert_eq!(stream.rest().await.last().unwrap().state(), "CANCELED");
    }
}

/// With the reference server's profile and a worker of its own: what the examples name is not there, and the words are the reference's;
/// about a directory that is there, with ids that are, they come to what the reference says.
#[tokio::test(flavor = "multi_thread")]
async fn the_examples_come_to_what_the_reference_says_with_its_profile_and_a_worker() {
    let cluster = Cluster::demo().await;
    let client = cluster.gateway.client();
    let nowhere = post(&client, SEND).await;
    let status = &nowhere["result"]["task"]["status"];
    assert_eq!(status["state"], "TASK_STATE_FAILED", "{nowhere}");
    assert_eq!(status["message"]["parts"][0]["text"], "Invalid A2A workspace metadata.");
    let streamed = Stream::of(client.post(STREAM).send().await.unwrap()).rest().await;
    assert_eq!(streamed.last().unwrap().state(), "FAILED");
    assert_eq!(streamed.last().unwrap().text(), "Invalid A2A workspace metadata.");

    let there = |example: &str| example.replace("/absolute/path/to/project", &cluster.workspace());
    let sent = post(&client, &there(SEND)).await;
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
    assert_eq!(
        task["history"][0]["parts"],
        json!([{ "text": "Create a VPC with two vSwitches." }])
    );
    let streamed = Stream::of(client.post(there(STREAM)).send().await.unwrap())
        .rest()
        .await;
    assert!(streamed.iter().all(|event| event.json()["id"] == "2"));
    assert_eq!(streamed.last().unwrap().state(), "INPUT_REQUIRED");
    let said: String = streamed.iter().map(Frame::text).collect();
    assert_eq!(said, "Review this ROS template.");

    let named = |example: &str| {
        let example = example.replace("task-id", task["id"].as_str().unwrap());
        example.replace("ctx-id", task["contextId"].as_str().unwrap())
    };
    let read = post(&client, &named(GET)).await;
    assert_eq!((&read["id"], &read["result"]["id"]), (&json!("3"), &task["id"]));
    let listed = post(&client, &named(LIST)).await;
    assert_eq!(listed["result"]["totalSize"], 0, "none of them is working");
    for (example, code, reason) in [
        (named(CANCEL), -32002, "TASK_NOT_CANCELABLE"),
        (named(SUBSCRIBE), -32001, "TASK_NOT_FOUND"),
        (named(PUSH), -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (EXTENDED.to_owned(), -32004, "UNSUPPORTED_OPERATION"),
    ] {
        let answer = post(&client, &example).await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert_eq!(answer["error"]["data"][0]["reason"], reason);
    }
}
