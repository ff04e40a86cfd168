//! The packet queue under the model checker: claim, publish, consume; full queues;
//! blocks; sleeping and waking; places passed over.
//!
//! Cells and bytes are not atomic here: loom fails the model if a payload can be read before it is
//! written, or overwritten before it is read.

use loom::sync::{Arc, Notify};
use loom::thread;

use towpath_channel::claim::{Claim, LockFree, Locked, Towpath};
use towpath_channel::doorbell;
use towpath_channel::packet::{BlockHead, Extra, Form, Header, READY, READY_BULK, Slot};
use towpath_channel::queue::{Arrival, Census, ClaimError, Queue, QueueControl, Receiver, Sender};
use towpath_machine::{
    Arena, LoomArena, LoomBytes, LoomProcessor, LoomWord, Ordering, Park, Place, Processor,
};
use towpath_sync::Lock;
use towpath_sync::Spinning;
use towpath_sync::locks::Posix;
use towpath_testkit::{is_long, model};

/// A queue of two packets and one block, the senders' intents, and the receiver's
/// doorbell.
struct Shared {
    control: QueueControl<LoomProcessor>,
    slots: Vec<Slot<LoomProcessor>>,
    extras: Vec<Extra<LoomProcessor>>,
    blocks: Vec<BlockHead<LoomProcessor>>,
    bytes: std::sync::Arc<LoomBytes>,
    intents: Vec<LoomWord>,
    doorbell: LoomWord,
    /// Stands for the time that passes: a thread that finds the queue full, or empty,
    /// tries again when something has changed.
    changed: Vec<Notify>,
}

const BLOCK: usize = 4;

impl Shared {
    fn new(senders: usize, packets: usize) -> Shared {
        let arena = LoomArena::default();
        Shared {
            control: QueueControl::new(&arena),
            slots: (0..packets).map(|_| Slot::new(&arena)).collect(),
            extras: (0..packets).map(|_| Extra::new(&arena)).collect(),
            blocks: vec![BlockHead::new(&arena)],
            bytes: std::sync::Arc::new(arena.bytes(BLOCK)),
            intents: (0..senders).map(|_| arena.word(Place::NewLine, 0)).collect(),
            doorbell: LoomArena { parking: true }.word(Place::NewLine, 0),
            changed: (0..senders).map(|_| Notify::new()).collect(),
        }
    }

    fn queue(&self) -> Queue<'_, LoomProcessor> {
        Queue {
            id: 0,
            control: &self.control,
            slots: &self.slots,
            extras: &self.extras,
            blocks: &self.blocks,
            bytes: self.bytes.clone(),
            block_size: BLOCK,
        }
    }
}

/// A census in which all live, with the intents that are there.
struct AllMembers<'a>(&'a Shared, LoomProcessor);

impl Census for AllMembers<'_> {
    fn endpoints(&self) -> usize {
        self.0.intents.len()
    }
    fn load_intent(&self, endpoint: u16, _word: usize) -> u64 {
        self.1.load(&self.0.intents[usize::from(endpoint)], Ordering::Acquire)
    }
    fn generation(&self, _endpoint: u16) -> Option<u16> {
        Some(0)
    }
    fn owner_lives(&self, _endpoint: u16) -> bool {
        true
    }
    fn holds_block(&self, _endpoint: u16, _queue: u32) -> bool {
        true
    }
}

/// A sender's or receiver's way to let the others run when it can't go on.
struct Side<'a, C> {
    claim: &'a C,
    shared: &'a Shared,
    id: usize,
}

impl<C: Claim<LoomProcessor>> Side<'_, C> {
    fn cpu(&self) -> LoomProcessor {
        LoomProcessor { id: self.id }
    }

    fn claim(&self, sender: &mut Sender) -> u64 {
        let intent = &self.shared.intents[self.id];
        loop {
            match self.claim.claim(&self.shared.queue(), sender, &self.cpu(), &Spinning, intent) {
                Ok(ticket) => return ticket,
                Err(ClaimError::Full) => self.shared.changed[self.id].wait(),
                Err(ClaimError::Closed) => panic!("no call closes the queue"),
            }
        }
    }

    fn claim_block(&self, sender: &mut Sender) -> usize {
        let intent = &self.shared.intents[self.id];
        loop {
            match self.claim.claim_block(&self.shared.queue(), sender, &self.cpu(), &Spinning, intent) {
                Ok(block) => return block,
                Err(ClaimError::Full) => self.shared.changed[self.id].wait(),
                Err(ClaimError::Closed) => panic!("no call closes the queue"),
            }
        }
    }

    /// Fills and publishes; rings if it must.
    fn publish(&self, sender: &mut Sender, ticket: u64, value: u64, block: Option<usize>, parks: bool) {
        let (q, cpu) = (self.shared.queue(), self.cpu());
        cpu.write(&q.slot(ticket).args[0], value);
        let header = Header::new(Form::Short, 1, 2, self.id as u32);
        let header = match block {
            None => header.with_state(READY),
            Some(block) => header.with_block(block).with_state(READY_BULK),
        };
        let intent = &self.shared.intents[self.id];
        if self.claim.publish(&q, sender, &cpu, parks, intent, ticket, header) {
            doorbell::wake(&cpu, &self.shared.doorbell);
        }
        self.shared.changed[0].notify();
    }

    fn send(&self, sender: &mut Sender, value: u64, parks: bool) {
        let ticket = self.claim(sender);
        self.publish(sender, ticket, value, None, parks);
    }

    /// Takes a message: its value, and the end of its delivery.
    fn take(&self, receiver: &mut Receiver, arrival: Arrival) -> u64 {
        let (q, cpu) = (self.shared.queue(), self.cpu());
        let value = cpu.read(&q.slot(arrival.ticket).args[0]);
        if arrival.header.has_block() {
            let mut bytes = [0; BLOCK];
            cpu.copy_out(&q.bytes, q.block_at(arrival.header.block()), &mut bytes);
            assert_eq!(bytes, [value as u8; BLOCK]);
            q.free_block(&cpu, arrival.header.block());
        }
        receiver.done(self.claim, &q, &cpu, arrival);
        self.claim.flush(&q, receiver, &cpu, &Spinning);
        for sender in &self.shared.changed[1..] {
            sender.notify();
        }
        value
    }

    fn next(&self, receiver: &mut Receiver) -> Option<Arrival> {
        receiver.next(self.claim, &self.shared.queue(), &self.cpu())
    }

    fn receive(&self, receiver: &mut Receiver) -> u64 {
        loop {
            if let Some(arrival) = self.next(receiver) {
                return self.take(receiver, arrival);
            }
            self.shared.changed[0].wait();
        }
    }

    /// Sleeps when there is nothing: a lost wake-up is a deadlock, which loom reports.
    fn receive_asleep(&self, receiver: &mut Receiver) -> u64 {
        let (q, cpu, doorbell) = (self.shared.queue(), self.cpu(), &self.shared.doorbell);
        loop {
            if let Some(arrival) = self.next(receiver) {
                return self.take(receiver, arrival);
            }
            let woken = doorbell::count(&cpu, doorbell);
            if self.claim.fall_asleep(&q, receiver, &cpu) && self.next(receiver).is_none() {
                cpu.park(doorbell, woken, u64::MAX);
            }
            self.claim.wake_up(&q, &cpu);
            if self.next(receiver).is_none() {
                self.shared.changed[0].wait();
            }
        }
    }
}

/// Values are `100 × sender + number`: each once, each sender's in order.
fn assert_all(got: &[u64], senders: usize, each: u64) {
    for s in 1..=senders as u64 {
        let of: Vec<_> = got.iter().filter(|&&v| v / 100 == s).copied().collect();
        assert_eq!(of, (0..each).map(|n| s * 100 + n).collect::<Vec<_>>(), "of {got:?}");
    }
    assert_eq!(got.len() as u64, senders as u64 * each);
}

/// Threads 1 and up, each sending so many messages.
fn start_senders<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    shared: &Arc<(Shared, C)>,
    senders: usize,
    each: u64,
    parks: bool,
) -> Vec<thread::JoinHandle<()>> {
    (1..=senders)
        .map(|id| {
            let shared = shared.clone();
            thread::spawn(move || {
                let side = Side { claim: &shared.1, shared: &shared.0, id };
                let mut sender = Sender::new(id as u16, 0, 0);
                for n in 0..each {
                    side.send(&mut sender, id as u64 * 100 + n, parks);
                }
            })
        })
        .collect()
}

/// The senders are threads 1 and up, and the receiver thread 0.
fn all_arrive<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    preemptions: usize,
    (senders, each, packets): (usize, u64, usize),
    asleep: bool,
    claim: impl Fn() -> C + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let shared = Arc::new((Shared::new(senders + 1, packets), claim()));
        let threads = start_senders(&shared, senders, each, asleep);
        let side = Side { claim: &shared.1, shared: &shared.0, id: 0 };
        let mut receiver = Receiver::default();
        let total = senders as u64 * each;
        let got: Vec<u64> = (0..total)
            .map(|_| if asleep { side.receive_asleep(&mut receiver) } else { side.receive(&mut receiver) })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_all(&got, senders, each);
        assert!(side.next(&mut receiver).is_none());
    });
}

/// One block, two transfers: its bytes are race-checked.
fn blocks_are_reused<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    preemptions: usize,
    claim: impl Fn() -> C + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let shared = Arc::new((Shared::new(3, 2), claim()));
        let threads: Vec<_> = (1..=2)
            .map(|id| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let side = Side { claim: &shared.1, shared: &shared.0, id };
                    let mut sender = Sender::new(id as u16, 0, 0);
                    let (q, cpu) = (shared.0.queue(), side.cpu());
                    let value = id as u64 * 100;
                    let block = side.claim_block(&mut sender);
                    cpu.copy_in(&q.bytes, q.block_at(block), &[value as u8; BLOCK]);
                    let ticket = side.claim(&mut sender);
                    side.publish(&mut sender, ticket, value, Some(block), false);
                })
            })
            .collect();
        let side = Side { claim: &shared.1, shared: &shared.0, id: 0 };
        let mut receiver = Receiver::default();
        let got: Vec<u64> = (0..2).map(|_| side.receive(&mut receiver)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_all(&got, 2, 1);
        let owner = side.cpu().load(&shared.0.blocks[0].owner, Ordering::Acquire);
        assert_eq!(owner, 0, "the block is free again");
    });
}

/// The receiver passes over the head whenever it is claimed and not published (as if
/// every sender were late), and takes what comes late.
fn passed_over_and_late<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    preemptions: usize,
    (senders, each): (usize, u64),
    claim: impl Fn() -> C + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let shared = Arc::new((Shared::new(senders + 1, 2), claim()));
        let threads = start_senders(&shared, senders, each, false);
        let side = Side { claim: &shared.1, shared: &shared.0, id: 0 };
        let (q, cpu) = (shared.0.queue(), side.cpu());
        let census = AllMembers(&shared.0, cpu);
        let mut receiver = Receiver::default();
        let mut got = Vec::new();
        while got.len() < senders * each as usize {
            if let Some(arrival) = side.next(&mut receiver) {
                got.push(side.take(&mut receiver, arrival));
                continue;
            }
            side.claim.resolve_late(&q, &mut receiver, &cpu, &census);
            if receiver.behind(&q, &cpu) && side.next(&mut receiver).is_none() {
                side.claim.resolve_head(&q, &mut receiver, &cpu, &census, true);
            }
            // Void tickets are progress too.
            side.claim.flush(&q, &mut receiver, &cpu, &Spinning);
            shared.0.changed[1..].iter().for_each(Notify::notify);
            thread::yield_now();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_all(&got, senders, each);
        // Nothing more comes, and no place stays out of use.
        while side.claim.resolve_late(&q, &mut receiver, &cpu, &census) {}
        assert!(side.next(&mut receiver).is_none());
        assert!(receiver.late.is_empty(), "{:?}", receiver.late);
    });
}

fn over<L: Lock<LoomProcessor>>() -> Locked<Box<L>> {
    Locked(Box::new(L::new(&LoomArena::default())))
}

/// One message each of two senders; then three of one, for which the queue is too small.
///
/// In the longer form two each of two senders, too.
fn publish_and_consume<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    preemptions: usize,
    claim: impl Fn() -> C + Copy + Send + Sync + 'static,
) {
    all_arrive(preemptions, (2, 1, 2), false, claim);
    all_arrive(preemptions, (1, 3, 2), false, claim);
    if is_long() {
        all_arrive(1, (2, 2, 2), false, claim);
    }
}

fn sleep_and_wake<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    claim: impl Fn() -> C + Copy + Send + Sync + 'static,
) {
    all_arrive(3, (1, 2, 2), true, claim);
    all_arrive(2, (2, 1, 2), true, claim);
}

#[test]
fn towpath_publishes_and_consumes() {
    publish_and_consume(3, || Towpath);
}

#[test]
fn towpath_reuses_blocks() {
    blocks_are_reused(2, || Towpath);
}

#[test]
fn towpath_sleeps_and_wakes() {
    sleep_and_wake(|| Towpath);
}

#[test]
fn towpath_passes_over_and_delivers_late() {
    passed_over_and_late(1, (2, 1), || Towpath);
    passed_over_and_late(2, (1, 2), || Towpath);
}

#[test]
#[ignore = "ten seconds"]
fn towpath_passes_over_and_delivers_more_late() {
    passed_over_and_late(2, (2, 1), || Towpath);
    passed_over_and_late(2, (1, 3), || Towpath);
}

#[test]
fn lock_free_publishes_and_consumes() {
    publish_and_consume(2, || LockFree);
}

#[test]
#[ignore = "ten seconds"]
fn lock_free_publishes_and_consumes_with_more_preemptions() {
    publish_and_consume(3, || LockFree);
}

#[test]
fn lock_free_reuses_blocks() {
    blocks_are_reused(2, || LockFree);
}

#[test]
fn lock_free_sleeps_and_wakes() {
    sleep_and_wake(|| LockFree);
}

#[test]
#[ignore = "ten seconds"]
fn lock_free_passes_over_and_delivers_late() {
    passed_over_and_late(2, (2, 1), || LockFree);
    passed_over_and_late(2, (1, 2), || LockFree);
}

// The locks themselves are checked in towpath-sync; what they protect is the same text for all of
// them.

#[test]
fn locked_publishes_and_consumes() {
    publish_and_consume(3, over::<Posix<LoomProcessor>>);
}

#[test]
fn locked_reuses_blocks() {
    blocks_are_reused(2, over::<Posix<LoomProcessor>>);
}

#[test]
fn locked_sleeps_and_wakes() {
    sleep_and_wake(over::<Posix<LoomProcessor>>);
}
