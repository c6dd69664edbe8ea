//! Server-sent events: each journalled event one frame, its stored bytes spliced in and never parsed again.
//!
//! What is no event has no empty line of its own: some clients take every empty line for the end of an event, and choke on
//! the one without data.

mod frame;

use std::time::Duration;

use a2a::StreamResponse;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use relevo_shared::domain::event::RESUME;
use relevo_shared::domain::wire;
use relevo_shared::platform::config::Statuses;
use tokio::time::timeout;

use crate::operations::{EventStream, StreamEvent, StreamItem, add_cursor};
use crate::services::{Call, Inner};
use crate::transport::jsonrpc::{RpcId, error_body, old_error_body};
use crate::transport::v03;

use super::super::observe::Observed;

/// How long a client waits before it comes back.
const RETRY: &[u8] = b"retry: 1000\n";
/// Keeps proxies from closing a silent connection.
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n");
/// Says that the server closes and the client should come back.
const MOVED: &[u8] = b": moved, come back with Last-Event-ID\nretry: 1000\n";

/// What stands around each event.
#[derive(Debug)]
pub(crate) enum Wrap {
    /// The envelope of JSON-RPC, with the id of the request.
    Rpc(RpcId),
    /// The same with events of A2A 0.3.
    Old(RpcId),
    /// Nothing.
    Bare,
    /// Nothing, around events of A2A 0.3.
    OldBare,
}

struct Frames {
    events: EventStream,
    wrap: Wrap,
    keep_alive: Duration,
    /// Whether each event says inside itself where it stands, too.
    cursors: bool,
    statuses: Statuses,
    observed: Observed,
    begun: bool,
}

/// Answers with a stream.
pub(crate) fn respond(
    events: EventStream,
    wrap: Wrap,
    services: &Inner,
    call: &Call,
    observed: Observed,
) -> Response<Body> {
    let frames = Frames {
        events,
        wrap,
        keep_alive: services.settings.stream.keep_alive,
        cursors: call.extensions.contains(RESUME),
        statuses: services.settings.compat.errors,
        observed,
        begun: false,
    };
    let chunks = stream::unfold(Some(frames), |frames| async move {
        let mut frames = frames?;
        let (chunk, last) = frames.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), (!last).then_some(frames)))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl Frames {
    /// The next chunk, and whether it is the last.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        let Ok(item) = timeout(self.keep_alive, self.events.next()).await else {
            return Some((COMMENT, false));
        };
        let mut chunk = BytesMut::new();
        if !self.begun {
            self.begun = true;
            chunk.put_slice(RETRY);
        }
        match item {
            Some(StreamItem::Events(events)) => {
                self.observed.first_event();
                for mut event in events {
                    if self.cursors {
                        event.body = with_cursor(&event);
                    }
                    frame(&mut chunk, &self.wrap, &event);
                }
                Some((chunk.freeze(), false))
            }
            Some(StreamItem::Failed(error)) => {
                error.log();
                self.observed.finish(error.label());
                let body = match &self.wrap {
                    Wrap::Rpc(id) => error_body(id, &error),
                    Wrap::Old(id) => old_error_body(id, &error),
                    Wrap::Bare => error.to_status(self.statuses).to_string().into_bytes(),
                    Wrap::OldBare => v03::rest::error_body(&error),
                };
                if matches!(self.wrap, Wrap::Bare | Wrap::OldBare) {
                    chunk.put_slice(b"event: error\n");
                }
                chunk.put_slice(b"data: ");
                chunk.put_slice(&body);
                chunk.put_slice(b"\n\n");
                Some((chunk.freeze(), true))
            }
            Some(StreamItem::Moved) => {
                self.observed.finish("moved");
                chunk.put_slice(MOVED);
                Some((chunk.freeze(), true))
            }
            None => {
                self.observed.finish("ok");
                (!chunk.is_empty()).then(|| (chunk.freeze(), true))
            }
        }
    }
}

/// The event with its position in its metadata. One that cannot be read is sent as it is stored.
fn with_cursor(event: &StreamEvent) -> Bytes {
    let Ok(mut body) = serde_json::from_slice::<StreamResponse>(&event.body) else {
        return event.body.clone();
    };
    add_cursor(&mut body, event.cursor);
    Bytes::from(wire::to_vec(&body))
}

fn frame(chunk: &mut BytesMut, wrap: &Wrap, event: &StreamEvent) {
    let StreamEvent { cursor, body, last } = event;
    match wrap {
        Wrap::Rpc(id) => frame::put(chunk, *cursor, Some(id.raw()), body),
        Wrap::Old(id) => frame::put(chunk, *cursor, Some(id.raw()), &v03::rpc::printed(body, *last)),
        Wrap::Bare => frame::put(chunk, *cursor, None, body),
        Wrap::OldBare => frame::put(chunk, *cursor, None, &v03::rest::printed(body, *last)),
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::ids::{Cursor, EntryId, Partition, TaskId};

    use super::*;

    #[test]
    fn a_frame_is_the_stored_bytes_between_an_id_and_an_envelope() {
        let task = TaskId::new(1, Partition(0), 1);
        let cursor = Cursor {
            task,
            entry: EntryId { seq: 2, nonce: 9 },
        };
        let mut chunk = BytesMut::new();
        let event = StreamEvent {
            cursor,
            body: Bytes::from_static(b"{\"task\": 1}"),
            last: false,
        };
        frame(&mut chunk, &Wrap::Rpc(RpcId::parse("\"a\"").unwrap()), &event);
        let expected =
            format!("id: {task}.2-9\ndata: {{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{{\"task\": 1}}}}\n\n");
        assert_eq!(chunk, expected.as_bytes());
        let mut bare = BytesMut::new();
        frame(&mut bare, &Wrap::Bare, &event);
        assert_eq!(bare, format!("id: {task}.2-9\ndata: {{\"task\": 1}}\n\n").as_bytes());
    }
}
