//! The bounded queue with a ring for each sender.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_sync::queues::{
    BoundedQueue, QueueGeometry, QueueSide, RingPerSender, RingsHead, TransferError, WordLine,
};
use towpath_sync::{Deadline, Policy, Wait};

use super::{BUDGET, ExploredMember};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, MAX_THREADS, Plan, SubjectExtras, SubjectRun};

/// Number of values for which a ring has room.
const ROOM: usize = 2;
/// Number of processes that can be at the queue.
const MEMBERS: usize = 8;
/// The thread that receives.
const RECEIVER: usize = 1;

/// Values of two words, so that one that is torn is found.
type Pair = [u64; 2];
type Rings<'a> = RingPerSender<'a, Explorer, MEMBERS>;

/// The subjects.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    let about = "all that was sent is received, in its sender's order; a death ends the waiting";
    let asymmetric = SubjectExtras { loses_stores: true, ..SubjectExtras::default() };
    let ends = [
        ("transfer/per-sender-closed", true, asymmetric),
        ("transfer/per-sender-left", false, asymmetric),
        // Where the system has no `membarrier`.
        ("transfer/per-sender-fenced", true, SubjectExtras { fences_wholly: true, ..asymmetric }),
        // Where it refuses that to one of the ends, from its first fence on.
        (
            "transfer/per-sender-sandboxed-receiver",
            true,
            SubjectExtras { sandboxed: Some(RECEIVER), ..asymmetric },
        ),
        ("transfer/per-sender-sandboxed-sender", true, SubjectExtras { sandboxed: Some(0), ..asymmetric }),
    ];
    for (name, closes, extras) in ends {
        // A receiver that finds a sender there that is leaving looks again by itself.
        let policy = if closes { policy } else { Policy::Park };
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            let run =
                SendersRun { queue: SendersQueue::new(memory, policy, plan.threads), plan: *plan, closes };
            run.join(memory);
            Ok(Rc::new(run))
        };
        let case = Case::new(name, about, make);
        cases.push(Case { endures_deaths: true, naps: !closes, extras, ..case });
    }
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        Ok(Rc::new(RingHandoverRun { queue: SendersQueue::new(memory, policy, 1), plan: *plan }))
    };
    let about = "one sender and one receiver at a time go on where the last one has left";
    let case = Case::new("transfer/per-sender-handover", about, make);
    cases.push(Case { endures_deaths: true, ..case });
}

/// A queue, and the numbers of its values as the host knows them.
struct SendersQueue {
    head: RingsHead<Explorer, MEMBERS>,
    rings: Box<[WordLine<Explorer>]>,
    slots: Box<[WordLine<Explorer>]>,
    geometry: QueueGeometry,
    policy: Policy,
    /// Ring of each thread, and the numbers of its values that were sent, and received.
    seats: [Cell<u32>; MAX_THREADS],
    sent: [Cell<u64>; MAX_THREADS],
    received: [Cell<u64>; MAX_THREADS],
    /// Data of each thread's values, written before and read after.
    ///
    /// By the time that the next one has room, the receiver has read it for the value before.
    data: [[DatumId; ROOM + 2]; MAX_THREADS],
}

impl SendersQueue {
    fn new(memory: &ExploredMemory, policy: Policy, rings: usize) -> SendersQueue {
        let geometry = Rings::geometry::<Pair>(ROOM).with_rings(rings.next_power_of_two());
        let [rings, slots] =
            [geometry.rings_lines(), geometry.slot_lines()].map(|lines| WordLine::row(memory, lines));
        SendersQueue {
            head: RingsHead::in_arena(memory),
            rings,
            slots,
            geometry,
            policy,
            seats: Default::default(),
            sent: Default::default(),
            received: Default::default(),
            data: [(); MAX_THREADS].map(|()| [(); ROOM + 2].map(|()| memory.cell(Place::NewLine, 0))),
        }
    }

    fn view(&self) -> Rings<'_> {
        Rings::of(&self.head, &self.rings, &self.slots, self.geometry)
    }

    fn with<R>(&self, cpu: &Explorer, act: impl FnOnce(Rings<'_>, &Wait) -> R) -> R {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        act(self.view().at(self.seats[cpu.id()].get()), &wait)
    }

    fn put(&self, cpu: &Explorer, number: u64, deadline: Deadline) -> Result<(), TransferError> {
        cpu.write(self.datum(cpu.id(), number), number);
        self.with(cpu, |queue, wait| queue.send(cpu, wait, &pair(cpu.id(), number), deadline))
    }

    fn datum(&self, sender: usize, number: u64) -> &DatumId {
        &self.data[sender][number as usize % (ROOM + 2)]
    }

    fn take(&self, cpu: &Explorer, deadline: Deadline) -> Result<Pair, TransferError> {
        self.with(cpu, |queue, wait| queue.receive::<Pair, _>(cpu, wait, deadline))
    }

    /// Receives a value, the next one of its sender.
    ///
    /// A dead receiver may have had one more.
    fn receive(&self, cpu: &Explorer, deadline: Deadline, slack: u64) -> Result<(), TransferError> {
        let value = self.take(cpu, deadline)?;
        let sender = (value[0] >> 32) as usize;
        let received = &self.received[sender];
        let number = value[0] & 0xffff_ffff;
        assert_eq!(value, pair(sender, number), "torn");
        assert!((received.get()..=received.get() + slack).contains(&number), "lost, twice, or out of order");
        assert_eq!(cpu.read(self.datum(sender, number)), number);
        received.set(number + 1);
        Ok(())
    }

    /// Receives the rest, and looks whether all that was sent came, and nothing else.
    ///
    /// Of each dead thread one may not be noted.
    fn check_rest(&self, cpu: &Explorer) {
        let slack = cpu.deaths() as u64;
        while self.receive(cpu, Deadline::PAST, slack).is_ok() {}
        for (sent, received) in self.sent.iter().zip(&self.received) {
            let (sent, received) = (sent.get(), received.get());
            assert!(received + slack >= sent && received <= sent + slack, "{sent} sent, {received} received");
        }
    }
}

/// Senders of which the first one closes the queue, or all leave it, and a receiver.
struct SendersRun {
    queue: SendersQueue,
    plan: Plan,
    closes: bool,
}

/// A value: its sender, and its number among the sender's.
const fn pair(sender: usize, number: u64) -> Pair {
    [(sender as u64) << 32 | number, !number]
}

impl SendersRun {
    fn join(&self, memory: &ExploredMemory) {
        let cpu = memory.at_rest();
        for id in 0..self.plan.threads {
            let around = ExploredMember { dead: memory.dead(), told: memory.told(), me: id as u32 + 1 };
            let wait = Wait { policy: self.queue.policy, around: &around, budget: BUDGET };
            let side = if id == RECEIVER { QueueSide::Receiver } else { QueueSide::Sender };
            self.queue.seats[id].set(self.queue.view().join(&cpu, &wait, side).unwrap());
        }
    }

    fn send(&self, cpu: &Explorer) -> Result<(), TransferError> {
        let sent = &self.queue.sent[cpu.id()];
        for number in 0..=self.plan.ops as u64 {
            self.queue.put(cpu, number, Deadline::NEVER)?;
            sent.set(number + 1);
        }
        Ok(())
    }
}

impl SubjectRun for SendersRun {
    fn thread(&self, cpu: &Explorer) {
        let end = if cpu.id() == RECEIVER {
            loop {
                if let Err(end) = self.queue.receive(cpu, Deadline::NEVER, 0) {
                    break Some(end);
                }
            }
        } else {
            let sent = self.send(cpu);
            self.queue.with(cpu, |queue, wait| match cpu.id() {
                0 if self.closes => queue.close(cpu, wait),
                _ => queue.leave(cpu, wait, QueueSide::Sender),
            });
            sent.err()
        };
        match end {
            None => {}
            Some(TransferError::Closed) => assert!(self.closes),
            Some(TransferError::Disconnected) => assert!(!self.closes || cpu.deaths() > 0),
            Some(TransferError::PeerDied { .. }) => assert!(cpu.deaths() > 0),
            Some(error) => panic!("{error}"),
        }
    }
    fn last(&self, cpu: &Explorer) {
        if self.plan.threads < 2 {
            return;
        }
        self.queue.check_rest(cpu);
    }
}

/// Threads that become the only ring's sender, or the receiver, for a value.
struct RingHandoverRun {
    queue: SendersQueue,
    plan: Plan,
}

impl SubjectRun for RingHandoverRun {
    fn thread(&self, cpu: &Explorer) {
        let sent = &self.queue.sent[cpu.id()];
        let side = if cpu.id() % 2 == RECEIVER { QueueSide::Receiver } else { QueueSide::Sender };
        for _ in 0..self.plan.ops {
            let Ok(seat) = self.queue.with(cpu, |queue, wait| queue.join(cpu, wait, side)) else { continue };
            self.queue.seats[cpu.id()].set(seat);
            if side == QueueSide::Receiver {
                let slack = cpu.deaths() as u64;
                let _ = self.queue.receive(cpu, Deadline::PAST, slack);
            } else if self.queue.put(cpu, sent.get(), Deadline::PAST).is_ok() {
                sent.set(sent.get() + 1);
            }
            self.queue.with(cpu, |queue, wait| queue.leave(cpu, wait, side));
        }
    }
    fn last(&self, cpu: &Explorer) {
        let joined = self.queue.with(cpu, |queue, wait| queue.join(cpu, wait, QueueSide::Sender));
        assert!(joined.is_ok(), "the ring of one that left, or died, is lost");
        self.queue.check_rest(cpu);
    }
}
