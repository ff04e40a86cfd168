//! Locks by message whose holders, waiters and homes are killed or stopped under load.
//!
//! Survivors go on with every lock; a token smaller than one that the resource has seen never
//! comes; a state that a dead holder left half changed is never had without a warning; a stopped
//! holder is not taken for a dead one. Managers answer when they poll, or by a thread.
//!
//! `cargo test -p towpath-mplock --test deaths -- central` runs only the cases of that name;
//! `every` before it kills 1,000 times for each protocol and way instead of 30 or 10.

#![allow(missing_docs, reason = "a test")]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use towpath_am::WorldConfig;
use towpath_machine::{Native, Processor, Random};
use towpath_mplock::{Error, Guard, Lock, Manager, Progress, Protocol};
use towpath_shm::World;
use towpath_testkit::{Child, Choice, pin_to, shared_words, two_cores, watchdog};

const RANKS: usize = 6;
const LOCKS: usize = 4;
/// Lock without data, which its users use often in a row: it is lent.
const LENT: usize = LOCKS - 1;
/// Number of kills in one world.
const KILLS: usize = 4;
/// Time-out for survivors to go on.
const LIMIT: Duration = Duration::from_secs(20);
/// Number of acquisitions of each lock by which each survivor has gone on.
const GOES_ON: u64 = 3;

/// Page of a world: a resource for each lock, and each rank's progress.
#[derive(Clone, Copy)]
struct Page(&'static [AtomicU64]);

impl Page {
    const RESOURCE: usize = 7;
    const WORDS: usize = 2 + LOCKS * Page::RESOURCE + RANKS * LOCKS + RANKS;

    /// Number of loans of the ranks that have ended well.
    fn loans(self) -> &'static AtomicU64 {
        &self.0[1]
    }

    /// 1: finish; 2: end.
    fn order(self) -> &'static AtomicU64 {
        &self.0[0]
    }
    /// Two words that are equal while the state is consistent, the largest token, the
    /// holder's rank plus one, the time of the last grant, the number of warnings, and the number
    /// in the lock's data.
    fn resource(self, lock: usize) -> &'static [AtomicU64] {
        &self.0[2 + lock * Page::RESOURCE..][..Page::RESOURCE]
    }
    fn progress(self, rank: usize, lock: usize) -> &'static AtomicU64 {
        &self.0[2 + LOCKS * Page::RESOURCE + rank * LOCKS + lock]
    }
    fn has_finished(self, rank: usize) -> &'static AtomicU64 {
        &self.0[2 + LOCKS * Page::RESOURCE + RANKS * LOCKS + rank]
    }
    fn holder(self, lock: usize) -> Option<usize> {
        (self.resource(lock)[3].load(SeqCst) as usize).checked_sub(1)
    }
}

fn now() -> u64 {
    Native::with_id(0).now()
}

/// Changes the state under a lock in two steps.
fn write(page: Page, lock: usize, rank: usize, guard: &mut Guard<'_>, random: &mut Random) {
    let [one, other, largest, holder, granted, warnings, number] = page.resource(lock) else {
        unreachable!()
    };
    let token = guard.token().get();
    assert!(token > largest.fetch_max(token, SeqCst), "rank {rank}: a stale token");
    holder.store(rank as u64 + 1, SeqCst);
    granted.store(now(), SeqCst);
    if guard.previous_owner_died() {
        warnings.fetch_add(1, SeqCst);
        other.store(one.load(SeqCst), SeqCst);
        guard.make_consistent();
    }
    assert_eq!(one.load(SeqCst), other.load(SeqCst), "rank {rank}: no warning of a dead holder");
    let due = check_data(guard, number, rank) + 1;
    one.fetch_add(1, SeqCst);
    for _ in 0..random.below(if lock == LENT { 20 } else { 2000 }) {
        std::hint::spin_loop();
    }
    if random.below(200) == 0 && (lock != LENT || random.below(20) == 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    if lock != LENT {
        guard.set_data(&due.to_le_bytes().repeat(1 + random.below(512) as usize)).unwrap();
        number.store(due, SeqCst);
    }
    other.fetch_add(1, SeqCst);
    holder.store(0, SeqCst);
}

/// Checks the data that came with a lock, and returns their number.
///
/// They are whole, and those of the last release, if no death was told.
fn check_data(guard: &Guard<'_>, number: &AtomicU64, rank: usize) -> u64 {
    let (numbers, rest) = guard.data().as_chunks::<8>();
    let found = numbers.first().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    assert!(rest.is_empty() && numbers.iter().all(|bytes| u64::from_le_bytes(*bytes) == found));
    let expected = number.load(SeqCst);
    let told = guard.previous_owner_died();
    assert!(found == expected || told && found < expected, "rank {rank}: {found} instead of {expected}");
    found
}

fn member(world: &World, rank: usize, page: Page, (protocol, progress): Ways) {
    world.enter(Some(rank as u32)).unwrap();
    let manager = Manager::with_progress(world, progress).unwrap();
    let name = |n: usize| format!("lock {n}");
    let mut locks: Vec<Lock> = (0..LOCKS).map(|n| manager.lock_with(&name(n), protocol)).collect();
    let mut random = Random::new(rank as u64 + now());
    while page.order().load(SeqCst) == 0 {
        let n = random.below(LOCKS as u64) as usize;
        match random.below(16) {
            0 => drop(locks[n].acquire_shared().unwrap()),
            1 => {
                let patience = Duration::from_micros(random.below(500));
                if let Some(mut guard) = locks[n].acquire_timeout(patience).unwrap() {
                    write(page, n, rank, &mut guard, &mut random);
                }
            }
            3 => {
                if let Some(mut guard) = locks[n].try_acquire().unwrap() {
                    write(page, n, rank, &mut guard, &mut random);
                }
            }
            // The last handle goes: the node forgets the lock.
            2 => {
                locks[n] = {
                    let other = manager.lock_with("other", protocol);
                    drop(std::mem::replace(&mut locks[n], other));
                    manager.lock_with(&name(n), protocol)
                }
            }
            _ => {
                let is_lent = n == LENT && protocol != Protocol::Central;
                let times = if is_lent { 30 + random.below(120) } else { 1 };
                for _ in 0..times {
                    write(page, n, rank, &mut locks[n].acquire().unwrap(), &mut random);
                    (0..20).for_each(|_| std::hint::spin_loop());
                }
                page.progress(rank, n).fetch_add(1, SeqCst);
            }
        }
        if random.below(32) == 0 {
            let time = Duration::from_micros(random.below(1000));
            serve_or_compute(&manager, time);
        }
    }
    page.loans().fetch_add(manager.traffic().loans, SeqCst);
    page.has_finished(rank).store(1, SeqCst);
    while page.order().load(SeqCst) == 1 {
        serve_or_compute(&manager, Duration::from_millis(1));
    }
    drop((locks, manager));
    world.leave().unwrap();
}

/// Serves the others, or does without where a thread serves them.
fn serve_or_compute(manager: &Manager, time: Duration) {
    match manager.progress() {
        Progress::Poll => manager.wait(time),
        _ => std::thread::sleep(time),
    }
}

/// Protocol of the locks, and how managers answer while their processes compute.
type Ways = (Protocol, Progress);

struct Case<'a> {
    name: &'a str,
    page: Page,
    children: Vec<Option<Child>>,
}

impl Case<'_> {
    fn start<'a>(name: &'a str, world: &World, page: Page, ways: Ways) -> Case<'a> {
        for word in page.0 {
            word.store(0, SeqCst);
        }
        let start = |rank| Some(Child::fork(|| member(world, rank, page, ways)));
        Case { name, page, children: (0..RANKS).map(start).collect() }
    }

    fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..RANKS).filter(|&rank| self.children[rank].is_some())
    }

    /// Waits until `done`; fails if a process has ended meanwhile, or after the time-out.
    fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let start = Instant::now();
        while !done() {
            std::thread::sleep(Duration::from_micros(200));
            let ended = self.living().find(|&rank| {
                let child = self.children[rank].as_ref();
                child.is_some_and(|child| child.has_ended() && !child.has_ended_well())
            });
            assert!(ended.is_none(), "{}: {what}: rank {ended:?} failed", self.name);
            assert!(start.elapsed() < LIMIT, "{}: {what}: no end in sight: {}", self.name, self.state());
        }
    }

    fn state(&self) -> String {
        let progress =
            |rank| (0..LOCKS).map(|n| self.page.progress(rank, n).load(SeqCst)).collect::<Vec<_>>();
        let ranks: Vec<_> = self.living().map(|rank| (rank, progress(rank))).collect();
        let holders: Vec<_> = (0..LOCKS).map(|n| self.page.holder(n)).collect();
        format!("progress {ranks:?}, holders {holders:?}")
    }

    /// Waits until each living rank but `except` has had each of these locks a few times.
    fn all_go_on(&self, what: &str, except: Option<usize>, locks: impl Fn(usize) -> bool) {
        let pairs: Vec<(usize, usize)> = self
            .living()
            .filter(|&rank| Some(rank) != except)
            .flat_map(|rank| (0..LOCKS).map(move |n| (rank, n)))
            .filter(|&(_, n)| locks(n))
            .collect();
        let count = |&(rank, n): &(usize, usize)| self.page.progress(rank, n).load(SeqCst);
        let before: Vec<u64> = pairs.iter().map(count).collect();
        self.wait_until(what, || {
            pairs.iter().zip(&before).all(|(pair, before)| count(pair) >= before + GOES_ON)
        });
    }

    fn finish(self) {
        self.page.order().store(1, SeqCst);
        self.wait_until("finishing", || {
            self.living().all(|rank| self.page.has_finished(rank).load(SeqCst) == 1)
        });
        self.page.order().store(2, SeqCst);
        self.wait_until("ending", || self.children.iter().flatten().all(Child::has_ended_well));
    }
}

/// Fails if locks were not lent, and could be.
fn check_loans(name: &str, protocol: Protocol, loans: u64) {
    let has_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    assert!(loans > 0 || protocol == Protocol::Central || !has_cores, "{name}: no lock was lent");
}

/// Kills random ranks, holders as often as not; returns the times until the locks of dead
/// holders were granted again.
fn kills(name: &str, ways: Ways, rounds: usize, page: Page) -> (Vec<u64>, u64) {
    let mut random = Random::new(ways.0 as u64 + 1);
    let (mut times, mut warnings, mut loans) = (Vec::new(), 0, 0);
    for round in 0..rounds.div_ceil(KILLS) {
        let world = World::create(&WorldConfig::new(RANKS as u32).spec(None)).unwrap();
        let mut case = Case::start(name, &world, page, ways);
        case.all_go_on("at first", None, |_| true);
        for kill in 0..KILLS {
            watchdog::at((round * KILLS + kill) as u64);
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            let lock = random.below(LOCKS as u64) as usize;
            let held = (0..10_000).find_map(|_| page.holder(lock)).filter(|_| random.below(2) == 0);
            let living: Vec<usize> = case.living().collect();
            let victim = held
                .filter(|rank| living.contains(rank))
                .unwrap_or(living[random.below(living.len() as u64) as usize]);
            let start = now();
            case.children[victim].take().unwrap().kill();
            let granted = &page.resource(lock)[4];
            if page.holder(lock) == Some(victim) {
                case.wait_until("next grant", || page.holder(lock) != Some(victim));
                times.push(granted.load(SeqCst).saturating_sub(start));
            }
            case.all_go_on("after a kill", None, |_| true);
        }
        warnings += (0..LOCKS).map(|n| page.resource(n)[5].load(SeqCst)).sum::<u64>();
        case.finish();
        loans += page.loans().load(SeqCst);
    }
    check_loans(name, ways.0, loans);
    times.sort_unstable();
    (times, warnings)
}

/// Stops holders: their locks are not granted to others, and go on with them.
fn stops(name: &str, ways: Ways, rounds: usize, page: Page) -> (Vec<u64>, u64) {
    let mut random = Random::new(ways.0 as u64 + 7);
    let world = World::create(&WorldConfig::new(RANKS as u32).spec(None)).unwrap();
    let case = Case::start(name, &world, page, ways);
    let mut stopped = 0;
    while stopped < rounds {
        watchdog::at(stopped as u64);
        let lock = random.below(LOCKS as u64) as usize;
        let Some(victim) = page.holder(lock) else { continue };
        let child = case.children[victim].as_ref().unwrap();
        child.stop();
        if page.holder(lock) == Some(victim) {
            let token = page.resource(lock)[2].load(SeqCst);
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(
                page.resource(lock)[2].load(SeqCst),
                token,
                "{name}: a stopped holder's lock was granted"
            );
            stopped += 1;
        }
        child.go_on();
        case.all_go_on("after a stop", None, |_| true);
    }
    let warnings: u64 = (0..LOCKS).map(|n| page.resource(n)[5].load(SeqCst)).sum();
    assert_eq!(warnings, 0, "{name}: a stopped process was taken for a dead one");
    case.finish();
    (Vec::new(), 0)
}

/// A process that takes a dead one's place is told that it can't use locks.
fn successor(name: &str, ways: Ways, _: usize, page: Page) -> (Vec<u64>, u64) {
    let world = World::create(&WorldConfig::new(RANKS as u32).spec(None)).unwrap();
    let mut case = Case::start(name, &world, page, ways);
    case.all_go_on("at first", None, |_| true);
    case.children[2].take().unwrap().kill();
    case.all_go_on("after a kill", None, |_| true);
    let successor = Child::fork(|| {
        world.enter(Some(2)).unwrap();
        let manager = Manager::new(&world).unwrap();
        assert!((0..LOCKS).any(|n| {
            let lock = manager.lock_with(&format!("lock {n}"), ways.0);
            matches!(lock.acquire_timeout(Duration::from_secs(5)), Err(Error::UnknownRank))
        }));
    });
    case.wait_until("successor", || successor.has_ended());
    assert!(successor.has_ended_well(), "{name}");
    case.all_go_on("after a successor", None, |_| true);
    case.finish();
    (Vec::new(), 0)
}

type Test = fn(&str, Ways, usize, Page) -> (Vec<u64>, u64);

fn main() {
    pin_to(&two_cores());
    let choice = Choice::from_arguments();
    let mut cases = 0;
    let page = Page(&shared_words(Page::WORDS)[..Page::WORDS]);
    println!(
        "{:<11}{:<13}{:<8}{:>7}{:>10}{:>10}{:>26}",
        "case", "protocol", "by", "rounds", "warnings", "seconds", "next grant: p50, p99, ms"
    );
    let all: [(&str, Test, Progress, usize, usize); 5] = [
        ("kills", kills, Progress::Poll, 30, 1000),
        ("kills", kills, Progress::Thread, 10, 1000),
        ("stops", stops, Progress::Poll, 10, 1000),
        ("stops", stops, Progress::Thread, 5, 1000),
        ("successor", successor, Progress::Poll, 1, 1),
    ];
    for (case, test, progress, few, many) in all {
        for protocol in Protocol::ALL {
            let by = if progress == Progress::Poll { "poll" } else { "thread" };
            if !choice.includes(&[case, protocol.name(), by]) {
                continue;
            }
            let rounds = if choice.every() { many } else { few };
            let name = format!("{case}, {}, {by}", protocol.name());
            watchdog::begin(name.clone(), if choice.every() { 600 } else { 120 });
            let start = Instant::now();
            let (times, warnings) = test(&name, (protocol, progress), rounds, page);
            let percentile = |p: usize| match times.len() {
                0 => "-".to_string(),
                n => format!("{:.1}", times[(n * p / 100).min(n - 1)] as f64 / 1e6),
            };
            let seconds = start.elapsed().as_secs_f64();
            let grant = format!("{}, {}", percentile(50), percentile(99));
            let protocol = protocol.name();
            println!("{case:<11}{protocol:<13}{by:<8}{rounds:>7}{warnings:>10}{seconds:>10.2}{grant:>26}");
            cases += 1;
        }
    }
    println!("test result: ok. {cases} passed; 0 failed");
}
