//! One call of every kind that a script knows, with the Redis it was sent to: what `twice.rs` and `injected.rs` replay.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use redis::Value;
use relevo_shared::domain::due::Charge;
use relevo_shared::domain::event;
use relevo_shared::domain::fold::Folded;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{ContextKey, EntryId, Epoch, LeaseToken, Nonce, OwnerKey, Partition};
use relevo_shared::janitor::{Conclusion, Why, cancel_idle, conclude, give_back, withdraw};
use relevo_shared::store::{Batch, Held, Keep, LeaseClient, Open, Refused, Reservation, SessionItems, Use};

use crate::fixture::{Running, TTL, World, is_done, token, worker};
use crate::probe::{Dump, Probe, Saved, list, text};
use crate::record::{Call, Recorder, text_of};

/// The scenes whose outcome depends on what PUBLISH answers.
pub const HEARD: &str = "an answer without a task";
pub const UNHEARD: &str = "an answer that nobody hears";

/// A call and what it found.
pub struct Scene {
    pub name: &'static str,
    pub call: Call,
    before: Saved,
    now: u64,
}

/// What a run of a script did.
pub struct Run {
    /// `ok`, or `error` when the script was broken off.
    pub outcome: String,
    /// What it answered; the text of the error.
    pub answer: Value,
    /// `call` or `pcall`, the command, its first argument; in order.
    pub calls: Vec<(String, String, String)>,
    /// Which of the [`places`] of the script made them.
    pub made_at: BTreeSet<usize>,
    pub after: Dump,
}

impl Run {
    pub fn tag(&self) -> String {
        text(&list(&self.answer)[0])
    }
}

/// How a call is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Not at all.
    Never,
    /// The script ends before its n-th command.
    Before(usize),
    /// The n-th command answers an error, as `pcall` hands it on.
    Fails(usize),
}

impl Scene {
    /// Puts Redis where the call found it.
    pub fn set(&self, probe: &Probe) {
        probe.restore(&self.before);
    }

    /// Sends the call, broken or not, with a clock that stands still, so that two runs can be compared.
    pub fn run(&self, probe: &Probe, broken: Break) -> Run {
        self.run_with(probe, broken, &self.call)
    }

    pub fn run_with(&self, probe: &Probe, broken: Break, call: &Call) -> Run {
        let reply = call.send_text(probe, &shimmed(call.script, self.now, broken));
        let reply = list(&reply);
        let mut made_at = BTreeSet::new();
        let calls = list(&reply[2]).iter().map(|line| {
            let line = text(line);
            let mut words = line.split(' ').map(str::to_owned);
            let mut next = || words.next().unwrap_or_default();
            made_at.insert(next().parse().unwrap());
            (next(), next(), next())
        });
        let calls = calls.collect();
        Run {
            outcome: text(&reply[0]),
            answer: reply[1].clone(),
            calls,
            made_at,
            after: probe.dump(),
        }
    }
}

/// How a script begins a command, read to the word that says which way errors go.
const COMMAND: [&str; 2] = ["redis.call(", "redis.pcall("];

/// The places of an assembled script that send a command: the line, for people.
pub fn places(script: &str) -> Vec<String> {
    let code = |line: &&str| !line.trim_start().starts_with("--");
    let assembled = text_of(script).assembled();
    let lines = assembled.lines().filter(code).flat_map(|line| {
        let count: usize = COMMAND.iter().map(|command| line.matches(command).count()).sum();
        std::iter::repeat_n(line.trim().to_owned(), count)
    });
    lines.collect()
}

/// The script with every command counted, Redis time frozen, and the break built in.
fn shimmed(script: &str, now: u64, broken: Break) -> String {
    let assembled = text_of(script).assembled();
    let (first, body) = assembled.split_once('\n').unwrap();
    let (before, fails) = match broken {
        Break::Never => (0, 0),
        Break::Before(n) => (n, 0),
        Break::Fails(n) => (0, n),
    };
    let mut text = format!("{first}\nlocal before, fails, ms = {before}, {fails}, '{now}'\n");
    text.push_str(SHIM);
    text.push_str("local function main()\n");
    let mut place = 0;
    for line in body.lines().filter(|line| !line.trim_start().starts_with("--")) {
        // Each command is told from where it is sent.
        let mut pieces = line.split("redis.");
        text.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            if piece.starts_with("call(") || piece.starts_with("pcall(") {
                write!(text, "command_at({place}).{piece}").unwrap();
                place += 1;
            } else {
                write!(text, "redis.{piece}").unwrap();
            }
        }
        text.push('\n');
    }
    text.push_str("end\n");
    text.push_str("local ok, answer = pcall(main)\n");
    text.push_str("if not ok then answer = type(answer) == 'table' and answer.err or tostring(answer) end\n");
    text.push_str("return { ok and 'ok' or 'error', answer, trace }\n");
    text
}

const SHIM: &str = r"
local step, trace = 0, {}
local function counted(how, place)
  return function(...)
    local words = { ... }
    step = step + 1
    trace[step] = place .. ' ' .. how .. ' ' .. words[1] .. ' ' .. tostring(words[2])
    if step == before then
      error('injected')
    elseif step == fails then
      return { err = 'ERR injected' }
    end
    if words[1] == 'TIME' then
      return { string.sub(ms, 1, -4), string.sub(ms, -3) .. '000' }
    end
    for i = 3, words[1] == 'XADD' and #words or 0 do
      if words[i] == '*' then
        words[i] = ms .. '-*'
        break
      end
    end
    return redis[how](unpack(words))
  end
end
local function command_at(place)
  return { call = counted('call', place), pcall = counted('pcall', place) }
end
";

/// The partition of everything here.
const ONLY: Partition = Partition(0);
const DRAINED: Why = Why::HandOver(FailReason::WorkerDrained);

/// Builds the scenes, one after the other in one Redis.
struct Stage<'a> {
    world: &'a World,
    recorder: Recorder,
    before: Saved,
    now: u64,
    scenes: Vec<Scene>,
}

impl Stage<'_> {
    fn empty(&self) {
        self.world.probe.ask(&["FLUSHALL"]);
    }

    /// What follows is the call.
    fn ready(&mut self) {
        self.recorder.calls(&self.world.probe);
        self.before = self.world.probe.save();
        self.now = self.world.probe.now();
    }

    /// The last call of `script` since [`Stage::ready`] is a scene.
    fn done(&mut self, name: &'static str, script: &str) -> &mut Call {
        let calls = self.recorder.calls(&self.world.probe);
        let call = calls.into_iter().rfind(|call| call.script == script).unwrap();
        self.scenes.push(Scene {
            name,
            call,
            before: std::mem::take(&mut self.before),
            now: self.now,
        });
        self.empty();
        &mut self.scenes.last_mut().unwrap().call
    }

    async fn begun(&self, context: &str) -> Running {
        let mut turn = self.world.running(context).await;
        turn.emit(&self.world.store, &["one "]).await;
        turn
    }

    async fn back(&self, turn: &Running, why: Why) {
        let (taken, keep) = (&turn.taken, Keep::default());
        give_back(&self.world.store, ONLY, &taken.context, &taken.token, why, &keep)
            .await
            .unwrap();
    }

    /// A second attempt; the first had kept a snapshot or not.
    async fn second_attempt(&self, snapshot: bool) -> Running {
        let mut turn = self.world.running("c-1").await;
        if snapshot {
            turn.emit_with_snapshot(&self.world.store, &["void"]).await;
        } else {
            turn.emit(&self.world.store, &["void"]).await;
        }
        self.back(&turn, Why::Crash).await;
        self.world.again(&turn.taken.record).await
    }

    async fn objects(&mut self) {
        let world = self.world;
        let ended = world.ended("c-1", End::Completed).await.taken.record.task;
        self.ready();
        world.store.note_objects(ended, None).await.unwrap();
        self.done("a task that is about to have objects", "objects");

        let owner = OwnerKey::of("somebody");
        let ended = world.ended("c-1", End::Completed).await.taken.record.task;
        self.ready();
        world.store.note_objects(ended, Some(&owner)).await.unwrap();
        self.done("a task that is about to have objects that are counted", "objects");

        let ended = world.ended("c-1", End::Completed).await.taken.record.task;
        let gone = world.record("c-2").await.task;
        for task in [ended, gone] {
            world.store.note_objects(task, Some(&owner)).await.unwrap();
            world
                .probe
                .set_score(&world.store.keys().objects(ONLY), &task.to_string(), 1);
        }
        self.ready();
        world.store.gone_with_objects(ONLY, 10).await.unwrap();
        self.done("a task that is gone, and one that is not", "objects");

        let gone = world.record("c-2").await.task;
        world.store.note_objects(gone, Some(&owner)).await.unwrap();
        self.ready();
        world.store.objects_deleted(gone, 1).await.unwrap();
        self.done("objects that may be there again", "objects");

        let gone = world.record("c-2").await.task;
        world.store.note_objects(gone, Some(&owner)).await.unwrap();
        world
            .probe
            .set_score(&world.store.keys().objects(ONLY), &gone.to_string(), 1);
        let claimed = world.store.gone_with_objects(ONLY, 10).await.unwrap();
        self.ready();
        world.store.objects_deleted(gone, claimed.claim).await.unwrap();
        self.done("objects that are deleted", "objects");
    }

    async fn used(&mut self) {
        let world = self.world;
        let owner = OwnerKey::of("somebody");
        let (one, other) = (world.record("c-1").await.task, world.record("c-2").await.task);
        let wanted = |task, bytes| Use {
            owner: &owner,
            task,
            bytes,
            most: 100,
            epoch: Epoch(5),
        };
        for (name, before) in [
            ("the first bytes of a principal", 0),
            ("more bytes of a task", 1),
            ("other bytes", 2),
        ] {
            for task in [one, other].iter().take(before) {
                world.store.use_bytes(&wanted(*task, 30)).await.unwrap();
            }
            self.ready();
            world.store.use_bytes(&wanted(one, 40)).await.unwrap();
            self.done(name, "used");
        }
        for (name, tasks) in [
            ("nothing to give back", 0),
            ("the last bytes of a principal", 1),
            ("bytes of one task", 2),
        ] {
            for task in [one, other].iter().take(tasks) {
                world.store.use_bytes(&wanted(*task, 30)).await.unwrap();
            }
            self.ready();
            world.store.free_bytes(&owner, one).await.unwrap();
            self.done(name, "used");
        }
    }

    /// Sends two session items, with these texts.
    async fn remember(&self, turn: &Running, texts: &[&str]) {
        let (open, events) = if texts.is_empty() {
            (Open::No, Vec::new())
        } else {
            turn.events(texts)
        };
        let session = SessionItems {
            expect: 0,
            items: vec![b"1".to_vec(), b"2".to_vec()],
        };
        let batch = Batch {
            session: Some(&session),
            ..turn.batch(Nonce(7), open, &events)
        };
        assert!(is_done(&self.world.store.emit(&batch).await.unwrap()));
    }

    async fn submits(&mut self) {
        let world = self.world;
        let record = world.record("c-1").await;
        self.ready();
        world.queue(&record).await;
        self.done("a new task in a new context", "submit");

        world.ended("c-1", End::Completed).await;
        let record = world.record("c-1").await;
        self.ready();
        world.queue(&record).await;
        self.done("a new task in a known context", "submit");

        let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
        self.ready();
        world.follow_up(task, "c-1").await;
        self.done("a follow-up", "submit");

        let record = world.record("c-1").await;
        self.ready();
        world.submit_limited(&record, Nonce(1), None, &[], Some(2)).await;
        self.done("a new task under a limit", "submit");

        world.queued("c-1").await;
        let record = world.patient("c-1").await;
        self.ready();
        world.queue(&record).await;
        self.done("a turn behind another", "submit");

        self.begun("c-1").await;
        world.waiting_limited("c-1", Some(9)).await;
        world.waiting("c-1").await;
        self.instead().await;
        self.done("a turn that interrupts one that runs and two that wait", "submit");

        world.queued("c-1").await;
        self.instead().await;
        self.done("a turn that interrupts one that nobody holds", "submit");

        let record = world.record("c-1").await;
        self.ready();
        let event = event::refused(&record, FailReason::ContextBusy, record.submitted);
        let state = Folded::new_task(&record);
        let refused = Refused {
            record: &record,
            event: &event,
            state: &state,
            nonce: Nonce(1),
            keep_ms: 1_000,
        };
        world.store.refuse(&refused).await.unwrap();
        self.done("a refused message", "refuse");

        let key = world.store.place_key(&record.scope(), "key");
        let reservation = reservation(&record);
        self.ready();
        world
            .store
            .reserve(&key, "digest", &reservation, 1_000_000)
            .await
            .unwrap();
        self.done("a key", "reserve");
    }

    async fn instead(&mut self) {
        let record = self.world.patient("c-1").await;
        let found = self.world.found(&record).await;
        self.ready();
        self.world.submit_instead(&record, Nonce(1), &found).await;
    }

    async fn waits(&mut self) {
        let world = self.world;
        let turn = self.begun("c-1").await;
        world.waiting("c-1").await;
        self.ready();
        turn.finish(&world.store, End::Completed).await;
        self.done("an end that a turn waits for", "finish");

        let turn = self.begun("c-1").await;
        world.waiting("c-1").await;
        world.waiting("c-1").await;
        self.ready();
        turn.finish(&world.store, End::InputRequired).await;
        self.done("an end that two turns wait for", "finish");

        let record = world.queued("c-1").await;
        world.waiting("c-1").await;
        self.ready();
        self.conclude(&record, End::Canceled, None, false).await;
        self.done("the cancel of a queued turn that another waits for", "settle_end");

        let record = world.queued("c-1").await;
        world.waiting("c-1").await;
        world.probe.set(&world.context_key(&record), "turn", "");
        let view = world.view(&record).await;
        self.ready();
        world.store.settle_due(&view, 0).await.unwrap();
        self.done("a context that has lost its live turn", "settle_due");

        let record = world.queued("c-1").await;
        world.waiting("c-1").await;
        world.probe.set(&world.context_key(&record), "turn", "");
        self.ready();
        world.waiting("c-1").await;
        self.done("a message for a context that has lost its live turn", "submit");

        world.queued("c-1").await;
        let record = world.waiting("c-1").await;
        self.ready();
        let context = world.context(&record);
        world
            .store
            .request_cancel(ONLY, &context, record.turn, Nonce(1))
            .await
            .unwrap();
        self.done("a turn that waits", "cancel");

        world.queued("c-1").await;
        let record = world.waiting_limited("c-1", Some(9)).await;
        self.ready();
        withdraw(&world.store, &context, record.turn, &Keep::default())
            .await
            .unwrap();
        self.done("the only turn that waits, under a limit", "withdraw");

        world.queued("c-1").await;
        let record = world.waiting("c-1").await;
        world.waiting("c-1").await;
        self.ready();
        withdraw(&world.store, &context, record.turn, &Keep::default())
            .await
            .unwrap();
        self.done("a turn that waits before another", "withdraw");
    }

    async fn takes(&mut self) {
        let world = self.world;
        world.ended("c-0", End::Completed).await;
        world.queued("c-1").await;
        self.ready();
        world.take(ONLY).await;
        self.done("a turn", "take");

        let last = TurnRecord {
            attempts: 2,
            ..world.record("last").await
        };
        let mut last = world.run(&last).await;
        last.emit(&world.store, &["x"]).await;
        let first = self.begun("first").await;
        self.back(&last, Why::Crash).await;
        self.back(&first, DRAINED).await;
        world.queued("new").await;
        for suffix in [":first", ":last"] {
            let queue = world.store.keys().queue(ONLY, "default", suffix);
            world.probe.ask(&["XGROUP", "CREATE", &queue, "workers", "0"]);
        }
        self.ready();
        world.take_as(&world.worker, ONLY, TTL, 5).await;
        self.done("turns of all three queues", "take");

        let turn = self.begun("first").await;
        self.back(&turn, DRAINED).await;
        let [main, first] = ["", ":first"].map(|suffix| world.store.keys().queue(ONLY, "default", suffix));
        world.probe.ask(&["DEL", &main]);
        world.probe.ask(&["XADD", &first, "*", "t", "nobody", "x", "nowhere"]);
        self.ready();
        world.take_as(&world.worker, ONLY, TTL, 5).await;
        self.done("a turn, an entry that stands for none, a queue that is missing", "take");

        world.queued("c-1").await;
        self.ready();
        world.take(ONLY).await;
        self.done("the first turn ever", "take");

        world.queued("c-1").await;
        let meta = world.store.keys().meta(ONLY);
        world.probe.ask(&["HSET", &meta, "side:default", "1"]);
        self.ready();
        world.take(ONLY).await;
        self.done("a turn, and none in the queues that were said to have some", "take");

        world.queued("c-1").await;
        world.queued("c-2").await;
        let tokens = [token(), token()];
        world.take_with(&world.worker, ONLY, TTL, &tokens, false).await;
        self.ready();
        world.take_with(&world.worker, ONLY, TTL, &tokens, true).await;
        self.done("a repeat", "take");
    }

    async fn emits(&mut self) {
        let world = self.world;
        let mut turn = world.running("c-1").await;
        self.ready();
        turn.emit(&world.store, &["one ", "two "]).await;
        self.done("the first batch", "emit");

        let mut turn = self.begun("c-1").await;
        self.ready();
        turn.emit(&world.store, &["two ", "three "]).await;
        self.done("a later batch", "emit");

        let mut turn = self.begun("c-1").await;
        self.ready();
        turn.emit_with_snapshot(&world.store, &["two "]).await;
        self.done("the first batch with a snapshot", "emit");

        let turn = self.begun("c-1").await;
        self.ready();
        self.remember(&turn, &[]).await;
        self.done("session items without events", "emit");

        let turn = self.second_attempt(true).await;
        self.ready();
        self.remember(&turn, &["one "]).await;
        self.done("a boundary with session items", "emit");

        let mut turn = self.second_attempt(true).await;
        self.ready();
        turn.emit(&world.store, &["one "]).await;
        self.done("a boundary behind a snapshot", "emit");

        let mut turn = self.second_attempt(false).await;
        self.ready();
        turn.emit_with_snapshot(&world.store, &["one "]).await;
        self.done("a boundary with the first snapshot", "emit");
    }

    /// A second attempt of a turn that began with a session.
    async fn second_attempt_with_session(&self) -> Running {
        let mut turn = self.world.running("c-1").await;
        self.remember(&turn, &["one "]).await;
        turn.prev = self.world.stored(turn.taken.record.task).await.last;
        turn.opened = true;
        assert!(is_done(&turn.finish(&self.world.store, End::InputRequired).await));
        let (record, _) = self.world.follow_up(turn.taken.record.task, "c-1").await;
        let turn = self.world.again(&record).await;
        self.back(&self.begun_again(turn).await, Why::Crash).await;
        self.world.again(&record).await
    }

    async fn begun_again(&self, mut turn: Running) -> Running {
        turn.emit(&self.world.store, &["void"]).await;
        turn
    }

    /// What was sent and answered before.
    async fn repeats(&mut self) {
        let world = self.world;
        let turn = self.begun("c-1").await;
        let (open, events) = turn.events(&["two "]);
        let batch = turn.batch(Nonce(7), open, &events);
        assert!(is_done(&world.store.emit(&batch).await.unwrap()));
        self.ready();
        world.store.emit(&batch).await.unwrap();
        self.done("a repeat", "emit");

        let turn = self.begun("c-1").await;
        turn.finish_as(&world.store, End::Completed, Nonce(7), None).await;
        self.ready();
        turn.finish_as(&world.store, End::Completed, Nonce(7), None).await;
        self.done("a repeat", "finish");

        let turn = self.second_attempt_with_session().await;
        self.ready();
        self.begun_again(turn).await;
        self.done("a boundary behind a session", "emit");

        let turn = self.second_attempt_with_session().await;
        self.ready();
        turn.finish(&world.store, End::Completed).await;
        self.done("an end that is a boundary behind a session", "finish");

        let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
        let stored = world.stored(task).await;
        self.ready();
        cancel_idle(&world.store, &stored, &Keep::default()).await.unwrap();
        let mut again = self
            .done("the cancel of a task that has something to say", "close")
            .clone();
        let call = &mut self.scenes.last_mut().unwrap().call;
        // A message for the history.
        call.args.splice(9..10, ["1".to_owned(), "{}".to_owned()]);
        again.args.clone_from(&call.args);
        self.scenes.last().unwrap().set(&world.probe);
        again.send(&world.probe);
        self.ready();
        again.send(&world.probe);
        self.keep("a repeat", again);
    }

    async fn finishes(&mut self) {
        let world = self.world;
        let turn = self.begun("c-1").await;
        self.ready();
        turn.finish(&world.store, End::Completed).await;
        self.done("an end", "finish");

        let record = world.record("c-1").await;
        world.submit_limited(&record, Nonce(1), None, &[], Some(2)).await;
        let turn = world.again(&record).await;
        self.ready();
        turn.finish(&world.store, End::InputRequired).await;
        self.done("an end in the first batch, under a limit", "finish");

        let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
        let (record, _) = world.follow_up(task, "c-1").await;
        let mut turn = world.again(&record).await;
        turn.emit_with_snapshot(&world.store, &["two "]).await;
        let trim = EntryId { seq: 3, nonce: 0 };
        self.ready();
        turn.finish_as(&world.store, End::Completed, Nonce(9), Some(trim)).await;
        self.done("the end of a later turn, with history and trim", "finish");

        let turn = self.begun("c-1").await;
        let taken = &turn.taken;
        world
            .store
            .request_cancel(ONLY, &taken.context, taken.record.turn, Nonce(1))
            .await
            .unwrap();
        self.ready();
        turn.finish(&world.store, End::Canceled).await;
        self.done("the end of a cancelled turn", "finish");

        let turn = self.second_attempt(true).await;
        self.ready();
        turn.finish(&world.store, End::Failed).await;
        self.done("an end that is a boundary too", "finish");
    }

    async fn leases(&mut self) {
        let world = self.world;
        let held = [self.begun("c-1").await, self.begun("c-2").await].map(|turn| held(&turn));
        let mut all = held.to_vec();
        all.push(Held {
            context: ContextKey::from_text("nobody"),
            token: LeaseToken::from_text("x"),
            turn: held[0].turn,
        });
        self.ready();
        let mut client = LeaseClient::new(world.store.clone());
        let renewed = tokio::task::spawn_blocking(move || client.renew(ONLY, 2 * TTL, &all)).await;
        assert_eq!(renewed.unwrap().unwrap().lost.len(), 1);
        self.done("two leases and a lost one", "renew");

        let turn = self.begun("c-1").await;
        let taken = &turn.taken;
        self.ready();
        world
            .store
            .request_cancel(ONLY, &taken.context, taken.record.turn, Nonce(1))
            .await
            .unwrap();
        self.done("a leased turn", "cancel");

        let turn = self.begun("c-1").await;
        self.ready();
        world.store.bind_workspace(&turn.taken, b"/a", None).await.unwrap();
        self.done("a first workspace", "bind");

        let turn = self.begun("c-1").await;
        self.ready();
        world.bind(&turn, "disk").await;
        self.done("a first workspace on a storage", "bind");
    }

    async fn storages(&mut self) {
        let world = self.world;
        world.bound("c-1", "disk").await;
        let record = world.record("c-1").await;
        self.ready();
        world.queue(&record).await;
        self.done("a turn for a storage", "submit");

        let record = world.bound("c-1", "disk").await;
        let (next, _) = world.follow_up(record.task, "c-1").await;
        self.ready();
        world.again_on(&next, "disk").await;
        self.done("a turn of a storage", "take");

        // As a process of before queues it.
        let record = world.queued("c-1").await;
        world.probe.set(&world.context_key(&record), "sto", "disk");
        self.ready();
        assert!(world.take(ONLY).await.is_empty());
        self.done("a turn for others", "take");

        let turn = self.begun("c-1").await;
        world.bind(&turn, "disk").await;
        world.waiting("c-1").await;
        self.ready();
        turn.finish(&world.store, End::Completed).await;
        self.done("an end that begins a turn for a storage", "finish");

        let turn = self.begun("c-1").await;
        world.bind(&turn, "disk").await;
        world.waiting("c-1").await;
        self.ready();
        self.conclude(&turn.taken.record, End::Failed, None, false).await;
        self.done("another end that begins a turn for a storage", "settle_end");

        let turn = self.begun("c-1").await;
        world.bind(&turn, "disk").await;
        world.waiting("c-1").await;
        let context = world.context_key(&turn.taken.record);
        for field in ["turn", "tok"] {
            world.probe.set(&context, field, "");
        }
        let view = world.view(&turn.taken.record).await;
        self.ready();
        world.store.settle_due(&view, 0).await.unwrap();
        self.done("a bound context that has lost its live turn", "settle_due");

        let turn = self.begun("c-1").await;
        world.bind(&turn, "disk").await;
        self.ready();
        self.back(&turn, DRAINED).await;
        self.done("a hand-back to a storage", "settle_requeue");

        let turn = self.begun("c-1").await;
        world.bind(&turn, "disk").await;
        turn.suspend(&world.store).await;
        self.ready();
        world.answer(&turn.taken.record).await;
        self.done("an answer for a storage", "answer");

        for busy in [true, false] {
            let record = world.bound("c-1", "disk").await;
            let (next, _) = world.follow_up(record.task, "c-1").await;
            if !busy {
                world.cancel_unheld(&next).await;
            }
            self.ready();
            world.sweep(ONLY).await;
            let name = if busy {
                "a storage with turns"
            } else {
                "a storage without"
            };
            self.done(name, "sweep");
        }

        self.ready();
        world.store.ring("default@disk", ONLY, 5).await.unwrap();
        self.done("the bell of a storage", "ring");
    }

    async fn suspends(&mut self) {
        let world = self.world;
        let turn = self.begun("c-1").await;
        self.ready();
        turn.suspend(&world.store).await;
        self.done("a turn that waits for its user", "suspend");

        let record = world.suspended("c-1").await;
        self.ready();
        world.answer(&record).await;
        self.done("an answer", "answer");

        // Behind a snapshot, and with a session that is not as long as it was.
        let turn = self.second_attempt(true).await;
        let trim = EntryId { seq: 2, nonce: 0 };
        self.ready();
        turn.suspend_as(&world.store, End::AuthRequired, Nonce(9), Some(trim))
            .await;
        self.done("a suspension that is a boundary too, with trim", "suspend");

        let turn = self.second_attempt_with_session().await;
        self.ready();
        turn.suspend(&world.store).await;
        self.done("a suspension that is a boundary behind a session", "suspend");

        let turn = world.run(&world.unseen("c-1").await).await;
        self.ready();
        turn.suspend(&world.store).await;
        self.done("a task that nobody saw and that waits for its user", "suspend");

        let mut turn = self.begun("c-1").await;
        turn.suspend(&world.store).await;
        world.answer(&turn.taken.record).await;
        turn = world.again(&turn.taken.record).await;
        turn.emit_with_snapshot(&world.store, &["went on "]).await;
        self.ready();
        turn.suspend_as(&world.store, End::InputRequired, Nonce(7), None).await;
        self.done("a second suspension", "suspend");

        let turn = self.begun("c-1").await;
        turn.suspend_as(&world.store, End::InputRequired, Nonce(7), None).await;
        world.answer(&turn.taken.record).await;
        self.ready();
        turn.suspend_as(&world.store, End::InputRequired, Nonce(7), None).await;
        self.done("a repeat after the answer", "suspend");

        let record = world.suspended("c-1").await;
        self.ready();
        self.conclude(&record, End::Canceled, None, false).await;
        self.done("the cancel of a suspended turn", "settle_end");
    }

    async fn unseen(&mut self) {
        let world = self.world;
        let record = world.unseen("c-1").await;
        self.ready();
        world.queue(&record).await;
        self.done("a task that nobody sees", "submit");

        let record = world.unseen("c-1").await;
        world.queue(&record).await;
        self.ready();
        world.store.show_task(record.task, false).await.unwrap();
        self.done("a task that nobody saw", "show");

        let turn = world.run(&world.unseen("c-1").await).await;
        world.hear(turn.taken.record.task).await;
        self.ready();
        turn.answer(&world.store).await;
        self.done(HEARD, "finish");
        self.ready();
        world.store.show_task(turn.taken.record.task, true).await.unwrap();
        self.done("an answer that reached nobody", "show");

        let turn = world.run(&world.unseen("c-1").await).await;
        self.ready();
        turn.answer(&world.store).await;
        self.done(UNHEARD, "finish");

        let turn = world.run(&world.unseen("c-1").await).await;
        self.ready();
        turn.finish(&world.store, End::Failed).await;
        self.done("an end of a task that nobody saw", "finish");

        let record = world.unseen("c-1").await;
        world.queue(&record).await;
        self.ready();
        self.conclude(&record, End::Canceled, None, false).await;
        self.done("an end of a task that nobody saw, without a worker", "settle_end");

        let running = world.running("c-1").await;
        let record = TurnRecord {
            busy: BusyPolicy::Queue,
            ..world.unseen("c-1").await
        };
        world.queue(&record).await;
        self.ready();
        let context = running.taken.context.clone();
        withdraw(&world.store, &context, record.turn, &Keep::default())
            .await
            .unwrap();
        self.done("a task that nobody saw, of a turn that waits", "withdraw");

        world.queued("c-1").await;
        let record = TurnRecord {
            busy: BusyPolicy::Queue,
            ..world.unseen("c-1").await
        };
        world.queue(&record).await;
        self.instead().await;
        self.done("what takes the place of a task that nobody saw", "submit");
    }

    async fn settles(&mut self) {
        let world = self.world;
        let turn = self.begun("c-1").await;
        self.ready();
        self.back(&turn, DRAINED).await;
        self.done("a hand-back", "settle_requeue");

        let turn = self.begun("c-1").await;
        world.sweep(ONLY).await;
        world.expire(&turn.taken.record);
        let view = world.view(&turn.taken.record).await;
        self.ready();
        world
            .store
            .settle_requeue(&view, true, Charge::Attempt, true, 0)
            .await
            .unwrap();
        self.done("a crash", "settle_requeue");

        let turn = self.begun("c-1").await;
        let view = world.view(&turn.taken.record).await;
        self.ready();
        world
            .store
            .settle_requeue(&view, false, Charge::Handback, false, view.now + 100)
            .await
            .unwrap();
        self.done("a hand-back that waits", "settle_requeue");

        let record = world.queued("c-1").await;
        self.ready();
        self.conclude(&record, End::Canceled, None, false).await;
        self.done("the cancel of a queued turn", "settle_end");

        let record = world.record("c-1").await;
        world.submit_limited(&record, Nonce(1), None, &[], Some(2)).await;
        self.ready();
        self.conclude(&record, End::Canceled, None, false).await;
        let call = self.done("the cancel of a queued turn under a limit, with trim", "settle_end");
        "2-0".clone_into(&mut call.args[15]);

        let turn = self.begun("c-1").await;
        world.sweep(ONLY).await;
        world.expire(&turn.taken.record);
        self.ready();
        self.conclude(
            &turn.taken.record,
            End::Failed,
            Some(FailReason::AttemptsExhausted),
            true,
        )
        .await;
        self.done("the end of a turn that crashed too often", "settle_end");

        let record = TurnRecord {
            policy: CrashPolicy::Fail,
            ..world.record("c-1").await
        };
        let mut turn = world.run(&record).await;
        turn.emit_with_snapshot(&world.store, &["x"]).await;
        self.ready();
        self.back(&turn, DRAINED).await;
        self.done("a hand-back of what must not run twice", "settle_end");

        let record = world.queued("c-1").await;
        let view = world.view(&record).await;
        self.ready();
        world.store.settle_due(&view, view.now + 7).await.unwrap();
        self.done("a later look", "settle_due");

        let record = world.ended("c-1", End::Completed).await.taken.record;
        let due = world.store.keys().due(ONLY);
        world.probe.ask(&["ZADD", &due, "1", world.context(&record).as_str()]);
        let view = world.view(&record).await;
        self.ready();
        world.store.settle_due(&view, 0).await.unwrap();
        self.done("a context without a turn", "settle_due");

        let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
        let stored = world.stored(task).await;
        self.ready();
        cancel_idle(&world.store, &stored, &Keep::default()).await.unwrap();
        self.done("the cancel of a task without a turn", "close");
    }

    async fn conclude(&self, record: &TurnRecord, end: End, reason: Option<FailReason>, expired: bool) {
        let view = self.world.view(record).await;
        let conclusion = Conclusion {
            end,
            reason,
            dead: reason.is_some(),
            only_expired: expired,
        };
        conclude(&self.world.store, &view, conclusion, &Keep::default())
            .await
            .unwrap();
    }

    async fn upkeep(&mut self) {
        let world = self.world;
        let meta = world.store.keys().meta(ONLY);
        world.queued("c-1").await;
        self.ready();
        world.sweep(ONLY).await;
        self.done("the first look", "sweep");

        let turn = self.begun("first").await;
        self.back(&turn, DRAINED).await;
        world.probe.ask(&["HDEL", &meta, "side:default"]);
        self.ready();
        world.sweep(ONLY).await;
        self.done("a turn that was handed back, which nobody has noted", "sweep");

        world.ended("c-1", End::Completed).await;
        world.queued("c-2").await;
        world
            .probe
            .ask(&["HSET", &meta, "run", "another", "grace", "0", "swept", "0"]);
        let gone = worker("w-gone");
        let taken = world.take_as(&gone, ONLY, TTL, 1).await.pop().unwrap();
        Running::new(taken).finish(&world.store, End::Completed).await;
        self.ready();
        world.sweep(ONLY).await;
        // No patience with consumers, so that it forgets some.
        let call = self.done("a look after a restart", "sweep");
        "0".clone_into(&mut call.args[2]);

        for (name, prefix) in [("a task", 't'), ("a context that has tasks", 'c'), ("a journal", 'j')] {
            let ended = world.ended("c-1", End::Completed).await.taken.record;
            let member = match prefix {
                'c' => format!("c:{}", world.context(&ended)),
                _ => format!("{prefix}:{}", ended.task),
            };
            self.purge(&member).await;
            self.done(name, "purge");
        }
        let idle = world.ended("c-1", End::InputRequired).await.taken.record;
        self.purge(&format!("j:{}", idle.task)).await;
        self.done("a journal that goes on", "purge");

        let ended = world.ended("c-1", End::Completed).await.taken.record;
        self.purge(&format!("t:{}", ended.task)).await;
        self.purge(&format!("c:{}", world.context(&ended))).await;
        self.done("a context", "purge");

        let live = world.queued("c-1").await;
        self.purge(&format!("t:{}", live.task)).await;
        self.done("a task with a turn", "purge");

        let live = world.queued("c-1").await;
        self.purge(&format!("c:{}", world.context(&live))).await;
        self.done("a context with a turn", "purge");

        let lost = world.queued("c-1").await;
        world.waiting("c-1").await;
        world.probe.set(&world.context_key(&lost), "turn", "");
        self.purge(&format!("c:{}", world.context(&lost))).await;
        self.done("a context that has lost its live turn", "purge");

        let mut turn = world.running("c-1").await;
        self.remember(&turn, &["one "]).await;
        turn.prev = world.stored(turn.taken.record.task).await.last;
        turn.opened = true;
        assert!(is_done(&turn.finish(&world.store, End::Completed).await));
        self.purge(&format!("t:{}", turn.taken.record.task)).await;
        self.purge(&format!("c:{}", world.context(&turn.taken.record))).await;
        self.done("a context with a session", "purge");

        let ended = world.ended("c-1", End::Completed).await.taken.record;
        let member = format!("t:{}", ended.task);
        world
            .probe
            .ask(&["ZADD", &world.store.keys().retain(ONLY), "1", &member]);
        self.ready();
        world.store.put_off_member(ONLY, &member).await.unwrap();
        self.done("a member that cannot be deleted", "put_off");

        self.objects().await;
        self.used().await;

        self.ready();
        crate::fixture::layout(world).await;
        self.done("a new layout", "layout");

        let bell = world.store.keys().bell("default");
        self.ready();
        let call = Call {
            script: "ring",
            key: bell,
            args: vec!["3".to_owned(), "5".to_owned()],
        };
        self.keep("a bell", call);
    }

    /// A call that the store does not send by itself is a scene.
    fn keep(&mut self, name: &'static str, call: Call) {
        self.scenes.push(Scene {
            name,
            call,
            before: std::mem::take(&mut self.before),
            now: self.now,
        });
        self.empty();
    }

    async fn purge(&mut self, member: &str) {
        let retain = self.world.store.keys().retain(ONLY);
        self.world.probe.ask(&["ZADD", &retain, "1", member]);
        self.ready();
        self.world.store.purge(ONLY, member, &Keep::default()).await.unwrap();
    }
}

/// What a key would stand for.
pub fn reservation(record: &TurnRecord) -> Reservation {
    Reservation {
        task: record.task,
        turn: record.turn,
        context_id: record.context_id.clone(),
    }
}

fn held(turn: &Running) -> Held {
    Held {
        context: turn.taken.context.clone(),
        token: turn.taken.token.clone(),
        turn: turn.taken.record.turn,
    }
}

/// Every scene. They are all of one partition, in this Redis.
pub async fn all(world: &World) -> Vec<Scene> {
    let mut stage = Stage {
        world,
        recorder: Recorder::start(&world.redis, &world.probe),
        before: Saved::default(),
        now: 0,
        scenes: Vec::new(),
    };
    stage.empty();
    stage.submits().await;
    stage.takes().await;
    Box::pin(stage.emits()).await;
    Box::pin(stage.finishes()).await;
    Box::pin(stage.repeats()).await;
    Box::pin(stage.waits()).await;
    stage.leases().await;
    Box::pin(stage.storages()).await;
    Box::pin(stage.suspends()).await;
    Box::pin(stage.unseen()).await;
    Box::pin(stage.settles()).await;
    stage.upkeep().await;
    stage.scenes
}
