//! The API in one process: panics, time-outs, readers, hostile messages, many names.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use towpath_am::{Endpoint, WorldConfig};
use towpath_machine::Random;
use towpath_mplock::{Error, Manager, Progress, Protocol};
use towpath_shm::World;

fn world(ranks: u32) -> World {
    let world = World::create(&WorldConfig::new(ranks).spec(None)).unwrap();
    world.enter(Some(0)).unwrap();
    world
}

#[test]
fn holder_that_panics_counts_as_dead_until_repaired() {
    for protocol in Protocol::ALL {
        let manager = Manager::new(&world(1)).unwrap();
        let lock = manager.lock_with("x", protocol);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.acquire().unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert!(lock.acquire().unwrap().previous_owner_died());
        // A reader repairs nothing.
        let mut reader = lock.acquire_shared().unwrap();
        assert!(reader.previous_owner_died());
        reader.make_consistent();
        drop(reader);
        let mut guard = lock.acquire().unwrap();
        assert!(guard.previous_owner_died(), "{protocol:?}");
        guard.make_consistent();
        drop(guard);
        assert!(!lock.acquire().unwrap().previous_owner_died());
    }
}

#[test]
fn lock_that_is_held_is_not_acquired_twice() {
    let manager = Manager::new(&world(1)).unwrap();
    let (lock, other) = (manager.lock("x"), manager.lock("x"));
    let guard = lock.acquire().unwrap();
    assert!(matches!(other.acquire(), Err(Error::AlreadyHeld(name)) if name == "x"));
    assert!(matches!(other.try_acquire(), Err(Error::AlreadyHeld(_))));
    drop(guard);
    assert!(other.try_acquire().unwrap().is_some());
}

#[test]
fn unused_names_cost_nothing() {
    for protocol in Protocol::ALL {
        let manager = Manager::new(&world(1)).unwrap();
        for n in 0..20_000 {
            drop(manager.lock_with(&format!("file {n}"), protocol).acquire().unwrap());
        }
        assert_eq!(manager.locks_in_use(), (0, 0));
    }
}

/// Runs `other` as rank 1 in a thread, beside the manager of rank 0.
fn with_another(other: impl FnOnce(World) + Send, act: impl FnOnce(&Manager)) {
    let first = world(2);
    let second = first.reopen().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            second.enter(Some(1)).unwrap();
            other(second);
        });
        let manager = Manager::new(&first).unwrap();
        act(&manager);
        while !thread.is_finished() {
            manager.wait(Duration::from_millis(1));
        }
    });
}

#[test]
fn request_that_is_withdrawn_lets_the_lock_pass_by() {
    for protocol in Protocol::ALL {
        let other = |world: World| {
            let manager = Manager::new(&world).unwrap();
            let lock = manager.lock_with("x", protocol);
            let guard = lock.acquire().unwrap();
            manager.barrier().unwrap();
            manager.barrier().unwrap();
            drop(guard);
            manager.barrier().unwrap();
            // The other one has passed it by.
            drop(lock.acquire().unwrap());
        };
        with_another(other, |manager| {
            let lock = manager.lock_with("x", protocol);
            manager.barrier().unwrap();
            assert!(lock.try_acquire().unwrap().is_none(), "{protocol:?}");
            assert!(lock.try_acquire_shared().unwrap().is_none(), "{protocol:?}");
            assert!(lock.acquire_timeout(Duration::from_millis(2)).unwrap().is_none());
            // The place in the queue stays: to ask again takes no message.
            let requests = manager.traffic().requests;
            assert!(lock.acquire_timeout(Duration::from_millis(2)).unwrap().is_none());
            assert_eq!(manager.traffic().requests, requests, "{protocol:?}");
            assert!(lock.acquire_shared_timeout(Duration::from_millis(2)).unwrap().is_none());
            manager.barrier().unwrap();
            manager.barrier().unwrap();
        });
    }
}

#[test]
fn readers_hold_a_lock_together() {
    for protocol in Protocol::ALL {
        let other = |world: World| {
            let manager = Manager::new(&world).unwrap();
            let lock = manager.lock_with("x", protocol);
            let reader = lock.acquire_shared().unwrap();
            manager.barrier().unwrap();
            drop(reader);
            drop(lock.acquire().unwrap());
        };
        with_another(other, |manager| {
            let lock = manager.lock_with("x", protocol);
            let reader = lock.acquire_shared().unwrap();
            manager.barrier().unwrap();
            drop(reader);
            drop(lock.acquire().unwrap());
        });
    }
}

#[test]
fn data_of_a_lock_are_those_of_the_last_release() {
    for protocol in Protocol::ALL {
        let manager = Manager::new(&world(1)).unwrap();
        let lock = manager.lock_with("x", protocol);
        lock.acquire().unwrap().set_data(b"first").unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lock.acquire().unwrap().set_data(b"lost").unwrap();
            let mut guard = lock.acquire().unwrap();
            assert_eq!(guard.data(), b"lost");
            guard.set_data(b"second").unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        let mut guard = lock.acquire().unwrap();
        assert!(guard.previous_owner_died() && guard.data_version().is_some());
        assert_eq!(guard.data(), b"lost", "{protocol:?}");
        assert!(matches!(guard.set_data(&[0; 4097]), Err(Error::DataTooLong { len: 4097, max: 4096 })));
        guard.set_data(&[7; 4096]).unwrap();
        guard.make_consistent();
        drop(guard);
        let mut reader = lock.acquire_shared().unwrap();
        assert_eq!(reader.data(), [7; 4096]);
        assert!(matches!(reader.set_data(b""), Err(Error::ReadsOnly)));
        assert!(matches!(reader.data_mut(), Err(Error::ReadsOnly)));
        drop(reader);
        drop(lock);
        assert_eq!(manager.locks_in_use(), (0, 1), "its home keeps them");
        assert_eq!(manager.lock_with("x", protocol).acquire().unwrap().data(), [7; 4096]);
        manager.lock_with("x", protocol).acquire().unwrap().set_data(b"").unwrap();
        assert_eq!(manager.locks_in_use(), (0, 0), "{protocol:?}");
    }
}

#[test]
fn data_stay_when_their_home_leaves() {
    const LOCKS: u64 = 40;
    for protocol in Protocol::ALL {
        let other = |world: World| {
            let manager = Manager::new(&world).unwrap();
            for n in 0..LOCKS {
                let lock = manager.lock_with(&n.to_string(), protocol);
                lock.acquire().unwrap().set_data(&n.to_le_bytes()).unwrap();
            }
            manager.barrier().unwrap();
            assert!(manager.locks_in_use().1 > 0, "it is a home");
            drop(manager);
            world.leave().unwrap();
        };
        with_another(other, |manager| {
            manager.barrier().unwrap();
            manager.wait(Duration::from_millis(30));
            for n in 0..LOCKS {
                let lock = manager.lock_with(&n.to_string(), protocol);
                let guard = lock.acquire().unwrap();
                assert_eq!(guard.data(), n.to_le_bytes(), "{protocol:?}: {guard:?}");
                assert!(!guard.previous_owner_died());
            }
        });
    }
}

#[test]
fn removed_data_stay_away_when_their_home_leaves() {
    const LOCKS: u64 = 40;
    for protocol in Protocol::ALL {
        for others in [0, 3000] {
            let other = |world: World| {
                let manager = Manager::new(&world).unwrap();
                manager.barrier().unwrap();
                for n in 0..LOCKS {
                    let lock = manager.lock_with(&n.to_string(), protocol);
                    let mut guard = lock.acquire().unwrap();
                    assert_eq!(guard.data(), b"old");
                    guard.set_data(b"").unwrap();
                }
                // So many that homes drop the state of idle locks.
                for n in 0..others {
                    drop(manager.lock_with(&format!("other {n}"), protocol).acquire().unwrap());
                }
                manager.barrier().unwrap();
                drop(manager);
                world.leave().unwrap();
            };
            with_another(other, |manager| {
                // It keeps its handles, and thus copies of what it has released.
                let locks: Vec<_> = (0..LOCKS).map(|n| manager.lock_with(&n.to_string(), protocol)).collect();
                locks.iter().for_each(|lock| lock.acquire().unwrap().set_data(b"old").unwrap());
                manager.barrier().unwrap();
                manager.barrier().unwrap();
                manager.wait(Duration::from_millis(30));
                for lock in &locks {
                    let guard = lock.acquire().unwrap();
                    assert_eq!(guard.data(), b"", "{protocol:?}, {others}");
                    assert!(!guard.previous_owner_died(), "{protocol:?}, {others}");
                }
            });
        }
    }
}

/// Rank 0 acquires locks that rank 1 keeps idle or is the home of, while that computes.
///
/// Returns the number of locks that it had within `patience` each.
fn acquired_of_a_busy_rank(progress: Progress, protocol: Protocol, patience: Duration) -> usize {
    const LOCKS: usize = 12;
    let busy = AtomicBool::new(true);
    let mut acquired = 0;
    let name = |n: usize| format!("lock {n}");
    let other = |world: World| {
        let manager = Manager::with_progress(&world, progress).unwrap();
        assert_eq!(manager.progress(), progress);
        let locks: Vec<_> = (0..LOCKS).map(|n| manager.lock_with(&name(n), protocol)).collect();
        locks.iter().for_each(|lock| drop(lock.acquire().unwrap()));
        manager.barrier().unwrap();
        while busy.load(SeqCst) {
            std::hint::spin_loop();
        }
        manager.barrier().unwrap();
    };
    with_another(other, |manager| {
        manager.barrier().unwrap();
        let locks: Vec<_> = (0..LOCKS).map(|n| manager.lock_with(&name(n), protocol)).collect();
        assert!(locks.iter().any(|lock| lock.home() == 1));
        for lock in &locks {
            acquired += usize::from(lock.acquire_timeout(patience).unwrap().is_some());
        }
        busy.store(false, SeqCst);
        manager.barrier().unwrap();
    });
    acquired
}

#[test]
fn progress_thread_answers_while_its_process_computes() {
    for protocol in Protocol::ALL {
        let patience = Duration::from_secs(20);
        assert_eq!(acquired_of_a_busy_rank(Progress::Thread, protocol, patience), 12, "{protocol:?}");
        let patience = Duration::from_millis(5);
        assert!(acquired_of_a_busy_rank(Progress::Poll, protocol, patience) < 12, "{protocol:?}");
    }
}

/// A thread that has waited leaves the queues armed: a request that comes next wakes the
/// process, and is not found when its progress thread looks by itself.
#[test]
fn request_after_a_wait_wakes_the_progress_thread() {
    const ROUNDS: u64 = 40;
    let (round, woken) = (AtomicU64::new(0), AtomicU64::new(0));
    let other = |world: World| {
        let manager = Manager::with_progress(&world, Progress::Thread).unwrap();
        let count = || world.doorbell(1).load(SeqCst);
        for n in 1..=ROUNDS {
            manager.wait(Duration::from_micros(300));
            let before = count();
            round.store(2 * n - 1, SeqCst);
            while round.load(SeqCst) < 2 * n {
                std::thread::yield_now();
            }
            woken.fetch_add(u64::from(count() != before), SeqCst);
        }
        manager.barrier().unwrap();
    };
    with_another(other, |manager| {
        let locks = (0..).map(|n| manager.lock_with(&format!("lock {n}"), Protocol::Central));
        let lock = locks.into_iter().find(|lock| lock.home() == 1).unwrap();
        for n in 1..=ROUNDS {
            while round.load(SeqCst) < 2 * n - 1 {
                std::thread::yield_now();
            }
            drop(lock.acquire().unwrap());
            round.store(2 * n, SeqCst);
        }
        manager.barrier().unwrap();
    });
    let woken = woken.into_inner();
    assert!(woken > ROUNDS * 3 / 4, "{woken} of {ROUNDS} requests");
}

#[test]
fn handler_that_panics_ends_the_progress_thread_only() {
    let other = |world: World| {
        let endpoint = Endpoint::new(&world).unwrap();
        endpoint.set_handler(1, |_| panic!("on purpose"));
        let manager = Manager::on_with_progress(endpoint, Progress::Thread).unwrap();
        while manager.progress() == Progress::Thread {
            std::thread::sleep(Duration::from_micros(100));
        }
        // It goes on as one that polls.
        drop(manager.lock("x").acquire().unwrap());
        manager.barrier().unwrap();
        manager.wait(Duration::from_millis(20));
    };
    with_another(other, |manager| {
        manager.endpoint().unwrap().request(1, 1, &[]).unwrap();
        manager.barrier().unwrap();
        drop(manager.lock("x").acquire().unwrap());
    });
}

#[test]
fn panic_under_a_progress_thread_counts_as_death() {
    let manager = Manager::with_progress(&world(1), Progress::Thread).unwrap();
    let lock = manager.lock("x");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = lock.acquire().unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert!(lock.acquire().unwrap().previous_owner_died());
    assert_eq!(manager.progress(), Progress::Thread);
    assert!(matches!(manager.endpoint(), Err(Error::EndpointOfTwo)));
    assert!(format!("{manager:?} {lock:?}").contains('x'));
}

#[test]
fn hostile_messages_are_passed_over() {
    let other = |world: World| {
        let endpoint = Endpoint::new(&world).unwrap();
        endpoint.set_handler(255, |_| ());
        endpoint.map_world().unwrap();
        let mut random = Random::new(1);
        for _ in 0..50_000 {
            let mut args = [0u32; 16];
            args.iter_mut().for_each(|word| *word = random.word() as u32);
            // A kind and a sender that exist.
            args[0] = args[0] & 0xffff & !0xf | (random.below(11) as u32) | 1 << 16;
            // Few locks, few tickets.
            args[1..7].iter_mut().for_each(|word| *word &= 3);
            endpoint.request(0, 255, &args[..random.below(17) as usize]).unwrap();
            endpoint.poll();
        }
    };
    with_another(other, |manager| {
        // Its own locks go on, if it is their home.
        let lock = (0..64).map(|n| manager.lock(&format!("lock {n}")));
        let served = lock.filter(|lock| lock.acquire_timeout(Duration::from_millis(2)).unwrap().is_some());
        assert!(served.count() > 0);
    });
}
