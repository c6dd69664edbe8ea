//! Every history of a small cluster: two workers, one or two contexts, crashes and pauses between any two steps. `model`
//! and `steps` hold the rules; here is what must be true of every state, and that it stops being true when a rule is left out.

mod model;
mod steps;

use std::time::Instant;

use relevo_shared::domain::record::CrashPolicy;
use stateright::{Checker as _, HasDiscoveries, Model, Property};

use self::model::{Action, Asked, Broken, Rule, Slot, Stage, State, Worker};
use self::steps::{ATTEMPTS, Cluster};

const ONE_LEASE: &str = "at most one attempt of a context may write";
const STALE: &str = "nothing is written after a later take or a recovery";
const CANCELED: &str = "after a cancel only its end is accepted";
const TERMINAL: &str = "terminal states absorb";
const AS_READ: &str = "what is settled is what was read";
const KNOWN: &str = "an unknown outcome is never taken for a loss";
const CHARGED: &str = "only the loss of a begun attempt is charged";
const ALONE: &str = "a worker runs one last attempt at the most";
const MEANT: &str = "a cancel touches no turn but the one that it was meant for";
const UNANSWERED: &str = "nothing but its answer resumes a suspended turn";
const ENDS: &str = "wherever a turn stands, it ends without the help of any worker";

impl Model for Cluster {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.possible(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.act(&mut next, action);
        next.forget_what_cannot_matter();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn not(state: &State, broken: &[Broken]) -> bool {
            state.broken.is_none_or(|b| !broken.contains(&b))
        }
        let mut properties = vec![
            Property::always(ONE_LEASE, |cluster: &Self, state: &State| {
                (0..state.contexts.len()).all(|context| cluster.writers(state, context) <= 1)
            }),
            Property::always(STALE, |_, state: &State| not(state, &[Broken::StaleWrite])),
            Property::always(CANCELED, |_, state: &State| not(state, &[Broken::AfterCancel])),
            Property::always(TERMINAL, |_, state: &State| not(state, &[Broken::TerminalChanged])),
            Property::always(AS_READ, |_, state: &State| {
                not(state, &[Broken::SettledAnother, Broken::SettledALease])
            }),
            Property::always(KNOWN, |_, state: &State| not(state, &[Broken::Diverged])),
            Property::always(CHARGED, |_, state: &State| not(state, &[Broken::Charged])),
            Property::always(ALONE, |_, state: &State| {
                let last = |slot: &&Slot| matches!(slot, Slot::Holds(b) if b.last && !b.dead);
                state.workers.iter().all(|w| w.slots.iter().filter(last).count() <= 1)
            }),
            Property::always(MEANT, |_, state: &State| {
                state.contexts.iter().all(|c| !c.canceled || c.meant == c.turn)
            }),
            Property::always(UNANSWERED, |_, state: &State| not(state, &[Broken::Unanswered])),
            Property::always(ENDS, Cluster::ends_without_workers),
            Property::sometimes("a recovered turn completes", |_, state: &State| {
                let c = &state.contexts[0];
                c.completed() && c.tries.charged > 0
            }),
            Property::sometimes("the cancel wins", |_, state: &State| {
                let c = &state.contexts[0];
                c.canceled_end() && c.asked == Asked::Accepted
            }),
            Property::sometimes("the end wins", |_, state: &State| {
                let c = &state.contexts[0];
                c.completed() && c.asked == Asked::TooLate
            }),
            Property::sometimes(
                "a write of a lost lease is refused while another attempt runs",
                |_, state: &State| {
                    let refused = state.workers.iter().any(|w| w.slots[0] == Slot::Refused);
                    refused && matches!(state.contexts[0].stage, Stage::Leased { .. })
                },
            ),
            Property::sometimes(
                "a worker wakes up after its turn was taken by another",
                |_, state: &State| {
                    let awake = |w: &Worker| !w.asleep && matches!(&w.slots[0], Slot::Holds(b) if b.late);
                    state.workers.iter().any(awake) && matches!(state.contexts[0].stage, Stage::Leased { .. })
                },
            ),
            Property::sometimes("every attempt crashes and the turn fails", |_, state: &State| {
                let c = &state.contexts[0];
                c.failed() && c.tries.charged + 1 == ATTEMPTS
            }),
        ];
        if self.suspends {
            properties.push(Property::sometimes(
                "a turn that was suspended and recovered is asking again",
                |_, state: &State| {
                    let c = &state.contexts[0];
                    c.stage == Stage::Suspended && c.tries.charged > 0
                },
            ));
        }
        if self.records[0].handbacks > 0 {
            properties.push(Property::sometimes(
                "a turn that was handed back completes",
                |_, state: &State| {
                    let c = &state.contexts[0];
                    c.completed() && c.tries.handbacks > 0
                },
            ));
        }
        properties
    }
}

/// Explores everything. Says how much there was, for people who read the output.
#[expect(clippy::print_stderr, reason = "figures for people")]
fn explore(name: &str, cluster: Cluster) {
    let started = Instant::now();
    let checker = cluster
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    eprintln!(
        "{name}: {} states, {} steps, depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed().as_secs_f64()
    );
    checker.assert_properties();
    assert!(
        checker.is_done() && checker.unique_state_count() > 10_000,
        "the model does not move"
    );
}

/// Answers are lost, requests outlive their workers, something comes between every look and what is done about it.
#[test]
fn one_context_keeps_every_law_in_every_history() {
    explore("one context, one turn", Cluster::of(&[CrashPolicy::Restart], 1));
}

#[test]
fn a_context_keeps_every_law_from_turn_to_turn() {
    let cluster = Cluster {
        turns: 2,
        lossy: false,
        ..Cluster::of(&[CrashPolicy::Restart], 1)
    };
    explore("one context, two turns, looks", cluster);
    let cluster = Cluster {
        turns: 2,
        looks: false,
        ..Cluster::of(&[CrashPolicy::Restart], 0)
    };
    explore("one context, two turns, lost answers", cluster);
}

/// One turn behind another, cancelled there, promoted, or in the place of both.
#[test]
fn a_turn_that_waits_keeps_every_law_in_every_history() {
    let cluster = Cluster {
        turns: 2,
        waits: 1,
        lossy: false,
        ..Cluster::of(&[CrashPolicy::Restart], 1)
    };
    explore("one context, a turn that waits, looks", cluster);
    let cluster = Cluster {
        turns: 2,
        waits: 1,
        looks: false,
        ..Cluster::of(&[CrashPolicy::Restart], 0)
    };
    explore("one context, a turn that waits, lost answers", cluster);
}

/// An agent that asks its user, who answers, or never does, while leases run out, workers die and others take the turn.
#[test]
fn a_turn_that_waits_for_its_user_keeps_every_law_in_every_history() {
    let cluster = Cluster {
        suspends: true,
        lossy: false,
        ..Cluster::of(&[CrashPolicy::Restart], 1)
    };
    explore("one context, a turn that is suspended, looks", cluster);
    let cluster = Cluster {
        suspends: true,
        looks: false,
        ..Cluster::of(&[CrashPolicy::Restart], 0)
    };
    explore("one context, a turn that is suspended, lost answers", cluster);
    let cluster = Cluster {
        turns: 2,
        waits: 1,
        suspends: true,
        lossy: false,
        looks: false,
        ..Cluster::of(&[CrashPolicy::Restart], 1)
    };
    explore("one context, a turn behind one that is suspended", cluster);
}

/// What workers have in common: they die with all their turns, and run one last attempt at a time.
#[test]
fn two_contexts_keep_every_law_in_every_history() {
    for other in [CrashPolicy::Restart, CrashPolicy::Fail] {
        let cluster = Cluster {
            lossy: false,
            looks: false,
            ..Cluster::of(&[CrashPolicy::Restart, other], 0)
        };
        explore(&format!("two contexts, {other:?}"), cluster);
    }
}

/// A model that cannot fail shows nothing: each rule, left out, is found out by the property that it stands for.
#[test]
#[expect(clippy::print_stderr, reason = "figures for people")]
fn each_rule_is_needed() {
    let needed = [
        (Rule::Token, STALE),
        (Rule::ClearToken, STALE),
        (Rule::RepeatIsKnown, KNOWN),
        (Rule::CancelStopsWrites, CANCELED),
        (Rule::CancelStopsEnds, CANCELED),
        (Rule::CancelAsRead, CANCELED),
        (Rule::LeaseAsRead, AS_READ),
        (Rule::OnlyExpired, AS_READ),
        (Rule::Terminal, TERMINAL),
        (Rule::LastAlone, ALONE),
        (Rule::Due, ENDS),
        (Rule::Promote, ENDS),
        (Rule::ClearCancel, MEANT),
        (Rule::SuspendReleases, UNANSWERED),
        (Rule::CancelStopsAnswers, CANCELED),
        (Rule::SuspendedDue, ENDS),
    ];
    assert_eq!(needed.map(|(rule, _)| rule), Rule::ALL);
    let two = [CrashPolicy::Restart; 2];
    for (rule, property) in needed {
        let contexts = if rule == Rule::LastAlone { 2 } else { 1 };
        let cluster = Cluster {
            turns: 2,
            waits: u8::from(matches!(
                rule,
                Rule::Promote | Rule::ClearCancel | Rule::CancelStopsAnswers
            )),
            suspends: matches!(
                rule,
                Rule::SuspendReleases | Rule::CancelStopsAnswers | Rule::SuspendedDue
            ),
            without: Some(rule),
            ..Cluster::of(&two[..contexts], 1)
        };
        let wanted = HasDiscoveries::AnyOf([property].into());
        let checker = cluster.checker().finish_when(wanted).spawn_bfs().join();
        let found = checker.discovery(property);
        let path = found.unwrap_or_else(|| panic!("without {rule:?} it is still true that {property}"));
        eprintln!("without {rule:?}, not always: {property}\n  {:?}", path.into_actions());
    }
}
