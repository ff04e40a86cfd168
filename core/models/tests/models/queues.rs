//! Every queue under the model checker: two threads, one or two operations each. Values
//! in cells are race-checked. Locks are checked in their own room; here they are tickets.

use loom::sync::Arc;
use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomProcessor, Place, Processor};
use towpath_structures::queues::{
    ConcurrentQueue, FetchOpArray, FetchOpTickets, MichaelScott, PrakashLeeJohnson, QueueError, TwoEnded,
    TwoLock, Valois,
};
use towpath_structures::{Boxed, Counter, Node, Pool};
use towpath_sync::locks::Ticket;
use towpath_sync::{AtMemory, Atomics, LoadLinked, Primitive, Spinning, Universal};
use towpath_testkit::model;

type P = LoomProcessor;

/// Acts of a thread: puts in or takes out. Returns the value that it took.
fn act<Q: ConcurrentQueue<P>>(queue: &Q, me: usize, operations: &[Option<u64>]) -> Vec<u64> {
    let cpu = P { id: me };
    let mut taken = Vec::new();
    for operation in operations {
        match operation {
            Some(value) => loop {
                match queue.enqueue(&cpu, &Spinning, me, *value) {
                    Ok(()) => break,
                    Err(QueueError::Full) => thread::yield_now(),
                    Err(e) => panic!("{}: {e}", Q::NAME),
                }
            },
            None => taken.extend(queue.dequeue(&cpu, &Spinning, me).expect("nothing to fail on")),
        }
    }
    taken
}

/// Each participant's values ascend; the first thread's are 10 and more, the second's 20
/// and more. With less capacity than values the exact queues have to wait for room.
fn check<Q: ConcurrentQueue<P>>(
    preemptions: usize,
    capacity: usize,
    first: &'static [Option<u64>],
    second: &'static [Option<u64>],
) {
    model(preemptions, move || {
        let queue = Arc::new(Q::new(&LoomArena::default(), capacity, 2));
        // The node that a list begins with is never used again: get rid of it.
        assert_eq!(act(&*queue, 0, &[Some(1), None]), [1]);
        let other = {
            let queue = queue.clone();
            thread::spawn(move || act(&*queue, 1, second))
        };
        let mine = act(&*queue, 0, first);
        let theirs = other.join().unwrap();
        let left = act(&*queue, 0, &[None; 5]);
        for list in [&mine, &theirs, &left] {
            for p in 0..3 {
                let of_one = list.iter().filter(|v| **v / 10 == p);
                assert!(of_one.is_sorted(), "{mine:?} {theirs:?} {left:?}");
            }
        }
        let mut all: Vec<u64> = [mine.clone(), theirs.clone(), left.clone()].concat();
        all.sort_unstable();
        let mut expected: Vec<u64> = first.iter().chain(second).filter_map(|o| *o).collect();
        expected.sort_unstable();
        assert_eq!(all, expected, "{mine:?} {theirs:?} {left:?}");
        // A thread that puts one in and then takes one out finds something.
        if first.first().is_some_and(Option::is_some) && first.get(1) == Some(&None) && second.len() == 2 {
            assert_eq!((mine.len(), theirs.len(), left.len()), (1, 1, 0));
        }
    });
}

/// Keeps a value in whenever a thread takes, so that each of them gets one.
fn never_empty<Q: ConcurrentQueue<P>>(preemptions: usize) {
    model(preemptions, || {
        let queue = Arc::new(Q::new(&LoomArena::default(), 3, 2));
        assert_eq!(act(&*queue, 0, &[Some(1), None]), [1]);
        let other = {
            let queue = queue.clone();
            thread::spawn(move || act(&*queue, 1, &[Some(20), None]))
        };
        let mine = act(&*queue, 0, &[Some(10), None, Some(11)]);
        let all = [mine, other.join().unwrap()].concat();
        assert_eq!(all.len(), 2, "{all:?}");
    });
    model(preemptions, || {
        let queue = Arc::new(Q::new(&LoomArena::default(), 3, 2));
        assert_eq!(act(&*queue, 0, &[Some(1), None, Some(2)]), [1]);
        let other = {
            let queue = queue.clone();
            thread::spawn(move || act(&*queue, 1, &[None]))
        };
        let mine = act(&*queue, 0, &[Some(10), None, Some(11)]);
        let all = [mine, other.join().unwrap()].concat();
        assert!(all == [2, 10] || all == [10, 2], "{all:?}");
    });
}

fn all<Q: ConcurrentQueue<P>>(preemptions: usize) {
    never_empty::<Q>(preemptions);
    in_order::<Q>(preemptions);
}

fn in_order<Q: ConcurrentQueue<P>>(preemptions: usize) {
    check::<Q>(preemptions, 2, &[Some(10), Some(11)], &[None, None]);
    check::<Q>(preemptions, 1, &[Some(10), None], &[Some(20), None]);
    // The node that one takes out comes back while the other one still looks at it.
    check::<Q>(preemptions, 1, &[Some(10), None, Some(11), None], &[None]);
    check::<Q>(preemptions, 2, &[Some(10), None, Some(11)], &[Some(20)]);
}

#[test]
fn michael_scott() {
    all::<MichaelScott<P>>(2);
}

#[test]
fn michael_scott_by_load_linked() {
    all::<MichaelScott<P, LoadLinked>>(1);
}

#[test]
fn prakash_lee_johnson() {
    all::<PrakashLeeJohnson<P>>(2);
}

#[test]
fn valois() {
    in_order::<Valois<P>>(1);
    never_empty::<Valois<P>>(1);
}

#[test]
#[ignore = "ten seconds"]
fn valois_in_order() {
    in_order::<Valois<P>>(2);
}

/// A test of its own: it has most of the schedules.
#[test]
#[ignore = "ten seconds"]
fn valois_never_empty() {
    never_empty::<Valois<P>>(2);
}

#[test]
fn two_ended() {
    all::<TwoEnded<P, Ticket<P>>>(2);
}

#[test]
fn two_lock() {
    all::<TwoLock<P, Ticket<P>>>(2);
}

/// Less than a lap of the array: beyond that, a clear that finds nothing and a store are
/// not ordered by anything but the word itself, and loom 0.7 may let the clear undo the store.
/// `interrupted.rs` has the laps.
#[test]
fn fetch_op_array() {
    all::<FetchOpArray<P>>(4);
}

#[test]
fn fetch_op_tickets() {
    all::<FetchOpTickets<P>>(2);
}

/// A node whose owner alone may touch it: loom sees if there are two.
struct Owned(<P as Processor>::Cell);

impl Node<P> for Owned {
    fn new(arena: &impl Arena<P>) -> Self {
        Owned(arena.cell(Place::SameLine, 0))
    }
}

fn pool<M: Universal<P>>() {
    model(2, || {
        // Chains of one, so that most nodes go through the shared list.
        let pool: Arc<Pool<P, Owned, M, Boxed, 1>> = Arc::new(Pool::new(&LoomArena::default(), 8, 2));
        let work = |me: usize, pool: &Pool<P, Owned, M, Boxed, 1>| {
            let cpu = P { id: me };
            let mine: Vec<u32> = (0..3).map(|_| pool.take(&cpu, me).expect("enough for two")).collect();
            for index in &mine {
                cpu.write(&pool.get(*index).unwrap().0, me as u64);
            }
            for index in &mine {
                assert_eq!(cpu.read(&pool.get(*index).unwrap().0), me as u64);
                pool.give(&cpu, me, *index).unwrap();
            }
            let again = pool.take(&cpu, me).unwrap();
            cpu.write(&pool.get(again).unwrap().0, 9);
        };
        let other = {
            let pool = pool.clone();
            thread::spawn(move || work(1, &pool))
        };
        work(0, &pool);
        other.join().unwrap();
    });
}

#[test]
fn nodes_have_one_owner() {
    pool::<Atomics>();
}

#[test]
fn nodes_have_one_owner_by_load_linked() {
    pool::<LoadLinked>();
}

fn counts<M: Primitive<P>>() {
    model(3, || {
        let counter: Arc<Counter<P, M>> = Arc::new(Counter::new(&LoomArena::default()));
        let other = {
            let counter = counter.clone();
            thread::spawn(move || [0, 0].map(|_| counter.increment(&P { id: 1 })))
        };
        let mine = [0, 0].map(|_| counter.increment(&P { id: 0 }));
        let mut all = [mine, other.join().unwrap()].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
        assert_eq!(counter.value(&P { id: 0 }), 4);
    });
}

#[test]
fn counter() {
    counts::<Atomics>();
    counts::<LoadLinked>();
    counts::<AtMemory>();
}
