//! Members that die, are killed, fork, or live in another namespace.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Watchdog, unique};
use towpath_shm::{Ending, Error, MemberChange, World, WorldSpec};
use towpath_sync::Policy;
use towpath_sync::queues::TransferError;
use towpath_sync::robust::EpisodeError;

/// A named world. Its name is gone at the end also if children that other tests have
/// forked still hold copies of its lock.
struct Named(Option<World>);

impl std::ops::Deref for Named {
    type Target = World;
    fn deref(&self) -> &World {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(world) = &self.0 {
            let _ = world.unlink();
        }
    }
}

fn world(name: &str, processes: u32) -> Named {
    let name = Some(unique(name));
    let spec = WorldSpec { name, processes, area_bytes: 1 << 16, object_bytes: 0, params: [0; 16] };
    Named(Some(World::create(&spec).unwrap()))
}

fn shm() -> &'static Path {
    Path::new("/dev/shm")
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_member_is_dead_even_as_a_zombie() {
    let dog = Watchdog::new("a_killed_member_is_dead_even_as_a_zombie");
    let world = world("zombie", 3);
    world.enter(Some(0)).unwrap();
    let mut member = dog.start(shm(), &["stay", world.name().unwrap()]);
    assert_eq!(member.line(), "entered as 1");
    let id = world.participant(1).unwrap();
    let (mut members, long) = (world.members(), Duration::from_secs(60));
    assert!(matches!(members.next_timeout(long), Some(MemberChange::Joined { rank: 0, .. })));
    assert_eq!(members.next_timeout(long), Some(MemberChange::Joined { rank: 1, pid: member.pid() }));
    assert!(world.is_alive(id));
    assert_eq!((world.check_deaths(), world.pid_of(id)), (0, Some(member.pid())));
    member.kill();
    // Its parent has not waited for it.
    until(|| !world.is_alive(id));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", member.pid())).unwrap();
    assert!(stat.contains(") Z "), "{stat}");
    assert_eq!((world.deaths(), world.participant(1)), (1, None));
    assert_eq!(members.next_timeout(long), Some(MemberChange::Died { rank: 1 }));
    member.wait();
    assert_eq!(world.check_deaths(), 1, "a death is noted once");

    // The next one with this rank is another participant.
    let mut next = dog.start(shm(), &["stay", world.name().unwrap()]);
    assert_eq!(next.line(), "entered as 1");
    let next_id = world.participant(1).unwrap();
    assert_eq!((next_id.index, next_id.generation), (1, 2));
    assert!(world.is_alive(next_id) && !world.is_alive(id));
    let (status, _, _) = next.finish();
    assert!(status.success());
    assert!(!world.is_alive(next_id));
    assert_eq!(world.check_deaths(), 1, "leaving is no death");
}

#[test]
fn a_newcomer_takes_the_place_of_the_dead() {
    let dog = Watchdog::new("a_newcomer_takes_the_place_of_the_dead");
    let world = world("newcomer", 1);
    for generation in 1..=20 {
        // Each finds its predecessor dead by itself.
        let mut member = dog.start(shm(), &["stay", world.name().unwrap()]);
        assert_eq!(member.line(), "entered as 0");
        assert_eq!(world.participant(0).unwrap().generation, generation);
        assert_eq!(world.deaths(), u64::from(generation) - 1);
        member.kill();
        member.wait();
    }
}

#[test]
fn many_notice_and_each_death_counts_once() {
    let dog = Watchdog::new("many_notice_and_each_death_counts_once");
    let world = world("once", 64);
    let watchers: Vec<World> = (0..4).map(|_| world.reopen().unwrap()).collect();
    let mut dead = 0;
    for _ in 0..6 {
        let mut members: Vec<_> =
            (0..5).map(|_| dog.start(shm(), &["stay", world.name().unwrap()])).collect();
        for member in &mut members {
            assert!(member.line().starts_with("entered as "));
        }
        for member in &mut members {
            member.kill();
            member.wait();
        }
        thread::scope(|s| {
            for watcher in &watchers {
                s.spawn(|| watcher.check_deaths());
            }
        });
        dead += 5;
        assert_eq!(world.check_deaths(), dead);
    }
}

#[test]
fn a_death_ends_the_barrier_for_all_alike() {
    let dog = Watchdog::new("a_death_ends_the_barrier_for_all_alike");
    for policy in [Policy::Adaptive, Policy::Park, Policy::SpinThenYield] {
        let world = world("barrier", 4);
        thread::scope(|s| {
            let mut member = dog.start(shm(), &["stay", world.name().unwrap()]);
            assert_eq!(member.line(), "entered as 0");
            let survivors: Vec<_> = (1..4)
                .map(|rank| {
                    let handle = world.reopen().unwrap();
                    handle.enter(Some(rank)).unwrap();
                    s.spawn(move || {
                        let first = handle.barrier(policy);
                        (first, handle.barrier(policy), handle.barrier(policy))
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(30));
            member.kill();
            for survivor in survivors {
                let (first, second, third) = survivor.join().unwrap();
                assert!(matches!(first, Err(Error::MemberDied { rank: 0 })), "{first:?}");
                assert!(second.is_ok() && third.is_ok(), "the survivors go on");
            }
        });
    }
}

#[test]
fn a_launcher_tells_of_ranks_that_never_came() {
    let _dog = Watchdog::new("a_launcher_tells_of_ranks_that_never_came");
    let world = world("never", 4);
    world.enter(Some(0)).unwrap();
    thread::scope(|s| {
        let waiting = s.spawn(|| world.barrier(Policy::Park));
        thread::sleep(Duration::from_millis(10));
        assert_eq!(world.process_ended(1, 4_000_001, false), Ending::NeverCame);
        assert_eq!(world.process_ended(2, 4_000_002, true), Ending::NeverCame);
        assert!(!waiting.is_finished(), "rank 3 may still come");
        assert_eq!(world.process_ended(3, 4_000_003, false), Ending::NeverCame);
        assert!(matches!(waiting.join().unwrap(), Err(Error::MemberDied { rank: 2 })));
    });
    assert_eq!(world.deaths(), 1);
    assert_eq!(world.process_ended(0, 4_000_004, true), Ending::Replaced, "another process has rank 0");
    assert_eq!(world.process_ended(4, 1, true), Ending::NeverCame);
    assert!(world.is_alive(world.me()));
    world.barrier(Policy::Park).unwrap();
}

#[test]
fn a_launcher_tells_of_a_participant() {
    let dog = Watchdog::new("a_launcher_tells_of_a_participant");
    let world = world("tells", 2);
    let mut member = dog.start(shm(), &["stay", world.name().unwrap()]);
    assert_eq!(member.line(), "entered as 0");
    let id = world.participant(0).unwrap();
    member.kill();
    member.wait();
    assert_eq!(world.process_ended(0, member.pid(), true), Ending::Participant);
    assert_eq!((world.deaths(), world.is_alive(id)), (1, false));
}

/// Runs `child` in a forked child with this test's memory; returns its pid.
fn fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child uses what a child of a process with several threads may use in practice
    // with glibc (which makes its allocator safe across fork), and ends without running anything of
    // the parent's.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
            libc::_exit(code);
        }
        pid
    }
}

fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our own child; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

#[test]
fn a_forked_child_is_another_participant() {
    let _dog = Watchdog::new("a_forked_child_is_another_participant");
    let spec = WorldSpec { name: None, processes: 4, area_bytes: 4096, object_bytes: 0, params: [0; 16] };
    let world = World::create(&spec).unwrap();
    world.enter(Some(0)).unwrap();
    let area = world.area();
    let word = area.get::<AtomicU64>(0).unwrap();
    let child = fork(|| {
        if world.entered().is_some() || !matches!(world.barrier(Policy::Park), Err(Error::NotEntered)) {
            return 1;
        }
        if !matches!(world.enter(Some(0)), Err(Error::RankTaken { rank: 0, .. })) {
            return 2;
        }
        if world.enter(Some(2)).is_err() || world.rank() != 2 {
            return 3;
        }
        // (1) Release: the entering comes before; pairs with the Acquire (2).
        word.store(world.me().to_bits(), Ordering::Release);
        if world.barrier(Policy::Park).is_err() {
            return 4;
        }
        // Dies without leaving.
        0
    });
    assert_eq!(world.rank(), 0, "the parent keeps its rank");
    // (2) Acquire: pairs with the Release (1).
    until(|| word.load(Ordering::Acquire) != 0);
    let id = world.participant(2).unwrap();
    // Relaxed: written before (1), which (2) has seen.
    assert_eq!(word.load(Ordering::Relaxed), id.to_bits());
    assert!(world.is_alive(id));
    for rank in [1, 3] {
        world.process_ended(rank, 0, false);
    }
    world.barrier(Policy::Park).unwrap();
    until(|| !world.is_alive(id));
    assert_eq!(world.deaths(), 1);
    assert_eq!(wait_for(child), 0);
    assert!(world.is_alive(world.me()));
}

#[test]
fn a_failure_after_leaving_in_order_is_a_death() {
    let _dog = Watchdog::new("a_failure_after_leaving_in_order_is_a_death");
    let world = world("left", 3);
    world.enter(Some(0)).unwrap();
    world.process_ended(2, 4_000_002, false);
    let second = world.reopen().unwrap();
    second.enter(Some(1)).unwrap();
    let left = second.me();
    second.leave().unwrap();
    // A process that ends well has left, and nothing else.
    assert_eq!(world.process_ended(1, 4_000_001, false), Ending::Left);
    assert_eq!(world.deaths(), 0);
    world.barrier(Policy::Park).unwrap();
    assert_eq!(world.process_ended(1, 4_000_001, true), Ending::Left);
    assert_eq!((world.deaths(), world.is_alive(left)), (1, false));
    assert!(matches!(world.barrier(Policy::Park), Err(Error::MemberDied { rank: 1 })));
    world.barrier(Policy::Park).unwrap();
    // It counts once, and the rank is free for another process.
    assert_eq!(world.process_ended(1, 4_000_001, true), Ending::Participant);
    second.enter(Some(1)).unwrap();
    assert_eq!((world.deaths(), second.me().generation), (1, left.generation + 1));
    // Another process has entered as the rank meanwhile: it is no longer the failed process's.
    assert_eq!(world.process_ended(1, 4_000_001, true), Ending::Replaced);
    assert!(world.is_alive(second.me()));
    assert_eq!(world.deaths(), 1);
}

#[test]
fn a_childs_end_does_not_end_its_parents_world() {
    let _dog = Watchdog::new("a_childs_end_does_not_end_its_parents_world");
    let mut world = world("child", 2);
    world.enter(None).unwrap();
    let name = world.name().unwrap().to_owned();
    // Drops the last handle that it has.
    let child = fork(|| {
        drop(world.0.take());
        0
    });
    assert_eq!(wait_for(child), 0);
    assert!(world.is_alive(world.me()));
    assert!(World::open(&name).is_ok());
}

#[test]
fn killed_while_entering_and_leaving_at_random() {
    let _dog = Watchdog::new("killed_while_entering_and_leaving_at_random");
    let spec = WorldSpec { name: None, processes: 2, area_bytes: 4096, object_bytes: 0, params: [0; 16] };
    let world = World::create(&spec).unwrap();
    world.enter(Some(0)).unwrap();
    for round in 0..200u64 {
        let child = fork(|| {
            loop {
                if world.enter(Some(1)).is_err() {
                    return 1;
                }
                if world.shared::<AtomicU64>(&format!("object-{}", round % 60), |_| {}).is_err() {
                    return 2;
                }
                world.leave().unwrap();
            }
        });
        thread::sleep(Duration::from_micros(300 + round * 37 % 1500));
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        assert_eq!(wait_for(child), libc::SIGKILL, "round {round}: the child failed by itself");
        // Whatever it was doing, its place can be had and everything works.
        let other = world.reopen().unwrap();
        other.enter(Some(1)).unwrap();
        let object = other.shared::<AtomicU64>(&format!("object-{}", round % 60), |_| {}).unwrap();
        assert_eq!(object.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_member_in_another_pid_namespace() {
    let dog = Watchdog::new("a_member_in_another_pid_namespace");
    let world = world("namespace", 2);
    let mut member = dog.start(shm(), &["pid-namespace", world.name().unwrap()]);
    let line = member.line();
    if line.starts_with("unsupported") {
        // Then there are no such members on this machine, for this user.
        assert_ne!(rustix::process::geteuid().as_raw(), 0, "{line}");
        eprintln!("{line}");
        return;
    }
    assert_eq!(line, "entered as 0");
    let id = world.participant(0).unwrap();
    // It is process 1 there: what process 1 is here does not matter.
    assert_eq!(world.pid_of(id), Some(1));
    assert!(world.is_alive(id));
    assert_eq!(world.check_deaths(), 0);
    let children = format!("/proc/{0}/task/{0}/children", member.pid());
    let inner: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    // SAFETY: a child of our own child, which has not waited for it.
    unsafe { libc::kill(inner, libc::SIGKILL) };
    until(|| !world.is_alive(id));
    assert_eq!(world.deaths(), 1);
}

#[test]
fn forked_child_does_not_write_into_its_parents_ring() {
    let _dog = Watchdog::new("forked_child_does_not_write_into_its_parents_ring");
    let spec =
        WorldSpec { name: None, processes: 2, area_bytes: 4096, object_bytes: 1 << 20, params: [0; 16] };
    let world = World::create(&spec).unwrap();
    world.enter(Some(0)).unwrap();
    let queue = world.per_sender::<u64>("q", 4).unwrap();
    let (sender, receiver) = (queue.sender().unwrap(), queue.receiver().unwrap());
    sender.send(7).unwrap();
    let child = fork(|| {
        if sender.send(1) != Err(TransferError::NotEntered) {
            return 1;
        }
        if world.enter(Some(1)).is_err() {
            return 2;
        }
        let taken = Some(TransferError::Taken { rank: Some(0) });
        if sender.send(2).err() != taken || receiver.try_receive().err() != taken {
            return 3;
        }
        // A ring of its own.
        if queue.sender().and_then(|sender| sender.send(9)).is_err() {
            return 4;
        }
        // Dies without leaving.
        0
    });
    assert_eq!(wait_for(child), 0);
    assert_eq!(sender.send(8), Ok(()));
    let mut values: Vec<u64> = (0..3).map(|_| receiver.try_receive().unwrap()).collect();
    values.sort_unstable();
    assert_eq!((values, receiver.try_receive().err()), (vec![7, 8, 9], Some(TransferError::TimedOut)));
}

// A second writer would overwrite what the first has sent, a second reader of one place skip
// messages.
#[test]
fn forked_child_is_refused_by_the_only_end_of_a_side() {
    let _dog = Watchdog::new("forked_child_is_refused_by_the_only_end_of_a_side");
    let spec =
        WorldSpec { name: None, processes: 2, area_bytes: 4096, object_bytes: 1 << 20, params: [0; 16] };
    let world = World::create(&spec).unwrap();
    world.enter(Some(0)).unwrap();
    let (one, many) = (world.spsc::<u64>("one", 4).unwrap(), world.mpsc::<u64>("many", 4).unwrap());
    let (sender, receiver) = (one.sender().unwrap(), one.receiver().unwrap());
    let (senders, only) = (many.sender().unwrap(), many.receiver().unwrap());
    let ring = world.broadcast("ring", 1 << 10).unwrap();
    let (mut writer, mut reader) = (ring.writer().unwrap(), ring.reader().unwrap());
    let barrier = world.barrier_of("barrier", 1).unwrap();
    barrier.wait().unwrap();
    sender.send(7).unwrap();
    senders.send(7).unwrap();
    writer.send(b"seven").unwrap();
    let child = fork(|| {
        if barrier.wait() != Err(EpisodeError::NotEntered) {
            return 3;
        }
        if world.enter(Some(1)).is_err() {
            return 1;
        }
        let answers = [
            sender.send(1).err(),
            receiver.try_receive().err(),
            only.try_receive().err(),
            writer.send(b"one").err(),
            reader.try_receive().err(),
        ];
        let are_refused = answers == [Some(TransferError::Taken { rank: Some(0) }); 5];
        // Its own.
        let sends = many.sender().and_then(|sender| sender.send(9)).is_ok() && ring.reader().is_ok();
        if are_refused && sends { 0 } else { 2 }
    });
    assert_eq!(wait_for(child), 0);
    sender.send(8).unwrap();
    writer.send(b"eight").unwrap();
    assert_eq!([receiver.try_receive(), receiver.try_receive()], [Ok(7), Ok(8)]);
    assert_eq!([only.try_receive(), only.try_receive()], [Ok(7), Ok(9)]);
    assert_eq!(*reader.try_receive().unwrap(), *b"seven");
    assert_eq!(*reader.try_receive().unwrap(), *b"eight");
}

#[test]
fn permits_of_the_dead_count_as_free() {
    let _dog = Watchdog::new("permits_of_the_dead_count_as_free");
    let spec =
        WorldSpec { name: None, processes: 2, area_bytes: 4096, object_bytes: 1 << 20, params: [0; 16] };
    let world = World::create(&spec).unwrap();
    world.enter(Some(0)).unwrap();
    let permits = world.semaphore("permits", 3).unwrap();
    let child = fork(|| {
        world.enter(Some(1)).unwrap();
        let held = [permits.acquire().unwrap(), permits.acquire().unwrap()];
        loop {
            std::hint::black_box(&held);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    until(|| permits.available() == 1);
    // SAFETY: our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    wait_for(child);
    assert_eq!(permits.available(), 3);
}
