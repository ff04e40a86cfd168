//! Mutexes in a world: one way to lock, which knows the caller and asks for deaths; a
//! holder stays a member.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use towpath::structures::nonblocking;
use towpath::sync::locks::{Anderson, Mcs, Posix, TestAndSet, Ticket};
use towpath::sync::{Exclusive, Lock};
use towpath::{Concurrent, LockError, Mutex, Object, World, WorldConfig, WorldError, machine::Native};
use towpath_testkit::{Child, shared_words, watchdog};

type Table = [AtomicU64; 8];

/// A world that this process has entered as rank 0, and another handle on it for
/// children.
fn worlds(processes: u32) -> (World, World) {
    let config = WorldConfig { object_bytes: 1 << 20, ..WorldConfig::new(processes) };
    let world = towpath::create(None, &config).unwrap();
    let child = world.reopen().unwrap();
    world.enter(Some(0)).unwrap();
    (world, child)
}

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(SeqCst) != value {
        thread::yield_now();
    }
}

/// A holder that is alive keeps the mutex, whatever its waiters believe.
fn living_holder_keeps_the_mutex() {
    let (world, theirs) = worlds(2);
    let [stage, held, early] = shared_words(3) else { unreachable!() };
    let child = Child::fork(|| {
        theirs.enter(Some(1)).unwrap();
        let mutex = theirs.shared::<Mutex<Table>>("m", Mutex::prepare).unwrap();
        let mut guard = mutex.lock().unwrap();
        held.store(1, SeqCst);
        stage.store(1, SeqCst);
        // Longer than it takes a waiter to ask the kernel about the holder, several times.
        thread::sleep(Duration::from_millis(100));
        *guard[0].get_mut() += 1;
        held.store(0, SeqCst);
        drop(guard);
    });
    wait_for(stage, 1);
    let mutex = world.shared::<Mutex<Table>>("m", Mutex::prepare).unwrap();
    let guard = mutex.lock().unwrap();
    early.store(held.load(SeqCst), SeqCst);
    assert!(!guard.owner_died(), "the holder lives");
    assert_eq!(early.load(SeqCst), 0, "acquired while another process holds it");
    assert_eq!(guard[0].load(Relaxed), 1);
    drop(guard);
    while !child.has_ended() {
        thread::yield_now();
    }
    assert!(child.has_ended_well());
}

/// The next owner is told of a dead one, and gets the guard that repairs; then the mutex
/// goes on.
fn dead_holder_is_reported_by_lock() {
    let (world, theirs) = worlds(2);
    let mutex = world.shared::<Mutex<Table>>("m", Mutex::prepare).unwrap();
    let stage = &shared_words(1)[0];
    let child = Child::fork(|| {
        theirs.enter(Some(1)).unwrap();
        let mutex = theirs.shared::<Mutex<Table>>("m", Mutex::prepare).unwrap();
        let mut guard = mutex.lock().unwrap();
        *guard[0].get_mut() = 7;
        stage.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    wait_for(stage, 1);
    child.kill();
    // Left to the next until it is repaired.
    for _ in 0..2 {
        let Err(LockError::OwnerDied { rank, guard }) = mutex.lock() else { panic!("not told") };
        assert_eq!(rank, Some(1));
        drop(guard);
    }
    let Err(LockError::OwnerDied { guard, .. }) = mutex.try_lock() else { panic!("not told") };
    let mut guard = guard.repair(|table| assert_eq!(*table[0].get_mut(), 7));
    *guard[0].get_mut() += 1;
    drop(guard);
    assert_eq!(mutex.lock().unwrap()[0].load(SeqCst), 8);
}

/// More threads than a process has numbers of its own, in two processes: no two are taken
/// for one.
fn many_threads_of_two_processes_exclude<L>(name: &str)
where
    L: Lock<Native> + Exclusive + Concurrent + Object + Send,
{
    const THREADS: u64 = 12;
    const TURNS: u64 = 300;
    let (world, theirs) = worlds(2);
    let overlaps = &shared_words(2)[0];
    let inside = &shared_words(2)[1];
    let work = |world: &World| {
        let mutex = world.shared::<Mutex<Table, L>>("m", Mutex::prepare).unwrap();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for turn in 0..TURNS {
                        let mut guard = mutex.lock().unwrap();
                        let before = inside.fetch_add(1, SeqCst);
                        overlaps.fetch_add(u64::from(before != 0), SeqCst);
                        let count = guard[0].get_mut();
                        *count = std::hint::black_box(*count) + 1;
                        if turn % 64 == 0 {
                            thread::yield_now();
                        }
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
    };
    let child = Child::fork(|| {
        theirs.enter(Some(1)).unwrap();
        work(&theirs);
    });
    work(&world);
    while !child.has_ended() {
        thread::yield_now();
    }
    assert!(child.has_ended_well(), "{name}");
    assert_eq!(overlaps.load(SeqCst), 0, "{name}: two holders at a time");
    let mutex = world.shared::<Mutex<Table, L>>("m", Mutex::prepare).unwrap();
    assert_eq!(mutex.lock().unwrap()[0].load(Relaxed), 2 * THREADS * TURNS, "{name}");
}

/// A process with a mutex or a structure open can't leave: the others would take a holder
/// for dead.
fn leaving_with_an_open_mutex_is_refused() {
    let (world, _) = worlds(2);
    let mutex = world.shared::<[Mutex<Table>; 2]>("m", |all| all.iter().for_each(Mutex::prepare)).unwrap();
    let element = mutex.at(1);
    let guard = element.lock().unwrap();
    assert!(matches!(world.leave(), Err(WorldError::ObjectsOpen { objects: 2 })));
    assert_eq!(world.rank(), 0, "still a member");
    drop(guard);
    drop((mutex, element));
    let stack = nonblocking::open::<nonblocking::in_world::Stack<5, 2>>(&world, "s").unwrap();
    assert!(matches!(world.leave(), Err(WorldError::ObjectsOpen { objects: 1 })));
    drop(stack);
    world.shared::<AtomicU64>("word", |_| ()).unwrap();
    world.leave().unwrap();
    assert_eq!(world.entered(), None);
    // Only a member may lock.
    world.enter(Some(1)).unwrap();
    let mutex = world.shared::<Mutex<Table>>("other", Mutex::prepare).unwrap();
    let child = Child::fork(|| {
        assert!(matches!(mutex.lock(), Err(LockError::NotEntered)));
    });
    while !child.has_ended() {
        thread::yield_now();
    }
    assert!(child.has_ended_well(), "a forked child is no member");
}

/// A world dropped while its thread unwinds counts as a death; the lock that it held is
/// told of.
fn unwinding_member_counts_as_dead() {
    let (world, theirs) = worlds(2);
    let deaths = world.deaths();
    let [stage, go] = shared_words(2) else { unreachable!() };
    let child = Child::fork(move || {
        // Moved in, so that the unwinding drops it; the process lives on.
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            theirs.enter(Some(1)).unwrap();
            let mutex = theirs.shared::<Mutex<Table>>("m", Mutex::prepare).unwrap();
            std::mem::forget(mutex.lock().unwrap());
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(unwound.is_err());
        stage.store(1, SeqCst);
        wait_for(go, 1);
    });
    wait_for(stage, 1);
    assert_eq!(world.deaths(), deaths + 1, "noted by the one that unwinds");
    assert!(matches!(world.barrier(Default::default()), Err(WorldError::MemberDied { rank: 1 })));
    let mutex = world.shared::<Mutex<Table>>("m", Mutex::prepare).unwrap();
    assert!(matches!(mutex.lock(), Err(LockError::OwnerDied { rank: Some(1), .. })));
    go.store(1, SeqCst);
    while !child.has_ended() {
        thread::yield_now();
    }
    assert!(child.has_ended_well());
}

/// More processes than the mutex has places for contenders: all of them get it.
fn more_processes_than_places_exclude() {
    const MANY: u64 = 80;
    let (world, theirs) = worlds(MANY as u32 + 1);
    let [begun, done] = shared_words(2) else { unreachable!() };
    let mutex = world.shared::<Mutex<Table, Ticket<Native>>>("many", Mutex::prepare).unwrap();
    let guard = mutex.lock().unwrap();
    let act = |rank: u64| {
        theirs.enter(Some(rank as u32)).unwrap();
        let mutex = theirs.shared::<Mutex<Table, Ticket<Native>>>("many", Mutex::prepare).unwrap();
        begun.fetch_add(1, SeqCst);
        for _ in 0..3 {
            let mut guard = mutex.lock().unwrap();
            let seen = *guard[0].get_mut();
            *guard[0].get_mut() = seen + 1;
        }
        done.fetch_add(1, SeqCst);
    };
    let children: Vec<Child> = (1..=MANY).map(|rank| Child::fork(|| act(rank))).collect();
    wait_for(begun, MANY);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(done.load(SeqCst), 0, "acquired while this process holds it");
    drop(guard);
    wait_for(done, MANY);
    assert_eq!(mutex.lock().unwrap()[0].load(Relaxed), 3 * MANY);
    drop(children);
}

/// A thread's next robust mutex is linked to the one that it holds already, by address.
fn forgotten_posix_guard_keeps_its_mapping() {
    let play = || {
        let (world, theirs) = worlds(1);
        let made = |mutex: &Mutex<Table, Posix<Native>>| {
            mutex.prepare();
            assert_eq!(mutex.lock().err(), Some(LockError::NotEntered), "only its handle locks it");
        };
        // Made before the other one goes, so that it is not mapped in its place.
        let (later, _theirs) = worlds(1);
        let mutex = world.shared("m", made).unwrap();
        std::mem::forget(mutex.lock().unwrap());
        drop((mutex, world, theirs));
        let mutex = later.shared::<Mutex<Table, Posix<Native>>>("m", Mutex::prepare).unwrap();
        for turn in 0..3 {
            assert_eq!(mutex.lock().unwrap()[0].fetch_add(1, Relaxed), turn);
        }
    };
    thread::spawn(play).join().unwrap();
}

fn main() {
    let cases: [(&str, fn()); 9] = [
        ("more_processes_than_places_exclude", more_processes_than_places_exclude),
        ("living_holder_keeps_the_mutex", living_holder_keeps_the_mutex),
        ("dead_holder_is_reported_by_lock", dead_holder_is_reported_by_lock),
        ("threads_exclude_mcs", || many_threads_of_two_processes_exclude::<Mcs<Native, 64>>("mcs")),
        ("threads_exclude_anderson", || {
            many_threads_of_two_processes_exclude::<Anderson<Native, 64>>("anderson")
        }),
        ("threads_exclude_test_and_set", || {
            many_threads_of_two_processes_exclude::<TestAndSet<Native>>("tas")
        }),
        ("leaving_with_an_open_mutex_is_refused", leaving_with_an_open_mutex_is_refused),
        ("unwinding_member_counts_as_dead", unwinding_member_counts_as_dead),
        ("forgotten_posix_guard_keeps_its_mapping", forgotten_posix_guard_keeps_its_mapping),
    ];
    for (name, case) in cases {
        watchdog::begin(name.into(), 60);
        case();
        println!("{name} ... ok");
    }
    println!("test result: ok. {} passed; 0 failed", cases.len());
}
