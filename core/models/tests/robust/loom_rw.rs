//! The readers-writer lock under the model checker: data that are not atomic, so that a
//! missing ordering is a race.

use std::sync::Arc;

use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomCell, Place, Processor};
use towpath_sync::robust::{Access, ReadersWriter};
use towpath_sync::{Deadline, Spinning, Waiting};
use towpath_testkit::model;

use crate::support::{ModelLock, parking};
use crate::weakened::{Missing, SOUND, Weakened, fails};

type Lock<const PATIENCE: u64> = ReadersWriter<Weakened, 2, ModelLock, PATIENCE>;

const NEVER_INSISTS: u64 = u64::MAX;

struct Shared<const PATIENCE: u64> {
    lock: Lock<PATIENCE>,
    data: LoomCell,
}

impl<const PATIENCE: u64> Shared<PATIENCE> {
    fn new(arena: LoomArena) -> Arc<Self> {
        Arc::new(Shared { lock: Lock::new(&arena), data: Arena::<Weakened>::cell(&arena, Place::NewLine, 0) })
    }

    fn write(&self, cpu: &Weakened, wait: &impl Waiting<Weakened>) {
        let held = self.lock.write(cpu, wait, Deadline::NEVER).expect("no thread dies here");
        cpu.write(&self.data, cpu.read(&self.data) + 1);
        self.lock.write_unlock(cpu, wait, held);
    }

    fn read(&self, cpu: &Weakened, wait: &impl Waiting<Weakened>) -> u64 {
        match self.lock.read(cpu, wait, Deadline::NEVER).expect("no thread dies here") {
            Access::Shared(held) => {
                let value = cpu.read(&self.data);
                self.lock.read_unlock(cpu, wait, held);
                value
            }
            Access::Exclusive(_) => unreachable!("no thread dies here"),
        }
    }
}

/// A writer, and a reader that comes twice; each leaves something out.
fn writer_and_reader(writer: Missing, reader: Missing) {
    model(3, move || {
        let shared = Shared::<NEVER_INSISTS>::new(LoomArena::default());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.write(&Weakened::new(1, writer), &Spinning))
        };
        let cpu = Weakened::new(0, reader);
        let first = shared.read(&cpu, &Spinning);
        assert!(shared.read(&cpu, &Spinning) >= first);
        other.join().unwrap();
        assert_eq!(shared.read(&Weakened::new(0, SOUND), &Spinning), 1);
    });
}

/// Two writers and a reader that insists at once, all of which sleep.
fn insisting(writer: Missing, reader: Missing) {
    model(2, move || {
        let shared = Shared::<0>::new(LoomArena { parking: true });
        let others = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.write(&Weakened::new(1, writer), &parking());
                shared.write(&Weakened::new(1, writer), &parking());
            })
        };
        shared.read(&Weakened::new(0, reader), &parking());
        others.join().unwrap();
    });
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    writer_and_reader(SOUND, SOUND);
}

#[test]
fn readers_and_a_writer_that_sleep_are_woken() {
    model(2, || {
        let shared = Shared::<NEVER_INSISTS>::new(LoomArena { parking: true });
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.read(&Weakened::new(1, SOUND), &parking()))
        };
        shared.write(&Weakened::new(0, SOUND), &parking());
        other.join().unwrap();
    });
}

#[test]
fn insisting_readers_are_let_in() {
    insisting(SOUND, SOUND);
}

/// (W1) to (W6), (W12).
#[test]
fn each_ordering_of_entering_is_needed() {
    for missing in [Missing::Acquire, Missing::UpdateOrder] {
        assert!(fails(|| writer_and_reader(missing, SOUND)), "the writer's, {missing:?}");
        assert!(fails(|| writer_and_reader(SOUND, missing)), "the reader's, {missing:?}");
    }
}

/// (W7) to (W9). A sequentially consistent load stands for a fence in loom, which does
/// the work of (W10), too; the explorer misses that one.
#[test]
fn each_ordering_of_insisting_is_needed() {
    assert!(fails(|| insisting(SOUND, Missing::Fence)), "the reader's");
    assert!(fails(|| insisting(SOUND, Missing::Acquire)), "the reader's");
    assert!(fails(|| insisting(Missing::Acquire, SOUND)), "the writer's");
    assert!(fails(|| insisting(Missing::Wake, SOUND)), "the wake-up");
}
