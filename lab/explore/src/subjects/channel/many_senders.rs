//! The queue of many senders, under each claim.

use std::cell::{Cell, RefCell};

use towpath_channel::claim::{Algorithm, Any, Claim};
use towpath_channel::doorbell;
use towpath_channel::packet::Form;
use towpath_channel::path::{FIRST_QUOTA, PacketContent, ReceivePath, SendPath, WhileFull};
use towpath_channel::queue::{Receiver, Sender};
use towpath_machine::{Arena, Ordering, Park, Place, Processor};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_sync::{Policy, Spinning, Wait};

use super::{BUDGET, ENDLESS, ExploredMember, ExploredQueueMemory, PACKETS};

/// The queue of many senders.
pub(super) struct ManySenders {
    memory: ExploredQueueMemory,
    algorithm: Algorithm,
    /// Two for each thread: of packets, of blocks.
    intents: Vec<Word>,
    doorbell: Word,
    plan: Plan,
}

/// A sender waits for space only if a dead one has a packet: for ever.
#[derive(Clone, Copy)]
struct StuckSender<'a>(&'a Explorer, &'a Word);

impl WhileFull for StuckSender<'_> {
    fn is_gone(&self) -> bool {
        false
    }
    fn poll(&self) -> usize {
        0
    }
    fn pause(&self, _round: u32) {
        let _ = self.0.spin_until(self.1, Ordering::Relaxed, ENDLESS, |_| false);
    }
    fn look_around(&self) -> bool {
        true
    }
}

impl ManySenders {
    pub(super) fn new(plan: &Plan, memory: &ExploredMemory, algorithm: Algorithm) -> ManySenders {
        ManySenders {
            memory: ExploredQueueMemory::new(memory, PACKETS, 0, 8),
            algorithm,
            intents: (0..2 * plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect(),
            doorbell: memory.word(Place::NewLine, 0),
            plan: *plan,
        }
    }

    fn send(&self, cpu: &Explorer, claim: &Any<'_, Explorer>) {
        let (queue, sender) = (self.memory.queue(0), RefCell::new(Sender::new(cpu.id() as u16, 0, 0)));
        let [intent, block_intent] = [0, 1].map(|n| &self.intents[2 * cpu.id() + n]);
        let route = SendPath { queue: &queue, claim, sender: &sender, intent, block_intent };
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: Policy::Park, around: &around, budget: BUDGET };
        for n in 0..self.plan.ops as u64 {
            let source = cpu.id() as u32;
            let out =
                PacketContent { form: Form::Short, handler: 0, tag: n, args: &[n as u32], aux: 0, source };
            match route.send(cpu, &out, None, true, &wait, StuckSender(cpu, &self.memory.control.consumed)) {
                Ok(false) => {}
                Ok(true) => doorbell::wake(cpu, &self.doorbell),
                // The lock's holder is dead, and the queue is closed.
                Err(_) => return,
            }
        }
    }

    fn receive(&self, cpu: &Explorer, claim: &Any<'_, Explorer>) {
        let (queue, quota) = (self.memory.queue(0), Cell::new(FIRST_QUOTA));
        let receiver = RefCell::new(Receiver::default());
        let inbox = ReceivePath { queue: &queue, claim, receiver: &receiver, quota: &quota };
        let ops = self.plan.ops as u64;
        let mut taken = vec![0; self.plan.threads];
        while taken[1..].iter().any(|n| *n < ops) {
            let came = inbox.poll(
                cpu,
                || Spinning,
                |arrival| {
                    let from = arrival.header.source() as usize;
                    assert_eq!(cpu.read(&queue.slot(arrival.ticket).tag), taken[from], "in order");
                    taken[from] += 1;
                    0
                },
            );
            if came > 0 {
                continue;
            }
            let count = doorbell::count(cpu, &self.doorbell);
            let may_sleep = claim.fall_asleep(&queue, &receiver.borrow(), cpu);
            if may_sleep && receiver.borrow_mut().next(claim, &queue, cpu).is_none() {
                cpu.park(&self.doorbell, count, ENDLESS);
            } else {
                // Packets that were claimed before come without a wake-up.
                let (header, head) = (&queue.slot(receiver.borrow().head).header, &receiver);
                let _ = cpu.spin_until(header, Ordering::Relaxed, ENDLESS, |_| {
                    head.borrow_mut().next(claim, &queue, cpu).is_some()
                });
            }
            claim.wake_up(&queue, cpu);
        }
    }
}

impl SubjectRun for ManySenders {
    fn thread(&self, cpu: &Explorer) {
        let claim = self.memory.locks.choose(self.algorithm);
        if cpu.id() == 0 { self.receive(cpu, &claim) } else { self.send(cpu, &claim) }
    }
}
