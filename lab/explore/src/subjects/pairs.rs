//! DCAS of three words, two at a time: helpers meet operations on other words each time.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::harness::{Both, Case};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_structures::Boxed;
use towpath_structures::dcas::{Change, DcasError, DoubleCas, Guerraoui, Harris};
use towpath_sync::Policy;

use super::structures::{Shrunk, WordsSubject, actor};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    pairs::<Guerraoui<Explorer, Boxed, Shrunk>>(cases, policy);
    pairs::<Harris<Explorer, Boxed, 2>>(cases, policy);
    late_help::<Harris<Explorer, Boxed, 2>>(cases, policy);
}

fn pairs<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let words = (0..WORDS).map(|_| memory.word(Place::NewLine, 0)).collect();
        let subject = WordsSubject { words, dcas: D::new(memory, plan.threads), policy };
        Ok(Rc::new(PairsRun { subject, counts: Default::default(), plan: *plan }))
    };
    let name = format!("repair/pairs-{}", D::NAME);
    cases.push(Case::new(name, "each change changes its two words once", make));
}

const WORDS: usize = 3;

/// Threads that add one to two of the words, other ones each time.
struct PairsRun<D> {
    subject: WordsSubject<D>,
    /// Number of changes of each word, kept by the host.
    counts: [Cell<u64>; WORDS],
    plan: Plan,
}

impl<D: DoubleCas<Explorer>> PairsRun<D> {
    fn add(&self, cpu: &Explorer, pair: [usize; 2]) {
        let WordsSubject { words, dcas, policy } = &self.subject;
        loop {
            let old = pair.map(|word| self.subject.read(cpu, word));
            let change = |n: usize| Change { word: pair[n] as u32, old: old[n], new: old[n] + 1 };
            match actor(*policy, cpu, |me| dcas.dcas(me, &words[..], [change(0), change(1)])) {
                Ok(true) => break,
                Ok(false) | Err(DcasError::Abandoned) => {}
                Err(error) => panic!("add: {error}"),
            }
        }
        pair.iter().for_each(|word| self.counts[*word].set(self.counts[*word].get() + 1));
    }
}

impl<D: DoubleCas<Explorer>> SubjectRun for PairsRun<D> {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let without = (cpu.id() + n) % WORDS;
            self.add(cpu, [(without + 1) % WORDS, (without + 2) % WORDS]);
        }
    }
    fn last(&self, cpu: &Explorer) {
        if cpu.deaths() > 0 {
            return;
        }
        for (word, count) in self.counts.iter().enumerate() {
            assert_eq!(self.subject.read(cpu, word), count.get(), "changes of word {word}");
        }
    }
}

fn late_help<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let words = (0..WORDS).map(|_| memory.word(Place::NewLine, 0)).collect();
        let subject = WordsSubject { words, dcas: D::new(memory, plan.threads), policy };
        Ok(Rc::new(LateHelp { subject, plan: *plan }))
    };
    let name = format!("repair/late-help-{}", D::NAME);
    cases.push(Case::new(name, "a helper that comes late changes nothing", make));
}

/// Changes of the first two words by thread 0, if the second is 1.
///
/// Thread 2 makes it 1 now and then. Thread 1 comes to the first word, and helps.
struct LateHelp<D> {
    subject: WordsSubject<D>,
    plan: Plan,
}

impl<D: DoubleCas<Explorer>> LateHelp<D> {
    fn change(&self, cpu: &Explorer, changes: [(u32, u64, u64); 2]) -> bool {
        let WordsSubject { words, dcas, policy } = &self.subject;
        let changes = changes.map(|(word, old, new)| Change { word, old, new });
        match actor(*policy, cpu, |me| dcas.dcas(me, &words[..], changes)) {
            Ok(done) => done,
            Err(error) => panic!("change: {error}"),
        }
    }
}

impl<D: DoubleCas<Explorer>> SubjectRun for LateHelp<D> {
    fn thread(&self, cpu: &Explorer) {
        for _ in 0..self.plan.ops {
            match cpu.id() {
                0 => {
                    if self.change(cpu, [(0, 0, 1), (1, 1, 2)]) {
                        assert_eq!(self.subject.read(cpu, 0), 1);
                        while !self.change(cpu, [(0, 1, 0), (1, 2, 0)]) {}
                    }
                    assert_eq!(self.subject.read(cpu, 0), 0);
                }
                1 => assert!(!self.change(cpu, [(0, 5, 6), (2, 5, 6)]), "no word is 5"),
                _ => {
                    self.change(cpu, [(1, 0, 1), (2, 0, 0)]);
                    self.change(cpu, [(1, 1, 0), (2, 0, 0)]);
                }
            }
        }
    }

    fn last(&self, cpu: &Explorer) {
        assert_eq!([0, 2].map(|word| self.subject.read(cpu, word)), [0, 0]);
        self.subject.read(cpu, 1);
    }
}
