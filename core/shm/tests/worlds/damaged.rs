//! Segments with arbitrary bytes in them: an error or a sane answer, never a crash or a
//! hang.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use crate::common::{Watchdog, unique};
use proptest::prelude::*;
use towpath_shm::{ParticipantId, World, WorldSpec};

/// Number of ranks.
const RANKS: u64 = 4;
/// Offsets of the parts of the segment, and the end of the first objects.
const BARRIER: u64 = 256 + 256;
const DIRECTORY: u64 = BARRIER + 128;
const ENTRIES: u64 = DIRECTORY + 128;
const DOORBELLS: u64 = ENTRIES + RANKS * 256;
const ARRIVALS: u64 = DOORBELLS + RANKS * 128 + 128;
const BUCKETS: u64 = ARRIVALS + 128;
const BUCKET_COUNT: u64 = 256;
const HEAP: u64 = 8192;
const OBJECTS: u64 = HEAP + 2 * (256 + 64) + 256;

/// Places of which each bit matters, and any place.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        // The header.
        4 => 0..64u64,
        1 => 64..200u64,
        // Counts.
        1 => 256..512u64,
        // The first entries of the table: word, start, namespace, lock.
        4 => (0..RANKS, 0..32u64).prop_map(|(entry, byte)| ENTRIES + entry * 256 + byte),
        // The barrier's episode and arrivals.
        1 => BARRIER..BARRIER + 8,
        1 => ARRIVALS..ARRIVALS + 4 * RANKS,
        // The creator, the heap in use, the lists and the first records.
        3 => DIRECTORY..DIRECTORY + 16,
        2 => BUCKETS..BUCKETS + 8 * BUCKET_COUNT,
        3 => HEAP..OBJECTS,
        1 => 0..OBJECTS,
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u8>().prop_map(|b| vec![b]),
        any::<u64>().prop_map(|v| v.to_le_bytes().to_vec()),
        Just(vec![0xff; 8]),
        Just(vec![0; 8]),
        (0..4u64).prop_map(|v| v.to_le_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 1..200),
    ]
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/towpath.{}.{name}", rustix::process::geteuid().as_raw()))
}

fn make(name: &str) -> World {
    let spec = WorldSpec {
        name: Some(name.to_owned()),
        processes: RANKS as u32,
        area_bytes: 5000,
        object_bytes: 0,
        params: [1; 16],
    };
    let world = World::create(&spec).unwrap();
    world.enter(Some(0)).unwrap();
    world.shared::<AtomicU64>("object", |_| {}).unwrap();
    world
}

fn damage(name: &str, changes: &[(u64, Vec<u8>)]) {
    let file = fs::OpenOptions::new().write(true).open(path(name)).unwrap();
    for (at, bytes) in changes {
        file.write_all_at(bytes, *at).unwrap();
    }
}

/// Everything that does not wait for others by its nature.
fn use_it(world: &World) {
    for index in 0..world.size().min(64) {
        if let Some(id) = world.participant(index) {
            world.is_alive(id);
            world.pid_of(id);
        }
        world.is_alive(ParticipantId { index, generation: 1 });
        world.process_ended(index, 4_000_000, true);
    }
    world.check_deaths();
    world.surroundings().oversubscribed();
    world.surroundings().asleep(true);
    world.surroundings().asleep(false);
    if world.entered().is_none() {
        let _ = world.enter(None);
    }
    if world.entered().is_some() {
        if let Ok(object) = world.shared::<AtomicU64>("object", |_| {}) {
            object.store(1, std::sync::atomic::Ordering::Relaxed);
        }
        let _ = world
            .shared::<[AtomicU64; 16]>("another", |o| o[15].store(1, std::sync::atomic::Ordering::Relaxed));
        world.note_affinity();
    }
    let area = world.area();
    let len = area.len();
    if let Ok(words) = area.slice::<AtomicU64>(0, len / 8) {
        for word in words {
            word.store(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    world.leave().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_segment_is_refused_or_works(changes in proptest::collection::vec((place(), bytes()), 1..4)) {
        let _dog = Watchdog::new("a_damaged_segment_is_refused_or_works");
        let name = unique("damaged");
        let world = make(&name);
        damage(&name, &changes);
        if let Ok(opened) = World::open(&name) {
            // Two pages, whatever the header says about how many of their bytes are meant.
            prop_assert!((4097..=8192).contains(&opened.area().len()));
            use_it(&opened);
        }
        // The handle that was made before the damage.
        use_it(&world);
        let _ = fs::remove_file(path(&name));
    }

    #[test]
    fn rubbish_is_refused(mut rubbish in proptest::collection::vec(any::<u8>(), 512), begins_well: bool) {
        let _dog = Watchdog::new("rubbish_is_refused");
        let name = unique("rubbish");
        let world = make(&name);
        if begins_well {
            rubbish[..12].copy_from_slice(b"Towpath\x01\x01\0\0\0");
        }
        damage(&name, &[(0, rubbish)]);
        prop_assert!(World::open(&name).is_err());
        drop(world);
        let _ = fs::remove_file(path(&name));
    }
}

#[test]
fn each_field_of_the_header_is_checked() {
    let name = unique("field");
    // All but the creator's pid and the parameters, which are whatever they are.
    let fields = [
        ("magic", 0),
        ("layout", 8),
        ("control", 12),
        ("bytes", 16),
        ("area offset", 24),
        ("area", 32),
        ("processes", 40),
        ("state", 48),
        ("objects", 192),
    ];
    for (field, at) in fields {
        // A smaller number of bytes for objects than a world has anyhow makes no difference.
        for wrong in if at == 192 { [1 << 20, 1 << 30, u32::MAX] } else { [0, 9001, u32::MAX] } {
            let world = make(&name);
            damage(&name, &[(at, wrong.to_le_bytes().to_vec())]);
            assert!(World::open(&name).is_err(), "{field} {wrong}");
            drop(world);
            let _ = fs::remove_file(path(&name));
        }
    }
}

/// The constants above are the layout's: otherwise the tests damage nothing of use.
#[test]
fn damaged_places_are_where_the_layout_has_them() {
    let name = unique("places");
    let world = make(&name);
    let file = fs::File::open(path(&name)).unwrap();
    let word = |at| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_eq!(word(ENTRIES) >> 40, u64::from(world.me().generation));
    assert_eq!(word(DIRECTORY + 8), 256 + 64, "one object is in the heap");
    let heads: Vec<u64> =
        (0..BUCKET_COUNT).map(|i| word(BUCKETS + 8 * i)).filter(|&head| head != 0).collect();
    assert_eq!(heads, [1]);
    assert_eq!(&word(HEAP + 32).to_le_bytes()[..6], b"object");
    drop(world);
}

/// A list of named objects that leads back to itself, or out of the heap.
#[test]
fn damaged_lists_of_objects_are_errors() {
    let _dog = Watchdog::new("damaged_lists_of_objects_are_errors");
    for head in [1u64, 2, 0xffff_ffff, u64::MAX] {
        let name = unique("lists");
        let world = make(&name);
        // Each list begins there; and the first record names itself as the one before it.
        let lists: Vec<_> =
            (0..BUCKET_COUNT).map(|i| (BUCKETS + 8 * i, head.to_le_bytes().to_vec())).collect();
        damage(&name, &lists);
        damage(&name, &[(HEAP, 1u64.to_le_bytes().to_vec()), (HEAP + 64, 2u64.to_le_bytes().to_vec())]);
        let error = world.shared::<AtomicU64>("another", |_| {}).unwrap_err();
        assert!(matches!(error, towpath_shm::Error::Damaged { .. }), "{error}");
        drop(world);
    }
}

#[test]
fn a_barrier_that_goes_back_is_an_error() {
    let _dog = Watchdog::new("a_barrier_that_goes_back_is_an_error");
    let name = unique("back");
    let world = make(&name);
    std::thread::scope(|s| {
        let waiting = s.spawn(|| world.barrier(towpath_sync::Policy::Park));
        std::thread::sleep(std::time::Duration::from_millis(30));
        damage(&name, &[(BARRIER, 0x9000_0000u64.to_le_bytes().to_vec())]);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, towpath_shm::Error::Damaged { .. }), "{error}");
    });
    drop(world);
    let _ = fs::remove_file(path(&name));
}
