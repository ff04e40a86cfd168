//! Structures of a world by handles: processes and threads share them; the places and the
//! descriptors of the dead come back; what does not fit is refused.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use towpath::structures::nonblocking::{self, StableError, in_world};
use towpath::{Error, World, WorldConfig};
use towpath_testkit::{Child, shared_words, watchdog};

type Queue = in_world::Fifo<34, 3>;
type Table = in_world::HashMap<65, 4>;

/// A world that this process has entered, and another handle on it for a child.
fn worlds() -> (World, World) {
    let world = towpath::create(None, &WorldConfig::new(2)).unwrap();
    let child = world.reopen().unwrap();
    world.enter(Some(0)).unwrap();
    (world, child)
}

/// Takes the values that a child puts in, in their order; the child's end costs none.
fn shared_with_a_child() {
    let (world, theirs) = worlds();
    let queue = nonblocking::open::<Queue>(&world, "queue").unwrap();
    let child = Child::fork(|| {
        theirs.enter(Some(1)).unwrap();
        let queue = nonblocking::open::<Queue>(&theirs, "queue").unwrap();
        for value in 0..1_000 {
            while queue.push(value) == Err(StableError::Exhausted) {
                std::thread::yield_now();
            }
        }
    });
    for value in 0..1_000 {
        let taken = std::iter::repeat_with(|| queue.pop().unwrap()).flatten().next();
        assert_eq!(taken, Some(value));
    }
    while !child.has_ended() {
        std::thread::yield_now();
    }
    assert!(child.has_ended_well());
    let inventory = queue.inventory().unwrap();
    assert_eq!(inventory.free + inventory.reachable, inventory.all);
}

/// Children are killed at any instruction, again and again: everything comes back, their
/// places, too.
fn the_dead_leave_nothing_behind() {
    let (world, theirs) = worlds();
    let table = nonblocking::open::<Table>(&world, "table").unwrap();
    let done: &'static AtomicU64 = &shared_words(1)[0];
    let mut freed = 0;
    for round in 0..30u64 {
        done.store(0, SeqCst);
        let mut child = Some(Child::fork(|| {
            theirs.enter(Some(1)).unwrap();
            let table = nonblocking::open::<Table>(&theirs, "table").expect("a place of the dead is free");
            for turn in 0u64.. {
                table.insert(turn % 20, turn).unwrap();
                table.remove((turn + 7) % 20).unwrap();
                done.store(turn, SeqCst);
            }
        }));
        while done.load(SeqCst) < 20 + round * 13 {
            table.insert(100, round).unwrap();
            table.get(5).unwrap();
        }
        drop(child.take()); // Killed.
        world.check_deaths();
        // Half of them are recovered by us, the others by the next process.
        if round % 2 == 0 {
            let audit = table.recover().unwrap();
            assert_eq!(audit.pending, 0);
            freed += audit.freed;
            let inventory = table.inventory().unwrap();
            assert_eq!(inventory.free + inventory.reachable, inventory.all, "after {round} deaths");
        }
    }
    table.recover().unwrap();
    let inventory = table.inventory().unwrap();
    assert_eq!(inventory.free + inventory.reachable, inventory.all);
    println!("30 killed, {freed} descriptors back from 15 of them");
}

/// Each handle has a place; dropped, it is free.
fn places_are_taken_and_given_back() {
    let (world, _) = worlds();
    let open = || nonblocking::open::<Queue>(&world, "queue");
    let (a, b, c) = (open().unwrap(), open().unwrap(), open().unwrap());
    assert_eq!([a.participant(), b.participant(), c.participant()], [0, 1, 2]);
    assert!(matches!(open(), Err(Error::Resource(why)) if why.contains("all 3 places")));
    let clone = b.clone();
    drop(b);
    assert!(open().is_err(), "a clone keeps the place");
    drop(clone);
    assert_eq!(open().unwrap().participant(), 1);
    // Not for what is something else.
    assert!(matches!(nonblocking::open::<Table>(&world, "queue"), Err(Error::World(_))));
    let too_large = nonblocking::open::<in_world::HashMap<2_000, 8>>(&world, "large");
    assert!(matches!(too_large, Err(Error::World(why)) if why.to_string().contains("--objects")));
    // But in a world that is made for that.
    let roomy = WorldConfig { object_bytes: 8 << 20, ..WorldConfig::new(2) };
    let world = towpath::create(None, &roomy).unwrap();
    world.enter(None).unwrap();
    let large = nonblocking::open::<in_world::HashMap<100_000, 8>>(&world, "large").unwrap();
    (0..99_999).for_each(|key| assert_eq!(large.insert(key, key + 1), Ok(None)));
    assert_eq!(large.insert(99_999, 0), Err(nonblocking::StableError::Exhausted));
    assert_eq!(large.get(54_321), Ok(Some(54_322)));
}

/// A structure for a hundred participants has a hundred places.
fn structure_for_a_hundred_has_a_hundred_places() {
    type Many = in_world::Stack<400, 100>;
    let roomy = WorldConfig { object_bytes: 8 << 20, ..WorldConfig::new(100) };
    let world = towpath::create(None, &roomy).unwrap();
    world.enter(None).unwrap();
    let open = || nonblocking::open::<Many>(&world, "many");
    let handles: Vec<_> = (0..100).map(|_| open().unwrap()).collect();
    for (number, handle) in handles.iter().enumerate() {
        assert_eq!(handle.participant(), number);
        handle.push(number as u64).unwrap();
    }
    assert!(matches!(open(), Err(Error::Resource(why)) if why.contains("all 100 places")));
    let popped: Vec<_> = handles.iter().map(|handle| handle.pop().unwrap().unwrap()).collect();
    assert_eq!(popped, (0..100).rev().collect::<Vec<u64>>());
}

fn main() {
    let cases: [(&str, fn()); 4] = [
        ("structure for a hundred has a hundred places", structure_for_a_hundred_has_a_hundred_places),
        ("shared with a child", shared_with_a_child),
        ("the dead leave nothing behind", the_dead_leave_nothing_behind),
        ("places are taken and given back", places_are_taken_and_given_back),
    ];
    for (name, case) in cases {
        watchdog::begin(name.into(), 60);
        case();
    }
    println!("test result: ok. {} passed; 0 failed", cases.len());
}
