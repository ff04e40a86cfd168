//! Every queue between threads: nothing lost, nothing twice, in each producer's order;
//! one after the other like a `VecDeque`; in zeroed memory; refused when full.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use towpath_machine::{Arena, Concurrent, Heap, Native};
use towpath_structures::planted::FetchOpArrayAsPrinted;
use towpath_structures::queues::{
    ConcurrentQueue, FetchOpArray, FetchOpTickets, MichaelScott, PrakashLeeJohnson, QueueError, TwoEnded,
    TwoLock, Valois,
};
use towpath_structures::{Counter, InPlace, Node, Pool, PoolError, for_each_planted_queue, for_each_queue};
use towpath_sync::locks::Ticket;
use towpath_sync::{Alone, AtMemory, Atomics, LoadLinked, Policy, Primitive, Spinning, Wait};

const WAIT: Wait = Wait { policy: Policy::SpinThenYield, around: &Alone, budget: 1_000 };

/// Producers and consumers through a queue with room for few: it fills, empties and wraps
/// round all the time.
fn exchange<Q: ConcurrentQueue<Native>>(producers: usize, consumers: usize, capacity: usize, each: u64) {
    let queue = Q::new(&Heap, capacity, producers + consumers);
    let taken = AtomicU64::new(0);
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for me in 0..producers {
            let queue = &queue;
            scope.spawn(move || {
                let cpu = Native::with_id(me as u32);
                for i in 0..each {
                    let value = (me as u64) << 32 | i;
                    loop {
                        match queue.enqueue(&cpu, &WAIT, me, value) {
                            Ok(()) => break,
                            Err(QueueError::Full) => std::thread::yield_now(),
                            Err(e) => panic!("{}: {e}", Q::NAME),
                        }
                    }
                }
            });
        }
        for me in producers..producers + consumers {
            let (queue, taken, all) = (&queue, &taken, &all);
            scope.spawn(move || {
                let cpu = Native::with_id(me as u32);
                let mut mine = Vec::new();
                while taken.load(Ordering::Relaxed) < producers as u64 * each {
                    match queue.dequeue(&cpu, &WAIT, me).unwrap_or_else(|e| panic!("{}: {e}", Q::NAME)) {
                        Some(value) => {
                            taken.fetch_add(1, Ordering::Relaxed);
                            mine.push(value);
                        }
                        None => std::thread::yield_now(),
                    }
                }
                for producer in 0..producers as u64 {
                    let of_one = mine.iter().filter(|v| **v >> 32 == producer);
                    assert!(of_one.is_sorted_by(|a, b| a < b), "{}: out of order", Q::NAME);
                }
                all.lock().unwrap().extend(mine);
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort_unstable();
    let expected: Vec<u64> =
        (0..producers as u64).flat_map(|p| (0..each).map(move |i| p << 32 | i)).collect();
    assert!(all == expected, "{}: {} values of {}", Q::NAME, all.len(), expected.len());
    assert_eq!(queue.dequeue(&Native::with_id(0), &WAIT, 0), Ok(None), "{}", Q::NAME);
}

#[test]
fn nothing_lost_nothing_twice_in_order() {
    for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => exchange(2, 2, 64, 8_000));
    for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => exchange(3, 3, 2, 1_500));
    for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => exchange(1, 1, 1, 1_500));
}

/// Enqueues and dequeues in every thread, as in the paper's benchmark.
fn both<Q: ConcurrentQueue<Native>>(threads: usize, rounds: u64) {
    let queue = Q::new(&Heap, 4 * threads, threads);
    let sums: Vec<u64> = std::thread::scope(|scope| {
        let work = |me: usize| {
            let queue = &queue;
            move || {
                let cpu = Native::with_id(me as u32);
                let mut sum = 0;
                for i in 0..rounds {
                    // There is room for all, except that `valois` can lose it for as long as one of
                    // us is between two instructions.
                    while let Err(error) = queue.enqueue(&cpu, &WAIT, me, i + 1) {
                        assert_eq!((error, &Q::NAME[..6]), (QueueError::Full, "valois"));
                        std::thread::yield_now();
                    }
                    sum += queue.dequeue(&cpu, &WAIT, me).unwrap().expect("I have put one in");
                }
                sum
            }
        };
        let threads: Vec<_> = (0..threads).map(|me| scope.spawn(work(me))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(sums.iter().sum::<u64>(), threads as u64 * rounds * (rounds + 1) / 2, "{}", Q::NAME);
    assert_eq!(queue.dequeue(&Native::with_id(0), &WAIT, 0), Ok(None), "{}", Q::NAME);
}

#[test]
fn thread_that_puts_one_in_gets_one_out() {
    for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => both(4, 4_000));
}

/// The operations of one run, by participant: `Some(value)` to put in, `None` to take
/// out.
fn operations() -> impl Strategy<Value = Vec<(usize, Option<u64>)>> {
    prop::collection::vec((0..3usize, prop::option::weighted(0.55, any::<u64>())), 1..400)
}

fn like_a_deque<Q: ConcurrentQueue<Native>>(operations: &[(usize, Option<u64>)], capacity: usize) {
    let queue = Q::new(&Heap, capacity, 3);
    against_a_deque(&queue, operations, capacity);
}

fn against_a_deque<Q: ConcurrentQueue<Native>>(
    queue: &Q,
    operations: &[(usize, Option<u64>)],
    capacity: usize,
) {
    let mut model = VecDeque::new();
    for (me, operation) in operations {
        let cpu = Native::with_id(*me as u32);
        match operation {
            Some(value) => match queue.enqueue(&cpu, &Spinning, *me, *value) {
                Ok(()) => model.push_back(*value),
                Err(error) => {
                    assert_eq!(error, QueueError::Full, "{}", Q::NAME);
                    assert!(model.len() >= capacity, "{}: full with {} values", Q::NAME, model.len());
                }
            },
            None => {
                assert_eq!(queue.dequeue(&cpu, &Spinning, *me), Ok(model.pop_front()), "{}", Q::NAME);
            }
        }
    }
}

proptest! {
    #[test]
    fn one_after_the_other_it_is_a_deque(operations in operations(), capacity in 1..20usize) {
        for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => like_a_deque(&operations, capacity));
    }
}

fn fills<Q: ConcurrentQueue<Native>>() {
    let queue = Q::new(&Heap, 10, 4);
    let cpu = Native::with_id(0);
    // Put in by one and taken out by another: the free nodes have to find their way back.
    for lap in 0..8 {
        let mut count = 0;
        while queue.enqueue(&cpu, &Spinning, lap % 4, count).is_ok() {
            count += 1;
            assert!(count < 1_000, "{}: never full", Q::NAME);
        }
        assert!(count >= 10, "{}: full with {count}", Q::NAME);
        assert_eq!(queue.enqueue(&cpu, &Spinning, lap % 4, 0), Err(QueueError::Full), "{}", Q::NAME);
        for expected in 0..count {
            assert_eq!(queue.dequeue(&cpu, &Spinning, (lap + 1) % 4), Ok(Some(expected)), "{}", Q::NAME);
        }
        assert_eq!(queue.dequeue(&cpu, &Spinning, lap % 4), Ok(None), "{}", Q::NAME);
    }
}

#[test]
fn a_full_queue_says_so_and_goes_on() {
    for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => fills());
}

fn refuses_strangers<Q: ConcurrentQueue<Native>>() {
    let queue = Q::new(&Heap, 4, 2);
    let cpu = Native::with_id(0);
    assert_eq!(queue.enqueue(&cpu, &Spinning, 2, 1), Err(QueueError::UnknownParticipant), "{}", Q::NAME);
    assert_eq!(
        queue.dequeue(&cpu, &Spinning, usize::MAX),
        Err(QueueError::UnknownParticipant),
        "{}",
        Q::NAME
    );
}

#[test]
fn strangers_are_refused() {
    for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => refuses_strangers());
}

/// A value of a plain type in zeroed memory, as in a new segment.
fn zeroed<T: Concurrent>() -> Box<T> {
    // SAFETY: all-zero bytes are a valid value of a `Concurrent` type.
    unsafe { Box::new(std::mem::MaybeUninit::zeroed().assume_init()) }
}

const NODES: usize = 8 + 1 + 3 + 3 * 2 * 8 + 1;

fn from_zeroes<Q: ConcurrentQueue<Native> + Concurrent>(operations: &[(usize, Option<u64>)]) {
    against_a_deque(&*zeroed::<Q>(), operations, 8);
}

proptest! {
    #[test]
    fn zeroed_memory_is_an_empty_queue(operations in operations()) {
        from_zeroes::<MichaelScott<Native, Atomics, InPlace<NODES, 3>>>(&operations);
        from_zeroes::<PrakashLeeJohnson<Native, Atomics, InPlace<NODES, 3>>>(&operations);
        from_zeroes::<Valois<Native, Atomics, InPlace<NODES, 3>>>(&operations);
        from_zeroes::<TwoEnded<Native, Ticket<Native>, Atomics, InPlace<NODES, 3>>>(&operations);
        from_zeroes::<TwoLock<Native, Ticket<Native>, Atomics, InPlace<NODES, 3>>>(&operations);
        from_zeroes::<FetchOpArray<Native, InPlace<11, 3>>>(&operations);
        from_zeroes::<FetchOpTickets<Native, InPlace<11, 3>>>(&operations);
    }
}

/// Every word holds the same nonsense: the answer is an error or a number, not a panic.
fn survives_nonsense<Q: ConcurrentQueue<Native> + Concurrent>(byte: u8) {
    let mut queue = Box::new(std::mem::MaybeUninit::<Q>::uninit());
    // SAFETY: every bit pattern is a valid value of a `Concurrent` type, and all bytes are written.
    let queue = unsafe {
        queue.as_mut_ptr().write_bytes(byte, 1);
        queue.assume_init()
    };
    let cpu = Native::with_id(0);
    for _ in 0..3 {
        let _ = queue.enqueue(&cpu, &WAIT, 0, 7);
        let _ = queue.dequeue(&cpu, &WAIT, 1);
    }
}

#[test]
fn nonsense_in_memory_is_no_panic() {
    for byte in [0x01, 0x5a, 0x7f, 0xff] {
        survives_nonsense::<MichaelScott<Native, Atomics, InPlace<NODES, 3>>>(byte);
        survives_nonsense::<PrakashLeeJohnson<Native, Atomics, InPlace<NODES, 3>>>(byte);
        survives_nonsense::<Valois<Native, Atomics, InPlace<NODES, 3>>>(byte);
        survives_nonsense::<FetchOpArray<Native, InPlace<11, 3>>>(byte);
        survives_nonsense::<FetchOpTickets<Native, InPlace<11, 3>>>(byte);
    }
}

/// Printed figure: wrong without any other thread; a value that was put in is not found.
#[test]
fn the_printed_figure_loses_what_it_is_given() {
    let queue: FetchOpArrayAsPrinted<Native> = ConcurrentQueue::new(&Heap, 8, 1);
    let cpu = Native::with_id(0);
    queue.enqueue(&cpu, &Spinning, 0, 5).unwrap();
    assert_eq!(queue.dequeue(&cpu, &Spinning, 0), Ok(None));
}

fn collect<Q: ConcurrentQueue<Native>>(names: &mut Vec<&'static str>) {
    names.push(Q::NAME);
}

#[test]
fn names_are_different() {
    let mut names = Vec::new();
    for_each_queue!([atomics ll_sc fetch_op published] Native, 64 => collect(&mut names));
    for_each_planted_queue!([atomics fetch_op] Native => collect(&mut names));
    assert!(names.contains(&"michael-scott") && names.contains(&"michael-scott/ll-sc"), "{names:?}");
    assert!(names.contains(&"two-ended/ticket") && names.contains(&"fetch-op-array"), "{names:?}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

/// Node that knows its owner.
struct Owned(AtomicU64);

impl Node<Native> for Owned {
    fn new(_arena: &impl Arena<Native>) -> Self {
        Owned(AtomicU64::new(0))
    }
}

fn one_owner_each<M: towpath_sync::Universal<Native>>() {
    const THREADS: usize = 4;
    // Room for what is in use: whatever lies in the lists of others, it never runs out.
    let nodes = Pool::<Native, Owned, M>::nodes_for(THREADS * 20, THREADS);
    let pool: Pool<Native, Owned, M> = Pool::new(&Heap, nodes, THREADS);
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                let cpu = Native::with_id(me as u32);
                let mut mine = Vec::new();
                for round in 0..5_000 {
                    let wanted = (round * 7 + me) % 21;
                    while mine.len() < wanted {
                        let index = pool.take(&cpu, me).unwrap();
                        assert_ne!(index, 0);
                        let before = pool.get(index).unwrap().0.swap(me as u64 + 1, Ordering::Relaxed);
                        assert_eq!(before, 0, "node {index} has two owners");
                        mine.push(index);
                    }
                    while mine.len() > wanted {
                        let index = mine.pop().unwrap();
                        let before = pool.get(index).unwrap().0.swap(0, Ordering::Relaxed);
                        assert_eq!(before, me as u64 + 1, "node {index} has another owner");
                        pool.give(&cpu, me, index).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_node_has_one_owner() {
    one_owner_each::<Atomics>();
    one_owner_each::<LoadLinked>();
}

#[test]
fn an_empty_pool_is_an_error_value() {
    let pool: Pool<Native, Owned> = Pool::new(&Heap, 20, 2);
    let cpu = Native::with_id(0);
    let taken: Vec<u32> = std::iter::from_fn(|| pool.take(&cpu, 0).ok()).collect();
    let mut sorted = taken.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..20).collect::<Vec<_>>());
    assert_eq!(pool.take(&cpu, 0), Err(PoolError::Exhausted));
    assert_eq!(pool.take(&cpu, 2), Err(PoolError::UnknownParticipant));
    assert!(matches!(pool.get(20), Err(PoolError::Corrupt)));
    // Nodes that one participant gives back beyond two chains, another one finds.
    for index in taken {
        pool.give(&cpu, 0, index).unwrap();
    }
    let other: Vec<u32> = std::iter::from_fn(|| pool.take(&cpu, 1).ok()).collect();
    assert_eq!(other.len(), 8, "19 are two full chains and a beginning: one chain goes to all");
}

fn counts<M: Primitive<Native>>() {
    let counter: Counter<Native, M> = Counter::new(&Heap);
    let last = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for id in 0..4 {
            let (counter, last) = (&counter, &last);
            scope.spawn(move || {
                let cpu = Native::with_id(id);
                let mine: Vec<u64> = (0..10_000).map(|_| counter.increment(&cpu)).collect();
                last.lock().unwrap().extend(mine);
            });
        }
    });
    let mut values = last.into_inner().unwrap();
    values.sort_unstable();
    assert!(values.iter().copied().eq(0..40_000), "{}: a number twice", Counter::<Native, M>::NAME);
    assert_eq!(counter.value(&Native::with_id(0)), 40_000);
}

#[test]
fn a_counter_counts() {
    counts::<Atomics>();
    counts::<LoadLinked>();
    counts::<AtMemory>();
}
