//! Waiter of lock `robust` that sleeps when its holder releases.
//!
//! It is woken, and not left to the end of its turn, nor does it sleep another one.
//!
//! It says so before it sleeps, so that the holder's hints are not old ones. `called`: it is not
//! handed the lock, but called to take it. `marked-places`: every place has the mark of a waiter
//! that slept there, as in damaged memory.

use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{Bytes, DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_sync::locks::Robust;
use towpath_sync::{Abandoned, Lock, PARKED, Policy, Wait, Waiting};

use super::super::{BUDGET, ExploredMember};
use super::turns::{await_stage, entered, reach};

/// Less than a sleeper's turn, and longer than all steps of a run, in nanoseconds.
const SOON: u64 = 1_000_000;
/// Time of a lease of the lock whose waiters are called, in nanoseconds.
const LEASE: u64 = 10_000;

/// Its subjects, for waiters that sleep.
pub(super) fn all(cases: &mut Vec<Case>, policy: Policy) {
    if policy != Policy::Park {
        return;
    }
    sleepers::<0>(cases, "lock/robust/asleep", 0);
    sleepers::<LEASE>(cases, "lock/robust/called", 0);
    sleepers::<0>(cases, "lock/robust/marked-places", PARKED);
}

/// The subject of a lock whose places begin with a mark.
fn sleepers<const LEASE: u64>(cases: &mut Vec<Case>, name: &str, mark: u64) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        if plan.threads < 2 {
            return Err("is for two threads".into());
        }
        let stages = [0, 1].map(|_| memory.word(Place::NewLine, 0));
        let lock = Robust::<Explorer, 8, LEASE>::new(&MarkedPlaces { memory, mark });
        Ok(Rc::new(SleeperRun { lock, stages }))
    };
    let about = "a waiter that sleeps is woken by a release";
    cases.push(Case { naps: true, ..Case::new(name, about, make) });
}

/// Memory in which first words of lines hold a mark: a lock's word, and its places.
struct MarkedPlaces<'a> {
    memory: &'a ExploredMemory,
    mark: u64,
}

impl Arena<Explorer> for MarkedPlaces<'_> {
    fn word(&self, place: Place, value: u64) -> Word {
        let mark = if matches!(place, Place::NewLine) { self.mark } else { 0 };
        self.memory.word(place, value | mark)
    }
    fn cell(&self, place: Place, value: u64) -> DatumId {
        self.memory.cell(place, value)
    }
    fn bytes(&self, len: usize) -> Bytes {
        self.memory.bytes(len)
    }
}

/// Thread 0 has the lock until thread 1 is about to sleep.
struct SleeperRun<const LEASE: u64> {
    lock: Robust<Explorer, 8, LEASE>,
    /// Thread 0 has the lock; thread 1 is about to sleep.
    stages: [Word; 2],
}

impl<const LEASE: u64> SubjectRun for SleeperRun<LEASE> {
    fn thread(&self, cpu: &Explorer) {
        let around = ExploredMember::new(cpu);
        let [held, sleeps] = &self.stages;
        let inner = Wait { policy: Policy::Park, around: &around, budget: BUDGET };
        let wait = SaysWhenAsleep { inner, sleeps };
        match cpu.id() {
            0 => {
                let mine = entered(&self.lock, cpu, self.lock.lock(cpu, &wait));
                reach(cpu, held);
                await_stage(cpu, sleeps, 1);
                self.lock.unlock(cpu, &wait, mine);
            }
            1 if await_stage(cpu, held, 0) => {
                let mine = entered(&self.lock, cpu, self.lock.lock(cpu, &wait));
                self.lock.unlock(cpu, &wait, mine);
            }
            _ => {}
        }
    }
}

/// Way of waiting that says in a word that its caller is about to sleep.
///
/// It looks whether the caller is woken from each sleep.
struct SaysWhenAsleep<'a> {
    inner: Wait<'a>,
    sleeps: &'a Word,
}

impl Waiting<Explorer> for SaysWhenAsleep<'_> {
    fn parks(&self) -> bool {
        true
    }
    fn wait_until(
        &self,
        cpu: &Explorer,
        word: &Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.inner.wait_until(cpu, word, done)
    }
    fn back_off(&self, cpu: &Explorer, round: u32) -> Result<(), Abandoned> {
        self.inner.back_off(cpu, round)
    }
    fn attempts_before_queueing(&self, cpu: &Explorer) -> u32 {
        self.inner.attempts_before_queueing(cpu)
    }
    fn wait_turn(&self, cpu: &Explorer, word: &Word, seen: u64, round: u32, turn: u64) {
        // (T2) Release: the waiter's place and its mark; pairs with the Acquire (T1).
        cpu.store(self.sleeps, 1, Ordering::Release);
        let begun = cpu.now();
        self.inner.wait_turn(cpu, word, seen, round, turn);
        let is_soon = cpu.now() - begun < SOON;
        assert!(is_soon || cpu.deaths() > 0, "it has slept until its turn was over");
    }
    fn wake_all(&self, cpu: &Explorer, word: &Word) {
        Waiting::<Explorer>::wake_all(&self.inner, cpu, word);
    }
    fn identity(&self) -> u32 {
        Waiting::<Explorer>::identity(&self.inner)
    }
    fn is_alive(&self, identity: u32) -> bool {
        Waiting::<Explorer>::is_alive(&self.inner, identity)
    }
    fn release(&self, cpu: &Explorer, word: &Word, value: u64) {
        self.inner.release(cpu, word, value);
    }
    fn release_some(&self, cpu: &Explorer, word: &Word, value: u64, count: u32) {
        self.inner.release_some(cpu, word, value, count);
    }
}
