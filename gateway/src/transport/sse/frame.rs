//! One event as a frame of server-sent events: its stored bytes between an id and an envelope. Pure.

use bytes::{BufMut as _, BytesMut};
use relevo_shared::ids::Cursor;

/// What stands around the bytes beside cursor and id.
const AROUND: usize = 64;

/// Adds an event; with the id of its request, as the client wrote it, in the envelope of JSON-RPC.
pub(crate) fn put(chunk: &mut BytesMut, cursor: Cursor, id: Option<&str>, body: &[u8]) {
    let cursor = cursor.to_string();
    chunk.reserve(body.len() + cursor.len() + id.map_or(0, str::len) + AROUND);
    chunk.put_slice(b"id: ");
    chunk.put_slice(cursor.as_bytes());
    chunk.put_slice(b"\ndata: ");
    match id {
        Some(id) => {
            chunk.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
            chunk.put_slice(id.as_bytes());
            chunk.put_slice(b",\"result\":");
            chunk.put_slice(body);
            chunk.put_slice(b"}");
        }
        None => chunk.put_slice(body),
    }
    chunk.put_slice(b"\n\n");
}
