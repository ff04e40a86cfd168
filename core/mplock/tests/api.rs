//! The API in one process: panics, time-outs, readers, hostile messages, many names.

use std::time::Duration;

use towpath_am::{Endpoint, WorldConfig};
use towpath_machine::Random;
use towpath_mplock::{Error, Manager, Protocol};
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
            assert!(lock.acquire_shared_timeout(Duration::from_millis(2)).unwrap().is_none());
            assert!(lock.acquire_timeout(Duration::from_millis(2)).unwrap().is_none());
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
