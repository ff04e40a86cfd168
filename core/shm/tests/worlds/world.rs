//! Worlds within one process: made, opened, entered, left.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::Watchdog;

use towpath_shm::{Error, Handover, ParticipantId, World, WorldSpec};
use towpath_sync::Policy;

fn spec(processes: u32) -> WorldSpec {
    WorldSpec {
        name: None,
        processes,
        area_bytes: 10_000,
        object_bytes: 0,
        params: std::array::from_fn(|i| i as u64),
    }
}

#[test]
fn a_new_world_is_as_specified() {
    let world = World::create(&spec(3)).unwrap();
    assert_eq!((world.size(), world.name(), world.deaths()), (3, None, 0));
    assert_eq!(world.params(), std::array::from_fn(|i| i as u64));
    assert_eq!(world.entered(), None);
    assert_eq!(world.participant(0), None);
    let area = world.area();
    assert_eq!(area.len(), 10_000);
    assert!(area.base().as_ptr().addr().is_multiple_of(4096));
    assert!(area.slice::<AtomicU64>(0, 1250).unwrap().iter().all(|w| w.load(Ordering::Relaxed) == 0));
}

#[test]
fn an_anonymous_world_is_private_and_sealed() {
    let world = World::create(&spec(1)).unwrap();
    let handover = Handover::new(&world).unwrap();
    let path = format!("/proc/self/fd/{}", handover.descriptor().unwrap());
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.mode() & 0o777, meta.len()), (0o600, world.segment_bytes()));
    assert!(meta.blocks() * 512 >= meta.len(), "reserved");
    for len in [0, meta.len() - 1, meta.len() + 1] {
        assert_eq!(rustix::fs::ftruncate(&file, len), Err(rustix::io::Errno::PERM), "to {len} bytes");
    }
    // Nor by opening it.
    let truncating = std::fs::OpenOptions::new().write(true).truncate(true).open(&path);
    assert_eq!(truncating.unwrap_err().raw_os_error(), Some(rustix::io::Errno::PERM.raw_os_error()));
    assert_eq!(file.metadata().unwrap().len(), meta.len());
    assert_eq!(world.area().slice::<AtomicU64>(0, 1250).unwrap()[1249].load(Ordering::Relaxed), 0);
}

#[test]
fn impossible_worlds_are_refused() {
    assert!(matches!(World::create(&spec(0)), Err(Error::InvalidProcesses { wanted: 0, most: 4096 })));
    assert!(matches!(World::create(&spec(4097)), Err(Error::InvalidProcesses { wanted: 4097, .. })));
    for area_bytes in [u64::MAX, u64::MAX - 4095, 1 << 50] {
        let spec = WorldSpec { area_bytes, ..spec(1) };
        assert!(matches!(World::create(&spec), Err(Error::TooLarge(_))));
    }
    for name in ["", "a/b", "..", "a.b", "ä", "x\0", &"n".repeat(65)] {
        let spec = WorldSpec { name: Some(name.into()), ..spec(1) };
        assert!(matches!(World::create(&spec), Err(Error::InvalidName { .. })), "{name:?}");
        assert!(matches!(World::open(name), Err(Error::InvalidName { .. })), "{name:?}");
    }
}

#[test]
fn entering_and_leaving() {
    let world = World::create(&spec(2)).unwrap();
    world.enter(None).unwrap();
    assert_eq!(world.rank(), 0);
    let first = world.me();
    assert_eq!(first, ParticipantId { index: 0, generation: 1 });
    assert_eq!(world.participant(0), Some(first));
    assert!(world.is_alive(first));
    assert_eq!(world.pid_of(first), Some(std::process::id()));
    assert!(matches!(world.enter(None), Err(Error::AlreadyEntered { rank: 0 })));

    let second = world.reopen().unwrap();
    assert!(matches!(second.enter(Some(0)), Err(Error::RankTaken { rank: 0, .. })));
    assert!(matches!(second.enter(Some(2)), Err(Error::NoSuchRank { rank: 2, size: 2 })));
    second.enter(None).unwrap();
    assert_eq!(second.rank(), 1);
    assert!(world.is_alive(second.me()));
    let third = world.reopen().unwrap();
    assert!(matches!(third.enter(None), Err(Error::WorldFull { size: 2 })));

    world.leave().unwrap();
    assert!(!second.is_alive(first));
    assert_eq!(world.entered(), None);
    third.enter(None).unwrap();
    assert_eq!(third.me(), ParticipantId { index: 0, generation: 2 });
    assert!(second.is_alive(third.me()) && !second.is_alive(first));
    drop(third);
    assert_eq!(second.participant(0), None);
    assert_eq!(second.check_deaths(), 0, "leaving is no death");
}

#[test]
fn ids_of_no_participant_are_not_alive() {
    let world = World::create(&spec(2)).unwrap();
    world.enter(None).unwrap();
    for bits in [0, 1, u64::MAX, 1 << 32 | 1, 2 << 32, 1 << 32 | 64] {
        assert!(!world.is_alive(ParticipantId::from_bits(bits)), "{bits:x}");
    }
    assert_eq!(world.participant(2), None);
    assert_eq!(world.participant(u32::MAX), None);
}

#[test]
fn the_area_is_bounded_and_aligned() {
    let world = World::create(&spec(1)).unwrap();
    let area = world.area();
    assert!(matches!(area.slice::<AtomicU64>(0, 1251), Err(Error::OutOfBounds { .. })));
    assert!(matches!(area.slice::<AtomicU64>(8, 1250), Err(Error::OutOfBounds { .. })));
    assert!(matches!(area.slice::<AtomicU64>(u64::MAX, 1), Err(Error::OutOfBounds { .. })));
    assert!(matches!(area.slice::<AtomicU64>(8, u64::MAX), Err(Error::OutOfBounds { .. })));
    assert!(matches!(area.slice::<AtomicU64>(4, 1), Err(Error::Misaligned { offset: 4, align: 8 })));
    assert_eq!(area.slice::<AtomicU64>(10_000, 0).unwrap().len(), 0);
    // SAFETY: the view lives shorter than `world`, and there is no reference to these bytes.
    unsafe {
        assert_eq!(area.bytes(9_999, 1).unwrap().len(), 1);
        assert!(matches!(area.bytes(9_999, 2), Err(Error::OutOfBounds { .. })));
    }
}

#[test]
fn an_area_keeps_the_world_mapped() {
    let area = World::create(&spec(1)).unwrap().area();
    let word = area.get::<AtomicU64>(64).unwrap();
    word.store(7, Ordering::Relaxed);
    assert_eq!(word.load(Ordering::Relaxed), 7);
}

#[test]
fn handles_see_the_same_area() {
    let world = World::create(&spec(1)).unwrap();
    let other = world.reopen().unwrap();
    assert_ne!(world.area().base(), other.area().base());
    world.area().get::<AtomicU64>(8).unwrap().store(42, Ordering::Relaxed);
    assert_eq!(other.area().get::<AtomicU64>(8).unwrap().load(Ordering::Relaxed), 42);
    assert_eq!(other.params(), world.params());
}

#[test]
fn shared_objects_are_made_once() {
    let _dog = Watchdog::new("shared_objects_are_made_once");
    let world = World::create(&spec(4)).unwrap();
    assert!(matches!(world.shared::<AtomicU64>("a", |_| {}), Err(Error::NotEntered)));
    let prepared = AtomicU64::new(0);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let world = world.reopen().unwrap();
                world.enter(None).unwrap();
                for i in 0..16 {
                    let object = world
                        .shared::<[AtomicU64; 3]>(&format!("object-{i}"), |o| {
                            assert_eq!(o[2].load(Ordering::Relaxed), 0);
                            o[2].store(i, Ordering::Relaxed);
                            prepared.fetch_add(1, Ordering::Relaxed);
                        })
                        .unwrap();
                    assert_eq!(object[2].load(Ordering::Relaxed), i);
                    object[0].fetch_add(1, Ordering::Relaxed);
                }
                world.barrier(Policy::default()).unwrap();
            });
        }
    });
    assert_eq!(prepared.load(Ordering::Relaxed), 16);
    world.enter(None).unwrap();
    for i in 0..16 {
        let object = world.shared::<[AtomicU64; 3]>(&format!("object-{i}"), |_| unreachable!()).unwrap();
        assert_eq!(object[0].load(Ordering::Relaxed), 4);
    }
}

#[test]
fn the_directory_has_limits() {
    let world = World::create(&spec(1)).unwrap();
    world.enter(None).unwrap();
    world.shared::<AtomicU64>("word", |_| {}).unwrap();
    assert!(matches!(world.shared::<[AtomicU64; 2]>("word", |_| {}), Err(Error::OtherType { .. })));
    assert!(matches!(world.shared::<AtomicU64>("no/name", |_| {}), Err(Error::InvalidName { .. })));
    let long = world.shared::<AtomicU64>(&"n".repeat(33), |_| {}).unwrap_err();
    assert!(matches!(&long, Error::InvalidName { .. }) && long.to_string().contains("up to 32"), "{long}");
    let error = world.shared::<[AtomicU64; 12_000]>("large", |_| {}).unwrap_err();
    assert!(matches!(error, Error::DirectoryFull { .. }));
    assert!(error.to_string().contains("towpath run --objects"), "{error}");
    // Unless the world was made with more: then one that is larger than all of that is refused.
    let larger = World::create(&WorldSpec { object_bytes: 3 << 20, ..spec(1) }).unwrap();
    larger.enter(None).unwrap();
    let area = larger.area().len();
    let object = larger.shared::<[AtomicU64; 300_000]>("large", |_| {}).unwrap();
    object[299_999].store(7, Ordering::Relaxed);
    assert!(matches!(
        larger.shared::<[AtomicU64; 100_000]>("more", |_| {}),
        Err(Error::DirectoryFull { .. })
    ));
    let area_is_elsewhere =
        larger.area().base().as_ptr() as usize - std::ptr::from_ref(&object[299_999]) as usize;
    assert!(area_is_elsewhere >= 8 && area == 10_000);
    let too_large = World::create(&WorldSpec { object_bytes: u64::MAX, ..spec(1) });
    assert!(matches!(too_large, Err(Error::TooLarge(_))));
    let nested = world.shared::<AtomicU64>("outer", |_| {
        assert!(matches!(world.shared::<AtomicU64>("inner", |_| {}), Err(Error::NestedPreparation { .. })));
        world.shared::<AtomicU64>("word", |_| {}).unwrap();
    });
    nested.unwrap();
    // A preparation that panics leaves no object, and the next one finds zeroes.
    let panic = std::panic::catch_unwind(|| {
        world.shared::<AtomicU64>("bad", |w| {
            w.store(1, Ordering::Relaxed);
            panic!("on purpose");
        })
    });
    assert!(panic.is_err());
    let object = world.shared::<AtomicU64>("bad", |w| assert_eq!(w.load(Ordering::Relaxed), 0)).unwrap();
    assert_eq!(object.load(Ordering::Relaxed), 0);
    // 64 objects of a KiB have room; of words, as many as there is room for with their records.
    let kib = World::create(&spec(1)).unwrap();
    kib.enter(None).unwrap();
    for i in 0..64 {
        kib.shared::<[AtomicU64; 128]>(&format!("kib-{i}"), |_| {}).unwrap();
    }
    assert!(matches!(kib.shared::<AtomicU64>("too-many", |_| {}), Err(Error::DirectoryFull { .. })));
    for i in 3..(80 << 10) / 320 {
        world.shared::<AtomicU64>(&format!("more-{i}"), |_| {}).unwrap();
    }
    assert!(matches!(world.shared::<AtomicU64>("too-many", |_| {}), Err(Error::DirectoryFull { .. })));
}

#[test]
fn barriers_keep_threads_in_step() {
    let _dog = Watchdog::new("barriers_keep_threads_in_step");
    for policy in [Policy::Spin, Policy::SpinThenYield, Policy::SpinThenPark, Policy::Park, Policy::Adaptive]
    {
        let world = World::create(&spec(6)).unwrap();
        let rounds = if policy == Policy::Spin { 20 } else { 300 };
        let at = AtomicU64::new(0);
        thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    let world = world.reopen().unwrap();
                    world.enter(None).unwrap();
                    for round in 0..rounds {
                        let seen = at.fetch_add(1, Ordering::SeqCst);
                        assert!(
                            seen >= round * 6 && seen < (round + 1) * 6,
                            "{policy:?}: {seen} in round {round}"
                        );
                        world.barrier(policy).unwrap();
                    }
                });
            }
        });
        assert_eq!(at.load(Ordering::SeqCst), rounds * 6);
    }
}

#[test]
fn rank_that_left_is_not_waited_for() {
    let _dog = Watchdog::new("rank_that_left_is_not_waited_for");
    let world = World::create(&spec(2)).unwrap();
    world.enter(None).unwrap();
    thread::scope(|s| {
        let other = world.reopen().unwrap();
        other.enter(None).unwrap();
        let waiting = s.spawn(|| world.barrier(Policy::Park));
        thread::sleep(std::time::Duration::from_millis(20));
        drop(other);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn sleepers_do_not_count_as_running() {
    let world = World::create(&spec(64)).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let handles: Vec<World> = (0..=cores.min(63))
        .map(|_| {
            let handle = world.reopen().unwrap();
            handle.enter(None).unwrap();
            handle
        })
        .collect();
    if cores < 64 {
        let around = handles[0].surroundings();
        assert!(around.oversubscribed());
        around.asleep(true);
        assert!(!around.oversubscribed());
        around.asleep(false);
        assert!(around.oversubscribed());
        drop(handles.into_iter().next_back());
        assert!(!world.surroundings().oversubscribed());
    }
}

#[test]
fn end_of_an_episode_changes_doorbells_of_announced_sleepers() {
    let _dog = Watchdog::new("end_of_an_episode_changes_doorbells_of_announced_sleepers");
    let world = World::create(&spec(2)).unwrap();
    world.enter(Some(0)).unwrap();
    let other = world.reopen().unwrap();
    other.enter(Some(1)).unwrap();
    // Acquire: of messages; a waiter at the barrier is ordered by the fences (B4), (B5).
    let doorbells = || [0, 1].map(|rank| world.doorbell(rank).load(Ordering::Acquire));
    for sleeps in [false, true, false, true] {
        let before = doorbells();
        let episode = world.arrive().unwrap();
        assert!(!episode.is_over());
        if sleeps {
            episode.announce_sleep();
        }
        episode.look_around().unwrap();
        assert!(!episode.is_over(), "rank 1 has not arrived");
        other.barrier(Policy::Park).unwrap();
        assert!(episode.is_over());
        episode.outcome().unwrap();
        assert_eq!(doorbells() != before, sleeps);
    }
}
