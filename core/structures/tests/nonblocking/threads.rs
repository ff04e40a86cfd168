//! Tests against models, one after the other; between threads; in zeroed and hostile
//! memory.

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use towpath_machine::{Concurrent, Heap, Native};
use towpath_structures::dcas::{
    Actor, Adjacent, Bershad, Change, DcasError, DoubleCas, Guerraoui, Harris, Locked,
};
use towpath_structures::nonblocking::{
    ArrayFifo, ArrayStack, Fifo, HarrisMichaelList, HashMap, List, PriorityQueue, Recover, StableError, Stack,
};
use towpath_structures::{Boxed, InPlace, for_each_dcas};
use towpath_sync::{Alone, Policy, Spinning, Wait};

use crate::for_each_structure;
use crate::models::{Model, Op};
use crate::subjects::{SmallPageMap, Subject, TwoWords};

const WAIT: Wait = Wait { policy: Policy::SpinThenYield, around: &Alone, budget: 1_000 };

fn operation() -> impl Strategy<Value = Op> {
    let key = 0..8u64;
    prop_oneof![
        4 => (key.clone(), 1..100u64).prop_map(|(k, v)| Op::Put(k, v)),
        3 => key.clone().prop_map(Op::Take),
        2 => (0..2u64).prop_map(Op::Get),
    ]
}

fn like_the_model<T: Subject<Native>>(operations: &[(usize, Op)], capacity: usize) {
    let subject = T::new(&Heap, capacity, 3);
    let mut model = T::Model::default();
    let cpu = Native::with_id(0);
    for (me, op) in operations {
        let actor = Actor { cpu: &cpu, wait: &Spinning, me: *me };
        match subject.act(&actor, *op) {
            Ok(answer) => assert_eq!(answer, model.apply(*op), "{}: {op:?}", T::name()),
            Err(error) => {
                assert_eq!(error, StableError::Exhausted, "{}: {op:?}", T::name());
                assert!(matches!(op, Op::Put(..)), "{}: {op:?}", T::name());
                let inventory = subject.inventory(&actor).unwrap();
                assert_eq!(inventory.free, 0, "{}: full with {}", T::name(), model.len());
            }
        }
    }
    let inventory = subject.inventory(&Actor { cpu: &cpu, wait: &Spinning, me: 0 }).unwrap();
    assert_eq!(inventory.free + inventory.reachable, inventory.all, "{}", T::name());
}

/// Three of them over each DCAS.
fn some_over<D: DoubleCas<Native>>(operations: &[(usize, Op)], capacity: usize) {
    like_the_model::<TwoWords<Native, D>>(operations, capacity);
    like_the_model::<Fifo<Native, D>>(operations, capacity);
    like_the_model::<HashMap<Native, D>>(operations, capacity);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn one_after_the_other_they_are_their_models(
        operations in prop::collection::vec((0..3usize, operation()), 1..200),
        capacity in 1..12usize,
    ) {
        for_each_structure!(Native, Guerraoui<Native> => like_the_model(&operations, capacity));
        for_each_dcas!([atomics] Native, Boxed => some_over(&operations, capacity));
        like_the_model::<HarrisMichaelList<Native>>(&operations, capacity);
    }
}

/// Each thread adds one to a word of its own and to one that all share, or takes both
/// back: the sums agree, at the end and (where values are not tentative) for a reader in between.
fn sums<D: DoubleCas<Native>>(threads: usize, rounds: u64) {
    let words: Vec<AtomicU64> = (0..=threads).map(|_| AtomicU64::new(0)).collect();
    let dcas = D::new(&Heap, threads);
    let done = std::thread::scope(|scope| {
        let work = |me: usize| {
            let (words, dcas) = (&words[..], &dcas);
            move || {
                let cpu = Native::with_id(me as u32);
                let actor = Actor { cpu: &cpu, wait: &WAIT, me };
                let mine = me as u32 + 1;
                let mut done = 0;
                for round in 0..rounds {
                    loop {
                        let all = dcas.read(&actor, words, 0).unwrap();
                        let own = dcas.read(&actor, words, mine).unwrap();
                        assert_eq!(own, done, "{}", D::NAME);
                        let step = |v: u64| if round % 4 == 3 { v - 1 } else { v + 1 };
                        if round % 4 == 3 && all == 0 {
                            assert_eq!(D::NAME, "bershad", "less than there is of me");
                            continue;
                        }
                        let changes = [
                            Change { word: 0, old: all, new: step(all) },
                            Change { word: mine, old: own, new: step(own) },
                        ];
                        if dcas.dcas(&actor, words, changes).unwrap() {
                            done = step(own);
                            break;
                        }
                    }
                }
                done
            }
        };
        let threads: Vec<_> = (0..threads).map(|me| scope.spawn(work(me))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum::<u64>()
    });
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &WAIT, me: 0 };
    assert_eq!(dcas.read(&actor, &words[..], 0), Ok(done), "{}", D::NAME);
    assert_eq!(done, threads as u64 * rounds / 2, "{}", D::NAME);
}

#[test]
fn changes_are_made_together() {
    for_each_dcas!([atomics] Native, Boxed => sums(3, 8_000));
    for_each_dcas!([atomics] Native, Boxed => sums(8, 2_000));
}

/// Puts in and takes out, in each thread, keys of its own; in the end it is empty, and
/// every descriptor is there.
fn nothing_is_lost<T: Subject<Native> + Sync>(threads: usize, rounds: u64) {
    let subject = T::new(&Heap, 4 * threads, threads);
    let sums: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let work = |me: usize| {
            let subject = &subject;
            move || {
                let cpu = Native::with_id(me as u32);
                let actor = Actor { cpu: &cpu, wait: &WAIT, me };
                let (mut put, mut took) = (0, 0);
                for round in 0..rounds {
                    let key = round % 2 * threads as u64 + me as u64;
                    put += round + 1;
                    assert_eq!(
                        subject.act(&actor, Op::Put(key, round + 1)).map(|_| ()),
                        Ok(()),
                        "{}",
                        T::name()
                    );
                    let mut answer = None;
                    while answer.is_none() {
                        answer = subject.act(&actor, Op::Take(key)).unwrap();
                    }
                    took += answer.unwrap() & u64::from(u32::MAX);
                }
                (put, took)
            }
        };
        let threads: Vec<_> = (0..threads).map(|me| scope.spawn(work(me))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let (put, took) = sums.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    assert_eq!(put, took, "{}", T::name());
    let cpu = Native::with_id(0);
    let inventory = subject.inventory(&Actor { cpu: &cpu, wait: &WAIT, me: 0 }).unwrap();
    assert_eq!(inventory.free + inventory.reachable, inventory.all, "{}", T::name());
    assert!(inventory.reachable <= 4, "{}: {inventory:?}", T::name());
}

/// All structures: `None` of a `Take` means to try again; a key that a map is asked for
/// is there.
fn all_structures<D: DoubleCas<Native>>(rounds: u64) {
    nothing_is_lost::<Stack<Native, D>>(4, rounds);
    nothing_is_lost::<Fifo<Native, D>>(4, rounds);
    nothing_is_lost::<ArrayStack<Native, D>>(4, rounds);
    nothing_is_lost::<ArrayFifo<Native, D>>(4, rounds);
    nothing_is_lost::<List<Native, D>>(4, rounds);
    nothing_is_lost::<HashMap<Native, D>>(4, rounds);
    nothing_is_lost::<PriorityQueue<Native, D>>(4, rounds);
    nothing_is_lost::<SmallPageMap<Native, D>>(4, rounds / 8);
}

#[test]
fn between_threads_nothing_is_lost() {
    all_structures::<Guerraoui<Native>>(4_000);
    nothing_is_lost::<List<Native, Harris<Native>>>(4, 1_000);
    nothing_is_lost::<List<Native, Locked<Native>>>(4, 1_000);
    nothing_is_lost::<HarrisMichaelList<Native>>(4, 4_000);
}

type Room = InPlace<17, 3>;

/// A value of a plain type, all bytes of which are the same.
fn filled<T: Concurrent>(byte: u8) -> Box<T> {
    let mut it = Box::new(std::mem::MaybeUninit::<T>::uninit());
    // SAFETY: every bit pattern is a valid value of a `Concurrent` type, and all bytes are written.
    unsafe {
        it.as_mut_ptr().write_bytes(byte, 1);
        it.assume_init()
    }
}

macro_rules! for_each_plain {
    ($dcas:ty => $each:ident $arguments:tt) => {
        $each::<Stack<Native, $dcas, Room>> $arguments;
        $each::<Fifo<Native, $dcas, Room>> $arguments;
        $each::<ArrayStack<Native, $dcas, Room>> $arguments;
        $each::<ArrayFifo<Native, $dcas, Room>> $arguments;
        $each::<List<Native, $dcas, Room>> $arguments;
        $each::<HashMap<Native, $dcas, Room>> $arguments;
        $each::<PriorityQueue<Native, $dcas, Room>> $arguments;
        $each::<SmallPageMap<Native, $dcas, Room>> $arguments;
    };
}

fn works_from_zeroes<T: Subject<Native> + Concurrent>() {
    let subject = filled::<T>(0);
    let mut model = T::Model::default();
    let cpu = Native::with_id(0);
    for round in 0..100 {
        for op in
            [Op::Put(round % 5, round + 1), Op::Put(round % 3, 7), Op::Take(round % 4), Op::Take(round % 3)]
        {
            let actor = Actor { cpu: &cpu, wait: &Spinning, me: round as usize % 3 };
            match subject.act(&actor, op) {
                Ok(answer) => assert_eq!(answer, model.apply(op), "{}: {op:?}", T::name()),
                Err(error) => assert_eq!(error, StableError::Exhausted, "{}", T::name()),
            }
        }
    }
}

#[test]
fn zeroed_memory_is_empty() {
    for_each_plain!(Guerraoui<Native, Room> => works_from_zeroes());
    works_from_zeroes::<List<Native, Harris<Native, Room>, Room>>();
    works_from_zeroes::<List<Native, Locked<Native, Room>, Room>>();
    works_from_zeroes::<List<Native, Bershad<Native, Room>, Room>>();
    works_from_zeroes::<HarrisMichaelList<Native, Room>>();
}

/// Every word holds the same nonsense: the answer is an error or a number, not a panic,
/// and it comes.
fn survives<T: Subject<Native> + Concurrent>(byte: u8) {
    let subject = filled::<T>(byte);
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    for op in [Op::Put(1, 7), Op::Take(1), Op::Get(1), Op::Put(2, 8)] {
        let _ = subject.act(&actor, op);
    }
    let _ = subject.recover(&actor, |p| p == 1);
    let _ = subject.inventory(&actor);
}

#[test]
fn nonsense_in_memory_is_no_panic() {
    for byte in [0x01, 0x5a, 0x7f, 0x80, 0xa5, 0xc3, 0xff] {
        for_each_plain!(Guerraoui<Native, Room> => survives(byte));
        survives::<List<Native, Harris<Native, Room>, Room>>(byte);
        survives::<Fifo<Native, Harris<Native, Room>, Room>>(byte);
        survives::<HarrisMichaelList<Native, Room>>(byte);
    }
}

fn refuses<D: DoubleCas<Native>>() {
    let words = [0, 0].map(AtomicU64::new);
    let dcas = D::new(&Heap, 2);
    let cpu = Native::with_id(0);
    let by = |me| Actor { cpu: &cpu, wait: &Spinning, me };
    let change = |word, old, new| Change { word, old, new };
    let (a, b) = (change(0, 0, 1), change(1, 0, 1));
    assert_eq!(dcas.dcas(&by(0), &words[..], [a, a]), Err(DcasError::SameWord), "{}", D::NAME);
    assert_eq!(dcas.dcas(&by(2), &words[..], [a, b]), Err(DcasError::UnknownParticipant), "{}", D::NAME);
    assert_eq!(dcas.dcas(&by(0), &words[..], [a, change(2, 0, 1)]), Err(DcasError::Corrupt), "{}", D::NAME);
    assert_eq!(dcas.read(&by(0), &words[..], 9), Err(DcasError::Corrupt), "{}", D::NAME);
    if D::MAX < u64::MAX {
        let large = change(1, 0, D::MAX + 1);
        assert_eq!(dcas.dcas(&by(0), &words[..], [a, large]), Err(DcasError::TooLarge), "{}", D::NAME);
        assert_eq!(dcas.write(&by(0), &words[..], 0, D::MAX + 1), Err(DcasError::TooLarge), "{}", D::NAME);
    }
    let top = change(1, 0, D::MAX);
    assert_eq!(dcas.dcas(&by(1), &words[..], [a, top]), Ok(true), "{}", D::NAME);
    assert_eq!(dcas.read(&by(0), &words[..], 1), Ok(D::MAX), "{}", D::NAME);
    assert_eq!(dcas.dcas(&by(0), &words[..], [a, top]), Ok(false), "{}", D::NAME);
    assert_eq!(dcas.write(&by(0), &words[..], 1, 0), Ok(()), "{}", D::NAME);
    assert_eq!(dcas.dcas(&by(0), &words[..], [change(0, 1, 2), b]), Ok(true), "{}", D::NAME);
}

/// Two words beside each other: without an instruction for them, all that uses it says
/// so.
#[test]
fn two_words_beside_each_other() {
    #[repr(align(16))]
    struct Aligned([AtomicU64; 4]);
    let aligned = Aligned([0, 0, 0, 0].map(AtomicU64::new));
    let words = &aligned.0;
    let dcas = Adjacent::<Native>::new(&Heap, 1);
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    let change = |word, old, new| Change { word, old, new };
    let both = |a, b| dcas.dcas(&actor, &words[..], [a, b]);
    let fifo: Fifo<Native, Adjacent<Native>> = Fifo::new(&Heap, 4, 1);
    assert_eq!(fifo.push(&actor, 1), Err(StableError::Unsuited));
    if both(change(0, 0, 1), change(1, 0, u64::MAX)) == Err(DcasError::Unsuited) {
        let stack: Stack<Native, Adjacent<Native>> = Stack::new(&Heap, 4, 1);
        assert_eq!(stack.push(&actor, 1), Err(StableError::Unsuited));
        return;
    }
    // In either order.
    assert_eq!(both(change(1, u64::MAX, 2), change(0, 1, 3)), Ok(true));
    assert_eq!(both(change(0, 1, 3), change(1, 2, 3)), Ok(false));
    assert_eq!([0, 1].map(|word| dcas.read(&actor, &words[..], word)), [Ok(3), Ok(2)]);
    assert_eq!(both(change(1, 2, 0), change(2, 0, 0)), Err(DcasError::Unsuited));
    assert_eq!(both(change(0, 3, 0), change(0, 3, 1)), Err(DcasError::SameWord));
    assert_eq!(both(change(0, 3, 0), change(4, 0, 1)), Err(DcasError::Corrupt));
    nothing_is_lost::<Stack<Native, Adjacent<Native>>>(4, 2_000);
    works_from_zeroes::<Stack<Native, Adjacent<Native, Room>, Room>>();
    for byte in [0x01, 0x7f, 0x80, 0xff] {
        survives::<Stack<Native, Adjacent<Native, Room>, Room>>(byte);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for_each_dcas!([atomics] Native, Boxed => refuses());
}

/// Map that is a cache: never runs out, but writes entries back.
#[test]
fn a_cache_writes_back() {
    let map: HashMap<Native, Guerraoui<Native>> = HashMap::new(&Heap, 10, 8, 1);
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    let mut written_back = std::collections::BTreeMap::new();
    for key in 0..100 {
        let there =
            map.insert_evicting(&actor, key, key + 1, |k, v| assert_eq!(written_back.insert(k, v), None));
        assert_eq!(there, Ok(None));
    }
    assert_eq!(map.insert(&actor, 200, 1), Err(StableError::Exhausted));
    map.for_each(&actor, |k, v| written_back.insert(k, v).is_none()).unwrap();
    assert!(written_back.into_iter().eq((0..100).map(|key| (key, key + 1))));
}

/// A page map of the paper's size; a region is unloaded as a whole.
#[test]
fn pages() {
    type Pages = towpath_structures::nonblocking::PageMap<Native, Guerraoui<Native>>;
    let run = || {
        let pages = Pages::new(&Heap, 3, 1);
        let cpu = Native::with_id(0);
        let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
        let last = 128 * 128 * 64 - 1;
        for (page, frame) in [(0, 1), (63, 2), (64, 3), (last, 4)] {
            assert_eq!(pages.map(&actor, page, frame), Ok(None));
            assert_eq!(pages.get(&actor, page), Ok(Some(frame)));
        }
        assert_eq!(pages.map(&actor, 1000, 5), Err(StableError::Exhausted));
        assert_eq!(pages.map(&actor, last + 1, 5), Err(StableError::TooLarge));
        assert_eq!(pages.map(&actor, 63, 9), Ok(Some(2)));
        let mut written = Vec::new();
        assert_eq!(pages.unload(&actor, 5, |page, frame| written.push((page, frame))), Ok(true));
        assert_eq!(written, [(0, 1), (63, 9)]);
        assert_eq!(pages.get(&actor, 63), Ok(None));
        assert_eq!(pages.map(&actor, 1000, 5), Ok(None));
        assert_eq!(pages.get(&actor, 64), Ok(Some(3)));
        let inventory = pages.inventory(&actor).unwrap();
        assert_eq!((inventory.free, inventory.reachable), (0, 3));
    };
    // 16,384 regions are made on the stack.
    std::thread::Builder::new().stack_size(16 << 20).spawn(run).unwrap().join().unwrap();
}
