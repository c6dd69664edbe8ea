//! What happened over time: turns per second and latencies in buckets, and how fast the cluster recovered from each fault.
//! Pure. Times are milliseconds of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::history::Turn;
use super::schedule::{Fault, Kind};
use super::{count, real};

/// Throughput is back when a second has this share of what is usual.
const BACK: f64 = 0.5;
/// Throughput is measured over so long.
const WINDOW: u64 = 1_000;
/// How far its throughput is looked at in steps.
const STEP: u64 = 100;
/// So close to each other faults are not told apart; and the last event of a stream can be so old when a fault begins.
const NEAR: u64 = 300;
/// Within this time of its end a fault can be blamed.
const BLAME: u64 = 10_000;

/// A fault that was carried out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Strike {
    /// As it was scheduled.
    pub fault: Fault,
    /// When it began.
    pub from: u64,
    /// When it was healed.
    pub to: u64,
}

/// Something that a client met: the start of a stretch of trying again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// When.
    pub at: u64,
    /// The label of the error.
    pub kind: String,
}

/// Everything that is drawn.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// The turns.
    pub turns: Vec<Turn>,
    /// When events came, over all streams, in order.
    pub events: Vec<u64>,
    /// What clients met.
    pub troubles: Vec<Trouble>,
    /// The faults.
    pub strikes: Vec<Strike>,
    /// How long load was given.
    pub length: u64,
}

/// A stretch of the run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bucket {
    /// Where it begins.
    pub from: u64,
    /// Turns that ended.
    pub turns: u64,
    /// Events that came.
    pub events: u64,
    /// Errors that clients met.
    pub errors: u64,
    /// Middle and 99th percentile of the first event of turns that were sent in it, in ms.
    pub first: Option<(u64, u64)>,
    /// The same of the end.
    pub turn: Option<(u64, u64)>,
}

/// How the cluster took a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recovery {
    /// The fault.
    pub strike: Strike,
    /// From its beginning until a second had half of the usual throughput again; 0: it always had. `None`: the run was over.
    pub back: Option<u64>,
    /// The longest time in which no stream at all had an event.
    pub gap: u64,
    /// The longest silence of one stream that began while it lasted.
    pub silence: u64,
    /// The worst second, as a share of the usual throughput.
    pub worst: f64,
    /// Whether no other fault came at the same time.
    pub alone: bool,
}

/// The value below which a share of the sorted list lies.
pub fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the length of a list"
    )]
    let place = (real(count(last)) * share).round() as usize;
    sorted.get(place.min(last)).copied()
}

fn pair(mut times: Vec<u64>) -> Option<(u64, u64)> {
    times.sort_unstable();
    Some((quantile(&times, 0.5)?, quantile(&times, 0.99)?))
}

/// Milliseconds of a time.
pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The run in stretches of `width` ms.
pub fn buckets(course: &Course, width: u64) -> Vec<Bucket> {
    let number = usize::try_from(course.length.div_ceil(width.max(1))).unwrap_or(0);
    let mut all: Vec<Bucket> = (0..number)
        .map(|place| Bucket {
            from: count(place) * width,
            ..Bucket::default()
        })
        .collect();
    let place = |at: u64| usize::try_from(at / width.max(1)).unwrap_or(usize::MAX);
    let mut latencies: BTreeMap<usize, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
    for turn in &course.turns {
        if let Some(bucket) = turn.ended.and_then(|at| all.get_mut(place(at))) {
            bucket.turns += 1;
        }
        let (first, whole) = latencies.entry(place(turn.sent)).or_default();
        first.extend(turn.first.map(|at| at - turn.sent.min(at)));
        whole.extend(turn.ended.map(|at| at - turn.sent.min(at)));
    }
    for event in &course.events {
        if let Some(bucket) = all.get_mut(place(*event)) {
            bucket.events += 1;
        }
    }
    for trouble in &course.troubles {
        if let Some(bucket) = all.get_mut(place(trouble.at)) {
            bucket.errors += 1;
        }
    }
    for (place, (first, whole)) in latencies {
        if let Some(bucket) = all.get_mut(place) {
            (bucket.first, bucket.turn) = (pair(first), pair(whole));
        }
    }
    all
}

/// Events in the window that begins there.
fn within(events: &[u64], from: u64, length: u64) -> u64 {
    let begin = events.partition_point(|at| *at < from);
    let end = events.partition_point(|at| *at < from + length);
    count(end - begin.min(end))
}

/// The usual number of events in a second: the middle of those in which nothing was hurt, nor just before.
pub fn usual(course: &Course) -> f64 {
    let hurt = |from: u64| {
        let strikes = course.strikes.iter();
        strikes
            .clone()
            .any(|strike| strike.from < from + WINDOW && from < strike.to + WINDOW)
    };
    let seconds = (1..course.length / WINDOW).map(|second| second * WINDOW);
    let mut quiet: Vec<u64> = seconds
        .clone()
        .filter(|from| !hurt(*from))
        .map(|from| within(&course.events, from, WINDOW))
        .collect();
    quiet.sort_unstable();
    quantile(&quiet, 0.5).map_or(0.0, real)
}

/// How the cluster took each fault, in their order.
pub fn recoveries(course: &Course) -> Vec<Recovery> {
    let usual = usual(course);
    course
        .strikes
        .iter()
        .map(|strike| recovery(course, *strike, usual))
        .collect()
}

fn recovery(course: &Course, strike: Strike, usual: f64) -> Recovery {
    let blamed = (strike.to + BLAME).min(course.length);
    let next = course
        .strikes
        .iter()
        .map(|other| other.from)
        .filter(|from| *from > strike.to)
        .min();
    let until = next.map_or(blamed, |next| next.min(blamed));
    let share = |from: u64| real(within(&course.events, from, WINDOW)) / usual.max(1.0);
    // A second counts when its end is still this fault's time.
    let moments = || {
        (strike.from..)
            .step_by(100)
            .take_while(move |from| from + WINDOW <= until.max(strike.from + WINDOW))
    };
    let worst = moments().map(share).fold(1.0, f64::min);
    let back = if worst >= BACK {
        Some(0)
    } else {
        let low = moments().find(|from| share(*from) < BACK).unwrap_or(strike.from);
        let limit = course.length.saturating_sub(WINDOW);
        let again = (low..=limit)
            .step_by(usize::try_from(STEP).unwrap_or(1))
            .find(|from| share(*from) >= BACK);
        again.map(|from| from.saturating_sub(strike.from))
    };
    let begin = course.events.partition_point(|at| *at < strike.from).saturating_sub(1);
    let concerned = course.events.get(begin..).unwrap_or_default();
    // What lies before it, or in the time of the next one, is not this fault's.
    let gaps = concerned.windows(2).filter_map(|pair| match pair {
        [one, two] if *one <= until => Some(until.min(*two).saturating_sub(strike.from.max(*one))),
        _ => None,
    });
    let silences = course.turns.iter().flat_map(|turn| &turn.silences);
    let began = silences.filter(|(from, _)| (strike.from.saturating_sub(NEAR)..=strike.to).contains(from));
    let meets = |other: &&Strike| other.from < strike.to + NEAR && strike.from < other.to + NEAR;
    Recovery {
        strike,
        back,
        gap: gaps.max().unwrap_or(0),
        silence: began.map(|(from, to)| to - from).max().unwrap_or(0),
        worst,
        // It meets itself.
        alone: course.strikes.iter().filter(meets).count() == 1,
    }
}

/// How the cluster takes a kind of fault: of faults that came alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The kind.
    pub kind: Kind,
    /// How many there were.
    pub faults: u64,
    /// How many of them came alone, which the figures are of.
    pub alone: u64,
    /// After how many of these the run was over before throughput was back; they are not in the figures.
    pub open: u64,
    /// Middle and worst time until throughput was back.
    pub back: Option<(u64, u64)>,
    /// Middle and worst gap of everything.
    pub gap: Option<(u64, u64)>,
    /// Middle and worst silence of a stream.
    pub silence: Option<(u64, u64)>,
}

/// The recoveries by kind.
pub fn summaries(recoveries: &[Recovery]) -> Vec<Summary> {
    let middle_and_worst = |mut times: Vec<u64>| {
        times.sort_unstable();
        Some((quantile(&times, 0.5)?, *times.last()?))
    };
    let of = |kind: Kind| {
        let ours: Vec<&Recovery> = recoveries.iter().filter(|one| one.strike.fault.kind == kind).collect();
        let alone: Vec<&&Recovery> = ours.iter().filter(|one| one.alone).collect();
        Summary {
            kind,
            faults: count(ours.len()),
            alone: count(alone.len()),
            open: count(alone.iter().filter(|one| one.back.is_none()).count()),
            back: middle_and_worst(alone.iter().filter_map(|one| one.back).collect()),
            gap: middle_and_worst(alone.iter().map(|one| one.gap).collect()),
            silence: middle_and_worst(alone.iter().map(|one| one.silence).collect()),
        }
    };
    Kind::ALL
        .into_iter()
        .map(of)
        .filter(|summary| summary.faults > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::schedule::Victim;

    fn strike(from: u64, to: u64) -> Strike {
        let fault = Fault {
            kind: Kind::KillRedis,
            victim: Victim::Redis(0),
            at: Duration::from_millis(from),
            lasts: Duration::from_millis(to - from),
            late: Duration::ZERO,
            cut: false,
            paired: false,
        };
        Strike { fault, from, to }
    }

    /// An event each 10 ms, but for one stretch.
    fn course(silent: std::ops::Range<u64>, strikes: Vec<Strike>) -> Course {
        Course {
            events: (0..30_000).step_by(10).filter(|at| !silent.contains(at)).collect(),
            strikes,
            length: 30_000,
            ..Course::default()
        }
    }

    #[test]
    fn a_fault_that_nobody_felt_has_no_recovery() {
        let course = course(0..0, vec![strike(10_000, 11_000)]);
        assert!((usual(&course) - 100.0).abs() < f64::EPSILON);
        let [recovery] = recoveries(&course)[..] else {
            unreachable!()
        };
        assert_eq!((recovery.back, recovery.gap, recovery.silence), (Some(0), 10, 0));
        assert!(recovery.worst > 0.99);
    }

    #[test]
    fn the_time_until_events_come_again_is_told() {
        let course = course(10_000..14_000, vec![strike(10_000, 12_000)]);
        let [recovery] = recoveries(&course)[..] else {
            unreachable!()
        };
        // A second that begins half a second before the return has half of the usual.
        assert_eq!(recovery.back, Some(3_500));
        assert_eq!(recovery.gap, 4_000);
        assert!(recovery.worst < 0.01);
    }

    #[test]
    fn a_silence_is_of_the_fault_in_which_it_began() {
        let turn = Turn {
            silences: vec![(9_900, 15_000), (13_000, 13_500)],
            ..crate::chaos::history::tests::turn("a")
        };
        let course = Course {
            turns: vec![turn],
            ..course(
                0..0,
                vec![strike(10_000, 11_000), strike(12_900, 13_200), strike(14_000, 14_500)],
            )
        };
        let silences: Vec<u64> = recoveries(&course).iter().map(|one| one.silence).collect();
        assert_eq!(silences, [5_100, 500, 0]);
    }

    #[test]
    fn what_never_comes_back_has_no_time() {
        let course = course(10_000..30_000, vec![strike(10_000, 12_000)]);
        assert_eq!(recoveries(&course)[0].back, None);
    }

    #[test]
    fn another_fault_that_follows_is_not_blamed_on_the_first() {
        let course = course(15_000..16_000, vec![strike(10_000, 11_000), strike(14_900, 15_500)]);
        let [first, second] = recoveries(&course)[..] else {
            unreachable!()
        };
        assert_eq!((first.back, first.gap), (Some(0), 10));
        assert_eq!(second.gap, 1_010);
        assert!(first.alone && second.alone);
        assert!(second.worst < 0.3);
    }

    #[test]
    fn quantiles_are_of_the_list() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7], 0.99), Some(7));
        let hundred: Vec<u64> = (1..=101).collect();
        assert_eq!(
            (quantile(&hundred, 0.5), quantile(&hundred, 0.99)),
            (Some(51), Some(100))
        );
    }

    #[test]
    fn faults_that_came_together_are_counted_and_not_measured() {
        let strikes = [(10_000, 11_000), (20_000, 21_000), (20_500, 22_000)].map(|(from, to)| strike(from, to));
        let course = course(0..0, strikes.to_vec());
        let [summary] = summaries(&recoveries(&course))[..] else {
            unreachable!()
        };
        assert_eq!((summary.faults, summary.alone, summary.back), (3, 1, Some((0, 0))));
    }

    #[test]
    fn buckets_hold_what_ended_in_them_and_how_long_what_began_in_them_took() {
        let mut course = course(0..0, Vec::new());
        course.troubles = vec![Trouble {
            at: 1_500,
            kind: "broken".to_owned(),
        }];
        let buckets = buckets(&course, 1_000);
        assert_eq!((buckets.len(), buckets[1].events, buckets[1].errors), (30, 100, 1));
        assert_eq!((buckets[0].errors, buckets[0].turn), (0, None));
    }
}
