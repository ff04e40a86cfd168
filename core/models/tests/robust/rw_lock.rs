//! The readers-writer lock between threads, and between identities of which some are
//! dead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use towpath_machine::{Heap, Native};
use towpath_sync::robust::{Access, ReadersWriter};
use towpath_sync::{Deadline, LockError, Policy, RwLock};

use crate::support::Member;

type Lock = ReadersWriter<Native, 4>;

fn soon() -> Deadline {
    Deadline::within(Duration::from_secs(20))
}

#[test]
fn readers_see_whole_data_among_writers() {
    let table: RwLock<[u64; 2]> = RwLock::new([0; 2]);
    thread::scope(|scope| {
        for writer in 0..2 {
            let table = &table;
            scope.spawn(move || {
                for _ in 0..3_000 {
                    let mut both = table.write().unwrap();
                    both[0] += 1;
                    if writer == 0 {
                        std::hint::black_box(&both);
                    }
                    both[1] += 1;
                }
            });
        }
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..3_000 {
                    let both = table.read().unwrap();
                    assert_eq!(both[0], both[1]);
                }
            });
        }
    });
    assert_eq!(table.into_inner(), [6_000; 2]);
}

#[test]
fn more_readers_than_places_share_them() {
    // One identity: threads of a process.
    let (lock, none) = (&Lock::new(&Heap), &AtomicU64::new(0));
    let (inside, most) = (&AtomicU64::new(0), &AtomicU64::new(0));
    thread::scope(|scope| {
        for id in 0..12 {
            scope.spawn(move || {
                let member = Member { me: 3, dead: none };
                let (cpu, wait) = (Native::with_id(id), member.wait(Policy::Adaptive));
                let Ok(Access::Shared(held)) = lock.read(&cpu, &wait, soon()) else { panic!("not let in") };
                most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                while most.load(SeqCst) < 12 {
                    thread::yield_now();
                }
                inside.fetch_sub(1, SeqCst);
                lock.read_unlock(&cpu, &wait, held);
            });
        }
    });
    let member = Member { me: 5, dead: none };
    let wait = member.wait(Policy::Spin);
    assert!(lock.write(&Native::with_id(0), &wait, Deadline::PAST).is_ok(), "all places are free");
}

#[test]
fn waiters_give_up_at_their_deadlines() {
    let table = RwLock::new(7);
    let brief = Duration::from_millis(3);
    let timed_out = |error: Option<LockError>| assert_eq!(error, Some(LockError::TimedOut));
    let reader = table.read().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            timed_out(table.try_write().err());
            let before = Instant::now();
            timed_out(table.write_timeout(brief).err());
            timed_out(table.write_until(before + 2 * brief).err());
            assert!(before.elapsed() >= 2 * brief);
            // The gate is open again.
            assert_eq!(*table.try_read().unwrap(), 7);
        });
    });
    drop(reader);
    let writer = table.write().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            timed_out(table.try_read().err());
            timed_out(table.read_timeout(brief).err());
            timed_out(table.read_until(Instant::now() + brief).err());
            timed_out(table.try_write().err());
        });
    });
    let reader = writer.downgrade().unwrap();
    assert_eq!(*reader + *table.read_timeout(brief).unwrap(), 14);
}

#[test]
fn dead_readers_are_removed_and_their_places_used() {
    let (lock, dead) = (Lock::new(&Heap), AtomicU64::new(0));
    for policy in [Policy::Spin, Policy::Park, Policy::Adaptive] {
        dead.store(0, SeqCst);
        let victims: Vec<_> = (2..6).map(|me| Member { me, dead: &dead }).collect();
        for (victim, id) in victims.iter().zip(0..) {
            let cpu = Native::with_id(id);
            assert!(matches!(lock.read(&cpu, &victim.wait(policy), soon()), Ok(Access::Shared(_))));
        }
        let survivor = Member { me: 7, dead: &dead };
        let (cpu, wait) = (Native::with_id(7), survivor.wait(policy));
        assert_eq!(lock.write(&cpu, &wait, Deadline::PAST).err(), Some(LockError::TimedOut));
        assert_eq!(
            lock.read(&cpu, &wait, Deadline::PAST).err(),
            Some(LockError::TimedOut),
            "all places taken"
        );
        dead.store(1 << 2, SeqCst);
        let Ok(Access::Shared(held)) = lock.read(&cpu, &wait, soon()) else { panic!("no place") };
        lock.read_unlock(&cpu, &wait, held);
        dead.store(0b111100, SeqCst);
        let held = lock.write(&cpu, &wait, soon()).unwrap();
        assert_eq!(Lock::dead_writer(&held), None, "readers change nothing");
        lock.write_unlock(&cpu, &wait, held);
    }
}

#[test]
fn next_after_a_dead_writer_is_told_until_it_repairs() {
    for (policy, name) in Policy::ALL {
        let (lock, dead) = (Lock::new(&Heap), AtomicU64::new(0));
        let (victim, survivor) = (Member { me: 2, dead: &dead }, Member { me: 3, dead: &dead });
        let wait = survivor.wait(policy);
        let cpu = Native::with_id(1);
        let _held = lock.write(&Native::with_id(0), &victim.wait(policy), soon()).unwrap();
        dead.store(1 << 2, SeqCst);
        // A reader finds it out, and leaves it to the next.
        let Ok(Access::Exclusive(held)) = lock.read(&cpu, &wait, soon()) else { panic!("{name}: not told") };
        assert_eq!(Lock::dead_writer(&held), Some(2), "{name}");
        lock.write_unlock(&cpu, &wait, held);
        for _ in 0..2 {
            let held = lock.write(&cpu, &wait, soon()).unwrap();
            assert_eq!(Lock::dead_writer(&held), Some(2), "{name}");
            lock.write_unlock(&cpu, &wait, held);
        }
        // A repairer dies, too: the next is told of it.
        let repairer = Member { me: 4, dead: &dead };
        let Ok(Access::Exclusive(mut held)) = lock.read(&cpu, &repairer.wait(policy), soon()) else {
            panic!("{name}: not told again")
        };
        lock.make_consistent(&mut held);
        dead.store(1 << 2 | 1 << 4, SeqCst);
        let mut held = lock.write(&cpu, &wait, soon()).unwrap();
        assert_eq!(Lock::dead_writer(&held), Some(4), "{name}");
        lock.make_consistent(&mut held);
        lock.write_unlock(&cpu, &wait, held);
        let Ok(Access::Shared(held)) = lock.read(&cpu, &wait, soon()) else { panic!("{name}: repaired") };
        lock.read_unlock(&cpu, &wait, held);
    }
}

/// Writers that never leave the lock alone don't starve a reader.
#[test]
fn readers_get_in_among_endless_writers() {
    let table = RwLock::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    *table.write().unwrap() += 1;
                }
            });
        }
        let mut last = 0;
        for _ in 0..50 {
            let now = *table.read().unwrap();
            assert!(now >= last);
            last = now;
        }
        stop.store(true, SeqCst);
    });
}
