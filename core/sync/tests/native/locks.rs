//! Every lock under every waiting policy, between threads: mutual exclusion, fairness,
//! capacity.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towpath_machine::{Heap, Native, Processor, Random};
use towpath_sync::locks::{
    Anderson, Compact, Mcs, McsHeld, ModeWord, Posix, Preemption, Published, Reactive, Robust,
    SchedulerConscious, TestAndSet, TestAndTestAndSet, Ticket,
};
use towpath_sync::{
    Alone, AtMemory, Deadline, Lock, LockError, Mutex, Policy, RawLock, Spinning, Surroundings, Wait,
    Waiting, for_each_lock,
};

/// More threads than cores.
struct Oversubscribed;

impl Surroundings for Oversubscribed {
    fn oversubscribed(&self) -> bool {
        true
    }
}

struct Shared<L> {
    lock: L,
    /// Datum that is not atomic: protected by the lock.
    value: Cell<u64>,
}

// SAFETY: the value is touched under the lock only.
unsafe impl<L: Sync> Sync for Shared<L> {}

/// Ten increments that are not atomic, checked and undone, as in Concurrency Kit's
/// validator.
fn validate<L: Lock<Native> + Sync>(
    threads: u32,
    rounds: u32,
    wait: &(impl Waiting<Native> + Sync),
    what: &str,
) {
    let shared = Shared { lock: L::new(&Heap), value: Cell::new(0) };
    let shared = &shared;
    // SAFETY: no thread uses it yet; it stays where it is until the threads below, which release
    // it, have ended.
    unsafe { shared.lock.prepare() };
    std::thread::scope(|scope| {
        for id in 0..threads {
            scope.spawn(move || {
                let shared = shared; // All of it, not its parts.
                let cpu = Native::with_id(id);
                for _ in 0..rounds {
                    let held = shared.lock.lock(&cpu, wait).unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert_eq!(shared.value.get(), 0, "{what}");
                    for _ in 0..10 {
                        shared.value.set(std::hint::black_box(shared.value.get()) + 1);
                    }
                    assert_eq!(shared.value.get(), 10, "{what}");
                    for _ in 0..10 {
                        shared.value.set(std::hint::black_box(shared.value.get()) - 1);
                    }
                    shared.lock.unlock(&cpu, wait, held);
                }
            });
        }
    });
    let cpu = Native::with_id(0);
    let held = if L::TRIES {
        shared.lock.try_lock(&cpu).unwrap_or_else(|| panic!("{what}: free at the end"))
    } else {
        shared.lock.lock(&cpu, &Spinning).unwrap_or_else(|e| panic!("{what}: free at the end: {e}"))
    };
    assert!(shared.lock.try_lock(&Native::with_id(1)).is_none(), "{what}: held by one");
    shared.lock.unlock(&cpu, wait, held);
}

fn excludes<L: Lock<Native> + Sync>() {
    validate::<L>(2, 2_000, &Spinning, L::NAME);
    for (policy, name) in Policy::ALL {
        let what = format!("{} under {name}", L::NAME);
        let surroundings = [&Alone as &dyn Surroundings, &Oversubscribed];
        for around in surroundings {
            let wait = Wait { policy, around, budget: 2_000 };
            validate::<L>(2, 1_000, &wait, &what);
            // Spinning with more threads than cores is what the other policies are for.
            let rounds = if policy == Policy::Spin { 20 } else { 200 };
            validate::<L>(6, rounds, &wait, &what);
        }
    }
}

#[test]
fn one_at_a_time() {
    excludes::<Compact<Native>>();
    excludes::<Compact<Native, 0>>();
    excludes::<Reactive<Native, 8, 0, 0>>(); // Changes over all the time.
    excludes::<Reactive<Native, 8, 1, 1, ModeWord<Native>>>();
    for_each_lock!([atomics ll_sc fetch_op published kernel_mutex] Native, 8 => excludes());
}

/// Knows one process, which is dead.
struct Dead;

impl Surroundings for Dead {
    fn identity(&self) -> u32 {
        7
    }
    fn is_alive(&self, identity: u32) -> bool {
        identity != 7
    }
}

struct Survivor;

impl Surroundings for Survivor {
    fn identity(&self) -> u32 {
        9
    }
    fn is_alive(&self, identity: u32) -> bool {
        identity != 7
    }
}

#[test]
fn the_next_owner_learns_of_a_death_and_decides() {
    for repaired in [true, false] {
        let lock: Robust<Native> = Robust::new(&Heap);
        for policy in [Policy::Spin, Policy::Park, Policy::Adaptive] {
            let dead = Wait { policy, around: &Dead, budget: 1_000 };
            let alive = Wait { policy, around: &Survivor, budget: 1_000 };
            let (a, b) = (Native::with_id(0), Native::with_id(1));
            let _never_released = lock.lock(&a, &dead).unwrap(); // It "dies" holding the lock.
            let mut held = lock.lock(&b, &alive).unwrap();
            assert!(<Robust<Native> as Lock<Native>>::owner_died(&held));
            assert_eq!(<Robust<Native> as Lock<Native>>::dead_owner(&held), Some(7));
            if repaired {
                lock.make_consistent(&b, &mut held);
            }
            lock.unlock(&b, &alive, held);
            match lock.lock(&b, &alive) {
                Ok(held) if repaired => {
                    assert!(!<Robust<Native> as Lock<Native>>::owner_died(&held));
                    lock.unlock(&b, &alive, held);
                }
                Err(LockError::Poisoned) if !repaired => break,
                other => panic!("repaired {repaired}: {other:?}"),
            }
        }
    }
}

/// Dies as it falls asleep: by a panic, which for a lock is as good as a kill.
struct DiesAsleep;

impl Surroundings for DiesAsleep {
    fn identity(&self) -> u32 {
        7
    }
    fn asleep(&self, _asleep: bool) {
        panic!("dead, as the test wants it");
    }
}

#[test]
fn waiter_that_dies_in_line_was_no_owner() {
    let lock: Robust<Native> = Robust::new(&Heap);
    let waiting = Wait { policy: Policy::Park, around: &DiesAsleep, budget: 0 };
    let alive = Wait { policy: Policy::Park, around: &Survivor, budget: 0 };
    let held = lock.lock(&Native::with_id(0), &alive).unwrap();
    let died = catch_unwind(AssertUnwindSafe(|| lock.lock(&Native::with_id(1), &waiting)));
    assert!(died.is_err());
    lock.unlock(&Native::with_id(0), &alive, held); // No lease was taken: to the one in line.
    let held = lock.lock(&Native::with_id(2), &alive).unwrap();
    assert!(!<Robust<Native> as Lock<Native>>::owner_died(&held));
    lock.unlock(&Native::with_id(2), &alive, held);
}

/// Knows of a death, but only after the dead one has let go.
struct LetGo<'a> {
    lock: &'a Mcs<Native, 2>,
    held: std::sync::Mutex<Option<McsHeld>>,
}

impl Surroundings for LetGo<'_> {
    fn abandoned(&self) -> bool {
        if let Some(held) = self.held.lock().unwrap().take() {
            self.lock.unlock(&Native::with_id(0), &Spinning, held);
        }
        true
    }
}

#[test]
fn waiter_that_was_handed_the_lock_does_not_give_up() {
    for (policy, name) in Policy::ALL {
        let lock = Mcs::new(&Heap);
        let held = std::sync::Mutex::new(lock.lock(&Native::with_id(0), &Spinning).ok());
        let around = LetGo { lock: &lock, held };
        let wait = Wait { policy, around: &around, budget: 1_000 };
        let held = lock.lock(&Native::with_id(1), &wait).unwrap_or_else(|e| panic!("under {name}: {e}"));
        lock.unlock(&Native::with_id(1), &wait, held);
        assert!(lock.try_lock(&Native::with_id(0)).is_some(), "under {name}");
    }
}

/// Surroundings of a waiter for which it comes just before it sleeps.
struct Comes {
    word: AtomicU64,
    asked: AtomicU64,
}

impl Surroundings for Comes {
    fn asleep(&self, _asleep: bool) {
        self.word.store(7, Ordering::Relaxed);
    }
    fn abandoned(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[test]
fn waiter_that_is_woken_by_what_it_waits_for_does_not_ask() {
    let around = Comes { word: AtomicU64::new(0), asked: AtomicU64::new(0) };
    let wait = Wait { policy: Policy::Park, around: &around, budget: 1_000 };
    assert_eq!(wait.wait_until(&Native::with_id(0), &around.word, |value| value == 7).ok(), Some(7));
    assert_eq!(around.asked.into_inner(), 0);
}

/// Surroundings that know after a while that nothing will come.
struct Hopeless(AtomicU64);

impl Surroundings for Hopeless {
    fn abandoned(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > 1
    }
}

fn never_hangs<L: Lock<Native> + Sync>() {
    if L::NAME == "posix" || L::NAME == "robust" {
        return; // They have ways of their own, tested elsewhere.
    }
    for (policy, name) in Policy::ALL {
        let lock = L::new(&Heap);
        let _never_released = lock.lock(&Native::with_id(0), &Spinning).unwrap();
        let around = Hopeless(AtomicU64::new(0));
        let wait = Wait { policy, around: &around, budget: 1_000 };
        let result = lock.lock(&Native::with_id(1), &wait);
        assert_eq!(result.err(), Some(LockError::Abandoned), "{} under {name}", L::NAME);
    }
}

#[test]
fn waiting_in_vain_ends() {
    for_each_lock!([atomics ll_sc fetch_op published kernel_mutex] Native, 8 => never_hangs());
}

/// Locks a lock whose words a faulty process has written over.
fn ends_when_damaged<L: Lock<Native>>() {
    let mut random = Random::new(1);
    // Small values are states, or near them; the others none that the lock has.
    let mut value = || random.word() & [1, 3, 7, 0xff, u64::MAX][random.below(5) as usize];
    for n in 0..40 {
        let (policy, _) = Policy::ALL[n % Policy::ALL.len()];
        let lock = L::new(&Heap);
        // SAFETY: an atomic view of the lock's own words, which are atomics, for as long as it
        // lives (`Native` keeps them in the lock itself).
        let words = unsafe {
            std::slice::from_raw_parts(
                (&raw const lock).cast::<AtomicU64>(),
                size_of::<L>() / size_of::<u64>(),
            )
        };
        words.iter().for_each(|word| word.store(value(), Ordering::Relaxed));
        let around = Hopeless(AtomicU64::new(0));
        let wait = Wait { policy, around: &around, budget: 1_000 };
        // Any result will do: the point is that the call returns.
        drop(lock.lock(&Native::with_id(1), &wait));
    }
}

#[test]
fn waiting_for_a_damaged_lock_ends() {
    ends_when_damaged::<TestAndSet<Native>>();
    ends_when_damaged::<TestAndTestAndSet<Native>>();
    ends_when_damaged::<Ticket<Native>>();
    ends_when_damaged::<Anderson<Native, 8>>();
    ends_when_damaged::<Mcs<Native, 8>>();
}

fn gives_up<L: Lock<Native> + Sync>() {
    if !L::TRIES {
        return;
    }
    let soon = |ms| Deadline::within(Duration::from_millis(ms));
    for (policy, name) in Policy::ALL {
        let (lock, wait) = (L::new(&Heap), Wait { policy, around: &Alone, budget: 1_000 });
        let what = format!("{} under {name}", L::NAME);
        let held = lock.lock_until(&Native::with_id(0), &wait, soon(20_000)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for deadline in [Deadline::PAST, soon(2), Deadline::at(std::time::Instant::now())] {
                    let result = lock.lock_until(&Native::with_id(1), &wait, deadline);
                    assert_eq!(result.err(), Some(LockError::TimedOut), "{what}");
                }
            });
        });
        lock.unlock(&Native::with_id(0), &wait, held);
        let held = lock.lock_until(&Native::with_id(1), &wait, soon(20_000));
        lock.unlock(&Native::with_id(1), &wait, held.unwrap_or_else(|error| panic!("{what}: {error}")));
        assert!(lock.lock_until(&Native::with_id(2), &wait, Deadline::PAST).is_ok(), "{what}");
    }
}

#[test]
fn waiters_give_up_at_their_deadlines() {
    gives_up::<Compact<Native>>();
    for_each_lock!([atomics ll_sc published kernel_mutex] Native, 8 => gives_up());
}

/// A lock that is handed to a waiter which has just given up is not lost.
#[test]
fn robust_goes_on_while_waiters_give_up() {
    let (lock, value) = (&Robust::<Native, 4, 0>::new(&Heap), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for id in 0..6 {
            scope.spawn(move || {
                let (cpu, mut random) = (Native::with_id(id), Random::new(id.into()));
                let wait = Wait { policy: Policy::Adaptive, around: &Oversubscribed, budget: 1_000 };
                for _ in 0..150 {
                    let deadline = Deadline::after(&cpu, random.below(400_000));
                    let Ok(held) = lock.lock_until(&cpu, &wait, deadline) else { continue };
                    let before = value.load(Ordering::Relaxed);
                    cpu.delay(random.below(100_000));
                    assert_eq!(value.swap(before + 1, Ordering::Relaxed), before, "two at a time");
                    lock.unlock(&cpu, &wait, held);
                }
            });
        }
    });
    assert!(value.load(Ordering::Relaxed) > 6 && lock.try_lock(&Native::with_id(7)).is_some());
}

#[test]
fn too_many_contenders_are_refused() {
    let lock: Mcs<Native, 2> = Mcs::new(&Heap);
    assert_eq!(lock.capacity(), 2);
    assert_eq!(lock.lock(&Native::with_id(2), &Spinning).err(), Some(LockError::Capacity));
    assert!(lock.try_lock(&Native::with_id(7)).is_none());
}

#[test]
fn more_contenders_than_places_still_exclude_each_other() {
    validate::<Anderson<Native, 2>>(
        5,
        200,
        &Wait { policy: Policy::Adaptive, around: &Oversubscribed, budget: 1_000 },
        "anderson",
    );
    validate::<Anderson<Native, 2, AtMemory>>(
        5,
        200,
        &Wait { policy: Policy::Park, around: &Oversubscribed, budget: 1_000 },
        "anderson/fetch-op",
    );
    validate::<Robust<Native, 2>>(
        5,
        200,
        &Wait { policy: Policy::Park, around: &Alone, budget: 1_000 },
        "robust",
    );
}

thread_local! {
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// Number of waiters that have looked at their word and are there for a releaser to see.
static WAITING: AtomicU64 = AtomicU64::new(0);

/// Says of the processors with these numbers (a bit each) that they are preempted.
#[derive(Debug)]
struct Claimed<const PREEMPTED: usize>;

impl<const PREEMPTED: usize> Preemption<Native> for Claimed<PREEMPTED> {
    const NAME: &'static str = "scheduler-conscious/claimed";
    fn publish(_cpu: &Native, _stamp: &AtomicU64) {
        // First before it writes its identity, then whenever it looks.
        if LOOKS.replace(LOOKS.get() + 1) == 1 {
            WAITING.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn is_preempted(_cpu: &Native, id: usize, _stamp: &AtomicU64) -> bool {
        PREEMPTED & 1 << id != 0
    }
}

/// Order in which three waiters in a queue get the lock.
fn served<const PREEMPTED: usize>() -> Vec<u32> {
    let lock: SchedulerConscious<Native, 4, Claimed<PREEMPTED>> = SchedulerConscious::new(&Heap);
    let wait = Wait { policy: Policy::SpinThenYield, around: &Alone, budget: 1_000 };
    let order = std::sync::Mutex::new(Vec::new());
    let held = lock.lock(&Native::with_id(0), &wait).unwrap();
    WAITING.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for id in 1..4 {
            let (lock, order, wait) = (&lock, &order, &wait);
            scope.spawn(move || {
                let cpu = Native::with_id(id);
                let held = lock.lock(&cpu, wait).unwrap();
                order.lock().unwrap().push(id);
                lock.unlock(&cpu, wait, held);
            });
            while WAITING.load(Ordering::SeqCst) < u64::from(id) {
                std::thread::yield_now();
            }
        }
        lock.unlock(&Native::with_id(0), &wait, held);
    });
    order.into_inner().unwrap()
}

thread_local! {
    /// This thread's requests to run on, and how many of them it has withdrawn.
    static REQUESTS: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
}

/// Knowledge that no waiter is preempted. Counts requests to the system.
#[derive(Debug)]
struct Refusing;

impl Preemption<Native> for Refusing {
    const NAME: &'static str = "scheduler-conscious/refusing";
    fn publish(_cpu: &Native, _stamp: &AtomicU64) {}
    fn is_preempted(_cpu: &Native, _id: usize, _stamp: &AtomicU64) -> bool {
        false
    }
    fn stay(cpu: &Native, on: bool) {
        let mut requests = REQUESTS.get();
        requests[usize::from(!on)] += 1;
        REQUESTS.set(requests);
        Published::stay(cpu, on);
    }
}

#[test]
fn holder_asks_to_run_on_and_a_waiter_does_not() {
    let lock: SchedulerConscious<Native, 2, Refusing> = SchedulerConscious::new(&Heap);
    let wait = Wait { policy: Policy::SpinThenYield, around: &Alone, budget: 1_000 };
    let cpu = Native::with_id(0);
    let held = lock.lock(&cpu, &wait).unwrap();
    assert_eq!(REQUESTS.get(), [1, 0], "before the draw");
    let waiter = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let cpu = Native::with_id(1);
            let held = lock.lock(&cpu, &wait).unwrap();
            let holding = REQUESTS.get();
            lock.unlock(&cpu, &wait, held);
            (holding, REQUESTS.get())
        });
        // The lock is kept until the waiter has begun to wait, or nearly.
        std::thread::sleep(std::time::Duration::from_millis(50));
        lock.unlock(&cpu, &wait, held);
        waiter.join().unwrap()
    });
    assert_eq!(REQUESTS.get(), [1, 1]);
    // Withdrawn while it waits, and asked for again when it has the lock.
    let ([asked, withdrawn], [_, at_end]) = waiter;
    assert_eq!(asked, withdrawn + 1, "{waiter:?}");
    assert_eq!(at_end, asked, "{waiter:?}");
}

#[test]
fn waiter_that_is_preempted_is_passed_over() {
    assert_eq!(served::<0b0000>(), [1, 2, 3]);
    assert_eq!(served::<0b0010>(), [2, 3, 1]);
    assert_eq!(served::<0b0110>()[0], 3);
    let mut all = served::<0b1110>();
    all.sort();
    assert_eq!(all, [1, 2, 3]);
}

#[test]
fn a_time_grows_old() {
    let cpu = Native::with_id(0);
    let stamp = AtomicU64::new(0);
    assert!(<Published as Preemption<Native>>::is_preempted(&cpu, 1, &stamp));
    // A preemption in between may make it old: not every time.
    assert!((0..1_000).any(|_| {
        Published::publish(&cpu, &stamp);
        !Published::is_preempted(&cpu, 1, &stamp)
    }));
    std::thread::sleep(Duration::from_millis(1));
    assert!(<Published as Preemption<Native>>::is_preempted(&cpu, 1, &stamp));
}

#[test]
fn reactive_changes_over_and_back() {
    let lock: Reactive<Native, 2, 1, 2> = Reactive::new(&Heap);
    let cpu = Native::with_id(0);
    let wait = Wait { policy: Policy::Spin, around: &Alone, budget: 1_000 };
    for _ in 0..2 {
        assert!(!lock.queues(&cpu));
        // If the other comes so late that it finds it free, again.
        while !lock.queues(&cpu) {
            let held = lock.lock(&cpu, &wait).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let cpu = Native::with_id(1);
                    let held = lock.lock(&cpu, &wait).unwrap();
                    lock.unlock(&cpu, &wait, held);
                });
                std::thread::sleep(Duration::from_millis(20));
                lock.unlock(&cpu, &wait, held);
            });
        }
        for found_empty in 1..=3 {
            assert!(lock.queues(&cpu));
            assert!(lock.try_lock(&cpu).map(|held| lock.unlock(&cpu, &wait, held)).is_some());
            let held = lock.lock(&cpu, &wait).unwrap();
            lock.unlock(&cpu, &wait, held);
            assert_eq!(lock.queues(&cpu), found_empty < 3);
        }
        // With more threads than cores it stays the flag.
        let oversubscribed = Wait { policy: Policy::Adaptive, around: &Oversubscribed, budget: 1_000 };
        let held = lock.lock(&cpu, &oversubscribed).unwrap();
        lock.unlock(&cpu, &oversubscribed, held);
        assert!(!lock.queues(&cpu));
    }
}

#[test]
fn a_raw_mutex_for_lock_api() {
    let count = lock_api::Mutex::<RawLock<TestAndTestAndSet<Native>>, u64>::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1_000).for_each(|_| *count.lock() += 1));
        }
    });
    assert_eq!(count.into_inner(), 4_000);
}

#[test]
fn names_find_their_policies() {
    for (policy, name) in Policy::ALL {
        assert_eq!((Policy::from_name(name), policy.name()), (Some(policy), name));
    }
    assert_eq!(Policy::from_name("patience"), None);
}

/// Returns whether the system would unlock nothing if the calling thread ended now.
fn robust_list_is_empty() -> bool {
    let (mut head, mut len) = (std::ptr::null::<*const libc::c_void>(), 0usize);
    // SAFETY: of the calling thread (0), into two places of the right size.
    let done = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
    assert!(done == 0 && !head.is_null(), "{}", std::io::Error::last_os_error());
    // SAFETY: libc's list head of this thread; it begins with a pointer to its first entry, which
    // is the head itself if there is none.
    unsafe { *head == head.cast() }
}

#[test]
fn posix_mutex_of_threads_stays_off_the_robust_list() {
    let play = || {
        let mutex: Mutex<u64, Posix<Native>> = Mutex::with_lock(1);
        mutex.prepare();
        std::mem::forget(mutex.lock().unwrap());
        assert!(robust_list_is_empty(), "its entry would outlive it");
        drop(Box::new(mutex));
        // So does the raw lock, which may therefore move while it is held.
        let raw = Posix::<Native>::new(&Heap);
        let held = raw.lock(&Native::with_id(0), &Spinning).unwrap();
        let moved = Box::new(raw);
        assert!(robust_list_is_empty(), "its entry would lead to where it was");
        moved.unlock(&Native::with_id(0), &Spinning, held);
        // One in shared memory is on the list while it is held.
        let lock = Box::leak(Box::new(Posix::<Native>::new(&Heap)));
        // SAFETY: no thread uses it yet; leaked, it stays where it is.
        unsafe { lock.prepare() };
        let held = lock.lock(&Native::with_id(0), &Spinning).unwrap();
        assert!(!robust_list_is_empty());
        lock.unlock(&Native::with_id(0), &Spinning, held);
        assert!(robust_list_is_empty());
    };
    std::thread::spawn(play).join().unwrap();
}
