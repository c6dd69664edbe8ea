use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use relevo_testkit::poll;

fn third_time() -> impl Fn() -> Result<&'static str, String> {
    let asked = AtomicU32::new(0);
    move || match asked.fetch_add(1, Ordering::Relaxed) {
        2 => Ok("now"),
        n => Err(format!("asked {n} times")),
    }
}

#[tokio::test]
async fn a_condition_is_asked_until_it_holds() {
    let condition = third_time();
    assert_eq!(poll::until("the third time", || async { condition() }).await, "now");
}

#[test]
fn a_condition_is_asked_until_it_holds_without_a_runtime() {
    assert_eq!(poll::until_sync("the third time", third_time()), "now");
}

#[test]
fn a_failure_names_the_caller_what_was_awaited_and_the_last_status() {
    let failed = catch_unwind(|| {
        poll::within_sync(Duration::from_millis(20), "rain", || Err::<(), _>("sunshine"));
    });
    let message = *failed.unwrap_err().downcast::<String>().unwrap();
    for part in ["poll.rs", "rain", "sunshine"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_condition_that_never_answers_is_given_up() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let never = || std::future::pending::<Result<(), String>>();
        runtime.block_on(poll::within(Duration::from_millis(20), "godot", never));
    }));
    let message = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.contains("godot") && message.contains("no answer yet"),
        "{message}"
    );
}
