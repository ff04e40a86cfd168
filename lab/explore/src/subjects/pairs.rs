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
