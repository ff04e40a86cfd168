//! DCAS of three words, two at a time: helpers meet operations on other words each time.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::harness::{Both, Case};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_structures::Boxed;
use towpath_structures::dcas::{Actor, Change, DcasError, DoubleCas, Guerraoui, Harris};
use towpath_sync::Policy;

use super::PAUSE;
use super::structures::{Shrunk, WordsSubject, actor};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    pairs::<Guerraoui<Explorer, Boxed, Shrunk>>(cases, policy);
    pairs::<Harris<Explorer, Boxed, 2>>(cases, policy);
    late_help::<Harris<Explorer, Boxed, 2>>(cases, policy);
    parts::<Harris<Explorer, Boxed, 2>>(cases, policy, PairPart::Writes);
    parts::<Guerraoui<Explorer, Boxed, Shrunk>>(cases, policy, PairPart::Succeeds);
}

/// Part of thread 0 beside threads that change pairs of words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PairPart {
    /// Writes the word that is in all pairs.
    Writes,
    /// Changes the first two words, and may die; thread 2 repairs then, and succeeds it.
    Succeeds,
}

fn parts<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy, part: PairPart) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let words = (0..WORDS).map(|_| memory.word(Place::NewLine, 0)).collect();
        let subject = WordsSubject { words, dcas: D::new(memory, plan.threads), policy };
        Ok(Rc::new(PartsRun { subject, part, changes: Cell::default(), ended: Cell::default(), plan: *plan }))
    };
    let (name, about) = match part {
        PairPart::Writes => ("written", "each change changes two words, or none"),
        PairPart::Succeeds => ("succeeded", "what a dead one's helper has changed stays changed"),
    };
    let endures_deaths = part == PairPart::Succeeds;
    let name = format!("repair/{name}-{}", D::NAME);
    cases.push(Case { endures_deaths, ..Case::new(name, about, make) });
}

/// Threads that change pairs of words, as their parts are.
struct PartsRun<D> {
    subject: WordsSubject<D>,
    part: PairPart,
    /// Number of changes of the first word and of the last one, kept by the host.
    changes: Cell<[u64; 2]>,
    /// Threads that have ended, a bit each, kept by the host.
    ended: Cell<u64>,
    plan: Plan,
}

impl<D: DoubleCas<Explorer>> PartsRun<D> {
    /// Adds one to two words, as this participant.
    fn add(&self, cpu: &Explorer, me: usize, pair: [usize; 2]) {
        let WordsSubject { words, dcas, policy } = &self.subject;
        loop {
            let old = pair.map(|word| self.subject.read(cpu, word));
            let change = |n: usize| Change { word: pair[n] as u32, old: old[n], new: old[n] + 1 };
            let done = actor(*policy, cpu, |actor| {
                dcas.dcas(&Actor { me, ..*actor }, &words[..], [change(0), change(1)])
            });
            if done.unwrap_or_else(|error| panic!("add: {error}")) {
                return;
            }
        }
    }

    fn has_ended(&self, thread: usize) -> bool {
        self.ended.get() >> thread & 1 == 1
    }

    /// Waits until thread 0 is dead. `false`: it has ended.
    fn outlives(&self, cpu: &Explorer) -> bool {
        while !self.has_ended(0) && !super::repair::is_dead(cpu, 0) {
            cpu.delay(PAUSE);
        }
        !self.has_ended(0)
    }

    /// Ends the operation of thread 0, which is dead, and takes its place.
    ///
    /// Late: when thread 1 has met that operation.
    fn succeed(&self, cpu: &Explorer) {
        while !self.has_ended(1) && !super::repair::is_dead(cpu, 1) {
            cpu.delay(PAUSE);
        }
        let WordsSubject { words, dcas, policy } = &self.subject;
        let recovered = actor(*policy, cpu, |actor| dcas.recover(&Actor { me: 0, ..*actor }, &words[..], 0));
        recovered.unwrap_or_else(|error| panic!("recover: {error}"));
        self.add(cpu, 0, [0, 2]);
    }
}

impl<D: DoubleCas<Explorer>> SubjectRun for PartsRun<D> {
    fn thread(&self, cpu: &Explorer) {
        let me = cpu.id();
        match (self.part, me) {
            (PairPart::Succeeds, 0) => {
                (0..self.plan.ops).for_each(|_| self.add(cpu, me, [0, 1]));
            }
            (PairPart::Succeeds, _) if !self.outlives(cpu) => {}
            (PairPart::Succeeds, 2) => self.succeed(cpu),
            (PairPart::Succeeds, _) => self.add(cpu, me, [0, 2]),
            (PairPart::Writes, 0) => {
                let WordsSubject { words, dcas, policy } = &self.subject;
                for n in 0..self.plan.ops as u64 {
                    let written = actor(*policy, cpu, |actor| dcas.write(actor, &words[..], 1, 100 * n));
                    written.unwrap_or_else(|error| panic!("write: {error}"));
                }
            }
            (PairPart::Writes, _) => {
                for n in 0..self.plan.ops {
                    let which = (n + me) % 2;
                    self.add(cpu, me, [[0, 1], [1, 2]][which]);
                    let mut changes = self.changes.get();
                    changes[which] += 1;
                    self.changes.set(changes);
                }
            }
        }
        self.ended.set(self.ended.get() | 1 << me);
    }
    fn last(&self, cpu: &Explorer) {
        let words = [0, 1, 2].map(|word| self.subject.read(cpu, word));
        match self.part {
            PairPart::Writes => assert_eq!([words[0], words[2]], self.changes.get(), "changes of two words"),
            PairPart::Succeeds => assert_eq!(words[0], words[1] + words[2], "a change of one word of two"),
        }
    }
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
