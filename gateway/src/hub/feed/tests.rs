use relevo_shared::ids::Partition;

use super::*;

const BUDGET: usize = 100;

fn id(seq: u64, nonce: u64) -> EntryId {
    EntryId { seq, nonce }
}

fn feed(want: Want) -> Feed {
    Feed::new(TaskId::new(1, Partition(0), 1), id(1, 7), want, BUDGET)
}

/// A doorbell of one entry of `size` bytes.
fn bell(prev: EntryId, last: EntryId, size: Option<usize>) -> Doorbell {
    let payload = size.map(|size| "x".repeat(size)).unwrap_or_default();
    let text = format!("{prev} {last} 1.n {}\n{payload}", size.unwrap_or(99_999));
    Doorbell::parse(&Bytes::from(text)).unwrap()
}

fn entry(seq: u64, nonce: u64, size: usize) -> Entry {
    Entry {
        id: id(seq, nonce),
        kind: "1.n".parse().unwrap(),
        bytes: vec![b'x'; size],
    }
}

fn delivered(feed: &Feed) -> Vec<u64> {
    match feed.next() {
        Todo::Deliver(events) => events.iter().map(|event| event.id.seq).collect(),
        other => panic!("{other:?}"),
    }
}

fn read_reason(feed: &Feed) -> Reason {
    match feed.next() {
        Todo::Read(_, _, reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn doorbells_that_continue_are_delivered_without_a_read() {
    let feed = feed(Want::Events);
    feed.ring(&bell(id(1, 7), id(2, 8), Some(3)));
    feed.ring(&bell(id(2, 8), id(3, 9), Some(3)));
    assert_eq!(delivered(&feed), [2, 3]);
    assert!(matches!(feed.next(), Todo::Wait));
    assert_eq!(feed.position(), id(3, 9));
}

#[test]
fn a_repeated_doorbell_is_not_delivered_twice() {
    let feed = feed(Want::Events);
    feed.ring(&bell(id(1, 7), id(2, 8), Some(3)));
    feed.ring(&bell(id(1, 7), id(2, 8), Some(3)));
    assert_eq!(delivered(&feed), [2]);
    assert!(matches!(feed.next(), Todo::Wait));
}

#[test]
fn a_doorbell_of_another_timeline_makes_the_journal_decide() {
    let feed = feed(Want::Events);
    feed.ring(&bell(id(1, 6), id(2, 8), Some(3)));
    assert_eq!(read_reason(&feed), Reason::Missed);
}

#[test]
fn what_rings_during_a_read_is_looked_for_after_it() {
    let feed = feed(Want::Events);
    feed.fall_behind(Reason::Join);
    let Todo::Read(from, window, Reason::Join) = feed.next() else {
        panic!("no read")
    };
    assert_eq!(from, id(1, 7));
    feed.ring(&bell(id(1, 7), id(2, 8), Some(3)));
    let events = feed.end_read(window, vec![entry(2, 8, 3)]);
    assert_eq!(events.len(), 1);
    assert_eq!(read_reason(&feed), Reason::Missed);
    assert_eq!(feed.end_read(window, Vec::new()), Vec::new());
    feed.ring(&bell(id(2, 8), id(3, 9), Some(3)));
    assert_eq!(delivered(&feed), [3]);
}

#[test]
fn a_slow_reader_keeps_its_place_but_not_its_buffer() {
    let feed = feed(Want::Events);
    feed.ring(&bell(id(1, 7), id(2, 8), Some(60)));
    feed.ring(&bell(id(2, 8), id(3, 9), Some(60)));
    feed.ring(&bell(id(3, 9), id(4, 9), Some(1)));
    assert_eq!(
        delivered(&feed),
        [2],
        "the second would exceed the budget, and order is kept after it"
    );
    assert_eq!(feed.position(), id(2, 8));
    assert_eq!(read_reason(&feed), Reason::Budget);
}

#[test]
fn a_large_batch_is_read_from_the_journal_unless_only_its_kind_matters() {
    let events = feed(Want::Events);
    events.ring(&bell(id(1, 7), id(2, 8), None));
    assert_eq!(read_reason(&events), Reason::Large);
    let kinds = feed(Want::Kinds);
    kinds.ring(&bell(id(1, 7), id(2, 8), None));
    assert_eq!(delivered(&kinds), [2]);
}

#[test]
fn a_full_read_is_followed_by_another_and_its_size_adapts() {
    let feed = feed(Want::Events);
    feed.fall_behind(Reason::Join);
    let Todo::Read(_, window, _) = feed.next() else {
        panic!("no read")
    };
    let many: Vec<Entry> = (2..).map(|seq| entry(seq, 8, 50)).take(window).collect();
    assert_eq!(feed.end_read(window, many).len(), 2, "no more than the budget");
    let Todo::Read(_, smaller, _) = feed.next() else {
        panic!("no read")
    };
    assert!(smaller < window);
    for _ in 0..20 {
        feed.end_read(1, Vec::new());
        let window = window_of(&feed);
        let small: Vec<Entry> = (2..).map(|seq| entry(seq, 8, 0)).take(window).collect();
        feed.end_read(window, small);
        assert_eq!(read_reason(&feed), Reason::Budget, "there may be more");
    }
    assert_eq!(window_of(&feed), LARGEST_WINDOW);
}

fn window_of(feed: &Feed) -> usize {
    match feed.first() {
        Todo::Read(_, window, _) => window,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_gives_no_more_than_the_budget_and_at_least_one_entry() {
    for (sizes, given, left) in [
        (&[40, 40, 40][..], 2, true),
        (&[500, 1][..], 1, true),
        (&[100][..], 1, false),
        (&[0, 100, 0][..], 3, false),
    ] {
        let feed = feed(Want::Events);
        let Todo::Read(..) = feed.first() else {
            panic!("no read")
        };
        let entries = (2..).zip(sizes).map(|(seq, size)| entry(seq, 8, *size)).collect();
        assert_eq!(feed.end_read(100, entries).len(), given, "{sizes:?}");
        assert_eq!(feed.position(), id(1 + given as u64, 8), "the rest is read again");
        assert_eq!(matches!(feed.next(), Todo::Read(..)), left, "{sizes:?}");
    }
}

#[test]
fn what_rang_before_the_first_read_comes_before_it() {
    let feed = feed(Want::Events);
    feed.ring(&bell(id(1, 7), id(2, 8), Some(3)));
    match feed.first() {
        Todo::Deliver(events) => assert_eq!(events[0].id, id(2, 8)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(feed.next(), Todo::Read(at, _, Reason::Join) if at == id(2, 8)));
}

#[test]
fn only_positions_that_rest_are_due() {
    let feed = feed(Want::Events);
    let later = Instant::now() + Duration::from_secs(10);
    assert_eq!(feed.due(Instant::now(), Duration::from_secs(10)), None);
    assert_eq!(feed.due(later, Duration::from_secs(10)), Some(id(1, 7)));
    feed.doubt();
    assert_eq!(feed.due(Instant::now(), Duration::from_secs(10)), Some(id(1, 7)));
    feed.confirm(id(1, 7));
    assert_eq!(feed.due(Instant::now(), Duration::from_secs(10)), None);
    feed.fall_behind(Reason::Reread);
    assert_eq!(feed.due(later, Duration::from_secs(10)), None);
}

#[test]
fn a_reset_forgets_the_queue_and_looks() {
    let feed = feed(Want::Events);
    feed.ring(&bell(id(1, 7), id(2, 8), Some(3)));
    feed.reset(id(9, 1));
    assert!(matches!(feed.next(), Todo::Read(at, _, Reason::Join) if at == id(9, 1)));
}

#[test]
fn a_waiting_call_keeps_few_bytes_and_then_only_what_they_mean() {
    let few = Feed::new(TaskId::new(1, Partition(0), 1), id(1, 7), Want::Few, 2 * FEW);
    let bytes = |feed: &Feed| match feed.next() {
        Todo::Deliver(events) => events.iter().map(|event| event.bytes.len()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    few.ring(&bell(id(1, 7), id(2, 8), Some(FEW - 1)));
    few.ring(&bell(id(2, 8), id(3, 9), Some(1)));
    assert_eq!(bytes(&few), [FEW - 1, 1]);
    few.ring(&bell(id(3, 9), id(4, 9), Some(1)));
    few.ring(&bell(id(4, 9), id(5, 9), Some(1)));
    assert_eq!(bytes(&few), [0, 0], "it had all it may have");
    let large = feed(Want::Few);
    large.ring(&bell(id(1, 7), id(2, 8), None));
    large.ring(&bell(id(2, 8), id(3, 9), Some(1)));
    assert_eq!(bytes(&large), [0, 0], "a batch without its events is no reason to read");
    let read = feed(Want::Few);
    read.fall_behind(Reason::Missed);
    assert_eq!(read_reason(&read), Reason::Missed);
    let events = read.end_read(4, vec![entry(2, 8, 3), entry(3, 8, FEW)]);
    assert!(events.iter().all(|event| event.bytes.is_empty()));
    assert_eq!(read.position(), id(3, 8));
}
