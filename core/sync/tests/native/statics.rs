//! Primitives between threads as programs write them: as statics, without annotations,
//! printed.

use std::sync::Arc;
use std::time::Duration;

use towpath_machine::Native;
use towpath_sync::locks::{Anderson, Mcs, Posix, Ticket};
use towpath_sync::queues::{Mpmc, between_threads};
use towpath_sync::robust::{Barrier, Condvar, Event, Once, Semaphore};
use towpath_sync::{Exclusive, Lock, Mutex, RwLock};

const THREADS: usize = 4;

static TOTAL: Mutex<u64> = Mutex::new(0);
static TABLE: RwLock<[u64; THREADS]> = RwLock::new([0; THREADS]);
static CHANGED: Condvar = Condvar::new();
static BEGUN: Event = Event::new();
static SETUP: Once = Once::new();
static PERMITS: Semaphore = Semaphore::new(2);
static PHASE: Barrier = Barrier::new(THREADS);

#[test]
fn primitives_can_be_statics() {
    let run = |rank: usize| {
        BEGUN.wait();
        for round in 1..=100 {
            SETUP.call(|_| *TOTAL.lock().unwrap() += 1000);
            let permit = PERMITS.acquire().unwrap();
            TABLE.write().unwrap()[rank] += 1;
            drop(permit);
            PHASE.wait().unwrap();
            assert_eq!(*TABLE.read().unwrap(), [round; THREADS]);
            PHASE.wait().unwrap();
            *TOTAL.lock().unwrap() += 1;
            CHANGED.notify_all();
        }
    };
    std::thread::scope(|scope| {
        for rank in 0..THREADS {
            scope.spawn(move || run(rank));
        }
        BEGUN.set();
        let mut total = TOTAL.lock().unwrap();
        while *total < 1000 + 100 * THREADS as u64 {
            total = CHANGED.wait(total).unwrap();
        }
    });
    assert_eq!(PERMITS.available(), 2);
}

/// Fields without annotations, as of std's.
#[derive(Default)]
struct Parts {
    count: Mutex<u64>,
    names: RwLock<Vec<String>>,
}

#[test]
fn default_lock_needs_no_annotation() {
    let parts = Arc::new(Parts { names: vec!["first".to_owned()].into(), ..Parts::default() });
    *parts.count.lock().unwrap() += 1;
    parts.names.write().unwrap().push("second".to_owned());
    let jobs = Arc::new(Mutex::new(vec![1, 2]));
    jobs.lock().unwrap().push(3);
    assert_eq!((*parts.count.lock().unwrap(), jobs.lock().unwrap().len()), (1, 3));
    assert_eq!(parts.names.read().unwrap().len(), 2);
}

#[test]
fn other_locks_are_named_by_the_type() {
    fn count<L: Lock<Native> + Exclusive + Send + Sync>() {
        let total: Mutex<u64, L> = Mutex::with_lock(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..100).for_each(|_| *total.lock().unwrap() += 1));
            }
        });
        assert_eq!(total.into_inner(), 100 * THREADS as u64, "{}", L::NAME);
    }
    count::<Ticket<Native>>();
    count::<Mcs<Native, 8>>();
    count::<Anderson<Native, 8>>();
    count::<Posix<Native>>();
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let refused = |make: fn()| std::panic::catch_unwind(make).is_err();
    assert!(refused(|| _ = Semaphore::new(Semaphore::<Native>::MOST + 1)));
    assert!(refused(|| _ = Barrier::new(0)));
    assert!(refused(|| _ = Barrier::new(65)));
    assert!(Semaphore::new(0).acquire_timeout(Duration::ZERO).is_err());
    assert_eq!(Barrier::new(1).wait(), Ok(()));
}

#[test]
fn locks_and_handles_print_what_programs_look_for() {
    let (count, name) = (Mutex::new(7), RwLock::new("first"));
    assert_eq!(format!("{count:?} {name:?}"), r#"Mutex { data: 7, .. } RwLock { data: "first", .. }"#);
    let (guard, reader) = (count.lock().unwrap(), name.read().unwrap());
    assert_eq!(format!("{guard} {guard:?} {reader} {reader:?}"), r#"7 7 first "first""#);
    assert_eq!(format!("{count:?}"), "Mutex { data: <locked>, .. }");
    drop(reader);
    let writer = name.write().unwrap();
    assert_eq!(format!("{writer} {name:?}"), "first RwLock { data: <locked>, .. }");
    assert_eq!(
        format!("{PHASE:?} {PERMITS:?} {CHANGED:?}"),
        "Barrier { .. } Semaphore { .. } Condvar { .. }"
    );
    let (sender, receiver) = between_threads::<u64, Mpmc>(2);
    assert_eq!(format!("{sender:?} {receiver:?}"), "ValueSender { .. } ValueReceiver { .. }");
    assert_eq!(format!("{:?}", receiver.iter()), "ReceivedValues { .. }");
}
