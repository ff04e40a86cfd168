//! A stack that is audited while others take its nodes out and put them in again.
//!
//! One more participant has died before all began, after it had put a node in and before it struck
//! that out: the lower one of two. Thread 0 audits. While it is about to walk on from the upper
//! node, thread 1 takes that out, thread 2 puts another one in, which was the lowest once, and
//! thread 1 puts the former on top of it. An auditor that believes a link of the upper node's next
//! life, and then an old link of the other one, passes over the dead one's node and frees it,
//! though it is there.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_structures::dcas::{Actor, Change, DcasError, DoubleCas, Hardware, Words};
use towpath_structures::nonblocking::{Recover, Stack};
use towpath_sync::{Policy, Wait, Waiting};

use super::super::REPAIR;
use super::super::structures::actor;
use super::super::{BUDGET, ExploredMember, PAUSE};
use super::ENOUGH;

/// Number of nodes.
const NODES: usize = 3;
/// Number of threads, of the participants that prepare the stack, and of the dead one.
const THREADS: usize = 3;
const MAKERS: [usize; 2] = [THREADS, THREADS + 1];
const DEAD: usize = THREADS + 2;
/// Word of a stack whose changes its auditor looks for.
const VERSION: u32 = 0;

/// Its subject.
pub(super) fn all(cases: &mut Vec<Case>, policy: Policy) {
    let about = "a node that stays in the stack is found there, and nothing is lost";
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        if plan.threads < THREADS {
            return Err("is for three threads".into());
        }
        let run = WalkedStack { stack: Stack::new(memory, NODES, DEAD + 1), policy };
        run.begin(memory);
        Ok(Rc::new(run))
    };
    cases.push(Case::new(format!("{REPAIR}/stack-walked"), about, make));
}

/// A DCAS whose participants wait for each other.
///
/// The last one dies when it has made one.
struct Staged<D> {
    dcas: D,
    /// The auditor walks.
    walks: Word,
    /// The upper node is out.
    taken: Word,
    /// Another one is in.
    put: Word,
    /// The upper one is in again.
    done: Word,
    /// Number of times that the auditor has read the version.
    looks: AtomicU32,
    /// Number of changes by thread 1.
    changes: AtomicU32,
}

/// Waits for a stage that a participant reaches.
fn await_stage(cpu: &Explorer, stage: &Word) {
    // Relaxed, here and where it is reached: stages order nothing, so that an auditor sees no more
    // than without them.
    while cpu.load(stage, Ordering::Relaxed) == 0 {
        cpu.delay(PAUSE);
    }
}

fn reach(cpu: &Explorer, stage: &Word) {
    cpu.store(stage, 1, Ordering::Relaxed);
}

impl<D: DoubleCas<Explorer>> DoubleCas<Explorer> for Staged<D> {
    const NAME: &'static str = D::NAME;
    const BLOCKING: bool = D::BLOCKING;
    const MAX: u64 = D::MAX;
    const ADJACENT: bool = D::ADJACENT;

    fn new(arena: &impl Arena<Explorer>, participants: usize) -> Self {
        let stage = || arena.word(Place::NewLine, 0);
        Staged {
            dcas: D::new(arena, participants),
            walks: stage(),
            taken: stage(),
            put: stage(),
            done: stage(),
            looks: AtomicU32::new(0),
            changes: AtomicU32::new(0),
        }
    }
    fn participants(&self) -> usize {
        self.dcas.participants()
    }
    fn read<W: Waiting<Explorer>, T: Words<Explorer> + ?Sized>(
        &self,
        actor: &Actor<'_, Explorer, W>,
        words: &T,
        word: u32,
    ) -> Result<u64, DcasError> {
        let cpu = actor.cpu;
        // Relaxed, both: one thread's alone.
        match actor.me {
            1 if self.changes.load(Ordering::Relaxed) == 0 => await_stage(cpu, &self.walks),
            1 => await_stage(cpu, &self.put),
            2 => await_stage(cpu, &self.taken),
            _ => {}
        }
        let value = self.dcas.read(actor, words, word)?;
        if actor.me == 0 && word == VERSION && self.looks.fetch_add(1, Ordering::Relaxed) == 1 {
            reach(cpu, &self.walks);
            await_stage(cpu, &self.done);
        }
        Ok(value)
    }
    fn write<W: Waiting<Explorer>, T: Words<Explorer> + ?Sized>(
        &self,
        actor: &Actor<'_, Explorer, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        self.dcas.write(actor, words, word, value)
    }
    fn dcas<W: Waiting<Explorer>, T: Words<Explorer> + ?Sized>(
        &self,
        actor: &Actor<'_, Explorer, W>,
        words: &T,
        changes: [Change; 2],
    ) -> Result<bool, DcasError> {
        let is_done = self.dcas.dcas(actor, words, changes)?;
        match actor.me {
            // Relaxed: one thread's alone.
            1 if is_done && self.changes.fetch_add(1, Ordering::Relaxed) == 0 => {
                reach(actor.cpu, &self.taken)
            }
            1 if is_done => reach(actor.cpu, &self.done),
            2 if is_done => reach(actor.cpu, &self.put),
            DEAD => resume_unwind(Box::new("dies")),
            _ => {}
        }
        Ok(is_done)
    }
    fn recover<W: Waiting<Explorer>, T: Words<Explorer> + ?Sized>(
        &self,
        actor: &Actor<'_, Explorer, W>,
        words: &T,
        dead: usize,
    ) -> Result<(), DcasError> {
        self.dcas.recover(actor, words, dead)
    }
}

struct WalkedStack {
    stack: Stack<Explorer, Staged<Hardware<Explorer>>>,
    policy: Policy,
}

impl WalkedStack {
    /// Leaves the dead one's node in the stack, and one above that.
    ///
    /// The third is free, and was the lowest one.
    fn begin(&self, memory: &ExploredMemory) {
        let cpu = memory.at_rest();
        let around = ExploredMember { dead: memory.dead(), told: memory.told(), me: 1 };
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        let push = |me, value| self.stack.push(&Actor { cpu: &cpu, wait: &wait, me }, value);
        let [lowest, upper] = MAKERS;
        let popped =
            push(lowest, 1).and_then(|()| self.stack.pop(&Actor { cpu: &cpu, wait: &wait, me: lowest }));
        assert_eq!(popped, Ok(Some(1)));
        let died = catch_unwind(AssertUnwindSafe(|| push(DEAD, 2)));
        assert!(died.is_err(), "the last participant is alive");
        assert_eq!(push(upper, 3), Ok(()));
    }

    /// An audit. Returns the number of nodes of which it could not tell.
    fn audit(&self, cpu: &Explorer) -> usize {
        let audit = actor(self.policy, cpu, |me| self.stack.recover(me, |participant| participant == DEAD));
        audit.unwrap_or_else(|error| panic!("recover: {error}")).pending
    }
}

impl SubjectRun for WalkedStack {
    fn thread(&self, cpu: &Explorer) {
        let push = || actor(self.policy, cpu, |me| self.stack.push(me, 5));
        let done = match cpu.id() {
            0 => {
                self.audit(cpu);
                Ok(())
            }
            1 => actor(self.policy, cpu, |me| self.stack.pop(me)).and_then(|_| push()),
            2 => push(),
            _ => Ok(()),
        };
        done.unwrap_or_else(|error| panic!("{error}"));
    }

    fn last(&self, cpu: &Explorer) {
        let is_done = (0..ENOUGH).any(|_| self.audit(cpu) == 0);
        assert!(is_done, "suspects are pending though no thread acts");
        let inventory = actor(self.policy, cpu, |me| self.stack.inventory(me));
        let inventory = inventory.unwrap_or_else(|error| panic!("inventory: {error}"));
        assert_eq!(inventory.free + inventory.reachable, inventory.all, "nodes, free and in it, of all");
    }
}
