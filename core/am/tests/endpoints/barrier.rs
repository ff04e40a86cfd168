//! `Endpoint::barrier`: it polls, it ends for all alike, and a death is an error for all
//! that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Watchdog, members, tiny};
use towpath_am::{Algorithm, Bundle, Endpoint, Error, WorldConfig};
use towpath_shm::World;
use towpath_sync::Policy;

const RANKS: u32 = 4;

fn configs() -> impl Iterator<Item = WorldConfig> {
    let policies = Policy::ALL.iter().map(|(waiting, _)| *waiting);
    policies.flat_map(|waiting| {
        [Algorithm::Towpath, Algorithm::LockFree, Algorithm::Mcs]
            .map(|algorithm| WorldConfig { waiting, ..tiny(RANKS, algorithm) })
    })
}

fn dog(test: &'static str) -> Watchdog {
    Watchdog::new(Duration::from_secs(120), move || test.to_owned())
}

/// Runs `rank` in a thread for each member of a world.
fn each_rank<R: Send>(config: &WorldConfig, rank: impl Fn(World) -> R + Sync) -> Vec<R> {
    let worlds = members(config);
    thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> = worlds.into_iter().map(|world| scope.spawn(move || rank(world))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// An endpoint that counts its requests to handler 1 and answers them with handler 2.
fn counting(world: &World) -> (Endpoint, Arc<AtomicU32>) {
    let endpoint = Endpoint::new(world).unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    endpoint.set_handler(1, move |message| {
        counter.fetch_add(1, Ordering::Relaxed);
        message.reply(2, &[]).unwrap();
    });
    (endpoint, count)
}

#[test]
fn barrier_returned_messages_sent_before_were_handled() {
    let _dog = dog("barrier_returned_messages_sent_before_were_handled");
    for config in configs() {
        each_rank(&config, |world| {
            let (endpoint, count) = counting(&world);
            endpoint.map_world().unwrap();
            for round in 1..=20 {
                for peer in 0..RANKS {
                    endpoint.request(peer as usize, 1, &[round]).unwrap();
                }
                endpoint.barrier().unwrap();
                let handled = count.load(Ordering::Relaxed);
                assert!(handled >= round * RANKS, "{handled} of {round} rounds, {config:?}");
                // No rank sends for the next round before all have looked.
                endpoint.barrier().unwrap();
                assert_eq!(handled, round * RANKS, "{config:?}");
            }
        });
    }
}

#[test]
fn waiter_at_barrier_answers_requests() {
    let _dog = dog("waiter_at_barrier_answers_requests");
    for config in configs() {
        each_rank(&config, |world| {
            let (endpoint, count) = counting(&world);
            let answers = Arc::new(AtomicU32::new(0));
            let counter = answers.clone();
            endpoint.set_handler(2, move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
            });
            endpoint.map_world().unwrap();
            if world.rank() > 0 {
                // Rank 0 waits at the barrier meanwhile, perhaps asleep.
                thread::sleep(Duration::from_millis(2));
                for sent in 1..=20 {
                    endpoint.request(0, 1, &[]).unwrap();
                    endpoint.poll_until(|| answers.load(Ordering::Relaxed) >= sent);
                }
            }
            endpoint.barrier().unwrap();
            assert_eq!(count.load(Ordering::Relaxed), if world.rank() == 0 { 20 * (RANKS - 1) } else { 0 });
        });
    }
}

#[test]
fn ranks_at_either_barrier_meet() {
    let _dog = dog("ranks_at_either_barrier_meet");
    for config in configs() {
        let arrived = AtomicU32::new(0);
        each_rank(&config, |world| {
            let (endpoint, _) = counting(&world);
            for round in 1..=50 {
                arrived.fetch_add(1, Ordering::Relaxed);
                if (round + world.rank()).is_multiple_of(2) {
                    endpoint.barrier().unwrap();
                } else {
                    world.barrier(config.waiting).unwrap();
                }
                assert!(arrived.load(Ordering::Relaxed) >= round * RANKS, "{config:?}");
            }
        });
    }
}

#[test]
fn endpoints_of_a_bundle_are_polled_at_the_barrier() {
    let _dog = dog("endpoints_of_a_bundle_are_polled_at_the_barrier");
    let config = WorldConfig { endpoints: 4, processes: 2, ..WorldConfig::new(2) };
    let world = World::create(&config.spec(None)).unwrap();
    let worlds = [0, 1].map(|rank| {
        let member = world.reopen().unwrap();
        member.enter(Some(rank)).unwrap();
        member
    });
    thread::scope(|scope| {
        for world in worlds {
            scope.spawn(move || {
                let (first, second) = (counting(&world), counting(&world));
                let bundle = Bundle::new();
                bundle.add(&first.0);
                bundle.add(&second.0);
                first.0.barrier().unwrap();
                // The first one lies where the rank is looked for first, the second behind all of
                // these.
                let rank = world.rank();
                assert_eq!(
                    [&first, &second].map(|it| it.0.name().to_bits() as u16),
                    [rank as u16, rank as u16 + 2]
                );
                // To both endpoints of the other rank.
                for (entry, endpoint) in (0..4u64).enumerate() {
                    let name = towpath_am::Name::from_bits(1 << 16 | endpoint);
                    first.0.map(entry, name, towpath_am::Tag::ALL).unwrap();
                    first.0.request(entry, 1, &[]).unwrap();
                }
                first.0.barrier().unwrap();
                assert_eq!([&first.1, &second.1].map(|count| count.load(Ordering::Relaxed)), [2, 2]);
                first.0.barrier().unwrap();
            });
        }
    });
}

#[test]
fn death_at_barrier_is_reported_to_all_once() {
    let dog = dog("death_at_barrier_is_reported_to_all_once");
    for waiting in [Policy::Adaptive, Policy::Park, Policy::SpinThenYield] {
        let config = WorldConfig { waiting, ..WorldConfig::new(3) };
        let world = World::create(&config.spec(None)).unwrap();
        // SAFETY: the child uses what a child of a process with several threads may use in practice
        // with glibc (which makes its allocator safe across fork), and is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let entered = world.enter(Some(0)).is_ok();
            // SAFETY: ends without running anything of the parent's; or waits to be killed.
            unsafe {
                if !entered {
                    libc::_exit(1);
                }
                libc::pause();
                libc::_exit(2);
            }
        }
        dog.watch(child);
        while world.participant(0).is_none_or(|member| !world.is_alive(member)) {
            thread::sleep(Duration::from_millis(1));
        }
        thread::scope(|scope| {
            for rank in 1..3 {
                let member = world.reopen().unwrap();
                member.enter(Some(rank)).unwrap();
                scope.spawn(move || {
                    let endpoint = Endpoint::new(&member).unwrap();
                    let first = endpoint.barrier();
                    let died = |error: &Error| {
                        matches!(error, Error::World(towpath_shm::Error::MemberDied { rank: 0 }))
                    };
                    assert!(first.as_ref().is_err_and(died), "{first:?}");
                    endpoint.barrier().unwrap();
                    endpoint.barrier().unwrap();
                });
            }
            thread::sleep(Duration::from_millis(30));
            let mut status = 0;
            // SAFETY: our own child; `status` outlives the call.
            unsafe {
                assert_eq!(libc::kill(child, libc::SIGKILL), 0);
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
            }
            dog.reaped(child);
            assert!(libc::WIFSIGNALED(status), "killed while it waited, not {status:#x}");
        });
    }
}

#[test]
fn barrier_of_a_process_outside_the_world_is_an_error() {
    let config = WorldConfig::new(2);
    let [world, other] = &members(&config)[..] else { unreachable!("two ranks") };
    let endpoint = Endpoint::new(world).unwrap();
    other.leave().unwrap();
    endpoint.barrier().unwrap();
    world.leave().unwrap();
    assert!(matches!(endpoint.barrier(), Err(Error::World(towpath_shm::Error::NotEntered))));
}
