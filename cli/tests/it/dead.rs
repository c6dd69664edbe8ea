//! `relevo dead`: what died is listed, shown, and sent again.

use relevo_testkit::poll;
use serde_json::Value;

use crate::command::{Dev, printed, scratch};

#[test]
fn a_dead_letter_is_sent_again_as_a_task_that_names_it() {
    let dir = scratch();
    let once = [("RELEVO_LEASE_TTL", "2s"), ("RELEVO_TURN_ATTEMPTS", "1")];
    let dev = Dev::start_with(dir.path(), &[], &once);
    let call = dev.start_client(&["call", "chunks=2 nonce=d hold=600", "--stream", "--context-id", "c-1"]);
    printed(&call, "seq=1");
    call.kill();
    dev.process.kill();

    let dev = Dev::start_with(dir.path(), &[], &once);
    let dead = poll::until_sync("the turn to be given up", || {
        let listed: Value = serde_json::from_str(&dev.operator(&["dead", "list", "--json"]).with(0).stdout).unwrap();
        match listed.as_array().unwrap().as_slice() {
            [dead] => Ok(dead.clone()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(dead["reason"], "attempts_exhausted");
    let (turn, task) = (
        dead["record"]["turn"].as_str().unwrap(),
        dead["record"]["task"].as_str().unwrap(),
    );
    assert!(dev.operator(&["dead", "list"]).with(0).stdout.contains(turn));
    let shown = dev.operator(&["dead", "show", turn]).with(0);
    assert!(shown.stdout.contains("chunks=2 nonce=d hold=600"), "{shown:?}");

    let again = dev.operator(&["dead", "retry", turn]).with(0).stdout.trim().to_owned();
    assert_ne!(again, task);
    let watch = dev.start_client(&["task", "watch", &again]);
    printed(&watch, "seq=1");
    let json = dev.client(&["task", "get", &again, "--json"]).with(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["contextId"], "c-1");
    assert_eq!(json["history"][0]["referenceTaskIds"], serde_json::json!([task]));

    let busy = dev.operator(&["dead", "retry", turn]).with(1);
    assert!(busy.stderr.contains("context c-1 has a running turn"), "{busy:?}");
    dev.client(&["task", "cancel", &again]).with(0);
    let first = dev.client(&["task", "get", task]).with(0);
    assert!(
        first.stdout.contains("state:   failed"),
        "it stays as it ended: {first:?}"
    );
    dev.stop().with(0);
}
