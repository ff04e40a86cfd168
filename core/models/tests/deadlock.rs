//! Freedom from deadlock (L19), under the model checker: tiny queues, every schedule up
//! to a number of preemptions, and the checker's word that some endpoint can always go on. Each
//! test has a twin that does the wrong thing, in which the checker must find the deadlock; it
//! prints the schedule that led there.
//!
//! The two arguments are those of Lumetta & Culler 1998:
//!
//! * **Cycles of requests** (§3.1). "Consider a group of endpoints with full request queues": if
//!   each now sends another request before it looks at its own queue, no queue ever gets room.
//!   "Polling during backoff creates space in the queues and breaks the deadlock." A *reply* that
//!   waits polls replies only. That is enough, since handling a reply sends nothing: reply queues
//!   always drain.
//! * **Bulk transfers** (§3.2). A transfer needs a packet and a block. Packets are delivered in
//!   order, and a block is free again when its packet has been delivered. Suppose that a sender
//!   takes its packet first, the one at the head, and then finds no block free, because those
//!   behind it in the packet queue have them all. It waits for a block; the receiver can't deliver
//!   what has the blocks before it has delivered the head; the head waits for its sender. Polling
//!   does not help: what is missing is nothing that the sender could deliver. A sender that takes
//!   the block first never holds a packet that it can't publish, so the head is always published
//!   sooner or later.
//!
//! The receivers here don't pass over a head that keeps them waiting. Our lock-free algorithms do
//! after a millisecond, which would end the second deadlock too, a millisecond at a time; the
//! claims under a lock can't.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use loom::sync::Notify;
use loom::thread;

use towpath_channel::claim::{Claim, LockFree, Locked, Towpath};
use towpath_channel::packet::{BlockHead, Extra, Form, Header, READY, READY_BULK, Slot};
use towpath_channel::queue::{Arrival, ClaimError, Queue, QueueControl, Receiver, Sender};
use towpath_machine::{Arena, LoomArena, LoomBytes, LoomProcessor, LoomWord, Place, Processor};
use towpath_sync::locks::Posix;
use towpath_sync::{Lock, Spinning};
use towpath_testkit::model;

const BLOCK_SIZE: usize = 4;
/// Place of the requests in an endpoint's pairs.
const REQUESTS: usize = 0;
const REPLIES: usize = 1;

/// A queue with one block.
struct Memory<C> {
    id: u32,
    claim: C,
    control: QueueControl<LoomProcessor>,
    slots: Vec<Slot<LoomProcessor>>,
    extras: Vec<Extra<LoomProcessor>>,
    blocks: [BlockHead<LoomProcessor>; 1],
    bytes: Arc<LoomBytes>,
}

impl<C> Memory<C> {
    fn new(id: usize, packets: usize, claim: C) -> Self {
        let arena = LoomArena::default();
        Memory {
            id: id as u32,
            claim,
            control: QueueControl::new(&arena),
            slots: (0..packets).map(|_| Slot::new(&arena)).collect(),
            extras: (0..packets).map(|_| Extra::new(&arena)).collect(),
            blocks: [BlockHead::new(&arena)],
            bytes: Arc::new(arena.bytes(BLOCK_SIZE)),
        }
    }

    fn queue(&self) -> Queue<'_, LoomProcessor> {
        Queue {
            id: self.id,
            control: &self.control,
            slots: &self.slots,
            extras: &self.extras,
            blocks: &self.blocks,
            bytes: self.bytes.clone(),
            block_size: BLOCK_SIZE,
        }
    }
}

/// An endpoint's part of shared memory.
struct End<C> {
    queues: [Memory<C>; 2],
    intents: [LoomWord; 2],
    /// Stands for the time that passes: an endpoint that can't go on tries again when
    /// something has changed.
    changed: Notify,
}

impl<C> End<C> {
    fn new(id: usize, packets: usize, claim: impl Fn() -> C) -> Self {
        let word = || LoomArena::default().word(Place::NewLine, 0);
        End {
            queues: [REQUESTS, REPLIES].map(|kind| Memory::new(2 * id + kind, packets, claim())),
            intents: [word(), word()],
            changed: Notify::new(),
        }
    }
}

/// The steps of this schedule.
type Story = Arc<Mutex<Vec<String>>>;

/// The processor of an endpoint, and its private state.
struct Agent<'a, C> {
    id: usize,
    world: &'a [End<C>],
    story: &'a Story,
    /// True if it looks at its own queues while it waits.
    polls: bool,
    /// Senders to every other endpoint, as [`End::queues`].
    senders: Vec<[Sender; 2]>,
    receivers: [Receiver; 2],
    served: usize,
    answered: usize,
}

impl<'a, C: Claim<LoomProcessor>> Agent<'a, C> {
    fn new(id: usize, world: &'a [End<C>], story: &'a Story, polls: bool) -> Self {
        let sender = || Sender::new(id as u16, 0, 0);
        let senders = world.iter().map(|_| [sender(), sender()]).collect();
        Agent { id, world, story, polls, senders, receivers: Default::default(), served: 0, answered: 0 }
    }

    fn cpu(&self) -> LoomProcessor {
        LoomProcessor { id: self.id }
    }

    fn tell(&self, what: &str) {
        self.story.lock().unwrap().push(format!("{} {what}", self.id));
    }

    /// Nothing can be done until something has changed.
    fn rest(&self) {
        self.world[self.id].changed.wait();
    }

    /// Tries, polls and waits, as `path.rs` does.
    fn until_claimed<T>(
        &mut self,
        kind: usize,
        what: &str,
        mut attempt: impl FnMut(&mut Self) -> Result<T, ClaimError>,
    ) -> T {
        let mut waits = false;
        loop {
            match attempt(self) {
                Ok(claimed) => {
                    self.tell(&format!("has {what}"));
                    return claimed;
                }
                Err(ClaimError::Full) if !waits => self.tell(&format!("waits for {what}")),
                Err(ClaimError::Full) => {}
                Err(ClaimError::Closed) => panic!("no call closes a queue"),
            }
            waits = true;
            let delivered = match kind {
                _ if !self.polls => 0,
                REQUESTS => self.poll(),
                _ => self.poll_queue(REPLIES),
            };
            if delivered == 0 {
                self.rest();
            }
        }
    }

    fn claim_packet(&mut self, to: usize, kind: usize) -> u64 {
        let what = format!("a packet for a {} to {to}", ["request", "reply"][kind]);
        let (memory, intent) = (&self.world[to].queues[kind], &self.world[self.id].intents[kind]);
        self.until_claimed(kind, &what, |me| {
            let sender = &mut me.senders[to][kind];
            memory.claim.claim(&memory.queue(), sender, &LoomProcessor { id: me.id }, &Spinning, intent)
        })
    }

    fn claim_block(&mut self, to: usize) -> usize {
        let (memory, intent) = (&self.world[to].queues[REQUESTS], &self.world[self.id].intents[REQUESTS]);
        self.until_claimed(REQUESTS, "a block", |me| {
            let sender = &mut me.senders[to][REQUESTS];
            memory.claim.claim_block(&memory.queue(), sender, &LoomProcessor { id: me.id }, &Spinning, intent)
        })
    }

    fn publish(&mut self, to: usize, kind: usize, ticket: u64, block: Option<usize>) {
        let (memory, intent) = (&self.world[to].queues[kind], &self.world[self.id].intents[kind]);
        let (q, cpu) = (memory.queue(), self.cpu());
        let header = Header::new(Form::Short, 1, 0, self.id as u32);
        let header = match block {
            None => header.with_state(READY),
            Some(block) => {
                cpu.copy_in(&q.bytes, q.block_at(block), &[self.id as u8; BLOCK_SIZE]);
                header.with_block(block).with_state(READY_BULK)
            }
        };
        memory.claim.publish(&q, &mut self.senders[to][kind], &cpu, false, intent, ticket, header);
        self.tell(&format!("has published packet {ticket}"));
        self.world[to].changed.notify();
    }

    fn send(&mut self, to: usize, kind: usize) {
        let ticket = self.claim_packet(to, kind);
        self.publish(to, kind, ticket, None);
    }

    fn send_bulk(&mut self, to: usize, order: Order) {
        let (ticket, block) = match order {
            Order::BlockFirst => {
                let block = self.claim_block(to);
                (self.claim_packet(to, REQUESTS), block)
            }
            Order::PacketFirst => {
                let ticket = self.claim_packet(to, REQUESTS);
                (ticket, self.claim_block(to))
            }
        };
        self.publish(to, REQUESTS, ticket, Some(block));
    }

    /// Replies before requests.
    fn poll(&mut self) -> usize {
        self.poll_queue(REPLIES) + self.poll_queue(REQUESTS)
    }

    fn poll_queue(&mut self, kind: usize) -> usize {
        let memory = &self.world[self.id].queues[kind];
        let (q, cpu) = (memory.queue(), self.cpu());
        let mut delivered = 0;
        while let Some(arrival) = self.receivers[kind].next(&memory.claim, &q, &cpu) {
            self.handle(kind, arrival);
            self.receivers[kind].done(&memory.claim, &q, &cpu, arrival);
            memory.claim.flush(&q, &mut self.receivers[kind], &cpu, &Spinning);
            delivered += 1;
            for other in (0..self.world.len()).filter(|other| *other != self.id) {
                self.world[other].changed.notify();
            }
        }
        delivered
    }

    /// A short request is replied to; a bulk one is only received.
    fn handle(&mut self, kind: usize, arrival: Arrival) {
        let source = arrival.header.source() as usize;
        self.tell(&format!("handles a {} of {source}", ["request", "reply"][kind]));
        if arrival.header.has_block() {
            let (q, cpu) = (self.world[self.id].queues[kind].queue(), self.cpu());
            let mut bytes = [0; BLOCK_SIZE];
            cpu.copy_out(&q.bytes, q.block_at(arrival.header.block()), &mut bytes);
            assert_eq!(bytes, [source as u8; BLOCK_SIZE]);
            q.free_block(&cpu, arrival.header.block());
        } else if kind == REQUESTS {
            self.send(source, REPLIES);
        }
        *[&mut self.served, &mut self.answered][kind] += 1;
    }

    fn poll_until(&mut self, served: usize, answered: usize) {
        while (self.served, self.answered) != (served, answered) {
            assert!(self.served <= served && self.answered <= answered, "a message came twice");
            if self.poll() == 0 {
                self.rest();
            }
        }
    }
}

const BOUNDS: [(usize, usize, usize); 2] = [(1, 2, 1), (0, 3, 1)];

#[derive(Clone, Copy, PartialEq)]
enum Order {
    BlockFirst,
    PacketFirst,
}

/// Runs `body` for every endpoint of a world under every schedule. `Err`: the checker
/// found a deadlock, and here is how it came about.
fn check<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    (preemptions, ends, packets): (usize, usize, usize),
    polls: bool,
    claim: impl Fn() -> C + Send + Sync + 'static,
    body: impl Fn(&mut Agent<'_, C>) + Send + Sync + Copy + 'static,
) -> Result<(), Vec<String>> {
    let story = Story::default();
    let stories = story.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        model(preemptions, move || {
            stories.lock().unwrap().clear();
            let world: Arc<Vec<_>> = Arc::new((0..ends).map(|id| End::new(id, packets, &claim)).collect());
            let threads: Vec<_> = (1..ends)
                .map(|id| {
                    let (world, story) = (world.clone(), stories.clone());
                    thread::spawn(move || body(&mut Agent::new(id, &world, &story, polls)))
                })
                .collect();
            body(&mut Agent::new(0, &world, &stories, polls));
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }));
    let Err(panic) = result else { return Ok(()) };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("");
    let story = story.lock().unwrap().clone();
    assert!(text.starts_with("deadlock"), "{text}\n{story:#?}");
    println!("a deadlock:");
    story.iter().for_each(|line| println!("  {line}"));
    Err(story)
}

fn over<L: Lock<LoomProcessor>>() -> Locked<Box<L>> {
    Locked(Box::new(L::new(&LoomArena::default())))
}

/// Each of the endpoints sends the next one more requests than its queue takes, and
/// serves and waits for replies only then.
fn cycle<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    bounds: (usize, usize, usize),
    polls: bool,
    claim: impl Fn() -> C + Send + Sync + 'static,
) -> Result<(), Vec<String>> {
    let (_, ends, packets) = bounds;
    check(bounds, polls, claim, move |me| {
        let next = (me.id + 1) % ends;
        for _ in 0..=packets {
            me.send(next, REQUESTS);
        }
        me.poll_until(packets + 1, packets + 1);
    })
}

fn cycles_are_resolved<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    claim: impl Fn() -> C + Copy + Send + Sync + 'static,
) {
    for bounds in BOUNDS {
        assert_eq!(cycle(bounds, true, claim), Ok(()), "{bounds:?}");
        let story = cycle(bounds, false, claim).expect_err("without polling");
        // The last line of each endpoint.
        for id in 0..bounds.1 {
            let last = story.iter().rfind(|line| line.starts_with(&id.to_string()));
            assert_eq!(
                last.map(String::as_str),
                Some(&*format!("{id} waits for a packet for a request to {}", (id + 1) % bounds.1))
            );
        }
    }
}

/// Two endpoints send a block each to endpoint 0, which has one.
fn bulk<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    bounds: (usize, usize, usize),
    order: Order,
    claim: impl Fn() -> C + Send + Sync + 'static,
) -> Result<(), Vec<String>> {
    check(bounds, true, claim, move |me| match me.id {
        0 => me.poll_until(2, 0),
        _ => me.send_bulk(0, order),
    })
}

fn the_order_of_bulk_claims_matters<C: Claim<LoomProcessor> + Send + Sync + 'static>(
    claim: impl Fn() -> C + Copy + Send + Sync + 'static,
) {
    for bounds in [(1, 3, 1), (2, 3, 2)] {
        assert_eq!(bulk(bounds, Order::BlockFirst, claim), Ok(()), "{bounds:?}");
    }
    let story = bulk((2, 3, 2), Order::PacketFirst, claim).expect_err("the packet first");
    // The sender of the head waits for the block, which the other has published behind it.
    let head = story.iter().find(|line| line.ends_with("has a packet for a request to 0")).expect("a head");
    let (first, second) = if head.starts_with('1') { (1, 2) } else { (2, 1) };
    let said = |line: String| assert!(story.contains(&line), "{line}: {story:#?}");
    said(format!("{first} waits for a block"));
    said(format!("{second} has published packet 1"));
    assert!(!story.iter().any(|line| line.starts_with("0 handles")), "{story:#?}");
}

#[test]
fn cycles_of_requests_under_a_lock() {
    cycles_are_resolved(over::<Posix<LoomProcessor>>);
}

#[test]
#[ignore = "ten seconds"]
fn cycles_of_requests_lock_free() {
    cycles_are_resolved(|| LockFree);
}

#[test]
fn cycles_of_requests_towpath() {
    cycles_are_resolved(|| Towpath);
}

#[test]
fn bulk_transfers_under_a_lock() {
    the_order_of_bulk_claims_matters(over::<Posix<LoomProcessor>>);
}

#[test]
fn bulk_transfers_lock_free() {
    the_order_of_bulk_claims_matters(|| LockFree);
}

#[test]
fn bulk_transfers_towpath() {
    the_order_of_bulk_claims_matters(|| Towpath);
}
