//! A queue's owner and others: senders that it stops, calls, and its progress.

use std::cell::Cell;

use towpath_channel::claim::{Algorithm, Any, Claim};
use towpath_channel::packet::{Form, Header, READY};
use towpath_channel::queue::{
    CLOSED, Census, Receiver, Sender, TICKET, announce, read_intent, stop, write_intent,
};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::{Policy, Wait};

use super::super::queue_memory::ExploredQueueMemory;
use super::super::{BUDGET, ExploredMember, PAUSE};
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};

/// Packets of a queue.
const PACKETS: usize = 2;

/// The first thread stops the others, and owns their data when none is announced.
pub(super) struct AnnouncedRun {
    stop: Word,
    /// An intent of each thread.
    intents: Vec<Word>,
    /// A datum of each thread.
    data: Vec<DatumId>,
    plan: Plan,
}

impl AnnouncedRun {
    pub fn new(plan: &Plan, memory: &ExploredMemory) -> AnnouncedRun {
        AnnouncedRun {
            stop: memory.word(Place::NewLine, 0),
            intents: (0..plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect(),
            data: (0..plan.threads).map(|_| memory.cell(Place::NewLine, 0)).collect(),
            plan: *plan,
        }
    }
}

impl SubjectRun for AnnouncedRun {
    fn thread(&self, cpu: &Explorer) {
        if cpu.id() == 0 {
            stop(cpu, &self.stop, CLOSED);
            while self.intents.iter().any(|intent| read_intent(cpu, intent) != 0) {
                cpu.delay(PAUSE);
            }
            self.data.iter().for_each(|datum| cpu.write(datum, 0));
            return;
        }
        let intent = &self.intents[cpu.id()];
        for _ in 0..self.plan.ops {
            let is_open = announce(cpu, intent, 1, &self.stop) & CLOSED == 0;
            if is_open {
                cpu.write(&self.data[cpu.id()], 1);
            }
            write_intent(cpu, intent, 0);
        }
    }
}

/// A queue under `towpath`, whose receiver is the first thread.
pub(super) struct OwnedQueue {
    memory: ExploredQueueMemory,
    intents: Vec<Word>,
    /// The receiver's address for calls while it is away; or its generation.
    word: Word,
    /// A datum of the handler for each ticket.
    effects: Vec<DatumId>,
    /// Tickets of messages, of handled ones, and of late ones, kept by the host.
    sent: Vec<Cell<bool>>,
    handled: Vec<Cell<bool>>,
    late: Vec<Cell<bool>>,
    plan: Plan,
}

impl OwnedQueue {
    pub fn new(plan: &Plan, memory: &ExploredMemory) -> OwnedQueue {
        // Each sender draws void tickets, too.
        let tickets = 4 * PACKETS + 2 * plan.threads * plan.ops;
        OwnedQueue {
            memory: ExploredQueueMemory::new(memory, PACKETS, 0, 0),
            intents: (0..plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect(),
            word: memory.word(Place::NewLine, 0),
            effects: (0..tickets).map(|_| memory.cell(Place::NewLine, 0)).collect(),
            sent: vec![Cell::new(false); tickets],
            handled: vec![Cell::new(false); tickets],
            late: vec![Cell::new(false); tickets],
            plan: *plan,
        }
    }

    fn claim(&self) -> Any<'_, Explorer> {
        self.memory.locks.choose(Algorithm::Towpath)
    }

    /// Claims a packet. Returns its ticket; `None`: there is no space.
    fn claim_next(&self, cpu: &Explorer, sender: &mut Sender) -> Option<u64> {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: Policy::Spin, around: &around, budget: BUDGET };
        let (queue, intent) = (self.memory.queue(0), &self.intents[cpu.id()]);
        let ticket = self.claim().claim(&queue, sender, cpu, &wait, intent).ok()?;
        self.sent[ticket as usize].set(true);
        Some(ticket)
    }

    /// Sends a message, and returns whether the receiver is to be called.
    ///
    /// `None`: there is no space.
    fn send(&self, cpu: &Explorer, sender: &mut Sender) -> Option<bool> {
        let (queue, claim, intent) = (self.memory.queue(0), self.claim(), &self.intents[cpu.id()]);
        let ticket = self.claim_next(cpu, sender)?;
        let header = Header::new(Form::Short, 0, 0, cpu.id() as u32).with_state(READY);
        Some(claim.publish(&queue, sender, cpu, false, intent, ticket, header))
    }
}

/// A receiver that says how it can be called, and then that it is away.
pub(super) struct AwayRun(pub OwnedQueue);

impl SubjectRun for AwayRun {
    fn thread(&self, cpu: &Explorer) {
        let OwnedQueue { memory, word: address, .. } = &self.0;
        if cpu.id() == 0 {
            // Relaxed: as an endpoint does that signals call.
            cpu.store(address, 1, Ordering::Relaxed);
            let _ = self.0.claim().fall_asleep(&memory.queue(0), &Receiver::default(), cpu);
        } else if self.0.send(cpu, &mut Sender::new(cpu.id() as u16, 0, 0)) == Some(true) {
            // Relaxed: as its sender does.
            assert_eq!(cpu.load(address, Ordering::Relaxed), 1, "the receiver is not called");
        }
    }
}

/// A receiver and its successor, and a gateway that asks which messages were handled.
///
/// The first thread is the former, the last one the latter.
pub(super) struct HandledRun {
    pub queue: OwnedQueue,
    /// True if thread 1 claims a packet and sends nothing, so that it is passed over.
    pub stands_still: bool,
}

struct SendersLive<'a>(&'a OwnedQueue, &'a Explorer);

impl Census for SendersLive<'_> {
    fn endpoints(&self) -> usize {
        self.0.plan.threads
    }
    fn load_intent(&self, endpoint: u16, _word: usize) -> u64 {
        read_intent(self.1, &self.0.intents[usize::from(endpoint)])
    }
    fn generation(&self, _endpoint: u16) -> Option<u16> {
        Some(0)
    }
    fn owner_lives(&self, _endpoint: u16) -> bool {
        true
    }
    fn patience(&self) -> u64 {
        0
    }
}

impl HandledRun {
    /// Handles messages for some looks, and then resets the queue as a successor does.
    fn receive(&self, cpu: &Explorer) {
        let OwnedQueue { memory, word: generation, effects, handled, late, plan, .. } = &self.queue;
        let (queue, claim, mut receiver) = (memory.queue(0), self.queue.claim(), Receiver::default());
        for _ in 0..3 * plan.ops {
            match receiver.next(&claim, &queue, cpu) {
                Some(arrival) => {
                    let ticket = arrival.ticket as usize;
                    late[ticket].set(arrival.late);
                    handled[ticket].set(true);
                    cpu.write(&effects[ticket], 1);
                    receiver.done(&claim, &queue, cpu, arrival);
                }
                None => {
                    receiver.look_after(&claim, &queue, cpu, &SendersLive(&self.queue, cpu));
                }
            }
        }
        // (G1) Release: as a successor shows its generation; pairs with nothing, since the gateway
        // reads it last.
        cpu.store(generation, 1, Ordering::Release);
        stop(cpu, &queue.control.tail, CLOSED);
        // Relaxed, all: as a successor resets its queue.
        let tail = cpu.load(&queue.control.tail, Ordering::Relaxed) & TICKET;
        (0..PACKETS as u64).for_each(|n| cpu.store(&queue.extra(n).valid_from, 0, Ordering::Relaxed));
        cpu.store(&queue.control.consumed, tail.next_multiple_of(queue.len()), Ordering::Relaxed);
    }

    fn ask(&self, cpu: &Explorer) {
        let OwnedQueue { memory, word: generation, effects, sent, handled, late, plan, .. } = &self.queue;
        let queue = memory.queue(0);
        for _ in 0..plan.ops {
            for ticket in 0..2 * PACKETS {
                // Relaxed: as a gateway does.
                let is_handled =
                    queue.has_handled(cpu, ticket as u64) && cpu.load(generation, Ordering::Relaxed) == 0;
                // Void tickets, which are no messages, count as handled.
                if is_handled && sent[ticket].get() {
                    assert!(handled[ticket].get(), "message {ticket} was not handled");
                    // Of one that came late only the answer counts.
                    if !late[ticket].get() {
                        assert_eq!(cpu.read(&effects[ticket]), 1, "what the handler of {ticket} did");
                    }
                }
            }
        }
    }
}

impl SubjectRun for HandledRun {
    fn thread(&self, cpu: &Explorer) {
        let OwnedQueue { plan, .. } = &self.queue;
        match cpu.id() {
            0 => self.receive(cpu),
            id if id + 1 == plan.threads => self.ask(cpu),
            _ => {
                let mut sender = Sender::new(cpu.id() as u16, 0, 0);
                if self.stands_still && cpu.id() == 1 {
                    self.queue.claim_next(cpu, &mut sender);
                    return;
                }
                for _ in 0..plan.ops {
                    self.queue.send(cpu, &mut sender);
                }
            }
        }
    }
}
