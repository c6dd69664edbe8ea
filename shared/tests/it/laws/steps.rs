//! Everything that can happen, and what is compared at once.

use a2a::TaskState;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{LeaseToken, Nonce, TaskId, WorkerId};
use relevo_shared::janitor::{Conclusion, GivenBack, Why, cancel_idle, conclude, end_interrupted, give_back, withdraw};
use relevo_shared::platform::entropy;
use relevo_shared::store::{Asked, Batch, EmitReply, Held, Keep, LeaseClient, Settled, Submitted, Taken};

use super::met::Pair;
use super::model::{FIRST, Judged, LAST, Live, MAIN, Stage, Written};
use super::{ATTEMPTS, CONTEXTS, HANDBACKS, LIMIT, ONLY, Walk};
use crate::fixture::{Running, TTL, token, worker};

/// What a reply says.
fn judged(reply: &EmitReply) -> Judged {
    match reply {
        EmitReply::Done { repeat: false, .. } => Judged::Done,
        EmitReply::Fenced => Judged::Fenced,
        EmitReply::Diverged => Judged::Diverged,
        EmitReply::Canceled => Judged::Canceled,
        other => panic!("{other:?}"),
    }
}

impl Walk {
    pub async fn submit(&mut self) {
        let context = self.dice.below(3);
        let follow = self.model.latest[context].filter(|_| self.dice.below(3) > 0);
        let policy = self
            .dice
            .one_of(&[BusyPolicy::Reject, BusyPolicy::Queue, BusyPolicy::Queue]);
        let mut record = self.record(context, policy).await;
        let busy = self.model.live[context].is_some();
        let (submitted, expected) = match follow {
            None => {
                let nonce = Nonce(entropy::u64());
                let submitted = self.world.submit_limited(&record, nonce, None, &[], Some(LIMIT)).await;
                let expected = if busy && policy == BusyPolicy::Reject {
                    Some(Submitted::Busy)
                } else {
                    self.model.limited()
                };
                (submitted, expected)
            }
            Some(task) => {
                let stored = self.world.stored(task).await;
                record.task = task;
                record.new_task = false;
                let history: Vec<_> = stored
                    .folded
                    .status
                    .message
                    .into_iter()
                    .chain([record.message.clone()])
                    .collect();
                let nonce = Nonce(entropy::u64());
                let submitted = self
                    .world
                    .submit_limited(&record, nonce, Some(stored.last), &history, Some(LIMIT))
                    .await;
                let known = &self.model.tasks[&task];
                let works = self.model.turn_of(task).is_some();
                let expected = if known.terminal {
                    Some(Submitted::Terminal)
                } else if works {
                    Some(Submitted::Working)
                } else if busy {
                    Some(Submitted::Busy)
                } else {
                    self.model.limited()
                };
                (submitted, expected)
            }
        };
        self.tell(format!(
            "submit to {} (follow-up: {}, {policy:?}): {submitted:?}",
            CONTEXTS[context],
            follow.is_some()
        ));
        if let Some(expected) = expected {
            assert_eq!(submitted, expected);
            return;
        }
        let Submitted::Accepted {
            first,
            number,
            repeat: false,
            place,
            ..
        } = submitted
        else {
            panic!("{submitted:?}")
        };
        let behind = self.model.waiting[context].len() as u64 + 1;
        assert_eq!(place, if busy { behind } else { 0 });
        self.met.count_if(self.purged, Pair::PurgeThenSubmit);
        self.model.accept(context, record, first, number);
    }

    async fn record(&self, context: usize, busy: BusyPolicy) -> TurnRecord {
        TurnRecord {
            attempts: ATTEMPTS,
            handbacks: HANDBACKS,
            policy: if context == 2 {
                CrashPolicy::Fail
            } else {
                CrashPolicy::Restart
            },
            busy,
            ..self.world.record(CONTEXTS[context]).await
        }
    }

    /// A turn takes the place of everything in a context. Its gateway may die before it has ended what nobody holds.
    pub async fn interrupt(&mut self) {
        let context = self.dice.below(3);
        if self.model.live[context].is_none() {
            return;
        }
        let record = self.record(context, BusyPolicy::Interrupt).await;
        let found = self.world.found(&record).await;
        let nonce = Nonce(entropy::u64());
        let limit = Some(LIMIT);
        let submitted = self.world.submit_instead_limited(&record, nonce, &found, limit).await;
        self.tell(format!("interrupt {}: {submitted:?}", CONTEXTS[context]));
        if let Some(expected) = self.model.limited() {
            assert_eq!(submitted, expected);
            return;
        }
        let Submitted::Accepted {
            first,
            number,
            repeat: false,
            place: 1,
            ..
        } = submitted
        else {
            panic!("{submitted:?}")
        };
        for ended in self.model.waiting[context].clone() {
            self.model.withdraw(context, ended.turn);
        }
        let live = self.model.live[context].as_mut().unwrap();
        live.canceled = true;
        let held = live.lease.is_some();
        let suspended = matches!(
            self.model.live[context].as_ref().unwrap().stage,
            Stage::Suspended { .. }
        );
        self.met.count_if(suspended, Pair::SuspendThenInterrupt);
        self.model.accept(context, record, first, number);
        self.met.count(if held {
            Pair::InterruptOfLeased
        } else {
            Pair::InterruptOfUnheld
        });
        if self.dice.below(3) == 0 {
            let (key, keep) = (self.key(context), Keep::default());
            end_interrupted(&self.world.store, ONLY, &key, found.live, &keep)
                .await
                .unwrap();
            if !held {
                self.model.end(context, &TaskState::Canceled, None);
            }
        }
    }

    pub async fn submit_again(&mut self) {
        if self.model.accepted.is_empty() {
            return;
        }
        let n = self.dice.below(self.model.accepted.len());
        let (record, first, number) = self.model.accepted[n].clone();
        let again = self.world.submit(&record).await;
        self.tell(format!("submit {} again: {again:?}", record.turn));
        let over = !self.model.is_known(record.turn);
        self.met.count_if(over, Pair::EndThenSubmitAgain);
        let waits = self.model.waiting.iter().flatten().any(|w| w.turn == record.turn);
        self.met.count_if(waits, Pair::WaitThenSubmitAgain);
        assert!(
            matches!(again, Submitted::Accepted { first: f, number: n, repeat: true, .. } if (f, n) == (first, number))
        );
    }

    pub async fn take(&mut self) {
        let who: WorkerId = worker(self.dice.one_of(&["w-1", "w-2", "w-3"]));
        let n = self.dice.below(3) + 1;
        let tokens: Vec<LeaseToken> = (0..n).map(|_| token()).collect();
        let mut taken = self.world.take_with(&who, ONLY, TTL, &tokens, false).await;
        let mut expected: Vec<usize> = self.model.queues[LAST].pop_front().into_iter().collect();
        while expected.len() < n {
            let Some(next) = self.model.queues[FIRST]
                .pop_front()
                .or_else(|| self.model.queues[MAIN].pop_front())
            else {
                break;
            };
            expected.push(next);
        }
        let turns: Vec<_> = taken.iter().map(|t| t.record.turn).collect();
        let names: Vec<&str> = expected.iter().map(|c| CONTEXTS[*c]).collect();
        self.tell(format!("{who} takes up to {n}: {names:?}"));
        let wanted = expected
            .iter()
            .map(|c| self.model.live[*c].as_ref().unwrap().record.turn);
        assert_eq!(turns, wanted.collect::<Vec<_>>());
        if self.dice.below(3) == 0 && !expected.is_empty() {
            // The reply was lost, once or twice.
            taken = self.world.take_with(&who, ONLY, TTL, &tokens, true).await;
            if self.dice.below(2) == 0 {
                let again = self.world.take_with(&who, ONLY, TTL, &tokens, true).await;
                let leases = |taken: &[Taken]| -> Vec<_> { taken.iter().map(|t| (t.token.clone(), t.epoch)).collect() };
                assert_eq!(leases(&again), leases(&taken));
                self.met.count(Pair::TakeReplyLostTwice);
            }
            taken.sort_by_key(|t| turns.iter().position(|turn| *turn == t.record.turn));
        }
        assert_eq!(taken.len(), expected.len());
        for (context, taken) in expected.into_iter().zip(taken) {
            assert!(
                taken.epoch.0 > self.epochs[context],
                "the epoch of {context} did not rise"
            );
            self.epochs[context] = taken.epoch.0;
            let live = self.model.live[context].as_mut().unwrap();
            let tries = taken.tries;
            assert_eq!(
                (tries.charged, tries.handbacks, tries.opened),
                (live.charged, live.handbacks, live.opened)
            );
            assert_eq!(taken.canceled, live.canceled);
            self.met.count_if(live.canceled, Pair::InterruptThenTake);
            self.met.count_if(live.waited, Pair::WaitThenLive);
            live.stage = Stage::Leased { expired: false };
            live.lease = Some((taken.token.clone(), taken.epoch.0));
            self.held.push((context, Running::new(taken)));
        }
    }

    pub async fn emit(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let text = format!("{} ", self.dice.below(1_000));
        let snapshot = self.dice.below(3) == 0;
        let before = self.held[n].1.clone();
        let (open, events) = before.events(&[&text]);
        let nonce = Nonce(entropy::u64());
        let mut after = before.clone();
        after.fold_in(&events, nonce);
        let kept = serde_json::to_vec(after.fold.state()).unwrap();
        let batch = Batch {
            snapshot: snapshot.then_some(&kept),
            ..before.batch(nonce, open, &events)
        };
        let reply = self.world.store.emit(&batch).await.unwrap();
        self.tell(format!(
            "emit to {} (snapshot: {snapshot}): {reply:?}",
            CONTEXTS[context]
        ));
        let expected = self.model.judge(context, &before, None);
        assert_eq!(judged(&reply), expected);
        self.met_by_write(context, &before, expected);
        self.met.count_if(expected == Judged::Canceled, Pair::CancelThenBatch);
        let EmitReply::Done { last, .. } = reply else { return };
        if self.dice.below(4) == 0 {
            // The reply was lost, and so was that of the repeat.
            for _ in 0..2 {
                let again = self.world.store.emit(&batch).await.unwrap();
                assert!(matches!(again, EmitReply::Done { last: l, repeat: true, .. } if l == last));
            }
            self.met.count(Pair::BatchReplyLostTwice);
        }
        self.model.open(context, before.opened);
        let live = self.model.live[context].as_mut().unwrap();
        live.said.push_str(&text);
        let task = self.model.tasks.get_mut(&live.record.task).unwrap();
        task.entries += 1;
        task.state = TaskState::Working;
        after.prev = last;
        after.opened = true;
        let stored = self.world.stored(live.record.task).await;
        assert_eq!(&stored.folded, after.fold.state(), "read and folded differ");
        self.held[n].1 = after;
        self.model.written.push(Written {
            by: before,
            nonce,
            text,
            last,
        });
    }

    fn met_by_write(&mut self, context: usize, by: &Running, judged: Judged) {
        let expired = |live: &Live| live.stage == Stage::Leased { expired: true };
        let expired = self.model.live[context].as_ref().is_some_and(expired);
        let known = self.model.tasks.contains_key(&by.taken.record.task);
        match judged {
            Judged::Done => self.met.count_if(expired, Pair::ExpiredThenWritten),
            Judged::Diverged => self.met.count(Pair::TailLostThenWritten),
            Judged::Canceled => {}
            Judged::Fenced if self.lost_tokens.contains(&by.taken.token) => self.met.count(Pair::TailLostThenFenced),
            Judged::Fenced if !known => self.met.count(Pair::PurgeThenBatch),
            Judged::Fenced => self.met.count(Pair::RecoveredThenWritten),
        }
    }

    pub async fn emit_again(&mut self) {
        if self.model.written.is_empty() {
            return;
        }
        let n = self.dice.below(self.model.written.len());
        let Written { by, nonce, text, last } = self.model.written[n].clone();
        let (open, events) = by.events(&[&text]);
        let reply = self.world.store.emit(&by.batch(nonce, open, &events)).await.unwrap();
        let known = self.model.tasks.contains_key(&by.taken.record.task);
        self.tell(format!("emit {last} again: {reply:?}"));
        if known {
            let turn = by.taken.record.turn;
            let over = !self.model.live.iter().flatten().any(|live| live.record.turn == turn);
            self.met.count_if(over, Pair::EndThenBatchAgain);
            assert!(matches!(reply, EmitReply::Done { last: l, repeat: true, .. } if l == last));
        } else {
            assert_eq!(reply, EmitReply::Fenced);
        }
    }

    /// A batch that was acknowledged and lost is sent again.
    pub async fn emit_lost(&mut self) {
        if self.lost.is_empty() {
            return;
        }
        let n = self.dice.below(self.lost.len());
        let Written { by, nonce, text, .. } = self.lost[n].clone();
        let context = CONTEXTS
            .iter()
            .position(|name| *name == by.taken.record.context_id)
            .unwrap();
        let expected = self.model.judge(context, &by, None);
        if expected == Judged::Done {
            return; // as if it had never been sent
        }
        let (open, events) = by.events(&[&text]);
        let reply = self.world.store.emit(&by.batch(nonce, open, &events)).await.unwrap();
        self.tell(format!("emit a lost batch again: {reply:?}"));
        assert_eq!(judged(&reply), expected);
        self.met.count(Pair::TailLostThenSentAgain);
    }

    /// Redis comes back as it was a while ago. Workers know no better than before.
    pub async fn lose_tail_or_remember(&mut self) {
        let Some((saved, model, memory)) = self.saved.take() else {
            self.tell("redis has written everything to its disk");
            self.saved = Some((self.world.probe.save(), self.model.clone(), self.memory.clone()));
            return;
        };
        self.tell("redis crashes and has lost what came since");
        self.world.probe.restore(&saved);
        let before = std::mem::replace(&mut self.model, model);
        self.memory = memory;
        let kept = |written: &Written| self.model.written.iter().any(|kept| kept.last == written.last);
        self.lost = before.written.into_iter().filter(|written| !kept(written)).collect();
        let leases = before.live.iter().flatten().filter_map(|live| live.lease.clone());
        let known: Vec<LeaseToken> = self
            .model
            .live
            .iter()
            .flatten()
            .filter_map(|l| Some(l.lease.clone()?.0))
            .collect();
        self.lost_tokens = leases
            .map(|(token, _)| token)
            .filter(|token| !known.contains(token))
            .collect();
        // Another server, whose janitors wait before they judge any lease.
        let meta = self.world.store.keys().meta(ONLY);
        self.world.probe.set(&meta, "run", "another");
        assert!(self.world.sweep(ONLY).await.restarted);
        self.model.grace = true;
    }

    pub fn end_grace(&mut self) {
        let meta = self.world.store.keys().meta(ONLY);
        self.world.probe.set(&meta, "grace", 0);
        self.model.grace = false;
    }

    pub async fn finish(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let end = self.dice.one_of(&[
            End::Completed,
            End::InputRequired,
            End::InputRequired,
            End::Failed,
            End::Canceled,
            End::AuthRequired,
        ]);
        // Most workers do as they are told.
        let told = self.model.live[context].as_ref().is_some_and(|live| live.canceled);
        let end = if told && self.dice.below(2) == 0 {
            End::Canceled
        } else {
            end
        };
        let running = self.held[n].1.clone();
        let nonce = Nonce(entropy::u64());
        let reply = running.finish_as(&self.world.store, end, nonce, None).await;
        self.tell(format!("finish {} {end:?}: {reply:?}", CONTEXTS[context]));
        let expected = self.model.judge(context, &running, Some(end));
        assert_eq!(judged(&reply), expected);
        self.met_by_write(context, &running, expected);
        self.met
            .count_if(expected == Judged::Canceled, Pair::CancelThenOtherEnd);
        if expected != Judged::Done {
            return;
        }
        let live = self.model.live[context].as_ref().unwrap();
        self.met.count_if(live.canceled, Pair::CancelThenCanceled);
        self.met.count_if(live.handbacks > 0, Pair::HandBackThenEnd);
        self.met.count_if(live.charged > 0, Pair::CrashThenEnd);
        self.met.count_if(live.answers > 0, Pair::AnswerThenEnd);
        self.model.open(context, running.opened);
        self.model.end(context, &end.state(), None);
        for _ in 0..2 {
            let again = running.finish_as(&self.world.store, end, nonce, None).await;
            assert!(matches!(again, EmitReply::Done { repeat: true, .. }));
        }
        self.met.count(Pair::EndReplyLostTwice);
    }

    pub async fn suspend(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let end = self.dice.one_of(&[End::InputRequired, End::AuthRequired]);
        let running = self.held[n].1.clone();
        let nonce = Nonce(entropy::u64());
        let reply = running.suspend_as(&self.world.store, end, nonce, None).await;
        self.tell(format!("suspend {} {end:?}: {reply:?}", CONTEXTS[context]));
        let expected = self.model.judge(context, &running, Some(end));
        assert_eq!(judged(&reply), expected);
        self.met_by_write(context, &running, expected);
        self.met.count_if(expected == Judged::Canceled, Pair::CancelThenSuspend);
        if expected != Judged::Done {
            return;
        }
        let live = self.model.live[context].as_ref().unwrap();
        self.met.count_if(live.answers > 0, Pair::AnswerThenSuspend);
        self.model.open(context, running.opened);
        self.model.suspend(context, &end.state());
        for _ in 0..2 {
            let again = running.suspend_as(&self.world.store, end, nonce, None).await;
            assert!(matches!(again, EmitReply::Done { repeat: true, .. }));
        }
    }

    /// A suspended turn is answered; where none is, somebody sends an answer again that was taken before.
    pub async fn answer(&mut self) {
        let context = self.dice.below(3);
        let live = self.model.live[context].clone();
        let Some(live) = live.filter(|live| matches!(live.stage, Stage::Suspended { .. })) else {
            return self.answer_again().await;
        };
        let answer = self.world.answer_to(&live.record).await;
        let submitted = self.world.store.answer(&answer.answering()).await.unwrap();
        self.tell(format!("answer {}: {submitted:?}", CONTEXTS[context]));
        if live.canceled {
            self.met.count(Pair::CancelThenAnswer);
            assert_eq!(submitted, Submitted::Working);
            return;
        }
        if matches!(live.stage, Stage::Suspended { over: true }) {
            self.met.count(Pair::TimeOverThenAnswer);
            assert_eq!(submitted, Submitted::Terminal);
            return;
        }
        let Submitted::Accepted {
            first,
            number,
            repeat: false,
            place: 0,
            ..
        } = submitted
        else {
            panic!("{submitted:?}")
        };
        self.met.count(Pair::SuspendThenAnswer);
        self.model.answer(context, answer, first, number);
    }

    async fn answer_again(&mut self) {
        if self.model.answered.is_empty() {
            return;
        }
        let n = self.dice.below(self.model.answered.len());
        let (answer, first, number) = self.model.answered[n].clone();
        let again = self.world.store.answer(&answer.answering()).await.unwrap();
        self.tell(format!("answer {first} again: {again:?}"));
        self.met.count(Pair::AnswerThenAnswerAgain);
        assert!(
            matches!(again, Submitted::Accepted { first: f, number: n, repeat: true, .. } if (f, n) == (first, number))
        );
    }

    pub async fn renew(&mut self) {
        let held = self.held.iter().map(|(_, running)| Held {
            context: running.taken.context.clone(),
            token: running.taken.token.clone(),
            turn: running.taken.record.turn,
        });
        let held: Vec<Held> = held.collect();
        let mut client = LeaseClient::new(self.world.store.clone());
        let renewed = tokio::task::spawn_blocking(move || client.renew(ONLY, TTL, &held))
            .await
            .unwrap()
            .unwrap();
        let (mut lost, mut canceled) = (Vec::new(), Vec::new());
        for (context, running) in &self.held {
            if !self.model.is_current(*context, running) {
                lost.push(running.taken.token.clone());
            } else if self.model.live[*context].as_ref().unwrap().canceled {
                canceled.push(running.taken.token.clone());
            }
        }
        self.tell(format!("renew: {} of {} lost", lost.len(), self.held.len()));
        self.met.count_if(!lost.is_empty(), Pair::RecoveredThenRenewed);
        assert_eq!((renewed.lost, renewed.canceled), (lost, canceled));
        for live in self.model.live.iter_mut().flatten() {
            // After a loss a lease may be current that its worker has forgotten.
            let ours = |(_, running): &(usize, Running)| {
                let lease = live.lease.as_ref();
                lease.is_some_and(|(token, _)| *token == running.taken.token)
            };
            let renewed = self.held.iter().any(ours);
            if let Stage::Leased { expired } = &mut live.stage
                && renewed
            {
                self.met.count_if(*expired, Pair::ExpiredThenRenewed);
                *expired = false;
            }
        }
    }

    pub async fn cancel(&mut self) {
        let context = self.dice.below(3);
        let Some((record, _, _)) = self
            .model
            .accepted
            .iter()
            .rfind(|(r, _, _)| r.context_id == CONTEXTS[context])
        else {
            return;
        };
        let turn = record.turn;
        let key = self.key(context);
        let nonce = Nonce(entropy::u64());
        let asked = self.world.store.request_cancel(ONLY, &key, turn, nonce).await.unwrap();
        self.tell(format!("cancel {}: {asked:?}", CONTEXTS[context]));
        if self.model.waiting[context].iter().any(|record| record.turn == turn) {
            assert_eq!(asked, Asked::Waiting);
            let settled = withdraw(&self.world.store, &key, turn, &Keep::default()).await;
            assert_eq!(settled.unwrap(), Settled::Done);
            self.met.count(Pair::WaitThenCancel);
            self.model.withdraw(context, turn);
            return;
        }
        match self.model.live[context].as_mut() {
            Some(live) if live.record.turn != turn => assert_eq!(asked, Asked::Gone),
            None => {
                assert_eq!(asked, Asked::Gone);
                self.met.count(Pair::EndThenCancel);
                self.cancel_idle(context).await;
            }
            Some(live) if live.lease.is_some() => {
                assert_eq!(asked, Asked::Told);
                self.met.count_if(live.canceled, Pair::CancelThenCancel);
                live.canceled = true;
            }
            Some(live) => {
                assert_eq!(asked, Asked::Unheld);
                self.met.count_if(live.handbacks > 0, Pair::HandBackThenCancel);
                let suspended = matches!(live.stage, Stage::Suspended { .. });
                self.met.count_if(suspended, Pair::SuspendThenCancel);
                let view = self.world.view(&live.record).await;
                let end = Conclusion {
                    end: End::Canceled,
                    reason: None,
                    dead: false,
                    only_expired: false,
                };
                let settled = conclude(&self.world.store, &view, end, &Keep::default()).await;
                assert_eq!(settled.unwrap(), Settled::Done);
                self.model.end(context, &TaskState::Canceled, None);
            }
        }
    }

    pub async fn cancel_idle(&mut self, context: usize) {
        let Some(id) = self.model.latest[context] else { return };
        let stored = self.world.stored(id).await;
        let settled = cancel_idle(&self.world.store, &stored, &Keep::default()).await.unwrap();
        let task = self.model.tasks.get_mut(&id).unwrap();
        if task.terminal {
            assert_eq!(settled, Settled::Changed);
        } else {
            assert_eq!(settled, Settled::Done);
            task.entries += 1;
            task.state = TaskState::Canceled;
            task.terminal = true;
        }
    }

    pub async fn give_back(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let why = self.dice.one_of(&[
            Why::HandOver(FailReason::WorkerDrained),
            Why::HandOver(FailReason::RedisUnavailable),
            Why::Crash,
        ]);
        let running = self.held[n].1.clone();
        let (taken, keep) = (&running.taken, Keep::default());
        let given = give_back(&self.world.store, ONLY, &taken.context, &taken.token, why, &keep)
            .await
            .unwrap();
        self.tell(format!("give back {} for {why:?}: {given:?}", CONTEXTS[context]));
        let expected = if self.model.is_current(context, &running) {
            let live = self.model.live[context].clone().unwrap();
            match why {
                _ if live.canceled => {
                    self.met.count(Pair::CancelThenHandBack);
                    self.model.end(context, &TaskState::Canceled, None);
                    GivenBack::Ended(End::Canceled)
                }
                Why::HandOver(reason) if live.begun && live.record.policy == CrashPolicy::Fail => {
                    self.model.end(context, &TaskState::Failed, Some(reason));
                    GivenBack::Ended(End::Failed)
                }
                Why::HandOver(_) => self.uncharged(context),
                Why::Crash | Why::Stopped(_) => self.model.charged(context),
            }
        } else {
            self.met.count(Pair::RecoveredThenGivenBack);
            GivenBack::Gone
        };
        assert_eq!(given, expected);
    }

    /// What becomes of a turn that nobody charges. Real waits are over in milliseconds: the test says when.
    fn uncharged(&mut self, context: usize) -> GivenBack {
        let given = self.model.uncharged(context);
        if self.model.live[context]
            .as_ref()
            .is_some_and(|live| live.stage == Stage::Delayed { over: false })
        {
            self.put_off(context);
        }
        given
    }

    pub fn disturb(&mut self) {
        if self.model.grace && self.dice.below(3) == 0 {
            self.tell("the grace is over");
            self.end_grace();
            return;
        }
        let context = self.dice.below(3);
        let Some(live) = self.model.live[context].as_mut() else {
            return;
        };
        let stage = live.stage;
        match &mut live.stage {
            Stage::Leased { expired } => {
                *expired = true;
                self.world.expire(&live.record);
            }
            Stage::Delayed { over } => {
                *over = true;
                self.world.wake(&live.record);
            }
            Stage::Queued => {
                live.stage = Stage::Vanished;
                let turn = self.world.store.keys().turn(live.record.turn);
                let [queue, entry] = ["q", "e"].map(|field| self.world.probe.field(&turn, field).unwrap());
                let base = self.world.store.keys().meta(ONLY);
                let queue = format!("{}{queue}", base.trim_end_matches("meta"));
                self.world.probe.ask(&["XDEL", &queue, &entry]);
                for queue in &mut self.model.queues {
                    queue.retain(|waiting| *waiting != context);
                }
            }
            Stage::Suspended { over } => {
                *over = true;
                self.world.outwait(&live.record);
            }
            Stage::Vanished => {}
        }
        self.tell(format!("time passes for {}, which was {stage:?}", CONTEXTS[context]));
    }

    /// A worker dies with one of its turns, and the janitor comes.
    pub async fn die(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let (_, running) = self.held.remove(n);
        self.tell(format!("the worker of {} dies", CONTEXTS[context]));
        if self.model.is_current(context, &running) {
            self.model.live[context].as_mut().unwrap().stage = Stage::Leased { expired: true };
            self.world.expire(&running.taken.record);
        }
        self.look().await;
    }

    pub async fn look(&mut self) {
        let janitor = self.world.janitor();
        self.tell("the janitor looks");
        for context in 0..3 {
            let key = self.key(context);
            janitor.look_at(ONLY, &key).await.unwrap();
            let Some(live) = self.model.live[context].clone() else {
                continue;
            };
            match live.stage {
                Stage::Queued | Stage::Vanished | Stage::Delayed { .. } | Stage::Suspended { .. } if live.canceled => {
                    self.met.count(Pair::InterruptThenLook);
                    self.model.end(context, &TaskState::Canceled, None);
                }
                Stage::Leased { expired: true } if self.model.grace => self.met.count(Pair::GraceThenLook),
                Stage::Leased { expired: true } if live.canceled => {
                    self.met.count(Pair::CancelThenCrash);
                    self.model.end(context, &TaskState::Canceled, None);
                }
                Stage::Leased { expired: true } if !live.begun => {
                    self.met.count(Pair::ExpiredThenRecovered);
                    self.uncharged(context);
                }
                Stage::Leased { expired: true } => {
                    self.met.count(Pair::ExpiredThenRecovered);
                    self.met.count_if(live.answers > 0, Pair::AnswerThenCrash);
                    let last = live.charged + 1 >= ATTEMPTS;
                    self.met.count_if(last, Pair::LastAttemptThenCrash);
                    self.model.charged(context);
                }
                Stage::Vanished => {
                    self.met.count(Pair::EntryVanishedThenQueued);
                    self.uncharged(context);
                }
                Stage::Delayed { over: true } => {
                    let queue = self.model.queue_of(context);
                    self.model.enqueue(context, queue);
                }
                Stage::Suspended { over: true } => {
                    self.met.count(Pair::SuspendThenTimeOver);
                    self.model
                        .end(context, &TaskState::Failed, Some(FailReason::DeadlineExceeded));
                }
                Stage::Leased { expired: false }
                | Stage::Delayed { over: false }
                | Stage::Suspended { over: false }
                | Stage::Queued => {}
            }
        }
    }

    pub async fn purge(&mut self) {
        let retain = self.world.store.keys().retain(ONLY);
        let members = self.world.probe.texts(&["ZRANGE", &retain, "0", "-1"]);
        // In an order that has nothing to do with chance.
        let made = self
            .model
            .made
            .iter()
            .flat_map(|task| [format!("t:{task}"), format!("j:{task}")]);
        let contexts = (0..3).map(|context| format!("c:{}", self.key(context)));
        let mut choice: Vec<String> = made.chain(contexts).filter(|member| members.contains(member)).collect();
        assert_eq!(choice.len(), members.len());
        // A turn that began since the look: what is live is kept.
        let live = self
            .model
            .live
            .iter()
            .flatten()
            .next()
            .map(|live| format!("t:{}", live.record.task));
        if let Some(live) = live.filter(|_| self.dice.below(3) == 0) {
            self.world.probe.ask(&["ZADD", &retain, "1", &live]);
            choice = vec![live];
        }
        if choice.is_empty() {
            return;
        }
        let member = self
            .dice
            .one_of(&choice.iter().map(String::as_str).collect::<Vec<_>>())
            .to_owned();
        self.world.probe.set_score(&retain, &member, 1);
        let purged = self.world.store.purge(ONLY, &member, &Keep::default()).await.unwrap();
        self.tell(format!("purge {member}: {purged}"));
        let (class, id) = member.split_once(':').unwrap();
        let task = TaskId::parse(id);
        let live = |task: TaskId| self.model.turn_of(task).is_some();
        match class {
            "t" => {
                let task = task.unwrap();
                assert_eq!(purged, !live(task));
                if !purged {
                    self.met.count(Pair::LiveThenPurge);
                    return;
                }
                self.purged = true;
                self.model.tasks.remove(&task);
                for latest in self.model.latest.iter_mut().filter(|latest| **latest == Some(task)) {
                    *latest = None;
                }
            }
            "j" => {
                let task = task.unwrap();
                assert_eq!(purged, !live(task));
                if purged {
                    self.model.written.retain(|w| w.by.taken.record.task != task);
                }
            }
            _ => {
                let context = (0..3).find(|context| self.key(*context).as_str() == id).unwrap();
                let empty = !self.model.tasks.values().any(|task| task.context == context);
                assert_eq!(purged, empty);
                if purged {
                    self.epochs[context] = 0;
                }
            }
        }
    }
}
