//! The steps of the small cluster.
//!
//! What is decided in `relevo_shared::domain` is decided here by the same functions. What the scripts compare is written here
//! a second time, small enough to be read beside them; `laws.rs` compares the scripts with such rules on a real Redis.

use std::collections::BTreeMap;

use a2a::{Message, Part, Role};
use relevo_shared::domain::due::{Charge, Live, Standing, Verdict, crashed, handed_back, judge};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, Sender, Tries, TurnRecord, VERSION};
use relevo_shared::domain::retry::is_last;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Partition, TaskId, TurnId};

use super::model::{Action, Asked, Belief, Broken, Context, Decided, Rule, Sent, Slot, Stage, State, View, Worker};

pub const ATTEMPTS: u32 = 2;
const NOW: u64 = 1_000;
const FAR: u64 = 1_000_000;

/// How large the cluster is, and which rule it forgets.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub records: Vec<TurnRecord>,
    /// How many turns each context gets.
    pub turns: u8,
    /// How many turns may wait in a context.
    pub waits: u8,
    /// Whether agents ask their users, as often as they like.
    pub suspends: bool,
    /// How many batches an attempt writes before its end.
    pub writes: u8,
    /// Whether answers are lost, and requests arrive after the death of their worker.
    pub lossy: bool,
    /// Whether something may come between a look and what is done about it.
    pub looks: bool,
    pub without: Option<Rule>,
}

impl Cluster {
    pub fn of(policies: &[CrashPolicy], handbacks: u32) -> Self {
        let record = |policy| record(policy, handbacks);
        Self {
            records: policies.iter().copied().map(record).collect(),
            turns: 1,
            waits: 0,
            suspends: false,
            writes: 1,
            lossy: true,
            looks: true,
            without: None,
        }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    pub fn start(&self) -> State {
        let context = Context {
            turn: 1,
            waiting: 0,
            stage: Stage::Queued { last: false },
            epoch: 0,
            token: None,
            tries: Tries::default(),
            canceled: false,
            meant: 0,
            asked: Asked::Never,
            ended: None,
            unanswered: false,
            view: None,
            due: true,
            owner: 0,
        };
        let worker = Worker {
            asleep: false,
            slots: vec![Slot::Free; self.records.len()],
        };
        State {
            contexts: vec![context; self.records.len()],
            workers: [worker.clone(), worker],
            broken: None,
        }
    }

    pub fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for (c, context) in state.contexts.iter().enumerate() {
            match context.stage {
                Stage::Idle if context.turn < self.turns => actions.push(Action::Submit(c)),
                Stage::Leased { expired: false } => actions.push(Action::RunsOut(c)),
                Stage::Suspended => actions.push(Action::Answer(c)),
                Stage::Idle | Stage::Queued { .. } | Stage::Delayed | Stage::Leased { .. } => {}
            }
            if context.stage != Stage::Idle && context.turn < self.turns {
                if context.waiting < self.waits {
                    actions.push(Action::Wait(c));
                }
                if self.waits > 0 && !context.canceled {
                    actions.push(Action::Interrupt(c));
                }
            }
            if context.waiting > 0 {
                actions.push(Action::Withdraw(c));
            }
            if context.asked == Asked::Never {
                actions.push(Action::Cancel(c));
            }
            match &context.view {
                Some(_) => actions.push(Action::Commit(c)),
                None if context.due && self.verdict(c, context).is_some() => actions.push(Action::Look(c)),
                None => {}
            }
        }
        for (w, worker) in state.workers.iter().enumerate() {
            self.of_worker(state, w, worker, actions);
        }
    }

    fn of_worker(&self, state: &State, w: usize, worker: &Worker, actions: &mut Vec<Action>) {
        for (c, slot) in worker.slots.iter().enumerate() {
            let Slot::Holds(belief) = slot else { continue };
            if belief.dead {
                actions.push(Action::Vanishes(w, c));
            }
            if worker.asleep && !belief.dead {
                continue;
            }
            self.sends(&state.contexts[c], belief, |sent| {
                actions.push(Action::Write(w, c, sent, true));
                if self.lossy && !belief.dead && belief.sent.is_none() {
                    actions.push(Action::Write(w, c, sent, false));
                }
            });
            if !belief.dead {
                actions.push(Action::Renew(w, c));
                actions.push(Action::GiveBack(w, c, false));
                actions.push(Action::GiveBack(w, c, true));
            }
        }
        if worker.asleep {
            actions.push(Action::Wakes(w));
            return;
        }
        for (c, context) in state.contexts.iter().enumerate() {
            if let (Stage::Queued { last }, Slot::Free | Slot::Refused) = (context.stage, &worker.slots[c]) {
                let runs_last = |slot: &Slot| matches!(slot, Slot::Holds(b) if b.last && !b.dead);
                if !(last && self.keeps(Rule::LastAlone) && worker.slots.iter().any(runs_last)) {
                    actions.push(Action::Take(w, c));
                }
            }
        }
        if worker
            .slots
            .iter()
            .any(|slot| matches!(slot, Slot::Holds(b) if !b.dead))
        {
            actions.push(Action::Dies(w));
            actions.push(Action::Sleeps(w));
        }
    }

    /// What an attempt may send next.
    fn sends(&self, context: &Context, belief: &Belief, mut each: impl FnMut(Sent)) {
        if let Some(sent) = belief.sent {
            return each(sent);
        }
        if belief.writes < self.writes {
            each(Sent::Batch);
        }
        each(Sent::Completed);
        if self.suspends {
            each(Sent::Suspended);
        }
        if self.turns > 1 {
            each(Sent::InputRequired);
        }
        if context.canceled {
            each(Sent::Canceled);
        }
    }

    pub fn act(&self, state: &mut State, action: Action) {
        self.do_only(state, action);
        if let (Action::Cancel(c) | Action::Look(c), false) = (action, self.looks) {
            self.commit(state, c);
        }
    }

    fn do_only(&self, state: &mut State, action: Action) {
        match action {
            Action::Submit(c) => self.submit(state, c),
            Action::Wait(c) => state.contexts[c].waiting += 1,
            Action::Withdraw(c) => state.contexts[c].waiting -= 1,
            Action::Interrupt(c) => {
                let context = &mut state.contexts[c];
                context.waiting = 1;
                context.canceled = true;
                context.meant = context.turn;
            }
            Action::Answer(c) => self.answer(state, c),
            Action::Take(w, c) => self.take(state, w, c),
            Action::Write(w, c, sent, answered) => self.write(state, w, c, sent, answered),
            Action::Renew(w, c) => renew(state, w, c),
            Action::GiveBack(w, c, crash) => self.give_back(state, w, c, crash),
            Action::RunsOut(c) => state.contexts[c].stage = Stage::Leased { expired: true },
            Action::Cancel(c) => cancel(&mut state.contexts[c]),
            Action::Look(c) => self.look(&mut state.contexts[c], c),
            Action::Commit(c) => self.commit(state, c),
            Action::Dies(w) => {
                let worker = &mut state.workers[w];
                for slot in &mut worker.slots {
                    match slot {
                        Slot::Holds(belief) if self.lossy => belief.dead = true,
                        _ => *slot = Slot::Free,
                    }
                }
            }
            Action::Vanishes(w, c) => state.workers[w].slots[c] = Slot::Free,
            Action::Sleeps(w) => state.workers[w].asleep = true,
            Action::Wakes(w) => {
                state.workers[w].asleep = false;
                for (context, slot) in state.contexts.iter().zip(&mut state.workers[w].slots) {
                    if let Slot::Holds(belief) = slot {
                        belief.late = belief.owner != context.owner;
                    }
                }
            }
        }
    }

    /// `submit.lua`: a message to the task of the context.
    fn submit(&self, state: &mut State, c: usize) {
        let context = &mut state.contexts[c];
        let terminal = context.ended.is_some_and(End::is_terminal);
        if terminal && self.keeps(Rule::Terminal) {
            return;
        }
        if terminal {
            state.broken = Some(Broken::TerminalChanged);
        }
        context.turn += 1;
        context.stage = Stage::Queued { last: false };
        context.tries = Tries::default();
        context.asked = Asked::Never;
        context.ended = None;
        context.due = true;
        context.owner += 1;
        state.grow(c);
    }

    /// `take.lua`.
    fn take(&self, state: &mut State, w: usize, c: usize) {
        let context = &mut state.contexts[c];
        let Stage::Queued { last } = context.stage else { return };
        if context.unanswered {
            state.broken = Some(Broken::Unanswered);
        }
        self.lease(context);
        state.workers[w].slots[c] = Slot::Holds(Belief {
            turn: context.turn,
            epoch: context.epoch,
            token: context.owner,
            grown: false,
            opened: false,
            writes: 0,
            last,
            dead: false,
            late: false,
            owner: context.owner,
            sent: None,
            written: false,
        });
    }

    fn lease(&self, context: &mut Context) {
        context.owner += 1;
        context.epoch += 1;
        context.token = Some(context.owner);
        context.stage = Stage::Leased { expired: false };
        context.due = self.keeps(Rule::Due);
    }

    /// Whether the fence lets an attempt through (`lib/fence.lua`).
    fn passes(&self, context: &Context, belief: &Belief) -> bool {
        let token = context.token == Some(belief.token) || !self.keeps(Rule::Token);
        context.stage != Stage::Idle && context.turn == belief.turn && context.epoch == belief.epoch && token
    }

    /// How many attempts of a context may write.
    pub fn writers(&self, state: &State, c: usize) -> usize {
        let slots = state.workers.iter().map(|worker| &worker.slots[c]);
        slots
            .filter(|slot| matches!(slot, Slot::Holds(belief) if self.passes(&state.contexts[c], belief)))
            .count()
    }

    /// `emit.lua` and `finish.lua`.
    fn write(&self, state: &mut State, w: usize, c: usize, sent: Sent, answered: bool) {
        let Slot::Holds(mut belief) = std::mem::replace(&mut state.workers[w].slots[c], Slot::Free) else {
            return;
        };
        let context = &mut state.contexts[c];
        let repeat = belief.grown && belief.written && self.keeps(Rule::RepeatIsKnown);
        let stops = match sent {
            Sent::Batch => self.keeps(Rule::CancelStopsWrites),
            Sent::Canceled => false,
            Sent::Completed | Sent::InputRequired | Sent::Suspended => self.keeps(Rule::CancelStopsEnds),
        };
        let mut refused = None;
        if repeat {
        } else if !self.passes(context, &belief) {
            refused = Some(Slot::Refused);
        } else if belief.grown {
            state.broken = Some(Broken::Diverged);
        } else if context.canceled && stops {
            refused = Some(Slot::Holds(Belief {
                sent: None,
                ..belief.clone()
            }));
        } else {
            state.broken = broken_by(context, &belief, sent);
            if !belief.opened {
                context.tries.opened = 1;
                context.tries.begun = true;
            }
            if let Some(end) = sent.end() {
                self.end_turn(context, end);
            } else if sent == Sent::Suspended {
                self.suspend(context);
            }
            belief.written = true;
            belief.grown = true;
            state.grow(c);
        }
        state.workers[w].slots[c] = match refused {
            _ if belief.dead => Slot::Free,
            _ if !answered => Slot::Holds(Belief {
                sent: Some(sent),
                ..belief
            }),
            Some(refused) => refused,
            None if sent == Sent::Batch => Slot::Holds(Belief {
                grown: false,
                opened: true,
                writes: belief.writes + 1,
                sent: None,
                written: false,
                ..belief
            }),
            None => Slot::Free,
        };
    }

    /// `suspend.lua`.
    fn suspend(&self, context: &mut Context) {
        context.stage = Stage::Suspended;
        context.tries.opened = 0;
        context.tries.begun = false;
        context.unanswered = true;
        context.due = self.keeps(Rule::SuspendedDue);
        context.owner += 1;
        if self.keeps(Rule::SuspendReleases) {
            context.token = None;
        }
    }

    /// `answer.lua`.
    fn answer(&self, state: &mut State, c: usize) {
        let context = &mut state.contexts[c];
        if context.canceled && self.keeps(Rule::CancelStopsAnswers) {
            return;
        }
        if context.canceled {
            state.broken = Some(Broken::AfterCancel);
        }
        let last = is_last(&self.records[c], context.tries);
        context.stage = Stage::Queued { last };
        context.unanswered = false;
        context.due = true;
        context.owner += 1;
        state.grow(c);
    }

    /// `janitor::give_back`, whose read and commit are one step here: it begins anew when something came between.
    fn give_back(&self, state: &mut State, w: usize, c: usize, crash: bool) {
        let Slot::Holds(belief) = std::mem::replace(&mut state.workers[w].slots[c], Slot::Free) else {
            return;
        };
        let context = &mut state.contexts[c];
        if context.token != Some(belief.token) {
            state.workers[w].slots[c] = Slot::Refused;
            return;
        }
        let (record, tries) = (&self.records[c], context.tries);
        let verdict = if crash && !context.canceled {
            crashed(record, tries)
        } else {
            handed_back(record, tries, context.canceled, FailReason::WorkerDrained, NOW)
        };
        if !crash
            && matches!(
                verdict,
                Verdict::Requeue {
                    charge: Charge::Attempt,
                    ..
                }
            )
        {
            state.broken = Some(Broken::Charged);
        }
        if let Some(decided) = Decided::from(verdict)
            && self.settle(context, decided)
        {
            state.grow(c);
        }
    }

    /// What the janitor would do about a context as it is.
    fn verdict(&self, c: usize, context: &Context) -> Option<Decided> {
        let standing = match context.stage {
            Stage::Idle => return None,
            Stage::Queued { .. } => Standing::Queued { waiting: true },
            Stage::Delayed => Standing::Delayed { at: 0 },
            // Its time may be over at any look.
            Stage::Suspended => Standing::Suspended { until: 0 },
            Stage::Leased { expired } => Standing::Leased {
                until: if expired { 0 } else { FAR },
            },
        };
        let live = Live {
            record: &self.records[c],
            since: NOW,
            tries: context.tries,
            standing,
            canceled: context.canceled,
            storage: None,
        };
        Decided::from(judge(Some(live), NOW, 0))
    }

    fn look(&self, context: &mut Context, c: usize) {
        if let Some(verdict) = self.verdict(c, context) {
            let leased = matches!(context.stage, Stage::Leased { .. });
            context.view = Some(View::of(context, verdict, leased));
        }
    }

    /// `lib/expect.lua`: whether what was decided at a look may still be done.
    fn is_as_read(&self, context: &Context, view: &View) -> bool {
        let now = View::of(context, view.verdict, view.only_expired);
        let lease = |v: &View| (v.epoch, v.token, v.queued, v.grown);
        let alive = matches!(context.stage, Stage::Leased { expired: false });
        context.stage != Stage::Idle
            && now.turn == view.turn
            && (lease(&now) == lease(view) || !self.keeps(Rule::LeaseAsRead))
            && (now.canceled == view.canceled || !self.keeps(Rule::CancelAsRead))
            && !(view.only_expired && alive && self.keeps(Rule::OnlyExpired))
    }

    fn commit(&self, state: &mut State, c: usize) {
        let context = &mut state.contexts[c];
        let Some(view) = context.view.take() else { return };
        if self.is_as_read(context, &view) {
            state.broken = broken_by_verdict(context, &view);
            if self.settle(context, view.verdict) {
                state.grow(c);
            }
        }
    }

    /// `settle_requeue.lua` and `settle_end.lua`. Returns whether the journal has grown.
    fn settle(&self, context: &mut Context, decided: Decided) -> bool {
        match decided {
            Decided::Requeue {
                attempt,
                handback,
                last,
                waits,
            } => {
                context.owner += 1;
                context.stage = if waits { Stage::Delayed } else { Stage::Queued { last } };
                if self.keeps(Rule::ClearToken) {
                    context.token = None;
                }
                context.tries.charged += u32::from(attempt);
                context.tries.handbacks += u32::from(handback);
                context.tries.begun = false;
                context.due = true;
                false
            }
            Decided::End(end) => {
                self.end_turn(context, end);
                true
            }
        }
    }

    /// `lib/release.lua` and `lib/promote.lua`.
    fn end_turn(&self, context: &mut Context, end: End) {
        context.stage = Stage::Idle;
        context.unanswered = false;
        context.token = None;
        context.due = false;
        context.ended = Some(end);
        context.owner += 1;
        let next = context.waiting > 0 && self.keeps(Rule::Promote);
        context.canceled &= next && !self.keeps(Rule::ClearCancel);
        if next {
            context.waiting -= 1;
            context.turn += 1;
            context.stage = Stage::Queued { last: false };
            context.tries = Tries::default();
            context.asked = Asked::Never;
            context.ended = None;
            context.due = true;
        }
    }

    /// Everybody dies, leases run out, the janitor looks, and who takes something dies again: every live turn ends.
    pub fn ends_without_workers(&self, state: &State) -> bool {
        state.contexts.iter().enumerate().all(|(c, context)| {
            let mut context = context.clone();
            context.view = None;
            // An attempt costs a crash or a hand-back, and a hand-back may cost a wait.
            let turns = 1 + u32::from(context.waiting);
            for _ in 0..4 * turns * (ATTEMPTS + self.records[c].handbacks + 1) {
                match context.stage {
                    Stage::Idle => return context.waiting == 0,
                    Stage::Queued { .. } => self.lease(&mut context),
                    Stage::Leased { expired: false } => context.stage = Stage::Leased { expired: true },
                    Stage::Leased { expired: true } | Stage::Delayed | Stage::Suspended => {
                        match self.verdict(c, &context) {
                            Some(decided) if context.due => drop(self.settle(&mut context, decided)),
                            _ => return false,
                        }
                    }
                }
            }
            false
        })
    }
}

/// Which law an accepted write breaks.
fn broken_by(context: &Context, belief: &Belief, sent: Sent) -> Option<Broken> {
    if context.owner != belief.owner {
        Some(Broken::StaleWrite)
    } else if context.ended.is_some() {
        Some(Broken::TerminalChanged)
    } else if context.canceled && sent != Sent::Canceled {
        Some(Broken::AfterCancel)
    } else {
        None
    }
}

/// Which law a settlement breaks that is about to be carried out.
fn broken_by_verdict(context: &Context, view: &View) -> Option<Broken> {
    let alive = matches!(context.stage, Stage::Leased { expired: false });
    match view.verdict {
        _ if context.owner != view.owner => Some(Broken::SettledAnother),
        _ if view.only_expired && alive => Some(Broken::SettledALease),
        Decided::End(end) if context.canceled && end != End::Canceled => Some(Broken::AfterCancel),
        Decided::Requeue { attempt: true, .. } if !context.tries.begun => Some(Broken::Charged),
        Decided::End(_) | Decided::Requeue { .. } => None,
    }
}

/// `renew.lua`: what counts is that the token is still current.
fn renew(state: &mut State, w: usize, c: usize) {
    let slot = &mut state.workers[w].slots[c];
    let Slot::Holds(belief) = slot else { return };
    let context = &mut state.contexts[c];
    if context.token == Some(belief.token) && context.turn == belief.turn {
        context.stage = Stage::Leased { expired: false };
    } else {
        *slot = Slot::Refused;
    }
}

/// `cancel.lua`; a turn that nobody holds is the caller's to settle.
fn cancel(context: &mut Context) {
    match context.stage {
        Stage::Idle => context.asked = Asked::TooLate,
        Stage::Leased { .. } => {
            context.canceled = true;
            context.meant = context.turn;
            context.asked = Asked::Accepted;
        }
        Stage::Queued { .. } | Stage::Delayed | Stage::Suspended => {
            context.view = Some(View::of(context, Decided::End(End::Canceled), false));
        }
    }
}

fn record(policy: CrashPolicy, handbacks: u32) -> TurnRecord {
    TurnRecord {
        v: VERSION,
        turn: TurnId::new(1, Partition(0), 1),
        task: TaskId::new(1, Partition(0), 1),
        context_id: "c".to_owned(),
        sender: Sender::default(),
        message: Message::new(Role::User, vec![Part::text("hello")]),
        agent: "demo".to_owned(),
        pool: "default".to_owned(),
        policy,
        attempts: ATTEMPTS,
        handbacks,
        submitted: NOW,
        deadline: None,
        queue_age: FAR,
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
