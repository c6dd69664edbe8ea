//! Which fault hits whom, when and for how long: a pure function of the seed.
//!
//! Kinds are dealt like cards, so that each has come before any comes again. Most faults have the cluster to themselves, which
//! makes their recovery measurable; every fourth slot has two at once.

use std::fmt;
use std::time::Duration;

use super::random::Random;

/// Nothing happens at first, which is what recoveries are compared with.
pub const QUIET: Duration = Duration::from_secs(4);
/// Nothing new happens at last, so that recoveries are seen.
const TAIL: Duration = Duration::from_secs(3);
/// Which part of the run's numbers is the schedule's.
const PART: u64 = 1;
/// One slot in so many has two faults.
const DOUBLE: u64 = 4;

/// How long a worker is out of reach, in ms, when others shall have taken its turns over: leases last four seconds, and a janitor
/// looks once a second.
const BEYOND: (u64, u64) = (5_200, 7_000);

/// How many slots move at once, and of how many partitions' slots the first is chosen.
pub const MOVES: u16 = 12;
const PARTITIONS: usize = 64;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SIGKILL of a gateway; another takes its place later.
    KillGateway,
    /// SIGKILL of a worker; another takes its place later.
    KillWorker,
    /// SIGKILL of redis-server; it starts again with its append-only file.
    KillRedis,
    /// SIGSTOP of a gateway, SIGCONT later.
    StopGateway,
    /// SIGSTOP of a worker, some beyond its leases; SIGCONT later.
    StopWorker,
    /// SIGSTOP of redis-server, SIGCONT later.
    StopRedis,
    /// Redis lets nobody publish or listen: neither doorbells nor cancels are told. Or only cancels are not.
    MuteRedis,
    /// Slots move from node to node of a Redis Cluster; for a while half of their keys are on either side.
    MoveSlots,
    /// SIGTERM of a gateway while its replacement serves already.
    RollGateway,
    /// SIGTERM of a worker while its replacement works already.
    RollWorker,
    /// All connections of a process to Redis are closed.
    CutRedis,
    /// What a process and Redis send each other comes late.
    DelayRedis,
    /// Nothing passes between a process and Redis, and nothing is closed.
    HalfOpenRedis,
    /// All connections between clients and a gateway or the load balancer are closed.
    CutClient,
    /// What clients and a gateway send each other comes late.
    DelayClient,
    /// Nothing passes between clients and a gateway, and nothing is closed.
    HalfOpenClient,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::KillGateway,
        Self::KillWorker,
        Self::KillRedis,
        Self::StopGateway,
        Self::StopWorker,
        Self::StopRedis,
        Self::MuteRedis,
        Self::MoveSlots,
        Self::RollGateway,
        Self::RollWorker,
        Self::CutRedis,
        Self::DelayRedis,
        Self::HalfOpenRedis,
        Self::CutClient,
        Self::DelayClient,
        Self::HalfOpenClient,
    ];

    /// The word in settings and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KillGateway => "kill-gateway",
            Self::KillWorker => "kill-worker",
            Self::KillRedis => "kill-redis",
            Self::StopGateway => "stop-gateway",
            Self::StopWorker => "stop-worker",
            Self::StopRedis => "stop-redis",
            Self::MuteRedis => "mute-redis",
            Self::MoveSlots => "move-slots",
            Self::RollGateway => "roll-gateway",
            Self::RollWorker => "roll-worker",
            Self::CutRedis => "cut-redis",
            Self::DelayRedis => "delay-redis",
            Self::HalfOpenRedis => "half-open-redis",
            Self::CutClient => "cut-client",
            Self::DelayClient => "delay-client",
            Self::HalfOpenClient => "half-open-client",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// How long it lasts, in ms, at least and at most.
    fn lasts(self) -> (u64, u64) {
        match self {
            Self::KillGateway | Self::KillWorker | Self::StopRedis => (300, 3_000),
            Self::KillRedis => (200, 4_000),
            Self::MoveSlots => (100, 2_000),
            // A roll lasts as long as it takes; this is the room that it gets.
            Self::RollGateway | Self::RollWorker => (3_000, 3_000),
            Self::CutRedis | Self::CutClient => (0, 0),
            Self::DelayRedis | Self::DelayClient | Self::MuteRedis => (2_000, 4_000),
            Self::StopGateway | Self::HalfOpenClient => (500, 7_000),
            Self::StopWorker | Self::HalfOpenRedis => (500, 4_000),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whom a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Victim {
    /// The Redis server, or the node of that place.
    Redis(usize),
    /// So many partitions from that one on.
    Slots(u16),
    /// The gateway of that place.
    Gateway(usize),
    /// The worker of that place.
    Worker(usize),
    /// The load balancer's entry.
    Entry,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(place) => write!(f, "redis {place}"),
            Self::Slots(first) => write!(f, "slots of {MOVES} partitions from {first}"),
            Self::Gateway(place) => write!(f, "gateway {place}"),
            Self::Worker(place) => write!(f, "worker {place}"),
            Self::Entry => f.write_str("load balancer"),
        }
    }
}

/// A fault to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// Whom.
    pub victim: Victim,
    /// When it begins, from the start of the run.
    pub at: Duration,
    /// How long until it is healed.
    pub lasts: Duration,
    /// How late things come, for delays.
    pub late: Duration,
    /// Whether a half-open connection is cut in the end; else what it held arrives after all. Of a mute: whether doorbells are
    /// told, and only cancels are not.
    pub cut: bool,
    /// Whether another fault shares its slot.
    pub paired: bool,
}

/// What is scheduled for.
#[derive(Debug, Clone)]
pub struct Ground {
    /// How long faults may come.
    pub length: Duration,
    /// How many nodes Redis has; there is a proxy before each if they are several, else one before each process.
    pub nodes: usize,
    /// How many gateways.
    pub gateways: usize,
    /// How many workers.
    pub workers: usize,
    /// Whether clients come through a load balancer, too.
    pub balanced: bool,
    /// Which kinds.
    pub kinds: Vec<Kind>,
}

impl Ground {
    /// The kinds that can be carried out there.
    fn possible(&self) -> Vec<Kind> {
        let possible = |kind: &&Kind| **kind != Kind::MoveSlots || self.nodes > 1;
        self.kinds.iter().filter(possible).copied().collect()
    }
}

/// The faults of a seed, by their beginning.
pub fn plan(seed: u64, ground: &Ground) -> Vec<Fault> {
    let mut random = Random::new(seed, PART);
    let mut faults: Vec<Fault> = Vec::new();
    let mut deck = Vec::new();
    let mut at = QUIET;
    let end = ground.length.saturating_sub(TAIL);
    let kinds = ground.possible();
    if kinds.is_empty() {
        return faults;
    }
    loop {
        let double = random.below(DOUBLE) == 0 && kinds.len() > 1;
        let Some(first) = deal(&mut random, &mut deck, (&kinds, ground), at) else {
            return faults;
        };
        let mut over = first.at + first.lasts;
        if over > end {
            return faults;
        }
        let second = if double {
            let late = at + Duration::from_millis(random.below(800));
            deal(&mut random, &mut deck, (&kinds, ground), late)
        } else {
            None
        };
        let second = second.filter(|fault| fault.victim != first.victim && fault.at + fault.lasts <= end);
        faults.push(Fault {
            paired: second.is_some(),
            ..first
        });
        if let Some(second) = second {
            over = over.max(second.at + second.lasts);
            faults.push(Fault { paired: true, ..second });
        }
        at = over + Duration::from_millis(random.between(700, 2_200));
    }
}

/// A fault of the next kind of the deck.
fn deal(random: &mut Random, deck: &mut Vec<Kind>, (kinds, ground): (&[Kind], &Ground), at: Duration) -> Option<Fault> {
    if deck.is_empty() {
        deck.extend_from_slice(kinds);
        random.shuffle(deck);
    }
    let kind = deck.pop()?;
    // What a worker wrote before it was out of reach must arrive when its turns are others' already.
    let beyond = random.chance(50)
        && match kind {
            Kind::StopWorker | Kind::HalfOpenRedis => true,
            // The leases of one node must not cost those of the others.
            Kind::StopRedis => ground.nodes > 1,
            _ => false,
        };
    let (least, most) = if beyond { BEYOND } else { kind.lasts() };
    let lasts = Duration::from_millis(random.between(least, most));
    Some(Fault {
        kind,
        victim: victim(random, kind, ground),
        at,
        lasts,
        late: match kind {
            Kind::DelayRedis => Duration::from_millis(random.between(5, 60)),
            Kind::DelayClient => Duration::from_millis(random.between(20, 250)),
            _ => Duration::ZERO,
        },
        cut: random.chance(50) && !beyond,
        paired: false,
    })
}

fn victim(random: &mut Random, kind: Kind, ground: &Ground) -> Victim {
    let gateway = Victim::Gateway(random.place(ground.gateways));
    let worker = Victim::Worker(random.place(ground.workers));
    let node = Victim::Redis(random.place(ground.nodes));
    let coin = random.chance(60);
    match kind {
        Kind::KillRedis | Kind::StopRedis | Kind::MuteRedis => node,
        Kind::MoveSlots => Victim::Slots(u16::try_from(random.place(PARTITIONS)).unwrap_or_default()),
        Kind::KillWorker | Kind::StopWorker | Kind::RollWorker => worker,
        Kind::CutRedis | Kind::DelayRedis | Kind::HalfOpenRedis if ground.nodes > 1 => node,
        Kind::CutRedis | Kind::DelayRedis | Kind::HalfOpenRedis if coin => worker,
        Kind::CutClient | Kind::DelayClient | Kind::HalfOpenClient if coin && ground.balanced => Victim::Entry,
        _ => gateway,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn ground(seconds: u64) -> Ground {
        Ground {
            length: Duration::from_secs(seconds),
            nodes: 1,
            gateways: 4,
            workers: 3,
            balanced: true,
            kinds: Kind::ALL.to_vec(),
        }
    }

    #[test]
    fn a_seed_gives_always_the_same_faults_and_another_seed_others() {
        assert_eq!(plan(7, &ground(600)), plan(7, &ground(600)));
        assert_ne!(plan(7, &ground(600)), plan(8, &ground(600)));
    }

    #[test]
    fn a_longer_run_begins_like_a_shorter_one() {
        let (short, long) = (plan(3, &ground(60)), plan(3, &ground(600)));
        assert_eq!(long[..short.len() - 1], short[..short.len() - 1]);
    }

    #[test]
    fn faults_keep_to_their_time_and_to_their_victims() {
        for seed in 0..200 {
            let nodes = if seed % 2 == 0 { 1 } else { 3 };
            let ground = Ground { nodes, ..ground(60) };
            let faults = plan(seed, &ground);
            assert!(faults.len() >= 8, "seed {seed}: {}", faults.len());
            let mut over = QUIET;
            for fault in &faults {
                assert!(fault.at >= QUIET && fault.at + fault.lasts + TAIL <= ground.length);
                assert!(fault.paired || fault.at >= over, "seed {seed}: {fault:?} is not alone");
                over = over.max(fault.at + fault.lasts);
                match fault.victim {
                    Victim::Gateway(place) => assert!(place < 4),
                    Victim::Worker(place) => assert!(place < 3),
                    Victim::Redis(place) => {
                        let all = matches!(fault.kind, Kind::KillRedis | Kind::StopRedis | Kind::MuteRedis);
                        assert!(place < nodes && (all || nodes > 1));
                    }
                    Victim::Slots(_) => assert!(nodes > 1 && fault.kind == Kind::MoveSlots),
                    Victim::Entry => assert!(fault.kind.as_str().ends_with("client")),
                }
            }
        }
    }

    #[test]
    fn every_kind_comes_before_one_comes_again() {
        for seed in 0..50 {
            let kinds = plan(seed, &ground(600)).into_iter().map(|fault| fault.kind);
            let first: BTreeSet<Kind> = kinds.take(19).collect();
            // A second fault of a slot that does not fit is passed over.
            assert!(first.len() >= 13, "seed {seed}: {first:?}");
        }
    }

    #[test]
    fn only_what_is_wanted_comes() {
        let narrow = Ground {
            kinds: vec![Kind::KillWorker],
            ..ground(60)
        };
        let faults = plan(1, &narrow);
        assert!(faults.len() > 5 && faults.iter().all(|fault| fault.kind == Kind::KillWorker));
        let none = Ground {
            kinds: Vec::new(),
            ..ground(60)
        };
        assert_eq!(plan(1, &none), []);
    }

    #[test]
    fn words_name_kinds() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(Kind::parse("kill-client"), None);
    }
}
