//! Programs of a few accesses to two words, and their outcomes in the explorer.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use towpath_machine::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use towpath_machine::{Arena, Place, Processor, Random};
use towpath_schedules::harness::Case;
use towpath_schedules::{
    End, ExploredMemory, Explorer, LocatedFault, MemoryModel, Method, OpenCalls, Plan, SearchSettings,
    SubjectExtras, SubjectRun, Word, search,
};

/// An access of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Load(usize, Ordering),
    Store(usize, u64, Ordering),
    /// Adds a number.
    Update(usize, u64, Ordering),
    /// Replaces the first value by the second one.
    Compare(usize, u64, u64, Ordering, Ordering),
    Fence(Ordering),
}

pub fn load(word: usize, order: Ordering) -> Act {
    Act::Load(word, order)
}
pub fn store(word: usize, value: u64, order: Ordering) -> Act {
    Act::Store(word, value, order)
}
pub fn update(word: usize, add: u64, order: Ordering) -> Act {
    Act::Update(word, add, order)
}
pub fn fence(order: Ordering) -> Act {
    Act::Fence(order)
}

/// Threads.
#[derive(Clone, Debug)]
pub struct Program(pub Vec<Vec<Act>>);

/// Values that each thread's loads and updates took, and the last values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    pub taken: Vec<Vec<u64>>,
    pub last: [u64; 2],
}

impl Program {
    /// Two or three threads with two to four accesses each.
    pub fn random(seed: u64) -> Program {
        let random = RefCell::new(Random::new(seed));
        let below = |n| random.borrow_mut().below(n);
        let of = |orders: &[Ordering]| orders[below(orders.len() as u64) as usize];
        let threads = 2 + below(2);
        let accesses = if threads == 2 { 3 } else { 2 };
        // In some programs many accesses are sequentially consistent, in some none is.
        let strong = below(3);
        let mut value = 0;
        let act = |value: &mut u64| {
            let (word, is_strong) = (below(2) as usize, below(4) < strong);
            let order = |orders: &[Ordering]| if is_strong { SeqCst } else { of(orders) };
            *value += 1;
            match below(9) {
                0..=2 => Act::Load(word, order(&[Relaxed, Acquire])),
                3..=5 => Act::Store(word, *value, order(&[Relaxed, Release])),
                6 => Act::Update(word, 100, order(&[Relaxed, Acquire, Release, AcqRel])),
                7 => {
                    let failure = of(&[Relaxed, Acquire]);
                    Act::Compare(word, below(*value), *value, order(&[Relaxed, Release, AcqRel]), failure)
                }
                _ => Act::Fence(of(&[Acquire, Release, AcqRel, SeqCst])),
            }
        };
        let thread = |value: &mut u64| (0..accesses + below(2)).map(|_| act(value)).collect();
        Program((0..threads).map(|_| thread(&mut value)).collect())
    }
}

struct Running {
    program: Program,
    words: [Word; 2],
    taken: RefCell<Vec<Vec<u64>>>,
    last: RefCell<[u64; 2]>,
    seen: Rc<RefCell<BTreeSet<Outcome>>>,
}

impl SubjectRun for Running {
    fn thread(&self, cpu: &Explorer) {
        // By place: a thread that takes its steps again takes the same values.
        let mut place = 0;
        let mut took = |value| {
            let taken = &mut self.taken.borrow_mut()[cpu.id()];
            taken.resize(taken.len().max(place + 1), 0);
            taken[place] = value;
            place += 1;
        };
        for act in &self.program.0[cpu.id()] {
            match *act {
                Act::Load(word, order) => took(cpu.load(&self.words[word], order)),
                Act::Store(word, value, order) => cpu.store(&self.words[word], value, order),
                Act::Update(word, add, order) => took(cpu.fetch_add(&self.words[word], add, order)),
                Act::Compare(word, old, new, success, failure) => {
                    let result = cpu.compare_exchange(&self.words[word], old, new, success, failure);
                    took(result.unwrap_or_else(|found| found));
                }
                Act::Fence(order) => cpu.fence(order),
            }
        }
    }
    fn last(&self, cpu: &Explorer) {
        *self.last.borrow_mut() = [0, 1].map(|word| cpu.load(&self.words[word], Relaxed));
    }
    fn open_calls(&self, _end: &End) -> Option<OpenCalls> {
        Some(OpenCalls::default())
    }
    fn judge(&self, _end: &End) -> Result<(), LocatedFault> {
        let outcome = Outcome { taken: self.taken.borrow().clone(), last: *self.last.borrow() };
        self.seen.borrow_mut().insert(outcome);
        Ok(())
    }
}

/// The outcomes of all executions.
pub fn outcomes(program: &Program, memory: MemoryModel) -> BTreeSet<Outcome> {
    outcomes_with(program, memory, SubjectExtras::default())
}

/// The outcomes with these events and orders, too.
///
/// Where there are none of those, the search that merges states finds the same.
pub fn outcomes_with(program: &Program, memory: MemoryModel, extras: SubjectExtras) -> BTreeSet<Outcome> {
    let found = outcomes_by(program, memory, extras, Method::Dfs { preemptions: None });
    if extras == SubjectExtras::default() {
        let merged = outcomes_by(program, memory, extras, Method::States);
        assert_eq!(merged, found, "{program:?} under {memory:?}");
    }
    found
}

fn outcomes_by(
    program: &Program,
    memory: MemoryModel,
    extras: SubjectExtras,
    method: Method,
) -> BTreeSet<Outcome> {
    let seen: Rc<RefCell<BTreeSet<Outcome>>> = Rc::default();
    let (collected, of) = (seen.clone(), program.clone());
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        Ok(Rc::new(Running {
            program: of.clone(),
            words: [0, 1].map(|_| memory.word(Place::NewLine, 0)),
            taken: RefCell::new(vec![Vec::new(); plan.threads]),
            last: RefCell::default(),
            seen: seen.clone(),
        }))
    };
    let plan = Plan { threads: program.0.len(), ops: 1 };
    let settings = SearchSettings { memory, method, ..SearchSettings::new(plan, 100_000_000) };
    let case = Case { extras, ..Case::new("litmus", "", make) };
    let report = search(&case, &settings, &mut |_| {}).unwrap();
    assert!(report.exhausted && report.found.is_none(), "{program:?}: {report:?}");
    collected.take()
}
