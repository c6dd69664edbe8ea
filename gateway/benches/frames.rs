//! What it costs to frame events for a stream: `cargo bench -p relevo-gateway --bench frames`.

#![allow(missing_docs, reason = "criterion makes a function")]

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use relevo_shared::ids::{Cursor, EntryId, Partition, TaskId};

#[path = "../src/transport/sse/frame.rs"]
mod frame;

fn frames(criterion: &mut Criterion) {
    let task = TaskId::new(1_764_500_000_000, Partition(7), 42);
    let entry = EntryId {
        seq: 12,
        nonce: u64::MAX / 3,
    };
    let cursor = Cursor { task, entry };
    let mut group = criterion.benchmark_group("sse_frame");
    for size in [400, 16 << 10] {
        let body = vec![b'x'; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("bare/{size}"), |bencher| {
            bencher.iter(|| {
                let mut chunk = BytesMut::new();
                frame::put(&mut chunk, cursor, None, black_box(&body));
                chunk
            });
        });
        group.bench_function(format!("jsonrpc/{size}"), |bencher| {
            bencher.iter(|| {
                let mut chunk = BytesMut::new();
                frame::put(&mut chunk, cursor, Some("\"request-1\""), black_box(&body));
                chunk
            });
        });
    }
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
