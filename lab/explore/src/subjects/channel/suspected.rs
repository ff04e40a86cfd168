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
use towpath_sync::Lock;
use towpath_sync::locks::TestAndSet;

use super::super::queue_memory::ExploredQueueMemory;
use super::super::spinning::SpinningWait;
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

impl SuspectedLock {
    pub fn new(plan: &Plan, memory: &ExploredMemory) -> SuspectedLock {
        SuspectedLock {
            memory: ExploredQueueMemory::new(memory, PACKETS, 0, 8),
            claim: Locked(Box::new(TestAndSet::new(memory))),
            intents: (0..plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect(),
            plan: *plan,
        }
    }

    /// Asks whether the lock is damaged: never, since it is sound.
    fn ask(&self, cpu: &Explorer, suspicion: &Suspicion) {
        let words = self.intents.iter().enumerate().map(|(endpoint, word)| (endpoint as u16, word));
        let gone = suspicion.is_abandoned(cpu, &self.memory.control.tail, 0, words, |_| true);
        assert!(!gone, "the lock is given up although it is sound");
    }
}

impl SubjectRun for SuspectedLock {
    fn thread(&self, cpu: &Explorer) {
        let (queue, me) = (self.memory.queue(0), cpu.id() as u16);
        let mut sender = Sender::new(me, 0, 0);
        let intent = &self.intents[cpu.id()];
        for n in 0..self.plan.ops {
            let suspicion = Suspicion::new(me);
            let wait =
                SpinningWait { last: |_: &Explorer| {}, between: |cpu: &Explorer| self.ask(cpu, &suspicion) };
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
