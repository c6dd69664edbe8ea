//! Streams of events on gRPC. An event is read back from its stored bytes; where it stands is told inside it, to clients
//! that have switched that on, because gRPC has no metadata per message.

use std::collections::VecDeque;
use std::pin::Pin;

use a2a::StreamResponse;
use a2a_pb::pbconv::to_proto_stream_response;
use a2a_pb::proto;
use futures_util::{Stream, StreamExt as _, stream};
pub(super) use relevo_shared::domain::event::RESUME;
use relevo_shared::platform::config::Statuses;
use tonic::Status;

use crate::error::ApiError;
use crate::observe::Observed;
use crate::operations::{EventStream, StreamEvent, StreamItem, add_cursor};

/// A stream as tonic sends it.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<proto::StreamResponse, Status>> + Send>>;

struct Sending {
    events: EventStream,
    waiting: VecDeque<StreamEvent>,
    cursors: bool,
    statuses: Statuses,
    observed: Observed,
    ended: bool,
}

/// Sends events, each with its position if `cursors`.
pub(super) fn events(events: EventStream, cursors: bool, statuses: Statuses, observed: Observed) -> Events {
    let sending = Sending {
        events,
        waiting: VecDeque::new(),
        cursors,
        statuses,
        observed,
        ended: false,
    };
    Box::pin(stream::unfold(sending, |mut sending| async move {
        let item = sending.next().await?;
        Some((item, sending))
    }))
}

impl Sending {
    async fn next(&mut self) -> Option<Result<proto::StreamResponse, Status>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(message(&event, self.cursors).map_err(|error| self.fail(&error)));
            }
            if self.ended {
                return None;
            }
            match self.events.next().await {
                Some(StreamItem::Events(events)) => {
                    self.observed.first_event();
                    self.waiting.extend(events);
                }
                Some(StreamItem::Failed(error)) => return Some(Err(self.fail(&error))),
                Some(StreamItem::Moved) => return Some(Err(self.fail(&ApiError::Moved))),
                None => {
                    self.observed.finish("ok");
                    return None;
                }
            }
        }
    }

    fn fail(&mut self, error: &ApiError) -> Status {
        self.ended = true;
        self.waiting.clear();
        error.log();
        self.observed.finish(error.label());
        error.to_grpc(self.statuses)
    }
}

fn message(event: &StreamEvent, cursors: bool) -> Result<proto::StreamResponse, ApiError> {
    let mut body: StreamResponse = serde_json::from_slice(&event.body).map_err(ApiError::Unreadable)?;
    if cursors {
        add_cursor(&mut body, event.cursor);
    }
    Ok(to_proto_stream_response(&body))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use relevo_shared::ids::{Cursor, EntryId, Partition, TaskId};

    use super::*;

    #[test]
    fn the_position_joins_what_the_event_says_about_resuming() {
        let task = TaskId::new(1, Partition(0), 1);
        let cursor = Cursor {
            task,
            entry: EntryId { seq: 2, nonce: 9 },
        };
        let text = r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},
            "metadata":{"urn:relevo:a2a:resume:v1":{"boundary":true}}}}"#;
        let event = StreamEvent {
            cursor,
            body: Bytes::from_static(text.as_bytes()),
            last: false,
        };
        let read = |cursors| match message(&event, cursors).unwrap().payload {
            Some(proto::stream_response::Payload::StatusUpdate(update)) => {
                let metadata = a2a_pb::pbconv::from_proto_struct(&update.metadata.unwrap());
                metadata[RESUME].clone()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(read(false), serde_json::json!({ "boundary": true }));
        let expected = serde_json::json!({ "boundary": true, "cursor": cursor.to_string() });
        assert_eq!(read(true), expected);
    }

    #[test]
    fn stored_bytes_that_are_no_event_are_an_error_of_ours() {
        let event = StreamEvent {
            cursor: Cursor {
                task: TaskId::new(1, Partition(0), 1),
                entry: EntryId { seq: 1, nonce: 1 },
            },
            body: Bytes::from_static(b"{}"),
            last: false,
        };
        assert!(matches!(message(&event, false), Err(ApiError::Unreadable(_))));
    }
}
