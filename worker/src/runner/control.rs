//! Cancels that are told over the partitions' control channels. An accelerator: a renewal says the same within a third of the lease.

use std::sync::Arc;
use std::time::Duration;

use relevo_shared::ids::{ContextKey, TurnId};
use relevo_shared::store::StoreError;

use super::take::Worker;

/// How often the connection is asked for a sign of life.
const PING: Duration = Duration::from_secs(5);
/// How long a broken connection is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens for ever.
pub(crate) async fn listen(worker: Arc<Worker>) {
    loop {
        if let Err(error) = listen_once(&worker).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the control channels are not heard"
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen_once(worker: &Worker) -> Result<(), StoreError> {
    let (mut subscriber, handle) = worker.store.subscriber().await?;
    handle.follow_control().await?;
    loop {
        tokio::select! {
            heard = subscriber.next() => {
                let Some(heard) = heard else { return Ok(()) };
                if let Some((context, turn)) = cancel(&heard.payload) {
                    worker.leases.cancel(&context, turn);
                }
            }
            () = tokio::time::sleep(PING) => handle.ping().await?,
        }
    }
}

/// Reads `cancel <context> <turn>`.
fn cancel(payload: &[u8]) -> Option<(ContextKey, TurnId)> {
    let mut words = std::str::from_utf8(payload).ok()?.split(' ');
    let ("cancel", context, turn, None) = (words.next()?, words.next()?, words.next()?, words.next()) else {
        return None;
    };
    Some((ContextKey::from_text(context), TurnId::parse(turn)?))
}

#[cfg(test)]
mod tests {
    use relevo_shared::ids::Partition;

    use super::*;

    #[test]
    fn only_a_cancel_is_understood() {
        let turn = TurnId::new(1, Partition(1), 1);
        let (context, read) = cancel(format!("cancel ctx {turn}").as_bytes()).unwrap();
        assert_eq!((context.as_str(), read), ("ctx", turn));
        for other in [
            "",
            "cancel",
            "cancel ctx x",
            "stop ctx 1",
            &format!("cancel ctx {turn} more"),
        ] {
            assert!(cancel(other.as_bytes()).is_none(), "{other}");
        }
    }
}
