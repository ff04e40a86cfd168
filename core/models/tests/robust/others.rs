//! Events, onces, semaphores, barriers and condition variables between threads, and
//! between identities of which some are dead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use towpath_machine::{Heap, Native};
use towpath_sync::robust::{Barrier, Condvar, EpisodeError, Event, Once, Semaphore, Woken};
use towpath_sync::{Deadline, LockError, Mutex, Policy};

use crate::support::Member;

fn soon() -> Deadline {
    Deadline::within(Duration::from_secs(20))
}

#[test]
fn event_that_is_reset_at_once_lets_its_waiters_go() {
    let event = Event::new();
    for _ in 0..200 {
        thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..3).map(|_| scope.spawn(|| event.wait_timeout(Duration::from_secs(20)).is_ok())).collect();
            // Late waiters are let go by the next.
            while waiters.iter().any(|waiter| !waiter.is_finished()) {
                event.set();
                event.reset();
                thread::yield_now();
            }
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        });
    }
}

#[test]
fn once_is_done_again_after_a_panic_and_after_a_death() {
    let once = Once::new();
    assert!(catch_unwind(AssertUnwindSafe(|| once.call(|_| panic!("on purpose")))).is_err());
    assert!(!once.is_done());
    once.call(|_| ());
    assert!(once.is_done());

    for (policy, name) in Policy::ALL {
        let (once, dead) = (Once::in_arena(&Heap), AtomicU64::new(0));
        let (victim, survivor) = (Member { me: 2, dead: &dead }, Member { me: 3, dead: &dead });
        let (cpu, wait) = (Native::with_id(1), survivor.wait(policy));
        let _turn = once.begin(&Native::with_id(0), &victim.wait(policy), soon()).unwrap();
        assert!(once.begin(&cpu, &wait, Deadline::PAST).is_err(), "{name}: it lives");
        dead.store(1 << 2, SeqCst);
        let turn = once.begin(&cpu, &wait, soon()).unwrap().expect("its turn");
        assert_eq!(turn.dead(), Some(2), "{name}");
        once.finish(&cpu, &wait, turn);
        assert!(once.begin(&cpu, &wait, Deadline::PAST).unwrap().is_none(), "{name}");
    }
}

#[test]
fn permits_are_never_more_than_there_are() {
    let (semaphore, inside) = (Semaphore::new(3), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..2_000 {
                    let permit = match n % 4 {
                        0 => semaphore.try_acquire(),
                        1 => semaphore.acquire_timeout(Duration::from_micros(20)),
                        _ => semaphore.acquire(),
                    };
                    let Ok(permit) = permit else { continue };
                    assert!(inside.fetch_add(1, SeqCst) < 3);
                    inside.fetch_sub(1, SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(semaphore.available(), 3);
}

#[test]
fn permits_of_the_dead_come_back() {
    let (semaphore, dead) = (Semaphore::<Native, 2>::in_arena(&Heap, 3), AtomicU64::new(0));
    for round in 0..3 {
        dead.store(0, SeqCst);
        let (victim, survivor) = (Member { me: 2 + round, dead: &dead }, Member { me: 9, dead: &dead });
        let (theirs, wait) = (victim.wait(Policy::Park), survivor.wait(Policy::Park));
        let [a, b] = [0, 1].map(Native::with_id);
        semaphore.acquire_as(&a, &theirs, soon()).unwrap();
        semaphore.acquire_as(&a, &theirs, soon()).unwrap();
        semaphore.acquire_as(&b, &wait, soon()).unwrap();
        assert_eq!(semaphore.acquire_as(&b, &wait, Deadline::PAST), Err(LockError::TimedOut));
        // A third holder has no place.
        let third = Member { me: 8, dead: &dead };
        let other = third.wait(Policy::Park);
        assert_eq!(semaphore.acquire_as(&b, &other, Deadline::PAST), Err(LockError::Capacity));
        dead.store(1 << victim.me, SeqCst);
        semaphore.acquire_as(&b, &wait, soon()).unwrap();
        semaphore.acquire_as(&b, &wait, soon()).unwrap();
        assert_eq!(semaphore.acquire_as(&b, &wait, Deadline::PAST), Err(LockError::TimedOut));
        for _ in 0..3 {
            assert!(semaphore.release_as(&b, &wait));
        }
        assert!(!semaphore.release_as(&b, &wait), "it has none");
        assert_eq!(semaphore.available_for(&b), 3);
    }
}

#[test]
fn waiting_taker_gets_an_added_permit() {
    let semaphore = Semaphore::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| semaphore.acquire().unwrap().forget());
        }
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(1));
            semaphore.add(1);
        }
    });
    assert_eq!(semaphore.available(), 0);
}

#[test]
fn barrier_goes_on_without_the_dead_and_tells_all_once() {
    for (policy, name) in Policy::ALL {
        let (barrier, dead) = (Barrier::<Native, 4>::in_arena(&Heap, 3), AtomicU64::new(0));
        let members = [2, 3, 4].map(|me| Member { me, dead: &dead });
        let (barrier, members) = (&barrier, &members);
        let arrive = |n: usize, deadline| {
            barrier.wait_as(&Native::with_id(n as u32), &members[n].wait(policy), deadline)
        };
        let together = |threads: &'static [usize]| {
            thread::scope(|scope| {
                let all: Vec<_> = threads.iter().map(|&n| scope.spawn(move || arrive(n, soon()))).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        };
        assert_eq!(together(&[0, 1, 2]), [Ok(()); 3], "{name}");
        // One comes, gives up, and comes again: for the same episode.
        assert_eq!(arrive(0, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        assert_eq!(together(&[1, 2, 0]), [Ok(()); 3], "{name}");
        assert_eq!(arrive(0, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        dead.store(1 << 3, SeqCst);
        assert_eq!(together(&[0, 2]), [Err(EpisodeError::PeerDied { rank: None }); 2], "{name}");
        assert_eq!(together(&[0, 2]), [Ok(()); 2], "{name}");
        // A newcomer takes the place of the dead.
        let newcomer = Member { me: 5, dead: &dead };
        let joined = barrier.join_as(&Native::with_id(1), &newcomer.wait(policy));
        assert_eq!(joined, Ok(()), "{name}");
        assert_eq!(arrive(2, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        let fourth = Member { me: 6, dead: &dead };
        let refused = barrier.join_as(&Native::with_id(7), &fourth.wait(policy));
        assert_eq!(refused, Err(EpisodeError::Capacity), "{name}");
    }
}

#[test]
fn barrier_does_not_wait_for_one_that_has_left() {
    for (policy, name) in Policy::ALL {
        let (barrier, dead) = (Barrier::<Native, 4>::in_arena(&Heap, 3), AtomicU64::new(0));
        let members = [2, 3, 4].map(|me| Member { me, dead: &dead });
        let (barrier, members) = (&barrier, &members);
        let arrive = |n: usize, deadline| {
            barrier.wait_as(&Native::with_id(n as u32), &members[n].wait(policy), deadline)
        };
        let leave = |n: usize| barrier.leave_as(&Native::with_id(n as u32), &members[n].wait(policy));
        let together = |ranks: &'static [usize]| {
            thread::scope(|scope| {
                let all: Vec<_> = ranks.iter().map(|&n| scope.spawn(move || arrive(n, soon()))).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        };
        assert!(!leave(1), "{name}: it has not come yet");
        assert_eq!(together(&[0, 1, 2]), [Ok(()); 3], "{name}");
        // The others wait already, and none but the one that leaves ends the episode.
        thread::scope(|scope| {
            let waiters = [0, 2].map(|n| scope.spawn(move || arrive(n, soon())));
            thread::sleep(Duration::from_millis(2));
            assert!(leave(1), "{name}");
            assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [Ok(()); 2], "{name}");
        });
        assert!(!leave(1), "{name}: it has left");
        // Its death is not told: it takes no part.
        dead.store(1 << 3, SeqCst);
        assert_eq!(together(&[0, 2]), [Ok(()); 2], "{name}");
        dead.store(0, SeqCst);
        // It comes again, and is waited for.
        assert_eq!(arrive(1, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        assert_eq!(together(&[0, 2, 1]), [Ok(()); 3], "{name}");
        assert_eq!(arrive(0, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        // One leaves that has arrived, and whose time was over.
        assert_eq!(arrive(1, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        assert!(leave(1) && leave(0), "{name}");
        assert_eq!([(); 3].map(|()| arrive(2, soon())), [Ok(()); 3], "{name}: it is alone");
    }
}

#[test]
fn barrier_begins_anew_when_no_participant_lives() {
    for (policy, name) in Policy::ALL {
        let (barrier, dead) = (Barrier::<Native, 4>::in_arena(&Heap, 3), AtomicU64::new(0));
        let members = [2, 3, 4, 5, 6, 7, 8, 9, 10].map(|me| Member { me, dead: &dead });
        let (barrier, members) = (&barrier, &members);
        let cpu = |n: usize| Native::with_id(n as u32 % 3);
        let arrive = |n: usize, deadline| barrier.wait_as(&cpu(n), &members[n].wait(policy), deadline);
        let together = |threads: [usize; 3]| {
            thread::scope(|scope| {
                let all = threads.map(|n| scope.spawn(move || arrive(n, soon())));
                all.map(|thread| thread.join().unwrap())
            })
        };
        assert_eq!(together([0, 1, 2]), [Ok(()); 3], "{name}");
        // Two have arrived when they die, and one has not.
        assert_eq!(arrive(0, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        assert_eq!(arrive(1, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        assert_eq!(arrive(3, Deadline::PAST), Err(EpisodeError::Capacity), "{name}: they live");
        dead.store(0b111 << 2, SeqCst);
        assert_eq!(arrive(3, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}: it is alone");
        assert_eq!(together([4, 5, 3]), [Ok(()); 3], "{name}");
        assert_eq!(together([3, 4, 5]), [Ok(()); 3], "{name}");
        // One has left; it dies, too.
        assert!(barrier.leave_as(&cpu(3), &members[3].wait(policy)), "{name}");
        dead.store(0b111_111 << 2, SeqCst);
        assert_eq!(together([6, 7, 8]), [Ok(()); 3], "{name}");
        assert_eq!(arrive(6, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}: others live");
        // A newcomer's death is told as any other: it arrived once before it died.
        dead.store(0b1_111_111 << 2, SeqCst);
        let both = || {
            thread::scope(|scope| {
                [7, 8].map(|n| scope.spawn(move || arrive(n, soon()))).map(|thread| thread.join().unwrap())
            })
        };
        assert_eq!(both(), [Ok(()); 2], "{name}");
        assert_eq!(both(), [Err(EpisodeError::PeerDied { rank: None }); 2], "{name}");
    }
}

#[test]
fn newcomer_waits_until_a_death_is_told() {
    for (policy, name) in Policy::ALL {
        let (barrier, dead) = (Barrier::<Native, 4>::in_arena(&Heap, 2), AtomicU64::new(0));
        let members = [2, 3, 4].map(|me| Member { me, dead: &dead });
        let (barrier, members) = (&barrier, &members);
        let arrive = |n: usize, deadline| {
            barrier.wait_as(&Native::with_id(n as u32), &members[n].wait(policy), deadline)
        };
        for n in [0, 1] {
            barrier.join_as(&Native::with_id(n), &members[n as usize].wait(policy)).unwrap();
        }
        assert_eq!(arrive(2, Deadline::PAST), Err(EpisodeError::Capacity), "{name}: both live");
        dead.store(1 << 3, SeqCst);
        assert_eq!(arrive(2, Deadline::PAST), Err(EpisodeError::TimedOut), "{name}");
        thread::scope(|scope| {
            let newcomer = scope.spawn(|| arrive(2, soon()));
            assert_eq!(arrive(0, soon()), Err(EpisodeError::PeerDied { rank: None }), "{name}");
            // The newcomer takes part from some episode on, and goes after it.
            while !newcomer.is_finished() {
                let passed = arrive(0, Deadline::within(Duration::from_millis(5)));
                assert!(matches!(passed, Ok(()) | Err(EpisodeError::TimedOut)), "{name}: {passed:?}");
            }
            assert_eq!(newcomer.join().unwrap(), Ok(()), "{name}");
        });
    }
}

#[test]
fn barrier_holds_for_many_episodes() {
    let (barrier, counts) = (Barrier::new(4), [const { AtomicU64::new(0) }; 4]);
    thread::scope(|scope| {
        for me in 0..4 {
            let (barrier, counts) = (&barrier, &counts);
            scope.spawn(move || {
                for episode in 1..=500 {
                    counts[me].store(episode, SeqCst);
                    barrier.wait().unwrap();
                    assert!(counts.iter().all(|count| count.load(SeqCst) >= episode));
                }
            });
        }
    });
}

#[test]
fn notification_of_a_dead_waiter_goes_to_another() {
    for (policy, name) in Policy::ALL {
        let (condvar, dead) = (Condvar::<Native, 4>::in_arena(&Heap), AtomicU64::new(0));
        let members = [2, 3].map(|me| Member { me, dead: &dead });
        let [a, b] = [0, 1].map(Native::with_id);
        let first = condvar.begin(&a, &members[0].wait(policy));
        let second = condvar.begin(&b, &members[1].wait(policy));
        condvar.notify_one_by(&b, &members[1].wait(policy));
        // The oldest has it, and dies before it says so.
        let sleep = |deadline| condvar.sleep(&b, &members[1].wait(policy), &second, deadline);
        drop(first);
        dead.store(1 << 2, SeqCst);
        assert_eq!(sleep(soon()), Woken::Notified, "{name}");
        condvar.end(&b, second);
        // Once only.
        let again = condvar.begin(&b, &members[1].wait(policy));
        let woken = condvar.sleep(&b, &members[1].wait(policy), &again, Deadline::PAST);
        assert_eq!(woken, Woken::TimedOut, "{name}");
        condvar.end(&b, again);
    }
}

#[test]
fn waiter_that_ends_in_good_order_wakes_no_other() {
    let (condvar, dead) = (Condvar::<Native, 4>::in_arena(&Heap), AtomicU64::new(0));
    let members = [2, 3].map(|me| Member { me, dead: &dead });
    let [a, b] = [0, 1].map(Native::with_id);
    let [first, second] = members.each_ref().map(|member| member.wait(Policy::Park));
    let (served, waits) = (condvar.begin(&a, &first), condvar.begin(&b, &second));
    condvar.notify_one_by(&b, &second);
    condvar.end(&a, served);
    condvar.forget_as(&a, &first);
    dead.store(1 << 2, SeqCst);
    let shortly = Deadline::within(Duration::from_millis(60));
    assert_eq!(condvar.sleep(&b, &second, &waits, shortly), Woken::TimedOut);
    // A place of a wait that is not over stays.
    let waits = condvar.begin(&b, &second);
    condvar.forget_as(&b, &second);
    condvar.notify_one_by(&a, &first);
    assert_eq!(condvar.sleep(&b, &second, &waits, soon()), Woken::Notified);
}

#[test]
fn waiters_are_notified_one_by_one_and_all_together() {
    let (tokens, more): (Mutex<u64>, Condvar) = (Mutex::new(0), Condvar::new());
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let mut tokens = more.wait_while(tokens.lock().unwrap(), |tokens| *tokens == 0).unwrap();
                    *tokens -= 1;
                    taken.fetch_add(1, SeqCst);
                }
            });
        }
        for n in 0..1_500u64 {
            *tokens.lock().unwrap() += 1;
            more.notify_one();
            if n % 5 == 0 {
                *tokens.lock().unwrap() += 1;
                more.notify_all();
            }
        }
    });
    assert_eq!((taken.into_inner(), tokens.into_inner()), (1_800, 0));
}
