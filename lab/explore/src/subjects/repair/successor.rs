//! A successor with a dead participant's number, which dies in its turn.
//!
//! Thread 1 dies in a double compare-and-swap, which thread 0 rolls. Thread 2 writes as the dead
//! one's participant, and dies under the lock without a record of its own: what thread 1 had begun
//! is not rolled once more.

use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::harness::{Both, Case};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_structures::dcas::{Actor, Bershad, DoubleCas};
use towpath_sync::{Policy, Wait};

use super::super::robust::turns::{await_stage, reach};
use super::super::structures::WordsSubject;
use super::super::{BUDGET, ExploredMember};

/// The participant that dies, and has a successor.
const DYING: usize = 1;
/// Value of thread 0 in the first word.
const WRITTEN: u64 = 10;

/// Its subject.
pub(super) fn all(cases: &mut Vec<Case>, policy: Policy) {
    let about = "what a dead one has begun is rolled once, whatever becomes of its successor";
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        if plan.threads < 3 {
            return Err("is for three threads".into());
        }
        let words = (0..3).map(|_| memory.word(Place::NewLine, 0)).collect();
        let stages = [0, 1, 2].map(|_| memory.word(Place::NewLine, 0));
        let it = WordsSubject { words, dcas: Bershad::new(memory, plan.threads), policy };
        Ok(Rc::new(SuccessorRun { it, stages }))
    };
    cases.push(Case::new("repair/dcas-bershad-successor", about, make));
}

struct SuccessorRun {
    it: WordsSubject<Bershad<Explorer>>,
    /// Each thread has done its part.
    stages: [Word; 3],
}

impl SuccessorRun {
    /// Writes one of the words.
    fn write(&self, cpu: &Explorer, participant: usize, word: u32, value: u64) {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.it.policy, around: &around, budget: BUDGET };
        let actor = Actor { cpu, wait: &wait, me: participant };
        let written = self.it.dcas.write(&actor, &self.it.words[..], word, value);
        written.unwrap_or_else(|error| panic!("write: {error}"));
    }

    /// Takes the lock after each death, and looks at its own writes of in between.
    fn survive(&self, cpu: &Explorer) {
        let [mine, dying, successor] = &self.stages;
        await_stage(cpu, dying, DYING);
        self.write(cpu, 0, 0, WRITTEN);
        reach(cpu, mine);
        await_stage(cpu, successor, 2);
        self.write(cpu, 0, 2, 1);
        assert_eq!(self.it.read(cpu, 0), WRITTEN, "rolled once more");
    }
}

impl SubjectRun for SuccessorRun {
    fn thread(&self, cpu: &Explorer) {
        let [survivor, dying, successor] = &self.stages;
        match cpu.id() {
            0 => self.survive(cpu),
            DYING => {
                self.it.swap(cpu, [0; 2], [1; 2]);
                reach(cpu, dying);
            }
            2 => {
                if await_stage(cpu, survivor, 0) {
                    let participant = if cpu.is_dead(DYING) { DYING } else { 2 };
                    self.write(cpu, participant, 2, 2);
                }
                reach(cpu, successor);
            }
            _ => {}
        }
    }
}
