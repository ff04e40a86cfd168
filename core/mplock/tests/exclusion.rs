//! Locks between real processes, three times as many as cores, under each protocol.
//!
//! One holder (or readers alone), exact counters, tokens that increase, ranks that leave in good
//! order, ranks that compute while their progress threads serve, and the memory of many names
//! (`every memory`: a million, of which 1,000 are in use).
//!
//! `cargo test -p towpath-mplock --test exclusion -- central` runs only the cases of that name;
//! `every` before it makes them fifty times as long.

#![allow(missing_docs, reason = "a test")]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use towpath_am::WorldConfig;
use towpath_machine::Random;
use towpath_mplock::{Error, Guard, Lock, Manager, Progress, Protocol};
use towpath_process::ChildState;
use towpath_shm::World;
use towpath_testkit::{Child, Choice, pin_to, shared_words, two_cores, watchdog};

const RANKS: usize = 6;
const LOCKS: usize = 5;
const LIMIT: Duration = Duration::from_secs(60);

/// Resource that a lock protects: a counter, and the largest tokens.
struct Resource<'a>(&'a [AtomicU64]);

impl Resource<'_> {
    const WORDS: usize = 5;

    fn counter(&self) -> &AtomicU64 {
        &self.0[0]
    }
    /// Uses the resource alone.
    fn write(&self, mut guard: Guard<'_>) {
        assert_eq!(self.0[1].swap(1, SeqCst), 0, "one holder");
        assert_eq!(self.0[2].load(SeqCst), 0, "no reader beside it");
        let token = guard.token().get();
        assert!(token > self.0[3].swap(token, SeqCst), "tokens increase");
        assert!(token > self.0[4].load(SeqCst), "also after those of readers");
        assert!(!guard.previous_owner_died(), "none died");
        let count = self.counter().load(SeqCst);
        std::hint::spin_loop();
        self.counter().store(count + 1, SeqCst);
        assert_eq!(guard.data().try_into().map_or(0, u64::from_le_bytes), count, "its data came with it");
        guard.set_data(&(count + 1).to_le_bytes()).unwrap();
        self.0[1].store(0, SeqCst);
    }
    /// Uses the resource beside other readers.
    fn read(&self, guard: &Guard<'_>) {
        self.0[2].fetch_add(1, SeqCst);
        assert_eq!(self.0[1].load(SeqCst), 0, "no holder beside a reader");
        assert!(guard.token().get() > self.0[3].load(SeqCst), "tokens increase");
        self.0[4].fetch_max(guard.token().get(), SeqCst);
        self.0[2].fetch_sub(1, SeqCst);
    }
}

fn resources(page: &'static [AtomicU64]) -> Vec<Resource<'static>> {
    page[..LOCKS * Resource::WORDS].chunks(Resource::WORDS).map(Resource).collect()
}

/// A process that counts. The last words of the page: its own count.
fn count(manager: &Manager, locks: &[Lock], page: &'static [AtomicU64], rank: usize, times: u64) {
    let (resources, mine) = (resources(page), &page[LOCKS * Resource::WORDS + rank]);
    let mut random = Random::new(rank as u64);
    for _ in 0..times {
        let which = random.below(LOCKS as u64) as usize;
        match random.below(8) {
            0 => resources[which].read(&locks[which].acquire_shared().unwrap()),
            1 => {
                let patience = Duration::from_micros(random.below(300));
                if let Some(guard) = locks[which].acquire_timeout(patience).unwrap() {
                    resources[which].write(guard);
                    mine.fetch_add(1, SeqCst);
                }
            }
            2 if random.below(2) == 0 => {
                if let Some(guard) = locks[which].try_acquire().unwrap() {
                    resources[which].write(guard);
                    mine.fetch_add(1, SeqCst);
                }
            }
            2 => {
                let first = locks[0].acquire().unwrap();
                assert!(matches!(locks[0].acquire(), Err(Error::AlreadyHeld(_))));
                resources[0].write(first);
                mine.fetch_add(1, SeqCst);
            }
            _ => {
                // In a row: a lock may stay here.
                for _ in 0..1 + random.below(4) {
                    resources[which].write(locks[which].acquire().unwrap());
                    mine.fetch_add(1, SeqCst);
                }
            }
        }
        if random.below(64) == 0 {
            manager.wait(Duration::from_micros(100));
        }
    }
}

fn exclusion(world: &World, rank: usize, page: &'static [AtomicU64], protocol: Protocol, times: u64) {
    world.enter(Some(rank as u32)).unwrap();
    let manager = Manager::new(world).unwrap();
    let locks: Vec<Lock> = (0..LOCKS).map(|n| manager.lock_with(&format!("lock {n}"), protocol)).collect();
    count(&manager, &locks, page, rank, times);
    manager.barrier().unwrap();
    if rank == 0 {
        // A lock that has data is in use at its home.
        locks.iter().for_each(|lock| lock.acquire().unwrap().set_data(b"").unwrap());
    }
    manager.barrier().unwrap();
    drop(locks);
    manager.barrier().unwrap();
    manager.wait(Duration::from_millis(20));
    manager.barrier().unwrap();
    assert_eq!(manager.locks_in_use(), (0, 0), "rank {rank}: an unused lock costs nothing");
}

/// Ranks leave one after the other, homes and owners of idle locks, too.
fn leaving(world: &World, rank: usize, page: &'static [AtomicU64], protocol: Protocol, times: u64) {
    world.enter(Some(rank as u32)).unwrap();
    let manager = Manager::new(world).unwrap();
    let locks: Vec<Lock> = (0..LOCKS).map(|n| manager.lock_with(&format!("lock {n}"), protocol)).collect();
    count(&manager, &locks, page, rank, times * (1 + rank as u64) / RANKS as u64);
    drop((locks, manager));
    world.leave().unwrap();
}

/// Ranks compute between their acquisitions, and when they have finished: their progress
/// threads serve. A child that is forked drops its copies without an effect.
fn computing(world: &World, rank: usize, page: &'static [AtomicU64], protocol: Protocol, times: u64) {
    world.enter(Some(rank as u32)).unwrap();
    let manager = Manager::with_progress(world, Progress::Thread).unwrap();
    let locks: Vec<Lock> = (0..LOCKS).map(|n| manager.lock_with(&format!("lock {n}"), protocol)).collect();
    let finished = &page[LOCKS * Resource::WORDS + RANKS];
    let mut left = times;
    while left > 0 {
        let some = left.min(32);
        count(&manager, &locks, page, rank, some);
        left -= some;
        std::thread::sleep(Duration::from_micros(left % 500));
    }
    finished.fetch_add(1, SeqCst);
    while finished.load(SeqCst) < RANKS as u64 {
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(manager.progress(), Progress::Thread);
    // The child has the copy of a thread that does not run, in whatever state it was.
    let child = towpath_process::Child::fork(move || {
        drop((locks, manager));
        0
    });
    let child = child.unwrap();
    let end = || std::fs::read_dir("/proc/self/task").unwrap().count() == 1;
    // One whose end was waited for may still be listed.
    let start = Instant::now();
    while !end() {
        assert!(start.elapsed() < LIMIT, "rank {rank}: the progress thread ends with the manager");
        std::thread::sleep(Duration::from_micros(100));
    }
    while child.state() == ChildState::Alive {
        assert!(start.elapsed() < LIMIT, "rank {rank}: a forked child hangs");
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(child.state(), ChildState::Exited(0), "rank {rank}: a forked child");
    world.leave().unwrap();
}

/// Each rank uses many names, and holds the locks of a few; prints and bounds its memory.
fn memory(world: &World, rank: usize, page: &'static [AtomicU64], protocol: Protocol, times: u64) {
    world.enter(Some(rank as u32)).unwrap();
    let manager = Manager::new(world).unwrap();
    let before = resident_bytes();
    let lock = |n: u64| manager.lock_with(&format!("file {n} of rank {rank}"), protocol);
    let held: Vec<Lock> = (0..IN_USE / RANKS as u64).map(lock).collect();
    let guards: Vec<Guard<'_>> = held.iter().map(|lock| lock.acquire().unwrap()).collect();
    for n in IN_USE..IN_USE + times {
        drop(lock(n).acquire().unwrap());
    }
    manager.barrier().unwrap();
    let words = &page[LOCKS * Resource::WORDS..];
    words[rank].store(resident_bytes().saturating_sub(before), SeqCst);
    manager.barrier().unwrap();
    let sum: u64 = words.iter().map(|word| word.swap(0, SeqCst)).sum();
    if sum > 0 {
        println!("{IN_USE} locks in use, {} names: {} KiB in all ranks", times * RANKS as u64, sum / 1024);
    }
    assert!(sum <= 10 << 20, "{sum} bytes");
    drop(guards);
    manager.barrier().unwrap();
}

/// Number of locks that the ranks of the case `memory` hold together.
const IN_USE: u64 = 1000;

/// Private memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}

type Member = fn(&World, usize, &'static [AtomicU64], Protocol, u64);

fn run(name: &str, member: Member, protocol: Protocol, times: u64, limit: Duration) -> u64 {
    let page = shared_words(LOCKS * Resource::WORDS + RANKS + 1);
    let world = World::create(&WorldConfig::new(RANKS as u32).spec(None)).unwrap();
    let start = Instant::now();
    let children: Vec<Child> =
        (0..RANKS).map(|rank| Child::fork(|| member(&world, rank, page, protocol, times))).collect();
    while !children.iter().all(Child::has_ended) {
        std::thread::sleep(Duration::from_millis(1));
        // Dropping the children ends them.
        assert!(!children.iter().any(|c| c.has_ended() && !c.has_ended_well()), "{name}: a process failed");
        assert!(start.elapsed() < limit, "{name}: no end in sight");
    }
    assert!(children.iter().all(Child::has_ended_well), "{name}: a process failed");
    let counted: u64 = resources(page).iter().map(|resource| resource.counter().load(SeqCst)).sum();
    let due: u64 = page[LOCKS * Resource::WORDS..][..RANKS].iter().map(|word| word.load(SeqCst)).sum();
    assert_eq!(counted, due, "{name}");
    counted
}

fn main() {
    pin_to(&two_cores());
    let choice = Choice::from_arguments();
    let (times, mut cases) = (if choice.every() { 50 } else { 1 }, 0);
    println!("{:<12}{:<14}{:>14}{:>10}", "case", "protocol", "acquisitions", "seconds");
    let all: [(&str, Member, u64); 4] = [
        ("exclusion", exclusion, 6000),
        ("leaving", leaving, 3000),
        ("computing", computing, 1500),
        ("memory", memory, 3400),
    ];
    for (case, member, count) in all {
        for protocol in Protocol::ALL {
            if !choice.includes(&[case, protocol.name()]) {
                continue;
            }
            let (name, limit) = (format!("{case}, {}", protocol.name()), LIMIT * times);
            watchdog::begin(name.clone(), 2 * limit.as_secs() as u32);
            let start = Instant::now();
            let counted = run(&name, member, protocol, count * u64::from(times), limit);
            println!("{case:<12}{:<14}{counted:>14}{:>10.2}", protocol.name(), start.elapsed().as_secs_f64());
            cases += 1;
        }
    }
    println!("test result: ok. {cases} passed; 0 failed");
}
