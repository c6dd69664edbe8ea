//! Several agents: which gets a message, and what the card says of them.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::binding::{ALL, Caller};
use crate::client::{message, message_to};
use crate::gateway::{World, world_with};

const SKILL: &str = "urn:relevo:a2a:skill:v1";
const NEEDED: &str = "urn:example:needed:v1";
const FILE: &str = "
[profiles.strict]
input_modes = [\"application/json\"]
[[profiles.strict.extensions]]
uri = \"urn:example:needed:v1\"
required = true
[agents.talk]
kind = \"demo\"
default = true
[agents.sums]
kind = \"demo\"
busy = \"queue\"
[[agents.sums.skills]]
id = \"add\"
description = \"Adds.\"
[[agents.sums.skills]]
id = \"prove\"
description = \"Proves.\"
extended = true
[agents.forms]
kind = \"demo\"
profile = \"strict\"
";

async fn world() -> World {
    world_with(FILE, &[]).await
}

fn asking(skill: &str) -> Value {
    let mut params = message("1 and 2");
    params["message"]["metadata"] = json!({ SKILL: { "id": skill } });
    params["configuration"] = json!({ "returnImmediately": true });
    params
}

#[tokio::test]
async fn a_message_goes_to_the_agent_of_its_skill_and_its_task_stays_there() {
    let world = world().await;
    let client = world.gateway.client();
    for (params, agent) in [
        (asking("add"), "sums"),
        (asking("prove"), "sums"),
        (asking("talk"), "talk"),
        (message("hi"), "talk"),
    ] {
        let immediate = {
            let mut params = params;
            params["configuration"] = json!({ "returnImmediately": true });
            params
        };
        let task = client.call("SendMessage", immediate).await["task"]["id"].take();
        let turn = world.hand.take().await;
        assert_eq!(turn.taken.record.agent, agent);
        turn.finish(End::InputRequired, "more?").await;
        // Nothing but the task says whose it is.
        let mut next = message_to(task.as_str().unwrap(), "3");
        next["configuration"] = json!({ "returnImmediately": true });
        client.call("SendMessage", next).await;
        let turn = world.hand.take().await;
        assert_eq!(turn.taken.record.agent, agent);
        turn.finish(End::InputRequired, "more?").await;
        let mut other = asking(if agent == "sums" { "talk" } else { "add" });
        other["message"]["taskId"] = task;
        let (code, text) = client.refused("SendMessage", other).await;
        assert_eq!(code, -32602, "{text}");
    }
}

#[tokio::test]
async fn the_request_may_name_the_skill_too_and_what_it_keeps_is_the_agents() {
    let world = world().await;
    let client = world.gateway.client();
    let mut params = asking("add");
    params["metadata"] = params["message"]["metadata"].take();
    params["message"].as_object_mut().unwrap().remove("metadata");
    client.call("SendMessage", params).await;
    let record = world.hand.take().await.taken.record;
    assert_eq!((record.agent.as_str(), record.busy.as_str()), ("sums", "queue"));
    assert_eq!(
        record.metadata[SKILL],
        json!({ "id": "add" }),
        "the agent may want to know"
    );
}

#[tokio::test]
async fn a_skill_that_nobody_has_is_refused_on_every_binding() {
    let world = world().await;
    let client = world.gateway.client();
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        let refused = caller.call("SendMessage", asking("fly")).await.unwrap_err();
        assert_eq!(refused.reason, "INVALID_PARAMS", "{binding:?}");
        assert!(
            format!("{refused:?}").contains(&format!("message.metadata.{SKILL}.id")),
            "{refused:?}"
        );
    }
    assert_eq!(client.call("ListTasks", json!({})).await["totalSize"], 0);
}

#[tokio::test]
async fn what_an_agent_requires_is_required_of_its_messages_alone() {
    let world = world().await;
    let client = world.gateway.client();
    client.call("SendMessage", asking("talk")).await;
    let (code, text) = client.refused("SendMessage", asking("forms")).await;
    assert_eq!((code, text.as_str()), (-32008, "EXTENSION_SUPPORT_REQUIRED"));
    let send = async |params: &Value| {
        let request = client.request("SendMessage", params).header("a2a-extensions", NEEDED);
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let mut form = asking("forms");
    assert_eq!(send(&form).await["error"]["code"], -32005, "it takes no text");
    form["message"]["parts"] = json!([{ "data": { "a": 1 } }]);
    assert_eq!(
        send(&form).await["result"]["task"]["status"]["state"],
        "TASK_STATE_SUBMITTED"
    );
}

#[tokio::test]
async fn the_card_offers_the_skills_of_all() {
    let world = world().await;
    let card = world
        .gateway
        .client()
        .get(".well-known/agent-card.json")
        .send()
        .await
        .unwrap();
    let card: Value = card.json().await.unwrap();
    let ids: Vec<&str> = card["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["talk", "forms", "add"]);
    assert_eq!(card["name"], "talk");
    assert_eq!(card["defaultInputModes"], json!(["*/*", "application/json"]));
    assert_eq!(card["skills"][1]["inputModes"], json!(["application/json"]));
    let needed = card["capabilities"]["extensions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["uri"] == NEEDED);
    assert_eq!(needed.unwrap()["required"], json!(null), "not of every message");
}
