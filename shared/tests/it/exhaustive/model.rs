//! What the small cluster consists of: what Redis keeps of each context, what each worker believes, what can happen next.
//!
//! Time is no number: a lease may run out at any step, a worker may fall asleep or die at any step, a request that a worker
//! sent before it died may arrive at any step after.

use relevo_shared::domain::due::{Charge, Verdict};
use relevo_shared::domain::record::Tries;
use relevo_shared::domain::state::End;

const WORKERS: usize = 2;

/// A rule that the model can be told to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A write names the token of the lease (`lib/fence.lua`).
    Token,
    /// What takes a turn from its holder takes the token away (`settle_requeue.lua`).
    ClearToken,
    /// A repeat is known by its first entry (`lib/fence.lua`).
    RepeatIsKnown,
    /// After a cancel nothing is appended (`emit.lua`).
    CancelStopsWrites,
    /// After a cancel no other end is accepted (`finish.lua`).
    CancelStopsEnds,
    /// A cancel that came after the look is decided anew (`lib/expect.lua`).
    CancelAsRead,
    /// A lease that changed hands after the look is decided anew (`lib/expect.lua`).
    LeaseAsRead,
    /// A lease that was renewed after the look is left alone (`lib/expect.lua`).
    OnlyExpired,
    /// A terminal task takes no message (`submit.lua`).
    Terminal,
    /// A worker takes no second last attempt (`take.lua`).
    LastAlone,
    /// Who takes a turn leaves its context in `due` (`take.lua`).
    Due,
    /// The end of a turn begins the next that waits (`lib/release.lua`).
    Promote,
    /// A turn that begins knows nothing of the cancel of the one before (`lib/promote.lua`).
    ClearCancel,
    /// Who suspends a turn holds it no longer (`suspend.lua`).
    SuspendReleases,
    /// A turn whose end has been asked for is not resumed (`answer.lua`).
    CancelStopsAnswers,
    /// Who suspends a turn leaves its context in `due` (`suspend.lua`).
    SuspendedDue,
}

impl Rule {
    pub const ALL: [Self; 16] = [
        Self::Token,
        Self::ClearToken,
        Self::RepeatIsKnown,
        Self::CancelStopsWrites,
        Self::CancelStopsEnds,
        Self::CancelAsRead,
        Self::LeaseAsRead,
        Self::OnlyExpired,
        Self::Terminal,
        Self::LastAlone,
        Self::Due,
        Self::Promote,
        Self::ClearCancel,
        Self::SuspendReleases,
        Self::CancelStopsAnswers,
        Self::SuspendedDue,
    ];
}

/// A law that a step broke. Nothing follows such a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    StaleWrite,
    AfterCancel,
    TerminalChanged,
    SettledAnother,
    SettledALease,
    Diverged,
    Charged,
    Unanswered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// No turn is live.
    Idle,
    Queued {
        last: bool,
    },
    Delayed,
    Leased {
        expired: bool,
    },
    /// It waits for its user.
    Suspended,
}

/// What a client was told when it asked for the end of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    Never,
    Accepted,
    TooLate,
}

/// What somebody read of a context, and what is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct View {
    pub turn: u8,
    pub epoch: u8,
    pub token: Option<u8>,
    pub queued: bool,
    /// Whether the journal has grown since.
    pub grown: bool,
    pub canceled: bool,
    pub owner: u8,
    pub only_expired: bool,
    pub verdict: Decided,
}

/// A [`Verdict`] that can be compared and hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decided {
    Requeue {
        attempt: bool,
        handback: bool,
        last: bool,
        waits: bool,
    },
    End(End),
}

impl Decided {
    /// `None` when there is nothing to be done now.
    pub fn from(verdict: Verdict) -> Option<Self> {
        match verdict {
            Verdict::Forget | Verdict::Later { .. } => None,
            Verdict::Requeue { charge, last, at } => Some(Self::Requeue {
                attempt: charge == Charge::Attempt,
                handback: charge == Charge::Handback,
                last,
                waits: at > 0,
            }),
            Verdict::End { end, .. } => Some(Self::End(end)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Context {
    pub turn: u8,
    /// How many turns wait behind it.
    pub waiting: u8,
    pub stage: Stage,
    pub epoch: u8,
    pub token: Option<u8>,
    pub tries: Tries,
    pub canceled: bool,
    /// The truth: which turn the cancel was meant for. No rule reads it.
    pub meant: u8,
    pub asked: Asked,
    pub ended: Option<End>,
    /// The truth: its agent has asked, and its user has not answered. No rule reads it.
    pub unanswered: bool,
    pub view: Option<View>,
    /// Whether the context is in `due`.
    pub due: bool,
    /// The truth: it rises whenever the right to write changes hands. No rule reads it.
    pub owner: u8,
}

impl Context {
    pub fn completed(&self) -> bool {
        self.ended == Some(End::Completed)
    }

    pub fn canceled_end(&self) -> bool {
        self.ended == Some(End::Canceled)
    }

    pub fn failed(&self) -> bool {
        self.ended == Some(End::Failed)
    }
}

/// What a worker knows of a turn that it took.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Belief {
    pub turn: u8,
    pub epoch: u8,
    pub token: u8,
    /// Whether the journal has grown behind the entry that it wants to follow.
    pub grown: bool,
    pub opened: bool,
    pub writes: u8,
    pub last: bool,
    /// Its worker is gone; a request may still arrive.
    pub dead: bool,
    /// Its worker slept while the turn changed hands.
    pub late: bool,
    /// The truth, see [`Context::owner`].
    pub owner: u8,
    /// What was sent without an answer: it is sent again, and nothing else.
    pub sent: Option<Sent>,
    /// Whether that was written: the journal has its first entry.
    pub written: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sent {
    Batch,
    Completed,
    InputRequired,
    Canceled,
    Suspended,
}

impl Sent {
    pub fn end(self) -> Option<End> {
        match self {
            Self::Batch | Self::Suspended => None,
            Self::Completed => Some(End::Completed),
            Self::InputRequired => Some(End::InputRequired),
            Self::Canceled => Some(End::Canceled),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    Free,
    Holds(Belief),
    /// It was told that its lease is lost.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker {
    pub asleep: bool,
    pub slots: Vec<Slot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub contexts: Vec<Context>,
    pub workers: [Worker; WORKERS],
    pub broken: Option<Broken>,
}

impl State {
    /// An entry came into the journal of a context.
    pub fn grow(&mut self, c: usize) {
        if let Some(view) = &mut self.contexts[c].view {
            view.grown = true;
        }
        for worker in &mut self.workers {
            if let Slot::Holds(belief) = &mut worker.slots[c] {
                belief.grown = true;
            }
        }
    }

    /// Numbers are only compared, and one worker is like the other: states that differ in nothing else are one.
    pub fn forget_what_cannot_matter(&mut self) {
        for (c, context) in self.contexts.iter_mut().enumerate() {
            let (mut epochs, mut owners) = (vec![&mut context.epoch], vec![&mut context.owner]);
            owners.extend(&mut context.token);
            if let Some(view) = &mut context.view {
                epochs.push(&mut view.epoch);
                owners.push(&mut view.owner);
                owners.extend(&mut view.token);
            }
            for worker in &mut self.workers {
                if let Slot::Holds(belief) = &mut worker.slots[c] {
                    epochs.push(&mut belief.epoch);
                    owners.extend([&mut belief.owner, &mut belief.token]);
                }
            }
            renumber(epochs);
            renumber(owners);
        }
        self.workers.sort();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Submit(usize),
    /// A message that waits behind the live turn.
    Wait(usize),
    /// What waits is cancelled.
    Withdraw(usize),
    /// A message that takes the place of everything.
    Interrupt(usize),
    /// The user answers a suspended turn.
    Answer(usize),
    Take(usize, usize),
    /// The worker sends; whether the answer arrives.
    Write(usize, usize, Sent, bool),
    Renew(usize, usize),
    GiveBack(usize, usize, bool),
    RunsOut(usize),
    Cancel(usize),
    Look(usize),
    Commit(usize),
    Dies(usize),
    /// What a dead worker sent is lost.
    Vanishes(usize, usize),
    Sleeps(usize),
    Wakes(usize),
}

impl View {
    pub fn of(context: &Context, verdict: Decided, only_expired: bool) -> Self {
        Self {
            turn: context.turn,
            epoch: context.epoch,
            token: context.token,
            queued: matches!(context.stage, Stage::Queued { .. }),
            grown: false,
            canceled: context.canceled,
            owner: context.owner,
            only_expired,
            verdict,
        }
    }
}

/// Replaces numbers by their ranks.
fn renumber(mut numbers: Vec<&mut u8>) {
    numbers.sort_unstable();
    let (mut rank, mut before) = (0, None);
    for number in numbers {
        rank += u8::from(before.is_some_and(|before| before != *number));
        before = Some(std::mem::replace(number, rank));
    }
}
