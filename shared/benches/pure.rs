//! What the pure parts cost: printing and reading events, folding them, the journal bytes of one turn.
//! `cargo bench -p relevo-shared --bench pure`.

#![allow(missing_docs, reason = "criterion makes a function")]
#![allow(clippy::unwrap_used, reason = "a measurement that fails ends")]

use std::collections::BTreeMap;
use std::hint::black_box;

use a2a::{Message, Part, Role, StreamResponse, Task, TaskState};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use relevo_shared::domain::class::{Class, Kind};
use relevo_shared::domain::event::{self, Event};
use relevo_shared::domain::fold::{Entry, Fold};
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, Sender, TurnRecord, VERSION};
use relevo_shared::domain::state::End;
use relevo_shared::domain::wire;
use relevo_shared::ids::{EntryId, Nonce, Partition, TaskId, TurnId};

const NOW: u64 = 1_764_500_000_000;

fn record() -> TurnRecord {
    TurnRecord {
        v: VERSION,
        turn: TurnId::new(NOW, Partition(3), 2),
        task: TaskId::new(NOW, Partition(3), 1),
        context_id: "6f1d2c3b-0000-4000-8000-000000000000".into(),
        sender: Sender::default(),
        message: Message::new(Role::User, vec![Part::text("chunks=5 nonce=1")]),
        agent: "demo".into(),
        pool: "default".into(),
        policy: CrashPolicy::Restart,
        attempts: 3,
        handbacks: 20,
        submitted: NOW,
        deadline: None,
        queue_age: 60_000,
        busy: BusyPolicy::Reject,
        remember_ms: 0,
        new_task: true,
        direct: false,
        workspace: false,
        accepted_output_modes: Vec::new(),
        extensions: Vec::new(),
        traceparent: None,
        metadata: BTreeMap::new(),
        stop_after_crash: false,
        suspension: None,
    }
}

/// The events of a turn whose agent says `chunks` texts.
fn events(record: &TurnRecord, chunks: usize) -> Vec<Event> {
    let say = |n: usize| {
        let message = event::agent_message(record, "0", &format!("seq={n} nonce=1\n"));
        Event {
            body: StreamResponse::StatusUpdate(event::status(record, TaskState::Working, Some(message), NOW)),
            class: Class::Normal,
        }
    };
    let opening = [event::submitted(record, NOW), event::working(record, NOW)];
    let end = event::ended(record, End::Completed, None, None, NOW);
    opening.into_iter().chain((0..chunks).map(say)).chain([end]).collect()
}

fn journal(record: &TurnRecord, chunks: usize) -> Vec<Entry> {
    let entry = |(seq, event): (u64, Event)| Entry {
        id: EntryId::START.after(seq, Nonce(9)),
        kind: Kind {
            turn: 1,
            class: event.class,
        },
        bytes: event.bytes(),
    };
    (1..).zip(events(record, chunks)).map(entry).collect()
}

fn folded(entries: &[Entry]) -> Fold {
    let (first, rest) = entries.split_first().unwrap();
    let mut fold = Fold::first(first).unwrap();
    for entry in rest {
        fold.apply(entry).unwrap();
    }
    fold
}

fn codec(criterion: &mut Criterion) {
    let record = record();
    let chunk = events(&record, 1).swap_remove(2);
    let bytes = chunk.bytes();
    let task: Task = folded(&journal(&record, 5)).into_state().into_task(
        record.task.to_string(),
        record.context_id.clone(),
        Vec::new(),
    );
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("event_printed", |bencher| bencher.iter(|| black_box(&chunk).bytes()));
    group.bench_function("event_read", |bencher| {
        bencher.iter(|| serde_json::from_slice::<StreamResponse>(black_box(&bytes)).unwrap());
    });
    group.throughput(Throughput::Bytes(wire::to_vec(&task).len() as u64));
    group.bench_function("task_printed", |bencher| {
        bencher.iter(|| wire::to_vec(black_box(&task)));
    });
    let record_json = serde_json::to_vec(&record).unwrap();
    group.throughput(Throughput::Bytes(record_json.len() as u64));
    group.bench_function("turn_record_read", |bencher| {
        bencher.iter(|| serde_json::from_slice::<TurnRecord>(black_box(&record_json)).unwrap());
    });
    group.finish();
}

fn fold(criterion: &mut Criterion) {
    let record = record();
    let mut group = criterion.benchmark_group("fold");
    for chunks in [5, 1_000] {
        let entries = journal(&record, chunks);
        group.throughput(Throughput::Elements(entries.len() as u64));
        group.bench_function(format!("journal/{chunks}_chunks"), |bencher| {
            bencher.iter(|| folded(black_box(&entries)));
        });
    }
    let bodies = || events(&record, 5).into_iter().skip(1);
    let StreamResponse::Task(task) = event::submitted(&record, NOW).body else {
        return;
    };
    group.throughput(Throughput::Elements(7));
    group.bench_function("events/5_chunks", |bencher| {
        bencher.iter_batched(
            || {
                (
                    Fold::begin(EntryId::START.after(1, Nonce(9)), 1, task.clone()),
                    bodies().collect::<Vec<_>>(),
                )
            },
            |(mut fold, events)| {
                for (seq, event) in (2..).zip(events) {
                    let kind = Kind {
                        turn: 1,
                        class: event.class,
                    };
                    fold.apply_event(EntryId::START.after(seq, Nonce(9)), kind, event.body)
                        .unwrap();
                }
                fold
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, codec, fold);
criterion_main!(benches);
