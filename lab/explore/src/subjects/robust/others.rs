//! Events, onces, semaphores, barriers and condition variables that survive deaths.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::locks::Posix;
use towpath_sync::robust::{Barrier, Condvar, EpisodeError, Event, Once, OnceTurn, Semaphore, Woken};
use towpath_sync::{Deadline, Lock, LockError, Policy, Wait};

use super::super::told::ToldEpisodes;
use super::super::{BUDGET, ExploredMember};
use super::LosesTheDead;
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, Word};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};

/// Waiting of the threads of a case.
#[derive(Clone, Copy)]
struct Waiters {
    policy: Policy,
    /// True if they take all for alive, which is wrong.
    loses_the_dead: bool,
}

impl Waiters {
    fn with_wait<T>(self, cpu: &Explorer, act: impl FnOnce(&Wait) -> T) -> T {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        if self.loses_the_dead {
            return act(&Wait { around: &LosesTheDead::of(&around), ..wait });
        }
        act(&wait)
    }
}

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    let waiters = Waiters { policy, loses_the_dead: false };
    let make = move |_: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let event = Event::in_arena(memory);
        Ok(Rc::new(EventRun { event, datum: memory.cell(Place::NewLine, 0), waiters }))
    };
    cases.push(Case::new("event", "no waiter stays that was there when it was set", make));
    let about = "done once; after a death by another thread, which is told";
    once(cases, "once", about, waiters);
    let about = "one thread's reset takes a setting, with what the setter and earlier resets leave";
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        if plan.threads != 3 {
            return Err("is for three threads".into());
        }
        let data = [0, 1].map(|_| memory.cell(Place::NewLine, 0));
        let steps = memory.word(Place::NewLine, 0);
        Ok(Rc::new(ResetRun { event: Event::in_arena(memory), data, steps, waiters }))
    };
    cases.push(Case::new("event/reset", about, make));
    let about = "no more permits than there are; those of the dead come back";
    semaphore::<8>(cases, "semaphore", about, waiters);
    semaphore::<1>(cases, "semaphore/one-place", about, waiters);
    semaphore::<2>(cases, "semaphore/two-places", about, waiters);
    barrier(
        cases,
        "barrier/robust",
        "no thread leaves before all have come; a death is told once, to all",
        move |barrier, plan, memory| {
            Rc::new(BarrierRun { barrier, waiters, episodes: ToldEpisodes::new(&plan, memory) })
        },
    );
    barrier(
        cases,
        "barrier/leaving",
        "no thread passes one that takes part; one that has left is neither waited for nor told of",
        move |barrier, plan, memory| LeavingRun::make(barrier, plan, memory, waiters),
    );
    barrier_of_the_dead(cases, "barrier/renewed", waiters);
    condvar(cases, "condvar", "no notification is lost, also not with the waiter that got it", waiters);
}

/// Adds the subjects that are wrong on purpose, as a death shows.
pub fn planted(cases: &mut Vec<Case>, policy: Policy) {
    let (waiters, about) = (Waiters { policy, loses_the_dead: true }, "wrong on purpose");
    once(cases, "planted/once-loses-the-dead", about, waiters);
    semaphore::<8>(cases, "planted/semaphore-loses-the-dead", about, waiters);
}

fn once(cases: &mut Vec<Case>, name: &str, about: &str, waiters: Waiters) {
    let make = move |_: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let data = [0, 1].map(|_| memory.cell(Place::NewLine, 0));
        Ok(Rc::new(OnceRun { once: Once::in_arena(memory), data, waiters, tries: Cell::default() }))
    };
    cases.push(Case { endures_deaths: true, ..Case::new(name, about, make) });
}

fn semaphore<const N: usize>(cases: &mut Vec<Case>, name: &str, about: &str, waiters: Waiters) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let semaphore = Semaphore::<Explorer, N>::in_arena(memory, PERMITS);
        let inside = Cell::default();
        Ok(Rc::new(SemaphoreRun { semaphore, plan: *plan, waiters, inside }))
    };
    cases.push(Case { endures_deaths: true, ..Case::new(name, about, make) });
}

fn barrier(
    cases: &mut Vec<Case>,
    name: &str,
    about: &str,
    run: impl Fn(Barrier<Explorer, 8>, Plan, &ExploredMemory) -> Rc<dyn SubjectRun> + 'static,
) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let barrier = Barrier::in_arena(memory, plan.threads);
        // A participant that dies before it has come for the first time is not known.
        for thread in 0..plan.threads {
            barrier.join_for(&memory.at_rest(), thread as u32 + 1, thread);
        }
        Ok(run(barrier, *plan, memory))
    };
    cases.push(Case { endures_deaths: true, ..Case::new(name, about, make) });
}

/// First identity of those that no thread has, and that count as dead.
const LONG_DEAD: usize = 100;

/// Adds the barrier whose participants have died, untold, in another run of the program.
fn barrier_of_the_dead(cases: &mut Vec<Case>, name: &str, waiters: Waiters) {
    let about = "where all participants are dead newcomers wait for each other, and are told of none";
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let barrier: Barrier<Explorer, 8> = Barrier::in_arena(memory, plan.threads);
        for thread in 0..plan.threads {
            barrier.join_for(&memory.at_rest(), (LONG_DEAD + thread) as u32, thread);
        }
        Ok(Rc::new(BarrierRun { barrier, waiters, episodes: ToldEpisodes::new(plan, memory) }))
    };
    cases.push(Case::new(name, about, make));
}

fn condvar(cases: &mut Vec<Case>, name: &str, about: &str, waiters: Waiters) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        Ok(Rc::new(CondvarRun {
            condvar: Condvar::in_arena(memory),
            mutex: Posix::new(memory),
            tokens: memory.cell(Place::NewLine, 0),
            known: Cell::default(),
            putting: Cell::default(),
            plan: *plan,
            waiters,
        }))
    };
    // A waiter whose notifier died waits until its deadline: for sleepers alone time goes on.
    let endures_deaths = !matches!(waiters.policy, Policy::Spin | Policy::SpinThenYield);
    cases.push(Case { endures_deaths, ..Case::new(name, about, make) });
}

/// The first thread sets the event, resets it and sets it again; the others wait.
struct EventRun {
    event: Event<Explorer>,
    datum: DatumId,
    waiters: Waiters,
}

impl SubjectRun for EventRun {
    fn thread(&self, cpu: &Explorer) {
        self.waiters.with_wait(cpu, |wait| {
            if cpu.id() == 0 {
                cpu.write(&self.datum, 1);
                self.event.set_by(cpu, wait);
                self.event.reset_by(cpu);
                self.event.set_by(cpu, wait);
                return;
            }
            if !self.event.is_set_for(cpu) {
                self.event.wait_as(cpu, wait, Deadline::NEVER).expect("there is no deadline");
            }
            assert_eq!(cpu.read(&self.datum), 1);
        });
    }
}

/// An event that is set and reset by three threads in turn.
///
/// The acts of each come before those of the next.
struct ResetRun {
    event: Event<Explorer>,
    /// Written by the first thread and by the second one.
    data: [DatumId; 2],
    /// Number of resets and settings that the next one waits for.
    steps: Word,
    waiters: Waiters,
}

impl ResetRun {
    /// Waits for a step, by which the event's own orderings are not replaced.
    fn await_step(&self, cpu: &Explorer, step: u64) {
        // Relaxed: the event is what orders.
        let _ = cpu.spin_until(&self.steps, Ordering::Relaxed, u64::MAX / 2, |now| now >= step);
    }
}

impl SubjectRun for ResetRun {
    fn thread(&self, cpu: &Explorer) {
        let [first, second] = &self.data;
        self.waiters.with_wait(cpu, |wait| match cpu.id() {
            0 => {
                cpu.write(first, 1);
                self.event.set_by(cpu, wait);
                self.await_step(cpu, 2);
                assert!(self.event.reset_by(cpu), "it was set");
                assert_eq!(cpu.read(second), 1);
            }
            1 => {
                cpu.write(second, 1);
                while !self.event.reset_by(cpu) {
                    cpu.delay(100);
                }
                assert_eq!(cpu.read(first), 1);
                // Relaxed, here and below: as in `await_step`.
                cpu.store(&self.steps, 1, Ordering::Relaxed);
            }
            _ => {
                self.await_step(cpu, 1);
                self.event.set_by(cpu, wait);
                cpu.store(&self.steps, 2, Ordering::Relaxed);
            }
        });
    }
}

struct OnceRun {
    once: Once<Explorer>,
    data: [DatumId; 2],
    waiters: Waiters,
    /// Number of runners that gave up.
    tries: Cell<u64>,
}

impl OnceRun {
    fn act(&self, cpu: &Explorer, gives_up: bool) {
        let [first, second] = &self.data;
        self.waiters.with_wait(cpu, |wait| {
            match self.once.begin(cpu, wait, Deadline::NEVER).expect("there is no deadline") {
                Some(turn) if gives_up && self.tries.replace(1) == 0 => self.once.give_up(cpu, wait, turn),
                Some(turn) => {
                    if turn.dead().is_none() {
                        assert_eq!(cpu.read(second), 0, "done twice");
                        assert_eq!(cpu.read(first), 0, "half done, and not told");
                    }
                    cpu.write(first, 1);
                    cpu.write(second, 1);
                    self.once.finish(cpu, wait, turn);
                }
                None => assert_eq!((cpu.read(first), cpu.read(second)), (1, 1), "not done"),
            }
        });
    }
}

impl SubjectRun for OnceRun {
    fn thread(&self, cpu: &Explorer) {
        if cpu.id() == 0 && self.once.is_done_for(cpu) {
            assert_eq!((cpu.read(&self.data[0]), cpu.read(&self.data[1])), (1, 1), "not done");
        }
        self.act(cpu, cpu.id() == 1);
        self.act(cpu, false);
    }
    fn last(&self, cpu: &Explorer) {
        self.act(cpu, false);
        let again = self.waiters.with_wait(cpu, |wait| self.once.begin(cpu, wait, Deadline::PAST));
        assert!(matches!(again, Ok(None::<OnceTurn>)));
    }
}

/// Number of permits.
const PERMITS: u64 = 2;

struct SemaphoreRun<const N: usize> {
    /// Semaphore of `N` places. A thread that finds none free goes on without a permit.
    semaphore: Semaphore<Explorer, N>,
    plan: Plan,
    waiters: Waiters,
    /// Threads that have a permit, a bit each, kept by the host.
    inside: Cell<u64>,
}

impl<const N: usize> SubjectRun for SemaphoreRun<N> {
    fn thread(&self, cpu: &Explorer) {
        let me = 1 << cpu.id();
        for n in 0..self.plan.ops {
            // Every third time it tries only.
            let deadline = if n % 3 == 2 { Deadline::PAST } else { Deadline::NEVER };
            let taken = self.waiters.with_wait(cpu, |wait| self.semaphore.acquire_as(cpu, wait, deadline));
            if let Err(error) = taken {
                let is_full = error == LockError::Capacity && N < self.plan.threads;
                assert!(is_full || deadline == Deadline::PAST, "{error}");
                continue;
            }
            self.inside.set(self.inside.get() | me);
            let living =
                (0..self.plan.threads).filter(|&id| self.inside.get() >> id & 1 == 1 && !cpu.is_dead(id));
            assert!(living.count() as u64 <= PERMITS, "more permits than there are");
            self.semaphore.available_for(cpu); // A step at which it may die.
            self.inside.set(self.inside.get() & !me);
            assert!(self.waiters.with_wait(cpu, |wait| self.semaphore.release_as(cpu, wait)), "it had one");
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.waiters.with_wait(cpu, |wait| {
            if N < self.plan.threads {
                // Another thread that is alive may have the last place.
                self.semaphore.take_back(cpu, wait);
                assert_eq!(self.semaphore.available_for(cpu), PERMITS, "a permit was lost");
                return;
            }
            for _ in 0..PERMITS {
                assert!(self.semaphore.acquire_as(cpu, wait, Deadline::PAST).is_ok(), "a permit was lost");
            }
            assert!(self.semaphore.acquire_as(cpu, wait, Deadline::PAST).is_err(), "a permit too many");
        });
    }
}

struct BarrierRun {
    barrier: Barrier<Explorer, 8>,
    waiters: Waiters,
    episodes: ToldEpisodes<EpisodeError>,
}

impl SubjectRun for BarrierRun {
    fn thread(&self, cpu: &Explorer) {
        self.episodes.pass_all(cpu, || {
            self.waiters.with_wait(cpu, |wait| self.barrier.wait_as(cpu, wait, Deadline::NEVER))
        });
    }
}

/// Threads that leave and come again after every second episode.
struct LeavingRun {
    barrier: Barrier<Explorer, 8>,
    plan: Plan,
    waiters: Waiters,
    /// A datum for each arrival of each thread, written before it.
    data: Vec<Vec<DatumId>>,
    /// Parts of the threads, as the host knows them.
    known: RefCell<Vec<LeavingMember>>,
}

/// Part of a thread in the barrier, as the host knows it.
#[derive(Clone, Copy, Default)]
struct LeavingMember {
    /// Number of its arrivals that have begun.
    begun: usize,
    /// True if the last one is not over.
    arriving: bool,
    /// True until its leaving begins.
    takes_part: bool,
    /// True from when it has left until it comes again.
    has_left: bool,
    /// Number of deaths that it was told of.
    told: usize,
}

impl LeavingRun {
    fn make(
        barrier: Barrier<Explorer, 8>,
        plan: Plan,
        memory: &ExploredMemory,
        waiters: Waiters,
    ) -> Rc<dyn SubjectRun> {
        let arrivals = 3 * plan.ops + 1;
        let of_one = |_| (0..arrivals).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let data = (0..plan.threads).map(of_one).collect();
        let known = vec![LeavingMember { takes_part: true, ..LeavingMember::default() }; plan.threads];
        Rc::new(LeavingRun { barrier, plan, waiters, data, known: RefCell::new(known) })
    }

    fn note(&self, cpu: &Explorer, change: impl FnOnce(&mut LeavingMember)) {
        change(&mut self.known.borrow_mut()[cpu.id()]);
    }

    fn write(&self, cpu: &Explorer, arrival: usize) {
        cpu.write(&self.data[cpu.id()][arrival - 1], arrival as u64);
    }

    fn arrive(&self, cpu: &Explorer, wait: &Wait, deadline: Deadline) {
        let begun = self.known.borrow()[cpu.id()].begun + 1;
        self.note(cpu, |me| (me.begun, me.arriving) = (begun, true));
        self.write(cpu, begun);
        let before = self.known.borrow().clone();
        match self.barrier.wait_as(cpu, wait, deadline) {
            Ok(()) => {}
            Err(EpisodeError::PeerDied { .. }) => self.note(cpu, |me| me.told += 1),
            Err(EpisodeError::TimedOut) if deadline == Deadline::PAST => return,
            Err(error) => panic!("{error}"),
        }
        self.note(cpu, |me| me.arriving = false);
        let is_dead = |id: &usize| cpu.is_dead(*id);
        let may_be_told =
            (0..self.plan.threads).filter(is_dead).filter(|&id| !self.known.borrow()[id].has_left);
        assert!(self.known.borrow()[cpu.id()].told <= may_be_told.count(), "told of one that has left");
        for (id, before) in before.iter().enumerate().filter(|(id, before)| before.takes_part && !is_dead(id))
        {
            // One that was arriving may have been at this episode.
            let needed = before.begun + usize::from(!before.arriving);
            assert!(self.known.borrow()[id].begun >= needed, "thread {id} has not come");
            if needed > 0 {
                assert_eq!(cpu.read(&self.data[id][needed - 1]), needed as u64);
            }
        }
    }

    fn leave(&self, cpu: &Explorer, wait: &Wait) {
        // After one whose time was over the others do not wait for this arrival until that ends.
        let begun = self.known.borrow()[cpu.id()].begun + 1;
        self.note(cpu, |me| {
            if !me.arriving {
                (me.begun, me.arriving) = (begun, true)
            }
        });
        self.write(cpu, begun);
        self.note(cpu, |me| (me.begun, me.takes_part) = (begun, false));
        assert!(self.barrier.leave_as(cpu, wait), "it took part");
        self.note(cpu, |me| (me.arriving, me.has_left) = (false, true));
    }

    fn come_again(&self, cpu: &Explorer, wait: &Wait) {
        self.note(cpu, |me| me.has_left = false);
        self.barrier.join_as(cpu, wait).expect("its place is free");
        self.note(cpu, |me| me.takes_part = true);
    }
}

impl SubjectRun for LeavingRun {
    fn thread(&self, cpu: &Explorer) {
        self.waiters.with_wait(cpu, |wait| {
            for n in 0..self.plan.ops {
                self.arrive(cpu, wait, Deadline::NEVER);
                if (n + cpu.id()).is_multiple_of(2) {
                    if n > 0 {
                        self.arrive(cpu, wait, Deadline::PAST);
                    }
                    self.leave(cpu, wait);
                    self.come_again(cpu, wait);
                }
            }
            self.leave(cpu, wait);
        });
    }
}

/// Threads put tokens in by turns, and take them out as long as they wait for one.
struct CondvarRun {
    condvar: Condvar<Explorer, 8>,
    mutex: Posix<Explorer>,
    tokens: DatumId,
    /// The tokens, as the host knows them.
    known: Cell<u64>,
    /// Threads between a token and its notification, a bit each.
    putting: Cell<u64>,
    plan: Plan,
    waiters: Waiters,
}

impl CondvarRun {
    fn locked<T>(&self, cpu: &Explorer, wait: &Wait, act: impl FnOnce() -> T) -> T {
        let mut held = self.mutex.lock(cpu, wait).expect("the mutex is never lost");
        if <Posix<Explorer> as Lock<Explorer>>::owner_died(&held) {
            // The dead holder may have changed the number, and not noted it.
            cpu.write(&self.tokens, self.known.get());
            self.mutex.make_consistent(cpu, &mut held);
        }
        let result = act();
        self.mutex.unlock(cpu, wait, held);
        result
    }

    fn change(&self, cpu: &Explorer, tokens: u64) {
        cpu.write(&self.tokens, tokens);
        self.known.set(tokens);
    }

    fn put(&self, cpu: &Explorer, wait: &Wait) {
        let me = 1 << cpu.id();
        self.locked(cpu, wait, || {
            self.putting.set(self.putting.get() | me);
            self.change(cpu, cpu.read(&self.tokens) + 1);
        });
        self.condvar.notify_one_by(cpu, wait);
        self.putting.set(self.putting.get() & !me);
    }

    fn take(&self, cpu: &Explorer, wait: &Wait) {
        let deadline = Deadline::after(cpu, 50_000_000);
        let mut waiting = None;
        loop {
            let begun = self.locked(cpu, wait, || {
                if let Some(waiting) = waiting.take() {
                    self.condvar.end(cpu, waiting);
                }
                match cpu.read(&self.tokens) {
                    0 => Some(self.condvar.begin(cpu, wait)),
                    tokens => {
                        self.change(cpu, tokens - 1);
                        None
                    }
                }
            });
            let Some(begun) = begun else { return };
            let woken = self.condvar.sleep(cpu, wait, &begun, deadline);
            if woken == Woken::TimedOut {
                // Sleepers time out only when no thread can go on. One that died before it
                // notified leaves a token that no waiter learns of.
                if self.waiters.policy == Policy::Park && self.putting.get() == 0 {
                    assert_eq!(self.known.get(), 0, "a token, and no waiter was notified of it");
                }
                return self.locked(cpu, wait, || self.condvar.end(cpu, begun));
            }
            waiting = Some(begun);
        }
    }
}

impl SubjectRun for CondvarRun {
    fn thread(&self, cpu: &Explorer) {
        self.waiters.with_wait(cpu, |wait| {
            for n in 0..self.plan.ops {
                if (n + cpu.id()).is_multiple_of(2) {
                    self.put(cpu, wait);
                } else {
                    self.take(cpu, wait);
                }
            }
            // None waits in vain for a thread that has ended.
            self.put(cpu, wait);
        });
    }
}
