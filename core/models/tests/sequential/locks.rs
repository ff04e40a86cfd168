//! Every lock under every waiting policy.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use towpath_machine::{Arena, Event, Ordering, Place, Processor};
use towpath_sync::locks::{Anderson, Mcs, Posix, Reactive, Robust, Ticket, TicketTwoLines};
use towpath_sync::{AtMemory, Lock, LockError, Policy, Spinning, Surroundings, Wait, Waiting, for_each_lock};

use crate::machine::{Machine, Schedule, Sequential};
use crate::{lines, waits};

const ROUNDS: u64 = 3;
const SEEDS: u64 = 8;

/// Runs the same test for each lock of the family, and for some with fewer places than
/// contenders.
macro_rules! every_lock {
    ($test:ident) => {
        for_each_lock!([atomics ll_sc fetch_op scheduling published kernel_mutex] Sequential, 4 => $test());
        $test::<Reactive<Sequential, 4, 0, 0>>(); // Changes over all the time.
        $test::<Anderson<Sequential, 2>>();
        $test::<Anderson<Sequential, 2, AtMemory>>();
        $test::<Robust<Sequential, 2>>();
    };
}

/// Lets each processor acquire the lock a few times. Returns the number of sleeps until
/// the time was over.
fn exclude<L: Lock<Sequential>>(
    processors: usize,
    wait: &Wait<'_>,
    schedule: Schedule,
) -> Result<u64, String> {
    let machine = Machine::new(schedule);
    let lock = L::new(&*machine);
    let count = machine.cell(Place::NewLine, 0);
    let inside = AtomicU32::new(0);
    machine.run(processors, |cpu| {
        for _ in 0..ROUNDS {
            let held = lock.lock(cpu, wait).expect("no thread dies here");
            assert_eq!(inside.fetch_add(1, Relaxed), 0, "two hold the lock");
            // The race check asks whether what the last holder did is visible.
            let value = cpu.read(&count);
            cpu.write(&count, value + 1);
            assert_eq!(inside.fetch_sub(1, Relaxed), 1, "two hold the lock");
            lock.unlock(cpu, wait, held);
            cpu.note(Event::Acquired(0));
        }
    })?;
    let cpu = machine.at_rest();
    let (value, expected) = (cpu.read(&count), processors as u64 * ROUNDS);
    if value != expected {
        return Err(format!("{value} acquisitions instead of {expected}"));
    }
    if !L::TRIES {
        return Ok(machine.overslept(None));
    }
    let held = lock.try_lock(&cpu).ok_or("still held at the end")?;
    if lock.try_lock(&cpu).is_some() {
        return Err("held twice by one".into());
    }
    lock.unlock(&cpu, wait, held);
    Ok(machine.overslept(None))
}

fn schedules(seeds: u64) -> impl Iterator<Item = Schedule> {
    (0..seeds).map(|seed| Schedule { seed, stops: false })
}

fn excludes<L: Lock<Sequential>>() {
    for schedule in schedules(SEEDS) {
        for processors in [3, 4] {
            // The operating system's lock waits in its own way.
            for (wait, policy) in waits().filter(|_| L::NAME != "posix") {
                let overslept = exclude::<L>(processors, &wait, schedule)
                    .unwrap_or_else(|e| panic!("{} under {policy}: {e}", L::NAME));
                // No processor is stopped: a sleeper that was not woken was forgotten. (Waiters for
                // `robust` look again by themselves.)
                assert!(
                    overslept == 0 || L::NAME == "robust",
                    "{} under {policy}: a wake-up was lost: {schedule:?}",
                    L::NAME
                );
            }
        }
    }
}

#[test]
fn every_lock_lets_in_one_at_a_time() {
    every_lock!(excludes);
}

fn excludes_while_holders_are_stopped<L: Lock<Sequential>>() {
    for seed in 0..SEEDS {
        let schedule = Schedule { seed, stops: true };
        for (wait, policy) in waits() {
            exclude::<L>(3, &wait, schedule).unwrap_or_else(|e| panic!("{} under {policy}: {e}", L::NAME));
        }
    }
}

#[test]
fn every_lock_endures_a_stopped_processor() {
    every_lock!(excludes_while_holders_are_stopped);
}

#[test]
fn words_lie_where_their_algorithm_puts_them() {
    assert_eq!(lines(Ticket::<Sequential>::new), 1);
    assert_eq!(lines(TicketTwoLines::<Sequential>::new), 2);
    assert_eq!(lines(Anderson::<Sequential, 4>::new), 5);
    assert_eq!(lines(Mcs::<Sequential, 4>::new), 5);
    assert_eq!(lines(Robust::<Sequential, 4>::new), 5);
}

/// Process for each processor; all of them know which have ended.
struct Processes<'a> {
    me: usize,
    machine: &'a Machine,
}

impl Surroundings for Processes<'_> {
    fn identity(&self) -> u32 {
        self.me as u32 + 1
    }
    fn is_alive(&self, identity: u32) -> bool {
        !self.machine.has_ended(identity as usize - 1)
    }
}

/// Lets the first holder end without releasing the lock; all others are served, and
/// exactly one is told.
fn tells_of_a_death<L: Lock<Sequential>>() {
    for schedule in schedules(SEEDS) {
        for (policy, name) in Policy::ALL {
            let machine = Machine::new(schedule);
            let lock = L::new(&*machine);
            let (count, deaths) = (AtomicU32::new(0), AtomicU32::new(0));
            machine
                .run(4, |cpu| {
                    let around = Processes { me: cpu.id(), machine: &machine };
                    let wait = Wait { policy, around: &around, budget: 5_000 };
                    let mut held = lock.lock(cpu, &wait).expect("repaired by the next one");
                    cpu.note(Event::Acquired(0));
                    if count.fetch_add(1, Relaxed) == 0 {
                        return;
                    }
                    if L::owner_died(&held) {
                        deaths.fetch_add(1, Relaxed);
                        lock.make_consistent(cpu, &mut held);
                    }
                    lock.unlock(cpu, &wait, held);
                })
                .unwrap_or_else(|e| panic!("{} under {name}: {e}", L::NAME));
            assert_eq!((count.into_inner(), deaths.into_inner()), (4, 1), "{} under {name}", L::NAME);
        }
    }
}

#[test]
fn the_next_owner_learns_of_a_death() {
    tells_of_a_death::<Posix<Sequential>>();
    tells_of_a_death::<Robust<Sequential, 4>>();
}

// Broken locks are found out: the tests above can fail.

/// Locks that are none, each in its own way.
struct Broken<const HOW: u8> {
    ticket: Ticket<Sequential>,
    word: <Sequential as Processor>::Word,
}

const TEST_THEN_SET: u8 = 0;
const RELAXED_RELEASE: u8 = 1;
const NEVER_RELEASED: u8 = 2;
const NO_WAKE_UP: u8 = 3;

impl<const HOW: u8> Lock<Sequential> for Broken<HOW> {
    const NAME: &'static str = "broken";
    const FIFO: bool = false;
    type Held = Option<towpath_sync::locks::Number>;

    fn new(arena: &impl Arena<Sequential>) -> Self {
        Broken { ticket: Lock::new(arena), word: arena.word(Place::NewLine, 0) }
    }
    fn lock<W: Waiting<Sequential>>(&self, cpu: &Sequential, wait: &W) -> Result<Self::Held, LockError> {
        if HOW == NO_WAKE_UP {
            return self.ticket.lock(cpu, wait).map(Some);
        }
        if HOW == TEST_THEN_SET {
            while cpu.load(&self.word, Ordering::Acquire) != 0 {
                cpu.delay(20_000);
            }
            cpu.store(&self.word, 1, Ordering::Relaxed);
        } else {
            while cpu.swap(&self.word, 1, Ordering::Acquire) != 0 {
                cpu.delay(20_000);
            }
        }
        Ok(None)
    }
    fn try_lock(&self, cpu: &Sequential) -> Option<Self::Held> {
        if HOW == NO_WAKE_UP {
            return self.ticket.try_lock(cpu).map(Some);
        }
        (cpu.swap(&self.word, 1, Ordering::Acquire) == 0).then_some(None)
    }
    fn unlock<W: Waiting<Sequential>>(&self, cpu: &Sequential, _wait: &W, held: Self::Held) {
        match HOW {
            NO_WAKE_UP => self.ticket.unlock(cpu, &Spinning, held.expect("a ticket")),
            RELAXED_RELEASE => cpu.store(&self.word, 0, Ordering::Relaxed),
            NEVER_RELEASED => {}
            _ => cpu.store(&self.word, 0, Ordering::Release),
        }
    }
}

/// Returns the faults that the schedules find in a lock.
fn complaints<const HOW: u8>(seeds: u64) -> Vec<String> {
    let wait = Wait { policy: Policy::Park, around: &towpath_sync::Alone, budget: 0 };
    schedules(seeds).filter_map(|s| exclude::<Broken<HOW>>(3, &wait, s).err()).collect()
}

fn contains(complaints: &[String], what: &str) -> bool {
    complaints.iter().any(|c| c.contains(what))
}

#[test]
fn a_lock_that_does_not_exclude_is_found_out() {
    let found = complaints::<TEST_THEN_SET>(SEEDS);
    assert!(contains(&found, "two hold the lock"), "{found:#?}");
    assert!(contains(&found, "race:"), "{found:#?}");
}

#[test]
fn a_release_that_orders_nothing_is_found_out() {
    let found = complaints::<RELAXED_RELEASE>(SEEDS);
    assert!(contains(&found, "race:"), "{found:#?}");
    assert!(!contains(&found, "two hold the lock"), "{found:#?}");
}

#[test]
fn waiting_for_ever_is_found_out() {
    let found = complaints::<NEVER_RELEASED>(2);
    assert_eq!(found.iter().filter(|c| c.contains("no event for half a second")).count(), 2, "{found:#?}");
}

#[test]
fn a_deadlock_is_found_out() {
    let found: Vec<String> = schedules(SEEDS)
        .filter_map(|schedule| {
            let machine = Machine::new(schedule);
            let locks = [0, 1].map(|_| Posix::<Sequential>::new(&*machine));
            let both = |cpu: &Sequential| {
                let held = [cpu.id(), 1 - cpu.id()].map(|i| (i, locks[i].lock(cpu, &Spinning).unwrap()));
                held.into_iter().for_each(|(i, held)| locks[i].unlock(cpu, &Spinning, held));
            };
            machine.run(2, both).err()
        })
        .collect();
    assert!(contains(&found, "deadlock: no processor can go on"), "{found:#?}");
    assert!(found.len() < SEEDS as usize, "some schedules find their way");
}

#[test]
fn a_forgotten_sleeper_is_found_out() {
    // It excludes, and every waiter is served in the end: only too late.
    let wait = Wait { policy: Policy::Park, around: &towpath_sync::Alone, budget: 0 };
    let overslept = |s| exclude::<Broken<NO_WAKE_UP>>(3, &wait, s).expect("only late");
    assert!(schedules(SEEDS).map(overslept).sum::<u64>() > 0);
}
