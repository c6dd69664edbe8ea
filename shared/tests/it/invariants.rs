//! What holds in Redis at any time, whatever happened: written once, for every test that can look at a whole partition.

use std::collections::{BTreeMap, BTreeSet};

use relevo_shared::ids::EntryId;

use crate::probe::{Content, Dump, Stream};

type Hash = BTreeMap<String, String>;

/// A partition, by what its keys are.
struct Partition {
    contexts: BTreeMap<String, Hash>,
    tasks: BTreeMap<String, Hash>,
    turns: BTreeMap<String, (Hash, bool)>,
    journals: BTreeMap<String, Stream>,
    queues: BTreeMap<String, Stream>,
    scores: BTreeMap<String, Hash>,
    histories: BTreeMap<String, Vec<String>>,
    /// Turns behind the live one, by context.
    lines: BTreeMap<String, Vec<String>>,
}

/// What must be remembered from look to look: terminal tasks as they were when they became it.
#[derive(Clone, Default)]
pub struct Memory {
    terminal: BTreeMap<String, (Hash, Vec<String>)>,
}

impl Partition {
    fn read(dump: &Dump, prefix: &str) -> Self {
        let mut partition = Self {
            contexts: BTreeMap::new(),
            tasks: BTreeMap::new(),
            turns: BTreeMap::new(),
            journals: BTreeMap::new(),
            queues: BTreeMap::new(),
            scores: BTreeMap::new(),
            histories: BTreeMap::new(),
            lines: BTreeMap::new(),
        };
        for (key, (content, expires)) in dump {
            let Some(name) = key.strip_prefix(prefix) else { continue };
            let (class, id) = name.split_once(':').unwrap_or((name, ""));
            let id = id.to_owned();
            match (class, content.clone()) {
                ("ctx", Content::Hash(hash)) => drop(partition.contexts.insert(id, hash)),
                ("task", Content::Hash(hash)) => drop(partition.tasks.insert(id, hash)),
                ("turn", Content::Hash(hash)) => drop(partition.turns.insert(id, (hash, *expires))),
                ("ev", Content::Stream(stream)) => drop(partition.journals.insert(id, stream)),
                ("hist", Content::List(list)) => drop(partition.histories.insert(id, list)),
                ("wait", Content::List(list)) => drop(partition.lines.insert(id, list)),
                ("turns", Content::Stream(_)) if id == "dead" => {}
                ("turns", Content::Stream(stream)) => drop(partition.queues.insert(name.to_owned(), stream)),
                ("due" | "retain" | "idx" | "q" | "waiting" | "suspended" | "storages", Content::Scores(scores)) => {
                    partition.scores.insert(name.to_owned(), scores);
                }
                ("meta", Content::Hash(_)) | ("sess", Content::List(_)) => {}
                other => panic!("{key} is no key of ours: {other:?}"),
            }
        }
        partition
    }

    fn members(&self, key: &str) -> BTreeSet<String> {
        self.scores
            .get(key)
            .map(|scores| scores.keys().cloned().collect())
            .unwrap_or_default()
    }
}

fn get<'a>(hash: &'a Hash, field: &str) -> &'a str {
    hash.get(field).map_or("", String::as_str)
}

/// Checks everything. `taken_away` are contexts whose queue entry the test itself removed.
pub fn hold(dump: &Dump, prefix: &str, taken_away: &BTreeSet<String>, memory: &mut Memory) {
    let partition = Partition::read(dump, prefix);
    live_turns_are_due(&partition);
    limits_count_live_turns(&partition);
    nothing_is_leased_twice(&partition);
    turns_wait_exactly_once(&partition, taken_away);
    turns_wait_where_their_workspace_is(&partition);
    lines_are_in_order(&partition);
    suspended_turns_are_held_by_nobody(&partition);
    for (id, task) in &partition.tasks {
        journal_is_whole(&partition, id, task);
        task_is_consistent(&partition, id, task);
    }
    indexes_hold_the_tasks(&partition);
    ended_turns_are_forgotten(&partition);
    terminal_tasks_stay(&partition, memory);
}

/// No orphan: the contexts with a live turn are the members of `due`.
fn live_turns_are_due(partition: &Partition) {
    let live = partition.contexts.iter().filter(|(_, c)| !get(c, "turn").is_empty());
    let live: BTreeSet<String> = live.map(|(key, _)| key.clone()).collect();
    assert_eq!(partition.members("due"), live, "`due` is not the live contexts");
    for (key, context) in &partition.contexts {
        let idle = get(context, "turn").is_empty();
        let retained = partition.members("retain").contains(&format!("c:{key}"));
        assert_eq!(retained, idle, "context {key}: retained only while it is idle");
        if idle {
            for field in ["tok", "cancel", "at"] {
                assert_eq!(get(context, field), "", "context {key}: {field} outlived its turn");
            }
        }
    }
}

/// What a scope's limit counts is what lives: a counter that leaked would shut the scope out for ever.
fn limits_count_live_turns(partition: &Partition) {
    let mut counted = BTreeSet::new();
    for key in partition.scores.keys().filter(|key| key.starts_with("q:")) {
        counted.extend(partition.members(key));
    }
    let limited = partition.turns.iter().filter(|(_, (turn, _))| turn.contains_key("s"));
    let limited: BTreeSet<String> = limited.map(|(id, _)| id.clone()).collect();
    assert_eq!(counted, limited, "the limits count other turns than those that live");
}

/// No turn is live in two contexts, no token is good for two, and what is leased is not delayed.
fn nothing_is_leased_twice(partition: &Partition) {
    for field in ["turn", "tok"] {
        let all: Vec<&str> = partition
            .contexts
            .values()
            .map(|c| get(c, field))
            .filter(|v| !v.is_empty())
            .collect();
        let unique: BTreeSet<&&str> = all.iter().collect();
        assert_eq!(all.len(), unique.len(), "{field} twice: {all:?}");
    }
    for (key, context) in &partition.contexts {
        assert!(
            get(context, "tok").is_empty() || get(context, "at").is_empty(),
            "context {key} is leased and delayed"
        );
    }
}

/// The entry of a live turn exists once: undelivered while it waits, pending while it is leased, nowhere while it is delayed.
fn turns_wait_exactly_once(partition: &Partition, taken_away: &BTreeSet<String>) {
    let mut entries: BTreeMap<&str, Vec<(&str, &str, bool)>> = BTreeMap::new();
    for (queue, stream) in &partition.queues {
        for (id, fields) in &stream.entries {
            let pending = stream.groups.values().any(|g| g.pending.iter().any(|(p, _)| p == id));
            entries.entry(&fields["t"]).or_default().push((queue, id, pending));
        }
        for group in stream.groups.values() {
            for (pending, _) in &group.pending {
                let exists = stream.entries.iter().any(|(id, _)| id == pending);
                assert!(exists, "{queue}: {pending} is pending and gone");
            }
        }
    }
    for (key, context) in partition.contexts.iter().filter(|(_, c)| !get(c, "turn").is_empty()) {
        let turn = get(context, "turn");
        let (record, expires) = &partition.turns[turn];
        assert!(
            !expires && !get(record, "r").is_empty(),
            "the live turn {turn} has no record"
        );
        let found = entries.remove(turn).unwrap_or_default();
        if !get(context, "at").is_empty() {
            assert!(
                found.is_empty() && get(record, "e").is_empty(),
                "{turn} is delayed and queued"
            );
        } else if taken_away.contains(key) {
            assert!(found.is_empty(), "{turn}: the test took its entry away");
        } else {
            let leased = !get(context, "tok").is_empty();
            let expected = [(get(record, "q"), get(record, "e"), leased)];
            assert_eq!(found, expected, "{turn} does not wait exactly once");
        }
    }
    assert!(entries.is_empty(), "entries that stand for no live turn: {entries:?}");
}

/// What waits for a worker waits for one that has its context's storage, if that is bound to one; and the janitor knows of every such
/// queue.
fn turns_wait_where_their_workspace_is(partition: &Partition) {
    let storage_of = |queue: &str| {
        queue
            .split(':')
            .nth(1)
            .and_then(|takers| takers.split_once('@'))
            .map(|(_, s)| s.to_owned())
    };
    for (key, context) in &partition.contexts {
        let live = partition.turns.get(get(context, "turn"));
        let queue = live.map_or("", |(record, _)| get(record, "q"));
        // A turn that runs has bound its context since it was queued, perhaps.
        if !queue.is_empty() && get(context, "tok").is_empty() {
            let needs = live.is_some_and(|(record, _)| record.contains_key("ws"));
            let storage = context.get("sto").filter(|_| needs);
            assert_eq!(storage_of(queue), storage.cloned(), "context {key} waits in {queue}");
        }
    }
    let known = partition.members("storages");
    for (queue, stream) in &partition.queues {
        let takers = queue.split(':').nth(1).unwrap_or_default();
        if takers.contains('@') && !stream.entries.is_empty() {
            assert!(known.contains(takers), "nobody looks at {queue}");
        }
    }
}

/// Whether the live turn of a context waits for its user.
fn is_suspended(context: &Hash) -> bool {
    get(context, "at").starts_with('s')
}

/// What waits for its user is counted, is its context's live turn, and waits in an interrupted state, in which its answer finds it.
fn suspended_turns_are_held_by_nobody(partition: &Partition) {
    let suspended: Vec<&Hash> = partition.contexts.values().filter(|c| is_suspended(c)).collect();
    let turns: BTreeSet<String> = suspended.iter().map(|c| get(c, "turn").to_owned()).collect();
    assert_eq!(
        partition.members("suspended"),
        turns,
        "the count of what is suspended is wrong"
    );
    for context in suspended {
        let turn = get(context, "turn");
        assert_eq!(get(context, "tok"), "", "{turn} is suspended and leased");
        let (record, _) = &partition.turns[turn];
        let facts = ["q", "begun", "opened", "slen"].map(|field| get(record, field));
        assert_eq!(facts, ["", "", "0", ""], "{turn} does not go on from its suspension");
        let task = &partition.tasks[get(record, "k")];
        assert_eq!([get(task, "live"), get(task, "k")], [turn, "i"], "the task of {turn}");
        assert!(
            matches!(get(task, "state"), "INPUT_REQUIRED" | "AUTH_REQUIRED"),
            "the task of {turn}"
        );
        assert_eq!(get(task, "snapc"), get(task, "last"), "{turn}: what was said is void");
    }
}

/// Turns wait only behind a live one, each in one line, in the order of their acceptance, and none of them has run.
fn lines_are_in_order(partition: &Partition) {
    let mut all = BTreeSet::new();
    let empty = Hash::new();
    let accepted = partition.scores.get("waiting").unwrap_or(&empty);
    for (key, line) in &partition.lines {
        let context = &partition.contexts[key];
        assert_ne!(get(context, "turn"), "", "context {key}: turns wait for nothing");
        assert!(partition.members("due").contains(key), "context {key}: nobody looks");
        assert!(line.len() <= 16, "context {key}: {} wait", line.len());
        let times: Vec<u64> = line.iter().map(|turn| accepted[turn].parse().unwrap()).collect();
        assert!(times.is_sorted(), "context {key}: not in the order of acceptance");
        for turn in line {
            assert_ne!(get(context, "turn"), turn, "{turn} is live and waits");
            assert!(all.insert(turn.clone()), "{turn} waits twice");
            let (record, expires) = &partition.turns[turn];
            assert!(
                !expires && !get(record, "r").is_empty(),
                "the waiting turn {turn} has no record"
            );
            for field in ["e", "begun", "opened", "since"] {
                assert_eq!(get(record, field), "", "{turn} waits and has {field}");
            }
            let task = &partition.tasks[get(record, "k")];
            let facts = ["live", "state", "n"].map(|field| get(task, field));
            assert_eq!(facts, [turn.as_str(), "SUBMITTED", "1"], "the task of {turn}");
        }
    }
    for (key, context) in &partition.contexts {
        let waits = context.get("w").map(String::as_str);
        let expected = partition.lines.contains_key(key).then_some("1");
        assert_eq!(waits, expected, "context {key} is wrong about whether turns wait");
    }
    assert_eq!(partition.members("waiting"), all, "the count of what waits is wrong");
}

/// The journal is dense, and its end is where the task says.
fn journal_is_whole(partition: &Partition, id: &str, task: &Hash) {
    let Some(journal) = partition.journals.get(id) else {
        assert_eq!(get(task, "k"), "t", "task {id} goes on without a journal");
        return;
    };
    let ids: Vec<EntryId> = journal.entries.iter().map(|(id, _)| id.parse().unwrap()).collect();
    for pair in ids.windows(2) {
        assert_eq!(pair[1].seq, pair[0].seq + 1, "task {id}: a hole in its journal");
    }
    assert_eq!(ids.last().unwrap().to_string(), get(task, "last"), "task {id}");
    assert_eq!(journal.last, get(task, "last"), "task {id}");
    let kind = &journal.entries.last().unwrap().1["k"];
    let (number, class) = kind.split_once('.').unwrap();
    assert_eq!(number, get(task, "n"), "task {id}: the last entry is of another turn");
    let ended = matches!(class, "i" | "t");
    let context = partition.contexts.get(get(task, "ctx"));
    let suspended = context.is_some_and(|c| is_suspended(c) && get(c, "turn") == get(task, "live"));
    assert_eq!(ended, get(task, "live").is_empty() || suspended, "task {id}: {kind}");
    if ended {
        assert_eq!(class, get(task, "k"), "task {id}");
    }
    // No turn goes on after its end; an interrupted one may still be closed.
    let mut over = BTreeMap::new();
    for (_, fields) in &journal.entries {
        let (number, class) = fields["k"].split_once('.').unwrap();
        let before = over.get(number).copied();
        let closes = before == Some("i") && class == "t";
        assert!(
            before.is_none() || closes,
            "task {id}: turn {number} went on after its end"
        );
        if matches!(class, "i" | "t") {
            over.insert(number, class);
        }
    }
}

fn task_is_consistent(partition: &Partition, id: &str, task: &Hash) {
    let live = get(task, "live");
    let context = partition.contexts.get(get(task, "ctx"));
    let retained = partition.members("retain").contains(&format!("t:{id}"));
    if live.is_empty() {
        assert!(retained, "task {id} will never be deleted");
        assert_eq!(
            get(task, "snapc"),
            get(task, "last"),
            "task {id}: its result is not its snapshot"
        );
        assert!(!task.contains_key("base"), "task {id}: a base without a turn");
        assert_ne!(get(task, "k"), "n");
    } else {
        assert!(!retained, "task {id} would be deleted while it runs");
        let waits = partition
            .lines
            .get(get(task, "ctx"))
            .is_some_and(|line| line.iter().any(|turn| turn == live));
        let holds = context.filter(|c| get(c, "turn") == live);
        assert!(waits || holds.is_some(), "task {id}");
        let class = if holds.is_some_and(is_suspended) { "i" } else { "n" };
        assert_eq!(get(task, "k"), class);
    }
}

fn indexes_hold_the_tasks(partition: &Partition) {
    let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (id, task) in &partition.tasks {
        let (scope, state) = (get(task, "scope"), get(task, "state"));
        let indexes = [
            format!("idx:{scope}"),
            format!("idx:{scope}:{state}"),
            format!("idx:ctx:{}", get(task, "ctx")),
        ];
        if task.contains_key("hid") {
            // Nobody sees it: it is in none of them.
            continue;
        }
        let scores: BTreeSet<Option<&String>> = indexes
            .iter()
            .map(|index| partition.scores.get(index).and_then(|scores| scores.get(id)))
            .collect();
        let status_time = BTreeSet::from([task.get("up")]);
        assert_eq!(scores, status_time, "task {id}: it is not listed by its status time");
        for index in indexes {
            expected.entry(index).or_default().insert(id.clone());
        }
    }
    let found = partition.scores.keys().filter(|key| key.starts_with("idx:"));
    let found: BTreeMap<String, BTreeSet<String>> = found.map(|key| (key.clone(), partition.members(key))).collect();
    assert_eq!(found, expected, "the indexes do not hold the tasks");
    for (key, id) in partition
        .histories
        .keys()
        .map(|id| ("hist", id))
        .chain(partition.journals.keys().map(|id| ("ev", id)))
    {
        assert!(partition.tasks.contains_key(id), "{key}:{id} outlived its task");
    }
}

/// What is left of an ended turn answers repeats, and Redis forgets it.
fn ended_turns_are_forgotten(partition: &Partition) {
    let mut live: BTreeSet<&str> = partition.contexts.values().map(|c| get(c, "turn")).collect();
    live.extend(partition.lines.values().flatten().map(String::as_str));
    for (id, (turn, expires)) in partition.turns.iter().filter(|(id, _)| !live.contains(id.as_str())) {
        let fields: Vec<&str> = turn.keys().map(String::as_str).collect();
        assert_eq!(
            (fields.as_slice(), *expires),
            (["f", "n"].as_slice(), true),
            "turn {id}"
        );
    }
}

/// Terminal states absorb.
fn terminal_tasks_stay(partition: &Partition, memory: &mut Memory) {
    let history = |id: &str| partition.histories.get(id).cloned().unwrap_or_default();
    memory.terminal.retain(|id, _| partition.tasks.contains_key(id));
    for (id, (task, messages)) in &memory.terminal {
        assert_eq!(&partition.tasks[id], task, "task {id} changed after its end");
        assert_eq!(&history(id), messages, "task {id} got messages after its end");
    }
    for (id, task) in partition.tasks.iter().filter(|(_, t)| get(t, "k") == "t") {
        memory
            .terminal
            .entry(id.clone())
            .or_insert_with(|| (task.clone(), history(id)));
    }
}
