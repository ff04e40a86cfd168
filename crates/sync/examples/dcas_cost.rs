//! What a double compare-and-swap costs that nobody else is in the way of, beside one compare-and-swap with the loads of both words: the shortest of many batches.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use towpath_machine::{Heap, Native, OwnLine};
use towpath_sync::dcas::{Actor, Change, DoubleCas};
use towpath_sync::{Boxed, Spinning, for_each_dcas};

const BATCHES: usize = 2_000;
const BATCH: u64 = 500;

/// Nanoseconds each, in the shortest batch.
fn shortest(mut each: impl FnMut(u64)) -> f64 {
    let batch = || {
        let start = Instant::now();
        (0..BATCH).for_each(&mut each);
        start.elapsed().as_nanos() as u64
    };
    std::iter::repeat_with(batch).take(BATCHES).min().unwrap_or(0) as f64 / BATCH as f64
}

/// `words` words, of which an operation changes the first and one of the others in turn.
fn cost<D: DoubleCas<Native>>(cas: f64) {
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    for count in [2, 64] {
        let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let dcas = D::new(&Heap, 1);
        let ns = shortest(|turn| {
            let other = 1 + (turn % (count - 1)) as u32;
            let a = dcas.read(&actor, &words[..], 0).expect("there are two");
            let b = dcas.read(&actor, &words[..], other).expect("there are two");
            let step = |v: u64| (v + 1) & u64::from(u32::MAX);
            let changes =
                [Change { word: 0, old: a, new: step(a) }, Change { word: other, old: b, new: step(b) }];
            assert_eq!(dcas.dcas(&actor, &words[..], changes), Ok(true));
        });
        println!("{:10} {count:3} words: {ns:6.1} ns, {:.2} of a compare-and-swap", D::NAME, ns / cas);
    }
}

fn main() {
    let words = [0, 0].map(|value| OwnLine(AtomicU64::new(value)));
    let cas = shortest(|_| {
        let (a, b) = (words[0].load(Ordering::Acquire), words[1].load(Ordering::Acquire));
        let done = words[0].compare_exchange(a, black_box(a + b + 1), Ordering::AcqRel, Ordering::Acquire);
        assert!(done.is_ok());
    });
    println!("one compare-and-swap and two loads: {cas:.1} ns");
    for_each_dcas!([atomics] Native, Boxed => cost(cas));
}
