//! What the walks came by.

use std::collections::BTreeMap;

/// Meetings of two things that are apart in ordinary life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pair {
    ExpiredThenRenewed,
    ExpiredThenWritten,
    ExpiredThenRecovered,
    RecoveredThenWritten,
    RecoveredThenRenewed,
    RecoveredThenGivenBack,
    CancelThenBatch,
    CancelThenOtherEnd,
    CancelThenCanceled,
    CancelThenCancel,
    CancelThenCrash,
    CancelThenHandBack,
    EndThenCancel,
    EndThenBatchAgain,
    EndThenSubmitAgain,
    HandBackThenCancel,
    HandBackThenEnd,
    CrashThenEnd,
    LastAttemptThenCrash,
    BatchReplyLostTwice,
    EndReplyLostTwice,
    TakeReplyLostTwice,
    EntryVanishedThenQueued,
    PurgeThenSubmit,
    PurgeThenBatch,
    LiveThenPurge,
    TailLostThenWritten,
    TailLostThenFenced,
    TailLostThenSentAgain,
    GraceThenLook,
    WaitThenLive,
    WaitThenCancel,
    WaitThenSubmitAgain,
    InterruptOfLeased,
    InterruptOfUnheld,
    InterruptThenTake,
    InterruptThenLook,
    SuspendThenAnswer,
    SuspendThenCancel,
    SuspendThenTimeOver,
    TimeOverThenAnswer,
    SuspendThenInterrupt,
    CancelThenAnswer,
    CancelThenSuspend,
    AnswerThenAnswerAgain,
    AnswerThenCrash,
    AnswerThenEnd,
    AnswerThenSuspend,
}

use Pair as P;

const ALL: [Pair; 48] = [
    P::ExpiredThenRenewed,
    P::ExpiredThenWritten,
    P::ExpiredThenRecovered,
    P::RecoveredThenWritten,
    P::RecoveredThenRenewed,
    P::RecoveredThenGivenBack,
    P::CancelThenBatch,
    P::CancelThenOtherEnd,
    P::CancelThenCanceled,
    P::CancelThenCancel,
    P::CancelThenCrash,
    P::CancelThenHandBack,
    P::EndThenCancel,
    P::EndThenBatchAgain,
    P::EndThenSubmitAgain,
    P::HandBackThenCancel,
    P::HandBackThenEnd,
    P::CrashThenEnd,
    P::LastAttemptThenCrash,
    P::BatchReplyLostTwice,
    P::EndReplyLostTwice,
    P::TakeReplyLostTwice,
    P::EntryVanishedThenQueued,
    P::PurgeThenSubmit,
    P::PurgeThenBatch,
    P::LiveThenPurge,
    P::TailLostThenWritten,
    P::TailLostThenFenced,
    P::TailLostThenSentAgain,
    P::GraceThenLook,
    P::WaitThenLive,
    P::WaitThenCancel,
    P::WaitThenSubmitAgain,
    P::InterruptOfLeased,
    P::InterruptOfUnheld,
    P::InterruptThenTake,
    P::InterruptThenLook,
    P::SuspendThenAnswer,
    P::SuspendThenCancel,
    P::SuspendThenTimeOver,
    P::TimeOverThenAnswer,
    P::SuspendThenInterrupt,
    P::CancelThenAnswer,
    P::CancelThenSuspend,
    P::AnswerThenAnswerAgain,
    P::AnswerThenCrash,
    P::AnswerThenEnd,
    P::AnswerThenSuspend,
];

/// How often.
#[derive(Debug, Default)]
pub struct Met(BTreeMap<Pair, u32>);

impl Met {
    pub fn count(&mut self, pair: Pair) {
        *self.0.entry(pair).or_default() += 1;
    }

    pub fn count_if(&mut self, condition: bool, pair: Pair) {
        if condition {
            self.count(pair);
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (pair, count) in &other.0 {
            *self.0.entry(*pair).or_default() += count;
        }
    }

    #[expect(clippy::print_stderr, reason = "figures for people")]
    pub fn print(&self, whose: &str) {
        eprintln!("{whose} met:");
        for pair in ALL {
            eprintln!("  {:>5} {pair:?}", self.0.get(&pair).copied().unwrap_or_default());
        }
    }

    #[track_caller]
    pub fn assert_everything(&self) {
        let never: Vec<Pair> = ALL.into_iter().filter(|pair| !self.0.contains_key(pair)).collect();
        assert!(never.is_empty(), "the walks never met {never:?}");
    }
}
