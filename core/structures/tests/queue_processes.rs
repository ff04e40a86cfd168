//! Queues in shared memory between processes, one of which is killed in the middle: the
//! values of the others come out, once and in order.

use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_machine::{Concurrent, Native, OwnLine, Processor};
use towpath_process::Child;
use towpath_structures::InPlace;
use towpath_structures::queues::{
    ConcurrentQueue, FetchOpArray, FetchOpTickets, MichaelScott, PrakashLeeJohnson, QueueError, TwoEnded,
    TwoLock, Valois,
};
use towpath_sync::locks::Robust;
use towpath_sync::{Atomics, Policy, Surroundings, Wait};

const PRODUCERS: usize = 3;
/// The consumer's number, and how many there are.
const CONSUMER: usize = PRODUCERS;
const ALL: usize = PRODUCERS + 1;
const EACH: u64 = 20_000;
/// Number of values of producer 0 after which it is killed.
const ENOUGH: u64 = 500;
/// Time without a value after which the test gives up and says where each process stands.
const PATIENCE: u64 = 60_000_000_000;

type Room = InPlace<512, ALL>;

#[repr(C)]
struct Shared<Q> {
    queue: Q,
    /// Number of values that each producer has put in, not counting the one in its hands.
    progress: [OwnLine<AtomicU64>; PRODUCERS],
    /// 1 once producer 0 is dead.
    first_is_dead: AtomicU64,
}

impl<Q> Shared<Q> {
    fn stand(&self, came: &[u64]) -> String {
        let progress: Vec<u64> = self.progress.iter().map(|p| p.load(Ordering::Relaxed)).collect();
        format!("the producers stand at {progress:?}, of which {came:?} came")
    }
}

/// View of a participant. Its identity is its number plus one.
struct World<'a> {
    me: usize,
    first_is_dead: &'a AtomicU64,
    /// Time to give up.
    deadline: u64,
}

impl Surroundings for World<'_> {
    fn abandoned(&self) -> bool {
        now() > self.deadline
    }
    fn identity(&self) -> u32 {
        self.me as u32 + 1
    }
    fn is_alive(&self, identity: u32) -> bool {
        identity != 1 || self.first_is_dead.load(Ordering::Relaxed) == 0
    }
}

fn now() -> u64 {
    Native::with_id(0).now()
}

/// A zeroed mapping that child processes share. Never unmapped.
fn shared<Q: Concurrent>() -> &'static Shared<Q> {
    // SAFETY: a new anonymous mapping; no address is asked for.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Shared<Q>>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED, "no memory to share");
    // SAFETY: mapped, zeroed and aligned to a page; all-zero bytes are a valid value of
    // `Concurrent` types; never unmapped.
    unsafe { &*memory.cast::<Shared<Q>>() }
}

/// A producer's life. It allocates nothing: its process was forked from one with threads.
fn produce<Q: ConcurrentQueue<Native>>(shared: &Shared<Q>, me: usize) -> i32 {
    let cpu = Native::with_id(me as u32);
    let around = World { me, first_is_dead: &shared.first_is_dead, deadline: u64::MAX };
    let wait = Wait { policy: Policy::SpinThenYield, around: &around, budget: 2_000 };
    // The one that will be killed never ends by itself.
    let count = if me == 0 { u64::MAX } else { EACH };
    for i in 0..count {
        shared.progress[me].store(i, Ordering::Relaxed);
        loop {
            match shared.queue.enqueue(&cpu, &wait, me, (me as u64) << 32 | i) {
                Ok(()) => break,
                Err(QueueError::Full) => std::thread::yield_now(),
                Err(_) => return 1,
            }
        }
    }
    0
}

/// Producers in processes of their own, the first of which is killed if `kill` (else it
/// is not there), and a consumer here.
fn exchange<Q: ConcurrentQueue<Native> + Concurrent>(prepare: impl Fn(&Q), kill: bool) {
    let shared = shared::<Q>();
    prepare(&shared.queue);
    let _ = Native::pause_ps(); // Measured before there are children.
    let fork = |me| Child::fork(|| produce(shared, me)).expect("no process for a producer");
    let mut children: Vec<Child> = (usize::from(!kill)..PRODUCERS).map(fork).collect();
    let cpu = Native::with_id(CONSUMER as u32);
    let mut killed = false;
    let mut next = [0u64; PRODUCERS];
    let mut last = now();
    while next[1..].iter().any(|n| *n < EACH) || killed != kill {
        let around = World { me: CONSUMER, first_is_dead: &shared.first_is_dead, deadline: last + PATIENCE };
        let wait = Wait { policy: Policy::SpinThenYield, around: &around, budget: 2_000 };
        match shared.queue.dequeue(&cpu, &wait, CONSUMER) {
            Ok(Some(value)) => {
                let (producer, i) = ((value >> 32) as usize, value & u64::from(u32::MAX));
                assert_eq!(i, next[producer], "{}: of producer {producer}", Q::NAME);
                next[producer] += 1;
                last = now();
                if kill && !killed && next[0] == ENOUGH {
                    children[0].kill();
                    let end = Instant::now() + Duration::from_nanos(PATIENCE);
                    assert!(children[0].wait(end).expect("a child").is_some(), "it does not die");
                    killed = true;
                    shared.first_is_dead.store(1, Ordering::Relaxed);
                }
            }
            Ok(None) => std::thread::yield_now(),
            Err(error) => panic!("{}: {error}: {}", Q::NAME, shared.stand(&next)),
        }
        assert!(now() - last < PATIENCE, "{}: nothing comes: {}", Q::NAME, shared.stand(&next));
    }
    // All values that the killed one had put in are there, and perhaps the one in its hands.
    while let Ok(Some(value)) = {
        let around = World { me: CONSUMER, first_is_dead: &shared.first_is_dead, deadline: now() + PATIENCE };
        let wait = Wait { policy: Policy::SpinThenYield, around: &around, budget: 2_000 };
        shared.queue.dequeue(&cpu, &wait, CONSUMER)
    } {
        assert_eq!(value, next[0], "{}: of the dead one", Q::NAME);
        next[0] += 1;
    }
    let begun = shared.progress[0].load(Ordering::Relaxed);
    assert!(!kill || (begun..=begun + 1).contains(&next[0]), "{}: {} of {begun}", Q::NAME, next[0]);
}

#[test]
fn the_others_go_on_when_one_is_killed() {
    for _ in 0..10 {
        exchange::<MichaelScott<Native, Atomics, Room>>(|_| (), true);
        exchange::<PrakashLeeJohnson<Native, Atomics, Room>>(|_| (), true);
        // SAFETY: no process uses it yet, and its mapping stays.
        exchange::<TwoEnded<Native, Robust<Native>, Atomics, Room>>(|q| unsafe { q.prepare() }, true);
        // SAFETY: no process uses it yet, and its mapping stays.
        exchange::<TwoLock<Native, Robust<Native>, Atomics, Room>>(|q| unsafe { q.prepare() }, true);
    }
}

/// Queues that do not promise to go on after a death: no process is killed.
#[test]
fn between_processes() {
    exchange::<Valois<Native, Atomics, Room>>(|_| (), false);
    exchange::<FetchOpArray<Native, Room>>(|_| (), false);
    exchange::<FetchOpTickets<Native, Room>>(|_| (), false);
}
