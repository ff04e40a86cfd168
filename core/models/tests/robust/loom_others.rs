//! Events, onces, semaphores, barriers and condition variables under the model checker:
//! data that are not atomic, so that a missing ordering is a race; sleepers without timeouts.

use std::sync::Arc;

use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomCell, Place, Processor};
use towpath_sync::robust::{Barrier, Condvar, Event, Once, Semaphore, Woken};
use towpath_sync::{Deadline, Lock, Spinning, Waiting};
use towpath_testkit::model;

use crate::support::{ModelLock, parking};
use crate::weakened::{Missing, SOUND, Weakened, fails};

const PARKING: LoomArena = LoomArena { parking: true };

fn datum() -> LoomCell {
    Arena::<Weakened>::cell(&PARKING, Place::NewLine, 0)
}

/// Two threads, each with its own way of leaving something out.
fn two<S: Send + Sync + 'static>(
    preemptions: usize,
    missing: [Missing; 2],
    make: impl Fn() -> S + Send + Sync + 'static,
    first: impl Fn(&S, &Weakened) + Send + Sync + Copy + 'static,
    second: impl Fn(&S, &Weakened) + Send + Sync + Copy + 'static,
) {
    model(preemptions, move || {
        let shared = Arc::new(make());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || second(&shared, &Weakened::new(1, missing[1])))
        };
        first(&shared, &Weakened::new(0, missing[0]));
        other.join().unwrap();
    });
}

fn an_event(missing: [Missing; 2]) {
    two(
        2,
        missing,
        || (Event::in_arena(&PARKING), datum()),
        |(event, datum), cpu| {
            cpu.write(datum, 7);
            event.set_by(cpu, &parking());
            event.reset_by(cpu);
            event.set_by(cpu, &parking());
        },
        |(event, datum), cpu| {
            event.wait_as(cpu, &parking(), Deadline::NEVER).unwrap();
            assert_eq!(cpu.read(datum), 7);
        },
    );
}

#[test]
fn event_publishes_and_wakes() {
    an_event([SOUND; 2]);
    for setter in [Missing::UpdateOrder, Missing::Wake] {
        assert!(fails(|| an_event([setter, SOUND])), "{setter:?}");
    }
    assert!(fails(|| an_event([SOUND, Missing::Acquire])));
}

/// Each does it, or gives up if it comes first.
fn a_once<W: Waiting<Weakened> + 'static>(missing: [Missing; 2], wait: fn() -> W, gives_up: bool) {
    fn act<W: Waiting<Weakened>>(
        (once, datum): &(Once<Weakened>, LoomCell),
        cpu: &Weakened,
        wait: &W,
        gives_up: bool,
    ) {
        loop {
            match once.begin(cpu, wait, Deadline::NEVER).unwrap() {
                Some(turn) => {
                    let value = cpu.read(datum) + 1;
                    cpu.write(datum, value);
                    if gives_up && value == 1 {
                        once.give_up(cpu, wait, turn);
                        continue;
                    }
                    once.finish(cpu, wait, turn);
                }
                None => assert!(cpu.read(datum) > 0),
            }
            return;
        }
    }
    model(2, move || {
        let shared = Arc::new((Once::in_arena(&PARKING), datum()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || act(&shared, &Weakened::new(1, missing[1]), &wait(), gives_up))
        };
        act(&shared, &Weakened::new(0, missing[0]), &wait(), gives_up);
        other.join().unwrap();
    });
}

#[test]
fn once_publishes_and_wakes() {
    a_once([SOUND; 2], parking, false);
    a_once([SOUND; 2], parking, true);
    for missing in [Missing::UpdateOrder, Missing::Acquire, Missing::Wake] {
        assert!(fails(|| a_once([missing; 2], parking, false)), "{missing:?}");
    }
    assert!(fails(|| a_once([Missing::Release; 2], || Spinning, false)));
    assert!(fails(|| a_once([Missing::Release; 2], || Spinning, true)));
}

fn a_semaphore(missing: [Missing; 2]) {
    fn act((semaphore, datum): &(Semaphore<Weakened, 2>, LoomCell), cpu: &Weakened) {
        semaphore.acquire_as(cpu, &parking(), Deadline::NEVER).unwrap();
        cpu.write(datum, cpu.read(datum) + 1);
        assert!(semaphore.release_as(cpu, &parking()));
    }
    two(2, missing, || (Semaphore::in_arena(&PARKING, 1), datum()), act, act);
}

#[test]
fn semaphore_of_one_permit_excludes_and_wakes() {
    a_semaphore([SOUND; 2]);
    for missing in [Missing::UpdateOrder, Missing::Wake] {
        assert!(fails(|| a_semaphore([missing; 2])), "{missing:?}");
    }
}

fn a_barrier(missing: [Missing; 2]) {
    fn act((barrier, data): &(Barrier<Weakened, 2>, [LoomCell; 2]), cpu: &Weakened) {
        let me = cpu.id();
        cpu.write(&data[me], 1);
        barrier.wait_as(cpu, &parking(), Deadline::NEVER).unwrap();
        assert_eq!(cpu.read(&data[1 - me]), 1);
    }
    let make = || {
        let barrier = Barrier::in_arena(&PARKING, 2);
        for processor in 0..2 {
            barrier.join_for(&Weakened::new(0, SOUND), 1, processor);
        }
        (barrier, [datum(), datum()])
    };
    two(2, missing, make, act, act);
}

#[test]
fn barrier_publishes_and_wakes() {
    a_barrier([SOUND; 2]);
    for missing in [Missing::UpdateOrder, Missing::Acquire, Missing::Wake] {
        assert!(fails(|| a_barrier([missing; 2])), "{missing:?}");
    }
}

/// A token in a mutex, and a waiter for it. `rechecks`: it looks before it waits.
fn a_condvar(missing: [Missing; 2], rechecks: bool) {
    two(
        2,
        missing,
        || (Condvar::<Weakened, 2>::in_arena(&PARKING), ModelLock::new(&PARKING), datum()),
        |(condvar, mutex, tokens), cpu| {
            mutex.lock(cpu, &parking()).unwrap();
            cpu.write(tokens, 1);
            mutex.unlock(cpu, &parking(), ());
            condvar.notify_one_by(cpu, &parking());
        },
        move |(condvar, mutex, tokens), cpu| {
            mutex.lock(cpu, &parking()).unwrap();
            while !rechecks || cpu.read(tokens) == 0 {
                let waiting = condvar.begin(cpu, &parking());
                mutex.unlock(cpu, &parking(), ());
                let woken = condvar.sleep(cpu, &parking(), &waiting, Deadline::NEVER);
                assert_eq!(woken, Woken::Notified);
                mutex.lock(cpu, &parking()).unwrap();
                condvar.end(cpu, waiting);
                if !rechecks {
                    break;
                }
            }
            mutex.unlock(cpu, &parking(), ());
        },
    );
}

#[test]
fn condvar_loses_no_notification() {
    a_condvar([SOUND; 2], true);
    assert!(fails(|| a_condvar([Missing::Wake, SOUND], true)));
    assert!(fails(|| a_condvar([SOUND; 2], false)), "a waiter that does not look first");
}
