//! Queues of one sender and one receiver.

use std::cell::Cell;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_sync::queues::{
    BoundedQueue, OneHead, OneToOne, QueueGeometry, QueueSide, TransferError, WordLine,
};
use towpath_sync::{Deadline, Policy, Wait};

use super::{BUDGET, ExploredMember, Pair, ROOM, side};

/// A sender that closes the queue at the end, or leaves it, and a receiver.
pub(super) struct OneRun {
    memory: ExploredMemory,
    head: OneHead<Explorer>,
    slots: Box<[WordLine<Explorer>]>,
    geometry: QueueGeometry,
    policy: Policy,
    plan: Plan,
    leaves: bool,
    /// Written by the sender before each value, in turn; read by the receiver after it.
    data: [DatumId; ROOM + 2],
    /// Values that were sent, and received, as the host knows them.
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl OneRun {
    pub(super) fn new(memory: &ExploredMemory, plan: &Plan, policy: Policy, leaves: bool) -> OneRun {
        let geometry = OneToOne::<Explorer>::geometry::<Pair>(ROOM);
        OneRun {
            memory: memory.clone(),
            head: OneHead::in_arena(memory),
            slots: WordLine::row(memory, geometry.slot_lines()),
            geometry,
            policy,
            plan: *plan,
            leaves,
            data: [(); ROOM + 2].map(|()| memory.cell(Place::NewLine, 0)),
            sent: Cell::default(),
            received: Cell::default(),
        }
    }

    /// Enters both ends: one that dies before it has come is not known.
    pub(super) fn join(&self) {
        let cpu = self.memory.at_rest();
        let queue = OneToOne::of(&self.head, &self.slots, self.geometry);
        for me in 1..=2 {
            let around = ExploredMember { dead: self.memory.dead(), told: self.memory.told(), me };
            let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
            assert_eq!(queue.join(&cpu, &wait, side(me as usize - 1)), Ok(()));
        }
    }

    /// Datum of a value. By the time that the next one has room, the receiver has read it
    /// for the value before.
    fn datum(&self, value: u64) -> &DatumId {
        &self.data[value as usize % self.data.len()]
    }

    fn with<R>(&self, cpu: &Explorer, act: impl FnOnce(OneToOne<'_, Explorer>, &Wait) -> R) -> R {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        act(OneToOne::of(&self.head, &self.slots, self.geometry), &wait)
    }

    fn receive(&self, cpu: &Explorer) -> Result<(), TransferError> {
        self.with(cpu, |queue, wait| {
            let [value, other] = queue.receive::<Pair, _>(cpu, wait, Deadline::NEVER)?;
            assert_eq!((value, other), (self.received.get(), !value), "lost, twice or torn");
            assert_eq!(cpu.read(self.datum(value)), value);
            self.received.set(value + 1);
            Ok(())
        })
    }
}

impl SubjectRun for OneRun {
    fn thread(&self, cpu: &Explorer) {
        let number = 2 * self.plan.ops as u64;
        match cpu.id() {
            0 => self.with(cpu, |queue, wait| {
                for value in 0..number {
                    cpu.write(self.datum(value), value);
                    if let Err(end) = queue.send(cpu, wait, &[value, !value], Deadline::NEVER) {
                        assert!(matches!(end, TransferError::PeerDied { .. }), "{end}");
                        return;
                    }
                    self.sent.set(value + 1);
                }
                if self.leaves {
                    queue.leave(cpu, wait, QueueSide::Sender);
                } else {
                    queue.close(cpu, wait);
                }
            }),
            1 => loop {
                match self.receive(cpu) {
                    Ok(()) => {}
                    Err(TransferError::Closed | TransferError::Disconnected) => {
                        break assert_eq!(self.received.get(), number);
                    }
                    Err(end) => break assert!(matches!(end, TransferError::PeerDied { .. }), "{end}"),
                }
            },
            _ => {}
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.with(cpu, |queue, wait| {
            let mut slack = u64::from(cpu.is_dead(1));
            while let Ok([value, other]) = queue.receive::<Pair, _>(cpu, wait, Deadline::PAST) {
                // A dead receiver may have had one and not noted it.
                let next = self.received.get();
                assert!(value == next || value == next + slack, "lost or twice");
                assert_eq!(value, !other, "torn");
                slack = 0;
                self.received.set(value + 1);
            }
            assert!(self.received.get() + slack >= self.sent.get(), "lost");
        });
    }
}

/// Threads that become the sender, or the receiver, for a value.
pub(super) struct HandoverRun {
    pub(super) queue: OneRun,
}

impl SubjectRun for HandoverRun {
    fn thread(&self, cpu: &Explorer) {
        let (OneRun { sent, received, .. }, side) = (&self.queue, side(cpu.id()));
        for _ in 0..self.queue.plan.ops {
            self.queue.with(cpu, |queue, wait| {
                if queue.join(cpu, wait, side).is_err() {
                    return;
                }
                if side == QueueSide::Receiver {
                    if let Ok([value, other]) = queue.receive::<Pair, _>(cpu, wait, Deadline::PAST) {
                        assert_eq!((value, other), (received.get(), !value), "lost, twice or torn");
                        received.set(value + 1);
                    }
                } else {
                    let value = sent.get();
                    if queue.send(cpu, wait, &[value, !value], Deadline::PAST).is_ok() {
                        sent.set(value + 1);
                    }
                }
                queue.leave(cpu, wait, side);
            });
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.queue.last(cpu);
    }
}
