//! Cost of a lock by message on this machine, beside mutexes in shared memory.
//!
//! Local idle: acquire and release of a lock that is cached here. Remote idle: of a lock that
//! another process has used last. Contended: hand-offs of eight processes on two cores, with the
//! smallest share of a process in the mean; holders keep the lock for 0 or 2 ms while others wait.
//!
//! ```text
//! cargo run --release -p towpath-mplock --example cost
//! cargo run --release -p towpath-mplock --example cost -- 5
//! ```
//!
//! With a number: only contended, beside pthread's mutex, so many rounds in turn.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use towpath::mplock::{HoldBudget, Lock, Manager, Protocol};
use towpath::sync::locks::{Posix, Robust};
use towpath::{Mutex, World, WorldConfig, machine::Native};
use towpath_testkit::{Child, pin_to, shared_words, two_cores};

const TIME: Duration = Duration::from_millis(500);
const RANKS: usize = 8;
/// Number of words of a process, two lines.
///
/// Acquisitions, time on a core in ns, switches, messages.
const WORDS: usize = 16;

/// Nanoseconds of one call of `act`.
fn time(mut act: impl FnMut()) -> f64 {
    let (start, mut calls) = (Instant::now(), 0u64);
    while start.elapsed() < TIME {
        for _ in 0..1000 {
            act();
        }
        calls += 1000;
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Runs a process for each rank; the parent is none.
fn with_ranks(ranks: usize, act: impl Fn(&World, usize)) {
    let world = towpath::create(None, &WorldConfig::new(ranks as u32)).expect("a world");
    let member = |rank: usize| {
        world.enter(Some(rank as u32)).expect("a rank");
        act(&world, rank);
    };
    let children: Vec<Child> = (0..ranks).map(|rank| Child::fork(|| member(rank))).collect();
    while !children.iter().all(Child::has_ended) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(children.iter().all(Child::has_ended_well), "a process failed");
}

/// Returns the time that this process has had a core, in nanoseconds, and its switches.
fn own_use() -> (u64, u64) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
    let schedule = read("schedstat");
    let status = read("status");
    let switches = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    (schedule.split(' ').next().map_or(0, number), switches.map(|(_, count)| number(count)).sum())
}

/// Has each process use a lock for a time; prints hand-offs and the smallest share.
///
/// Of an acquisition besides: time on a core, which other programs disturb least, switches of
/// processes, and messages.
///
/// Returns the hand-offs in a second, and that share.
fn contended(name: &str, act: impl Fn(&World, usize, &dyn Fn() -> bool, &[AtomicU64])) -> (f64, f64) {
    let page = shared_words(WORDS * (1 + RANKS));
    with_ranks(RANKS, |world, rank| {
        let words = &page[WORDS * (1 + rank)..][..WORDS];
        let deadline = || page[0].load(Relaxed) != 0;
        if rank == 0 {
            let start = Instant::now();
            let stop = || {
                if start.elapsed() > 2 * TIME {
                    page[0].store(1, Relaxed);
                }
                deadline()
            };
            act(world, rank, &stop, words);
        } else {
            act(world, rank, &deadline, words);
        }
        let (time, switches) = own_use();
        words[1].store(time, Relaxed);
        words[2].store(switches, Relaxed);
    });
    let all = |which: usize| page[WORDS..].iter().skip(which).step_by(WORDS).map(|word| word.load(Relaxed));
    let counts: Vec<u64> = all(0).collect();
    let (sum, least) = (counts.iter().sum::<u64>(), counts.iter().min().copied().unwrap_or(0));
    let rate = sum as f64 / (2 * TIME).as_secs_f64();
    let share = least as f64 * RANKS as f64 / sum as f64;
    let [time, switches, messages] = [1, 2, 3].map(|which| all(which).sum::<u64>() as f64 / sum as f64);
    print!("contended   {name:<20}{rate:>12.0} acquisitions/s, smallest share {share:.2}; ");
    println!("each {time:.0} ns on a core, {switches:.4} switches, {messages:.4} messages");
    (rate, share)
}

fn work() {
    for _ in 0..50 {
        std::hint::spin_loop();
    }
}

fn contended_by_message(protocol: Protocol, budget: HoldBudget) -> (f64, f64) {
    let name = format!("{}, {} ms", protocol.name(), budget.time.as_millis());
    contended(&name, |world, _, stop, words| {
        let manager = Manager::new(world).expect("a manager");
        manager.set_hold_budget(budget);
        let lock: Lock = manager.lock_with("lock", protocol);
        while !stop() {
            drop(lock.acquire().expect("the lock"));
            words[0].fetch_add(1, Relaxed);
            work();
        }
        words[3].store(manager.traffic().total(), Relaxed);
        manager.barrier().expect("the others");
    })
}

/// Runs so many rounds of ours and of pthread's mutex in turn; prints medians and ranges.
fn compare(rounds: usize) {
    let (mut rates, mut shares) = ([vec![], vec![]], vec![]);
    for _ in 0..rounds {
        let (rate, share) = contended_by_message(Protocol::default(), HoldBudget::default());
        rates[0].push(rate);
        shares.push(share);
        rates[1].push(contended_mutex::<Posix<Native>>("posix").0);
    }
    let ratios = rates[0].iter().zip(&rates[1]).map(|(ours, posix)| ours / posix).collect();
    let [ours, posix] = rates;
    for (name, mut values) in [("ours", ours), ("posix", posix), ("ours ÷ posix", ratios), ("share", shares)]
    {
        values.sort_by(f64::total_cmp);
        let (least, median, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        println!("{name:<14}median {median:>12.2} ({least:.2} to {most:.2})");
    }
}

fn contended_mutex<L>(name: &str) -> (f64, f64)
where
    L: towpath::sync::Lock<Native> + towpath::Exclusive + towpath::Object + towpath::Concurrent,
{
    contended(name, |world, _, stop, words| {
        let mutex = world.shared::<Mutex<AtomicU64, L>>("m", Mutex::prepare).expect("a mutex");
        while !stop() {
            drop(mutex.lock().expect("the mutex"));
            words[0].fetch_add(1, Relaxed);
            work();
        }
    })
}

fn main() {
    pin_to(&two_cores());
    if let Some(rounds) = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()) {
        return compare(rounds);
    }
    with_ranks(1, |world, _| {
        let manager = Manager::new(world).expect("a manager");
        for protocol in [Protocol::Distributed, Protocol::Reactive] {
            let lock = manager.lock_with(protocol.name(), protocol);
            let cost = time(|| drop(lock.acquire().expect("the lock")));
            println!("local idle  {:<14}{cost:>12.1} ns", protocol.name());
        }
        let robust = world.shared::<Mutex<AtomicU64, Robust<Native>>>("r", Mutex::prepare).expect("a mutex");
        println!("local idle  {:<14}{:>12.1} ns", "robust", time(|| drop(robust.lock().expect("the mutex"))));
        let posix = world.shared::<Mutex<AtomicU64, Posix<Native>>>("p", Mutex::prepare).expect("a mutex");
        println!("local idle  {:<14}{:>12.1} ns", "posix", time(|| drop(posix.lock().expect("the mutex"))));
    });
    for protocol in Protocol::ALL {
        let turn = shared_words(1);
        with_ranks(2, |world, rank| {
            let manager = Manager::new(world).expect("a manager");
            let lock = manager.lock_with("lock", protocol);
            let (mut sum, mut rounds) = (Duration::ZERO, 0u32);
            while rounds < 20_000 {
                if turn[0].load(Relaxed) % 2 == rank as u64 {
                    let start = Instant::now();
                    drop(lock.acquire().expect("the lock"));
                    sum += start.elapsed();
                    rounds += 1;
                    turn[0].fetch_add(1, Relaxed);
                }
                manager.poll();
            }
            manager.barrier().expect("the other rank");
            if rank == 1 {
                println!(
                    "remote idle {:<14}{:>12.1} ns",
                    protocol.name(),
                    sum.as_nanos() as f64 / f64::from(rounds)
                );
            }
        });
    }
    let all = Protocol::ALL.into_iter().flat_map(|it| [(it, HoldBudget::NONE), (it, HoldBudget::default())]);
    for (protocol, budget) in all {
        contended_by_message(protocol, budget);
    }
    contended_mutex::<Robust<Native>>("robust");
    contended_mutex::<Posix<Native>>("posix");
}
