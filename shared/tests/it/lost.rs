//! Unknown outcomes. A proxy lets a script call through and loses its reply, once at each call of some long histories that
//! together call every script. Whoever asked asks again, and what is stored in the end is what is stored without any loss.

use std::collections::BTreeSet;
use std::time::Duration;

use prometheus::Registry;
use relevo_shared::domain::event;
use relevo_shared::domain::fold::Folded;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, Epoch, LeaseToken, Nonce, OwnerKey, Partition, TaskId};
use relevo_shared::janitor::{Why, cancel_idle, end_interrupted, give_back, interrupt, withdraw};
use relevo_shared::store::{
    Batch, ConnectOptions, EmitReply, Finish, Held, HistoryLength, Interrupt, Keep, LeaseClient, Refused, Retry,
    SCRIPTS, Store, StoreError, StoreMetrics, Submit, Submitted, Taken, Use, Used,
};
use relevo_testkit::FaultProxy;

use crate::fixture::{Answered, Running, TTL, World, disk, options, take, token};
use crate::record::Recorder;
use crate::scenes::reservation;

const ONLY: Partition = Partition(0);
/// More often than any call fails here.
const TRIES: usize = 20;

/// Asks until the outcome is known, as gateways, workers and janitors do.
async fn until_known<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    for _ in 0..TRIES {
        match ask().await {
            Err(error) if error.retry() == Retry::Later => {}
            answer => return answer.unwrap(),
        }
    }
    panic!("the outcome stays unknown")
}

/// A gateway, a worker and a janitor that reach Redis through the proxy. What they choose is the same every time.
struct Story<'a> {
    world: &'a World,
    store: Store,
    nonces: u64,
}

impl<'a> Story<'a> {
    async fn begin(world: &'a World, url: &str) -> Self {
        let options = ConnectOptions {
            partitions: 1,
            pool_size: 1,
            timeout: Duration::from_secs(30),
            ..options(url)
        };
        let connect = async || Store::connect(&options, StoreMetrics::register(&Registry::new()).unwrap()).await;
        let store = until_known(connect).await;
        Self {
            world,
            store,
            nonces: 0,
        }
    }

    fn nonce(&mut self) -> Nonce {
        self.nonces += 1;
        Nonce(self.nonces)
    }

    async fn submit(&mut self, record: &TurnRecord, follows: Option<EntryId>) -> Submitted {
        self.submit_instead(record, follows, None).await
    }

    async fn submit_instead(
        &mut self,
        record: &TurnRecord,
        follows: Option<EntryId>,
        interrupt: Option<&Interrupt>,
    ) -> Submitted {
        let (nonce, first) = (self.nonce(), event::submitted(record, record.submitted));
        let history = [record.message.clone()];
        let submit = Submit {
            record,
            first: &first,
            nonce,
            scope_limit: Some(5),
            follows,
            history: if follows.is_some() { &history } else { &[] },
            interrupt,
        };
        until_known(async || self.store.submit(&submit).await).await
    }

    async fn new_turn(&mut self, context: &str) -> TurnRecord {
        let record = TurnRecord {
            attempts: 2,
            ..self.world.record(context).await
        };
        assert!(matches!(self.submit(&record, None).await, Submitted::Accepted { .. }));
        record
    }

    /// A repeat says that it is one.
    async fn take(&self) -> Running {
        self.take_for("default").await
    }

    async fn take_for(&self, takers: &str) -> Running {
        let tokens = [token()];
        let mut repeat = false;
        let mut turns: Vec<Taken> = until_known(async || {
            let wanted = relevo_shared::store::Take {
                repeat: std::mem::replace(&mut repeat, true),
                takers,
                ..take(ONLY, &self.world.worker, &tokens)
            };
            Ok(self.store.take(&wanted).await?.turns)
        })
        .await;
        Running::new(turns.pop().unwrap())
    }

    async fn emit(&mut self, turn: &mut Running, text: &str, keep: bool) -> EmitReply {
        let nonce = self.nonce();
        let (open, events) = turn.events(&[text]);
        let mut after = turn.clone();
        after.fold_in(&events, nonce);
        let snapshot = keep.then(|| serde_json::to_vec(after.fold.state()).unwrap());
        let batch = Batch {
            snapshot: snapshot.as_deref(),
            ..turn.batch(nonce, open, &events)
        };
        let reply = until_known(async || self.store.emit(&batch).await).await;
        if let EmitReply::Done { last, .. } = reply {
            (after.prev, after.opened) = (last, true);
            *turn = after;
        }
        reply
    }

    async fn finish(&mut self, turn: &Running, end: End) -> EmitReply {
        let nonce = self.nonce();
        let (events, open, snapshot, history) = turn.ending(end, nonce);
        let finish = Finish {
            end,
            snapshot: &snapshot,
            history: &history,
            trim_below: None,
            keep: &Keep::default(),
            remember_ms: 0,
            direct: false,
            queued: &turn.taken.queued,
        };
        let batch = Batch {
            state: end.state(),
            ..turn.batch(nonce, open, &events)
        };
        until_known(async || self.store.finish(&batch, &finish).await).await
    }

    async fn renew(&self, turn: &Running) {
        let held = [Held {
            context: turn.taken.context.clone(),
            token: turn.taken.token.clone(),
            turn: turn.taken.record.turn,
        }];
        let mut client = LeaseClient::new(self.store.clone());
        let renewed = tokio::task::spawn_blocking(move || {
            let mut known = (0..TRIES).filter_map(|_| client.renew(ONLY, TTL, &held).ok());
            known.next().unwrap()
        });
        assert_eq!(renewed.await.unwrap().lost, Vec::<LeaseToken>::new());
    }

    async fn give_back(&self, turn: &Running, why: Why) {
        let (taken, keep) = (&turn.taken, Keep::default());
        until_known(async || give_back(&self.store, ONLY, &taken.context, &taken.token, why, &keep).await).await;
    }

    async fn cancel(&mut self, record: &TurnRecord) {
        let (nonce, context) = (self.nonce(), self.world.context(record));
        until_known(async || self.store.request_cancel(ONLY, &context, record.turn, nonce).await).await;
    }

    async fn look_at(&self, record: &TurnRecord) {
        let janitor = World::janitor_of(self.store.clone(), Keep::default());
        let context = self.world.context(record);
        until_known(async || janitor.look_at(ONLY, &context).await).await;
    }

    async fn purge(&self, member: &str) {
        let retain = self.store.keys().retain(ONLY);
        self.world.probe.set_score(&retain, member, 1);
        until_known(async || self.store.put_off_member(ONLY, member).await).await;
        self.world.probe.set_score(&retain, member, 1);
        until_known(async || self.store.purge(ONLY, member, &Keep::default()).await).await;
    }

    /// Whoever asks again after a lost reply waits until its claim has run out.
    async fn objects(&self, task: TaskId) {
        let objects = self.store.keys().objects(ONLY);
        let claimed = until_known(async || {
            self.world.probe.set_score(&objects, &task.to_string(), 1);
            self.store.gone_with_objects(ONLY, 10).await
        })
        .await;
        let owner = OwnerKey::of("somebody");
        assert_eq!(claimed.tasks, [(task, Some(owner.clone()))]);
        assert_eq!(until_known(async || self.store.free_bytes(&owner, task).await).await, 0);
        assert!(until_known(async || self.store.objects_deleted(task, claimed.claim).await).await);
    }

    /// One turn: it is sent under a key, handed over, crashes, ends; another follows it.
    async fn turns(&mut self) {
        let record = self.world.record("c-1").await;
        let key = self.store.place_key(&record.scope(), "key");
        let reservation = reservation(&record);
        until_known(async || self.store.reserve(&key, "digest", &reservation, 1_000_000).await).await;
        self.submit(&record, None).await;
        let mut turn = self.take().await;
        let taken = &turn.taken;
        until_known(async || self.store.bind_workspace(taken, b"/a", None).await).await;
        until_known(async || self.store.show_task(record.task, false).await).await;
        self.emit(&mut turn, "one ", false).await;
        self.emit(&mut turn, "two ", true).await;
        self.renew(&turn).await;
        self.give_back(&turn, Why::HandOver(FailReason::WorkerDrained)).await;
        let mut turn = self.take().await;
        self.emit(&mut turn, "three ", true).await;
        self.give_back(&turn, Why::Crash).await;
        let mut turn = self.take().await;
        self.emit(&mut turn, "four ", false).await;
        self.finish(&turn, End::InputRequired).await;

        let next = self.world.next_record(record.task, "c-1").await;
        let task = record.task;
        let stored = until_known(async || self.store.read_task(task, HistoryLength::All).await).await;
        self.submit(&next, Some(stored.unwrap().last)).await;
        let turn = self.take().await;
        self.finish(&turn, End::Completed).await;
    }

    /// A context whose workspace is on a storage: its turns come back there, wait for it, follow there.
    async fn storages(&mut self) {
        let (disk, takers) = (disk("disk"), "default@disk");
        let record = self.new_turn("c-1").await;
        let mut turn = self.take().await;
        self.emit(&mut turn, "one ", false).await;
        let taken = &turn.taken;
        until_known(async || self.store.bind_workspace(taken, b"/a", Some(&disk)).await).await;
        self.give_back(&turn, Why::HandOver(FailReason::WorkerDrained)).await;
        let mut turn = self.take_for(takers).await;
        self.emit(&mut turn, "two ", false).await;
        let waits = self.waiting_turn(BusyPolicy::Queue).await;
        self.finish(&turn, End::Completed).await;
        let turn = self.take_for(takers).await;
        assert_eq!(turn.taken.record.turn, waits.turn);
        self.finish(&turn, End::InputRequired).await;
        self.new_turn("c-1").await;
        let turn = self.take_for(takers).await;
        self.finish(&turn, End::Completed).await;
        // One that was queued by a process that knows of no storages.
        let moved = self.new_turn("c-2").await;
        self.world.probe.set(&self.world.context_key(&moved), "sto", "disk");
        let tokens = [token()];
        let wanted = take(ONLY, &self.world.worker, &tokens);
        let taken = until_known(async || self.store.take(&wanted).await).await;
        assert!(taken.turns.is_empty());
        let turn = self.take_for(takers).await;
        self.finish(&turn, End::Completed).await;
        assert_eq!(
            self.world.context(&record).as_str(),
            self.world.context(&waits).as_str()
        );
    }

    /// Turns that are cancelled while they run, wait, or are over.
    async fn cancels(&mut self) {
        let record = self.new_turn("c-1").await;
        let mut turn = self.take().await;
        self.emit(&mut turn, "one ", false).await;
        self.cancel(&record).await;
        assert_eq!(self.emit(&mut turn, "two ", false).await, EmitReply::Canceled);
        self.finish(&turn, End::Canceled).await;

        let record = self.new_turn("c-2").await;
        let mut turn = self.take().await;
        self.emit(&mut turn, "one ", false).await;
        self.cancel(&record).await;
        self.world.expire(&record);
        self.look_at(&record).await;

        let record = self.new_turn("c-3").await;
        let turn = self.take().await;
        self.finish(&turn, End::InputRequired).await;
        let stored = self.world.stored(record.task).await;
        until_known(async || cancel_idle(&self.store, &stored, &Keep::default()).await).await;
        self.cancel(&record).await;
    }

    async fn waiting_turn(&mut self, busy: BusyPolicy) -> TurnRecord {
        let record = TurnRecord {
            busy,
            ..self.world.record("c-1").await
        };
        let context = self.world.context(&record);
        let find = async || interrupt(&self.store, ONLY, &context, &Keep::default()).await;
        let found = match busy {
            BusyPolicy::Interrupt => until_known(find).await,
            BusyPolicy::Queue | BusyPolicy::Reject => None,
        };
        let submitted = self.submit_instead(&record, None, found.as_ref()).await;
        assert!(
            matches!(submitted, Submitted::Accepted { place: 1.., .. }),
            "{submitted:?}"
        );
        if let Some(found) = found {
            let end = async || end_interrupted(&self.store, ONLY, &context, found.live, &Keep::default()).await;
            until_known(end).await;
        }
        record
    }

    /// Turns that wait: one begins when the one before ends, one is withdrawn, others make room for what interrupts them.
    async fn waits(&mut self) {
        self.new_turn("c-1").await;
        self.waiting_turn(BusyPolicy::Queue).await;
        let second = self.waiting_turn(BusyPolicy::Queue).await;
        let turn = self.take().await;
        self.cancel(&second).await;
        let context = self.world.context(&second);
        until_known(async || withdraw(&self.store, &context, second.turn, &Keep::default()).await).await;
        self.finish(&turn, End::Completed).await;

        let mut turn = self.take().await;
        self.emit(&mut turn, "one ", false).await;
        self.waiting_turn(BusyPolicy::Queue).await;
        self.waiting_turn(BusyPolicy::Queue).await;
        self.waiting_turn(BusyPolicy::Interrupt).await;
        assert_eq!(self.emit(&mut turn, "two ", false).await, EmitReply::Canceled);
        self.finish(&turn, End::Canceled).await;

        // The one that interrupted is queued now, and interrupted as well.
        let last = self.waiting_turn(BusyPolicy::Interrupt).await;
        let turn = self.take().await;
        assert_eq!(turn.taken.record.turn, last.turn);
        self.waiting_turn(BusyPolicy::Queue).await;
        self.world.expire(&last);
        self.look_at(&last).await;
        self.world.probe.set(&self.world.context_key(&last), "turn", "");
        self.look_at(&last).await;
    }

    /// A turn that asks its user twice; one that is cancelled while it asks.
    async fn suspends(&mut self) {
        let record = self.new_turn("c-1").await;
        for text in ["one ", "two "] {
            let mut turn = self.take().await;
            self.emit(&mut turn, text, true).await;
            let nonce = self.nonce();
            until_known(async || turn.try_suspend(&self.store, End::InputRequired, nonce, None).await).await;
            let (live, stored) = (self.world.live(&record).await, self.world.stored(record.task).await);
            let answer = Answered::new(stored, &live, live.record.submitted, self.nonce());
            let submitted = until_known(async || self.store.answer(&answer.answering()).await).await;
            assert!(matches!(submitted, Submitted::Accepted { .. }), "{submitted:?}");
        }
        let turn = self.take().await;
        self.finish(&turn, End::Completed).await;

        let record = self.new_turn("c-1").await;
        let turn = self.take().await;
        let nonce = self.nonce();
        until_known(async || turn.try_suspend(&self.store, End::AuthRequired, nonce, None).await).await;
        self.cancel(&record).await;
        self.world.probe.set(&self.world.context_key(&record), "at", "s1");
        self.look_at(&record).await;
    }

    /// What the janitor does, and what is refused.
    async fn upkeep(&mut self) {
        let meta = self.store.keys().meta(ONLY);
        self.world.probe.ask(&["DEL", &meta]);
        until_known(async || self.store.sweep(ONLY, TTL, 100, false, &["default".to_owned()]).await).await;
        let record = TurnRecord {
            policy: CrashPolicy::Fail,
            ..self.world.record("c-1").await
        };
        self.submit(&record, None).await;
        self.look_at(&record).await;
        let refused = self.world.record("c-1").await;
        assert_eq!(self.submit(&refused, None).await, Submitted::Busy);
        let event = event::refused(&refused, FailReason::ContextBusy, refused.submitted);
        let (state, nonce) = (Folded::new_task(&refused), self.nonce());
        let refusal = Refused {
            record: &refused,
            event: &event,
            state: &state,
            nonce,
            keep_ms: 1_000_000,
        };
        until_known(async || self.store.refuse(&refusal).await).await;
        let mut turn = self.take().await;
        self.emit(&mut turn, "one ", false).await;
        self.world.expire(&record);
        self.look_at(&record).await;
        for member in [format!("j:{}", record.task), format!("t:{}", record.task)] {
            self.purge(&member).await;
        }
        let owner = OwnerKey::of("somebody");
        until_known(async || self.store.note_objects(refused.task, Some(&owner)).await).await;
        let wanted = Use {
            owner: &owner,
            task: refused.task,
            bytes: 7,
            most: 7,
            epoch: Epoch(1),
        };
        assert_eq!(
            until_known(async || self.store.use_bytes(&wanted).await).await,
            Used::Counted(7)
        );
        self.purge(&format!("t:{}", refused.task)).await;
        self.objects(refused.task).await;
        self.purge(&format!("c:{}", self.world.context(&record))).await;

        self.world.probe.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        until_known(async || self.store.ring("default", ONLY, 7).await).await;
        self.world.probe.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    }

    async fn tell(&mut self, chapter: Chapter) {
        match chapter {
            Chapter::Turns => Box::pin(self.turns()).await,
            Chapter::Cancels => Box::pin(self.cancels()).await,
            Chapter::Waits => Box::pin(self.waits()).await,
            Chapter::Suspends => Box::pin(self.suspends()).await,
            Chapter::Storages => Box::pin(self.storages()).await,
            Chapter::Upkeep => Box::pin(self.upkeep()).await,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Chapter {
    Turns,
    Cancels,
    Waits,
    Suspends,
    Storages,
    Upkeep,
}

/// A text without what differs from run to run: ids, tokens, times.
fn blur(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let hex = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let id = rest.bytes().take_while(|b| b.is_ascii_hexdigit() || *b == b'-').count();
        let time = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || b"-:.TZ".contains(b))
            .count();
        // A UUID, a token or the identity of a server, a time in words, Redis ms, in this order.
        let length = match (id, hex, time, digits) {
            (36, ..) => 36,
            (_, 32.., ..) => hex,
            (_, _, 20.., _) if rest[..time].ends_with('Z') => time,
            (.., 13..) => digits,
            _ => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        out.push('#');
        rest = &rest[length..];
    }
    out
}

/// Everything that Redis holds.
fn picture(world: &World) -> Vec<String> {
    let dump = world.probe.dump();
    let mut lines: Vec<String> = dump.iter().map(|entry| blur(&format!("{entry:?}"))).collect();
    lines.sort_unstable();
    lines
}

/// Tells a chapter without loss, then with the loss of the reply to each of its calls. Returns the scripts that it calls.
async fn loses_each_reply(chapter: Chapter) -> BTreeSet<&'static str> {
    let world = World::small().await;
    let proxy = FaultProxy::start(world.redis.upstream());
    let mut recorder = Recorder::start(&world.redis, &world.probe);
    let mut tell = async || {
        world.probe.ask(&["FLUSHALL"]);
        let mut story = Story::begin(&world, &proxy.url()).await;
        story.tell(chapter).await;
        drop(story);
        let calls = recorder.calls(&world.probe);
        let through: Vec<&str> = calls.iter().map(|call| call.script).collect();
        (picture(&world), through)
    };
    let (whole, scripts) = tell().await;
    let mut lost = 0;
    loop {
        proxy.lose_reply_after(b"EVALSHA", lost);
        let (after, _) = tell().await;
        if proxy.lost_replies() == lost as u64 {
            break;
        }
        lost += 1;
        assert_eq!(proxy.lost_replies(), lost as u64);
        assert_eq!(after, whole, "{chapter:?}: the reply to call {lost} was lost");
    }
    assert!(lost > 15, "{chapter:?} has {lost} calls");
    scripts.into_iter().collect()
}

#[tokio::test]
async fn a_lost_reply_to_any_call_of_a_turn_changes_nothing() {
    let mut called = BTreeSet::new();
    for chapter in [
        Chapter::Turns,
        Chapter::Cancels,
        Chapter::Waits,
        Chapter::Suspends,
        Chapter::Storages,
        Chapter::Upkeep,
    ] {
        called.extend(loses_each_reply(chapter).await);
    }
    let all: BTreeSet<&str> = SCRIPTS.iter().map(|script| script.name).collect();
    assert_eq!(called, all, "a story must call every script");
}
