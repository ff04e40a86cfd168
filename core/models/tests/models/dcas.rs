//! Every DCAS under the model checker, the stacks of type-stable memory, and structures
//! over a DCAS: two threads, one or two operations each.

use loom::sync::Arc;
use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomProcessor, Place, Processor};
use towpath_structures::dcas::{
    Actor, Bershad, Change, DoubleCas, Guerraoui, GuerraouiVariant, Harris, Locked,
};
use towpath_structures::nonblocking::{Fifo, HarrisMichaelList, List, Pool, Recover, Stack};
use towpath_structures::{Boxed, Node};
use towpath_sync::Spinning;

type P = LoomProcessor;

/// Stack of a thread that makes a DCAS, in words: its descriptors pass through there,
/// since models are not optimised.
const STACK: usize = 1 << 16;

/// Runs `body` under the model checker, on a large stack.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let body = std::sync::Arc::new(body);
    towpath_testkit::model(preemptions, move || {
        let body = body.clone();
        thread::Builder::new().stack_size(STACK).spawn(move || body()).unwrap().join().unwrap();
    });
}

/// Two descriptors per participant, so that they are used again.
struct Shrunk;

impl GuerraouiVariant for Shrunk {
    const PLACES: usize = 2;
}

type Small = Guerraoui<P, Boxed, Shrunk>;

struct Words<D> {
    words: Vec<<P as Processor>::Word>,
    dcas: D,
}

impl<D: DoubleCas<P>> Words<D> {
    fn new() -> Arc<Self> {
        let words = (0..3).map(|_| LoomArena::default().word(Place::NewLine, 0)).collect();
        Arc::new(Words { words, dcas: D::new(&LoomArena::default(), 2) })
    }
    fn read(&self, me: usize, word: u32) -> u64 {
        self.dcas.read(&Actor { cpu: &P { id: me }, wait: &Spinning, me }, &self.words[..], word).unwrap()
    }
    fn dcas(&self, me: usize, a: (u32, u64, u64), b: (u32, u64, u64)) -> bool {
        let change = |(word, old, new)| Change { word, old, new };
        let actor = Actor { cpu: &P { id: me }, wait: &Spinning, me };
        self.dcas.dcas(&actor, &self.words[..], [change(a), change(b)]).unwrap()
    }
}

/// Checks that of two that want the same word, one gets it, with the word beside it.
fn one_of_two<D: DoubleCas<P>>(preemptions: usize) {
    model(preemptions, || {
        let it = Words::<D>::new();
        let other = {
            let it = it.clone();
            thread::spawn(move || it.dcas(1, (1, 0, 2), (2, 0, 2)))
        };
        let mine = it.dcas(0, (0, 0, 1), (1, 0, 1));
        let theirs = other.join().unwrap();
        assert_ne!(mine, theirs);
        let expected = if mine { [1, 1, 0] } else { [0, 2, 2] };
        assert_eq!([0, 1, 2].map(|word| it.read(0, word)), expected);
    });
}

/// Both count both words up.
fn both_count<D: DoubleCas<P>>(preemptions: usize, each: u64) {
    model(preemptions, move || {
        let it = Words::<D>::new();
        let count = move |it: &Words<D>, me: usize| {
            for _ in 0..each {
                loop {
                    let (a, b) = (it.read(me, 0), it.read(me, 1));
                    if it.dcas(me, (0, a, a + 1), (1, b, b + 1)) {
                        break;
                    }
                    thread::yield_now();
                }
            }
        };
        let other = {
            let it = it.clone();
            thread::spawn(move || count(&it, 1))
        };
        count(&it, 0);
        other.join().unwrap();
        assert_eq!([0, 1].map(|word| it.read(0, word)), [2 * each, 2 * each]);
    });
}

/// Changes words there and back again: a DCAS that expects the old values must not find
/// half of them.
fn there_and_back<D: DoubleCas<P>>(preemptions: usize) {
    model(preemptions, || {
        let it = Words::<D>::new();
        let other = {
            let it = it.clone();
            thread::spawn(move || it.dcas(1, (0, 0, 5), (1, 0, 5)))
        };
        let there = it.dcas(0, (0, 0, 1), (1, 0, 1));
        let back = it.dcas(0, (0, 1, 0), (1, 1, 0));
        let again = it.dcas(0, (0, 0, 1), (1, 0, 1));
        let theirs = other.join().unwrap();
        assert_eq!(there, back);
        let end = [0, 1].map(|word| it.read(0, word));
        assert!(there || theirs, "no thread was in the way");
        let expected = if again { [1, 1] } else { [5, 5] };
        assert_eq!(end, expected, "{there} {back} {again} {theirs}");
        assert_eq!(theirs, !again);
    });
}

/// Checks that a reader that sees one change sees the other.
fn readers<D: DoubleCas<P>>(preemptions: usize) {
    for (first, second) in [(0, 1), (1, 0)] {
        model(preemptions, move || {
            let it = Words::<D>::new();
            let other = {
                let it = it.clone();
                thread::spawn(move || it.dcas(1, (0, 0, 1), (1, 0, 1)))
            };
            let (a, b) = (it.read(0, first), it.read(0, second));
            assert!(a <= b, "{a} of {first}, then {b} of {second}");
            assert!(other.join().unwrap());
        });
    }
}

#[test]
fn guerraoui() {
    one_of_two::<Small>(2);
    both_count::<Small>(1, 1);
    there_and_back::<Small>(1);
    readers::<Small>(1);
}

#[test]
#[ignore = "ten seconds"]
fn guerraoui_with_more_preemptions() {
    both_count::<Small>(2, 1);
    there_and_back::<Small>(2);
    readers::<Small>(2);
}

#[test]
fn harris() {
    one_of_two::<Harris<P>>(2);
    both_count::<Harris<P>>(1, 1);
    there_and_back::<Harris<P>>(1);
    readers::<Harris<P>>(2);
}

/// Checks the writers only: readers see tentative values.
#[test]
fn bershad() {
    one_of_two::<Bershad<P>>(2);
    there_and_back::<Bershad<P>>(1);
}

#[test]
fn locked() {
    one_of_two::<Locked<P>>(2);
    both_count::<Locked<P>>(1, 1);
    readers::<Locked<P>>(2);
}

/// A descriptor whose owner alone may touch it: loom sees if there are two.
struct Owned(<P as Processor>::Cell);

impl Node<P> for Owned {
    fn new(arena: &impl Arena<P>) -> Self {
        Owned(arena.cell(Place::SameLine, 0))
    }
}

#[test]
fn descriptors_have_one_owner() {
    model(2, || {
        // Fewer than both want at a time: they take from each other's lists.
        let pool: Arc<Pool<P, Owned>> = Arc::new(Pool::new(&LoomArena::default(), 2, 2));
        let work = |me: usize, pool: &Pool<P, Owned>| {
            let cpu = P { id: me };
            for _ in 0..2 {
                if let Ok(held) = pool.take(&cpu, me) {
                    cpu.write(&pool.get(held.node()).unwrap().0, me as u64);
                    assert_eq!(cpu.read(&pool.get(held.node()).unwrap().0), me as u64);
                    pool.give(&cpu, me, held).unwrap();
                }
            }
        };
        let other = {
            let pool = pool.clone();
            thread::spawn(move || work(1, &pool))
        };
        work(0, &pool);
        other.join().unwrap();
        assert_eq!(pool.free(&P { id: 0 }), Ok(2));
    });
}

macro_rules! exchange {
    ($name:ident, $structure:ty, $preemptions:literal, |$it:ident, $actor:ident, $v:ident| $put:expr, $take:expr) => {
        #[test]
        fn $name() {
            model($preemptions, || {
                let it: Arc<$structure> = Arc::new(<$structure>::new(&LoomArena::default(), 4, 2));
                let work = |$it: &$structure, me: usize| -> u64 {
                    let $actor = &Actor { cpu: &P { id: me }, wait: &Spinning, me };
                    let $v = me as u64 + 1;
                    $put.unwrap();
                    $take.unwrap().expect("I have put one in")
                };
                let other = {
                    let it = it.clone();
                    thread::spawn(move || work(&it, 1))
                };
                let mine = work(&it, 0);
                assert_eq!(mine + other.join().unwrap(), 3);
                let inventory = it.inventory(&Actor { cpu: &P { id: 0 }, wait: &Spinning, me: 0 }).unwrap();
                assert_eq!(inventory.free + inventory.reachable, inventory.all);
            });
        }
    };
}

exchange!(stack, Stack<P, Small>, 1, |it, actor, v| it.push(actor, v), it.pop(actor));
exchange!(fifo, Fifo<P, Small>, 1, |it, actor, v| it.push(actor, v), it.pop(actor));
exchange!(list, List<P, Small>, 1, |it, actor, v| it.insert(actor, v, v), it.remove(actor, v));
exchange!(
    harris_michael,
    HarrisMichaelList<P>,
    2,
    |it, actor, v| it.insert(actor, v, v),
    it.remove(actor, v)
);
