//! Senders in front of a lock that names no holder, each of which asks again and again
//! whether its words are damaged.
//!
//! They are not, and no thread dies: so no answer may ever be that the lock is given up, whatever a
//! waiter has seen or missed. Each sender claims packets, of which there are enough for all.

use towpath_channel::claim::{Claim, Locked};
use towpath_channel::packet::{Form, Header};
use towpath_channel::queue::{Sender, TICKET, intent};
use towpath_channel::suspicion::{HOLDS, Suspicion};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::locks::TestAndSet;
use towpath_sync::{Abandoned, Lock, Waiting};

use super::super::PAUSE;
use super::super::queue_memory::ExploredQueueMemory;
use towpath_schedules::Word;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};

/// Packets: enough for all threads' operations.
pub(super) const PACKETS: usize = 32;

/// A queue without a receiver, and its senders.
pub(super) struct SuspectedLock {
    memory: ExploredQueueMemory,
    claim: Locked<Box<TestAndSet<Explorer>>>,
    intents: Vec<Word>,
    plan: Plan,
}

/// Wait that asks at each turn.
struct AskingWait<'a> {
    of: &'a SuspectedLock,
    suspicion: Suspicion,
}

impl Waiting<Explorer> for AskingWait<'_> {
    fn parks(&self) -> bool {
        false
    }
    fn wait_until(
        &self,
        cpu: &Explorer,
        word: &Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        // (S1) Acquire: as this says of itself; pairs with the releases of the word.
        cpu.spin_until(word, Ordering::Acquire, u64::MAX, done).map_err(|_| Abandoned)
    }
    fn back_off(&self, cpu: &Explorer, _round: u32) -> Result<(), Abandoned> {
        let words = self.of.intents.iter().enumerate().map(|(endpoint, word)| (endpoint as u16, word));
        let gone = self.suspicion.is_abandoned(cpu, &self.of.memory.control.tail, 0, words, |_| true);
        assert!(!gone, "the lock is given up although it is sound");
        cpu.delay(PAUSE);
        Ok(())
    }
    fn attempts_before_queueing(&self, _cpu: &Explorer) -> u32 {
        0
    }
    fn wait_turn(&self, cpu: &Explorer, _word: &Word, _seen: u64, _round: u32, _turn: u64) {
        cpu.delay(PAUSE);
    }
    fn release(&self, cpu: &Explorer, word: &Word, value: u64) {
        // (S2) Release: as this says of itself; pairs with (S1).
        cpu.store(word, value, Ordering::Release);
    }
    fn release_some(&self, cpu: &Explorer, word: &Word, value: u64, _count: u32) {
        self.release(cpu, word, value);
    }
}

impl SuspectedLock {
    pub fn new(plan: &Plan, memory: &ExploredMemory) -> SuspectedLock {
        SuspectedLock {
            memory: ExploredQueueMemory::new(memory, PACKETS, 0, 8),
            claim: Locked(Box::new(TestAndSet::new(memory))),
            intents: (0..plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect(),
            plan: *plan,
        }
    }
}

impl SubjectRun for SuspectedLock {
    fn thread(&self, cpu: &Explorer) {
        let (queue, me) = (self.memory.queue(0), cpu.id() as u16);
        let mut sender = Sender::new(me, 0, 0);
        let intent = &self.intents[cpu.id()];
        for n in 0..self.plan.ops {
            let wait = AskingWait { of: self, suspicion: Suspicion::new(me) };
            let ticket = self.claim.claim(&queue, &mut sender, cpu, &wait, intent);
            let ticket = ticket.unwrap_or_else(|error| panic!("claim: {error:?}"));
            cpu.write(&queue.slot(ticket).tag, n as u64);
            let header = Header::new(Form::Short, 0, 4, 0);
            self.claim.publish(&queue, &mut sender, cpu, false, intent, ticket, header);
        }
    }

    fn last(&self, cpu: &Explorer) {
        // Relaxed, both: all others have ended.
        let tail = cpu.load(&self.memory.control.tail, Ordering::Relaxed) & TICKET;
        assert_eq!(tail, (self.plan.threads * self.plan.ops) as u64, "packets that were claimed");
        let held =
            |word: &Word| cpu.load(word, Ordering::Relaxed) == intent::encode(0, intent::LOCKING, HOLDS);
        assert!(!self.intents.iter().any(held), "a sender says that it has the lock");
    }
}
