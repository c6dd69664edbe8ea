//! A chat model behind a cluster: its worker dies in the middle of an answer, and clients get one honest answer.

use a2a::{Task, TaskState};
use relevo_loadtest::client::Client;
use relevo_testkit::chat_model::{Act, ChatModel, delta, head, says};
use relevo_testkit::poll;

use crate::fixture::Cluster;
use crate::wire::{Say, rest, state_of, task_of, texts};

const KEY: &str = "sk-hunter2";

/// Sends a message, follows its stream to the end; returns the task and what was streamed.
async fn ask(client: &Client, at: usize, words: &str) -> (Task, Vec<String>) {
    let (mut stream, first) = Say::new("c-1", words).at(at).open(client).await;
    let events = rest(&mut stream).await;
    let streamed = events.iter().flat_map(|event| texts(&event.event)).collect();
    assert_eq!(
        state_of(&events.last().unwrap().event),
        Some(TaskState::Completed),
        "{events:?}"
    );
    let task = client.get(at + 1, &task_of(&first).id).await.unwrap();
    (task, streamed)
}

fn answer(task: &Task) -> String {
    let message = task.status.message.as_ref();
    let parts = message.into_iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| part.as_text()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_worker_in_the_middle_of_an_answer_costs_nothing_of_it() {
    let model = ChatModel::start(|n, _| match n {
        0 => says(&["one ", "answer"]),
        1 => vec![head(), delta("half of "), Act::Hang],
        2 => says(&["a whole ", "answer"]),
        _ => says(&["the end"]),
    });
    let file = format!(
        "[agents.chat]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\nbearer = {{ env = \"MODEL_KEY\" }}\npolicy = \"restart\"\n",
        model.url()
    );
    let setup = Cluster::setup()
        .config(&file)
        .set("MODEL_KEY", KEY)
        .set("RELEVO_LOG_LEVEL", "debug");
    let mut cluster = setup.start().await;
    let client = cluster.client();
    let (task, _) = ask(&client, 0, "first").await;
    assert_eq!(answer(&task), "one answer");

    let second = tokio::spawn({
        let client = client.clone();
        async move { ask(&client, 1, "second").await }
    });
    cluster.until_said("c-1", 1).await;
    let holder = cluster.holder("c-1").unwrap();
    cluster.kill_worker(holder);
    let (task, streamed) = second.await.unwrap();
    assert_eq!(answer(&task), "a whole answer");
    // What was said before is shown to whoever was there, and is no part of the task.
    assert_eq!(streamed.concat(), "half of a whole answer");
    let history = task.history.unwrap_or_default();
    assert_eq!(history.len(), 1, "{history:?}");
    poll::until("the dead worker's connection to be closed", || async {
        let gone = model.gone();
        if gone == 1 { Ok(()) } else { Err(gone) }
    })
    .await;

    ask(&client, 0, "third").await;
    let asked = model.asked();
    assert_eq!(asked.len(), 4);
    assert!(
        asked
            .iter()
            .all(|asked| asked.header("authorization") == Some("Bearer sk-hunter2"))
    );
    assert_eq!(
        asked[2].body, asked[1].body,
        "the second attempt asks what the first one did"
    );
    let pairs = [
        ("user", "first"),
        ("assistant", "one answer"),
        ("user", "second"),
        ("assistant", "a whole answer"),
        ("user", "third"),
    ];
    let pairs = pairs.map(|(role, text)| (role.to_owned(), text.to_owned()));
    assert_eq!(asked[3].messages(), pairs);
    for member in cluster.gateways.iter().chain(&cluster.workers) {
        assert!(!member.process.log().contains("hunter2"), "{}", member.name);
    }
}
