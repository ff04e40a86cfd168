//! Endpoints on any machine: over `am`'s queues, claims and message path, everything that costs time.
//!
//! What native endpoints have beyond this (translation tables, tags, segments, deaths, sleeping) takes no part in the paper's experiments. What an endpoint executes besides its accesses
//! to shared memory is charged as [`Costs`].

use std::cell::{Cell, RefCell};

use towpath_am::MAX_ARGS;
use towpath_am::claim::Claim;
use towpath_am::packet::{Form, Header, READY_BULK, source_code};
use towpath_am::path::{
    FIRST_QUOTA, Inbox, Meanwhile, Outgoing, Piece, Route, extra_args, free_afterwards, line_args,
};
use towpath_am::queue::{Arrival, ClaimError, Queue, Receiver, Sender};
use towpath_machine::Processor;

use super::waiting::Period;
use super::world::World;

/// What the message path executes besides its accesses to shared memory, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Composing and sending a message.
    pub send: u64,
    /// A poll, whether or not it finds something.
    pub poll: u64,
    /// Dispatching a message to its handler.
    pub dispatch: u64,
}

/// Which queue of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its request queue.
    Request = 0,
    /// Its reply queue.
    Reply = 1,
}

/// How an endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it must.
    Right,
    /// Claims the packet first, then the block: the order of which the paper warns (Section 3.2).
    PacketFirst,
    /// Does not poll while it waits for space (Section 3.1).
    Deaf,
}

/// What all endpoints of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Instructions.
    pub costs: Costs,
    /// Waiting.
    pub period: Period,
    /// Behaviour.
    pub way: Way,
}

/// A message as a handler sees it.
#[derive(Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub from: usize,
    /// Its arguments.
    pub args: &'a [u32],
    /// Its payload.
    pub payload: &'a [u8],
}

/// A handler.
type Handler<'w, P, C> = Box<dyn Fn(&Endpoint<'w, P, C>, &Message<'_>) + 'w>;

/// An endpoint.
pub struct Endpoint<'w, P: Processor, C> {
    cpu: &'w P,
    world: &'w World<P, C>,
    me: usize,
    habits: Habits,
    /// Every member's two queues, and what we know of them as a sender.
    queues: Vec<[Queue<'w, P>; 2]>,
    senders: Vec<[RefCell<Sender>; 2]>,
    receivers: [RefCell<Receiver>; 2],
    quotas: [Cell<usize>; 2],
    handlers: Vec<Handler<'w, P, C>>,
    in_handler: Cell<bool>,
    buffer: RefCell<Vec<u8>>,
    /// Polls that found something, and messages that they delivered: requests only.
    found: Cell<(u64, u64)>,
}

impl<'w, P: Processor, C: Claim<P>> Endpoint<'w, P, C> {
    /// The endpoint of member `me`.
    pub fn new(cpu: &'w P, world: &'w World<P, C>, me: usize, habits: Habits) -> Self {
        let queues: Vec<[Queue<'w, P>; 2]> =
            world.members.iter().map(|m| [m.sides[0].queue(), m.sides[1].queue()]).collect();
        let sender = || RefCell::new(Sender::new(me as u16, 0, 0));
        Endpoint {
            cpu,
            world,
            me,
            habits,
            senders: queues.iter().map(|_| [sender(), sender()]).collect(),
            queues,
            receivers: Default::default(),
            quotas: [Cell::new(FIRST_QUOTA), Cell::new(FIRST_QUOTA)],
            handlers: Vec::new(),
            in_handler: Cell::new(false),
            buffer: RefCell::default(),
            found: Cell::default(),
        }
    }

    /// Adds a handler; they are numbered from 0.
    pub fn handler(&mut self, handler: impl Fn(&Self, &Message<'_>) + 'w) {
        self.handlers.push(Box::new(handler));
    }

    /// Polls that found requests, and requests that they delivered.
    pub fn found(&self) -> (u64, u64) {
        self.found.get()
    }

    /// Sends a request, waiting for space. With a payload it is a bulk transfer.
    pub fn request(&self, to: usize, handler: u8, args: &[u32], payload: Option<&[u8]>) {
        assert!(!self.in_handler.get(), "a handler may reply, but not send requests");
        self.send(to, Kind::Request, handler, args, payload);
    }

    /// Replies, from a handler.
    pub fn reply(&self, to: usize, handler: u8, args: &[u32]) {
        self.send(to, Kind::Reply, handler, args, None);
    }

    fn send(&self, to: usize, kind: Kind, handler: u8, args: &[u32], payload: Option<&[u8]>) {
        self.cpu.work(self.habits.costs.send);
        let k = kind as usize;
        let intents = &self.world.members[self.me].intents;
        let route = Route {
            queue: &self.queues[to][k],
            claim: &self.world.members[to].sides[k].claim,
            sender: &self.senders[to][k],
            intent: &intents[k],
            block_intent: &intents[2 + k],
        };
        let form = if payload.is_some() { Form::Medium } else { Form::Short };
        let source = source_code(self.me as u16, 0);
        let out = Outgoing { form, handler, tag: 0, args, aux: 0, source };
        let piece = payload.map(|bytes| Piece { bytes, offset: 0, whole: (0, 0) });
        let waiter = Waiter { endpoint: self, to, kind };
        if let (Way::PacketFirst, Some(piece)) = (self.habits.way, piece) {
            return self.send_packet_first(&route, &out, piece, waiter);
        }
        let woken = route.send(self.cpu, &out, piece, true, &self.habits.period, waiter);
        assert_eq!(woken, Ok(false), "nobody dies here, and nobody sleeps");
    }

    /// The wrong order of claims, for showing that it is wrong.
    fn send_packet_first(
        &self,
        route: &Route<'_, P, C>,
        out: &Outgoing<'_>,
        piece: Piece<'_>,
        waiter: Waiter<'_, 'w, P, C>,
    ) {
        let (q, cpu, wait) = (route.queue, self.cpu, &self.habits.period);
        let ticket = waiter.until_claimed(|s| route.claim.claim(q, s, cpu, wait, route.intent), route.sender);
        // A sender may be delayed anywhere: here by up to 7 µs, as its clock happens to stand.
        cpu.work(1_000 * (cpu.now() % 8));
        let block =
            waiter.until_claimed(|s| route.claim.claim_block(q, s, cpu, wait, route.intent), route.sender);
        cpu.copy_in(&q.bytes, q.block_at(block), piece.bytes);
        cpu.write(&q.blocks[block].len, piece.bytes.len() as u64);
        let header =
            Header::new(out.form, out.handler, 0, out.source).with_block(block).with_state(READY_BULK);
        let mut sender = route.sender.borrow_mut();
        route.claim.publish(q, &mut sender, cpu, false, route.intent, ticket, header);
    }

    /// Delivers what has arrived, replies first. Returns how much that was.
    pub fn poll(&self) -> usize {
        if self.in_handler.get() {
            return 0;
        }
        self.cpu.work(self.habits.costs.poll);
        let replies = self.poll_queue(Kind::Reply);
        let requests = self.poll_queue(Kind::Request);
        if requests > 0 {
            let (polls, messages) = self.found.get();
            self.found.set((polls + 1, messages + requests as u64));
        }
        replies + requests
    }

    fn poll_queue(&self, kind: Kind) -> usize {
        let k = kind as usize;
        let queue = &self.queues[self.me][k];
        let inbox = Inbox {
            queue,
            claim: &self.world.members[self.me].sides[k].claim,
            receiver: &self.receivers[k],
            quota: &self.quotas[k],
        };
        inbox.poll(self.cpu, || self.habits.period, |arrival| self.deliver(queue, arrival))
    }

    fn deliver(&self, q: &Queue<'w, P>, arrival: Arrival) {
        let (cpu, header) = (self.cpu, arrival.header);
        cpu.work(self.habits.costs.dispatch);
        let mut args = [0; MAX_ARGS];
        line_args(cpu, q.slot(arrival.ticket), &mut args);
        extra_args(cpu, q, arrival, &mut args);
        let _block = free_afterwards(q, cpu, header);
        let mut payload = Vec::new();
        if header.has_block() {
            payload = self.buffer.take();
            let len = cpu.read(&q.blocks[header.block()].len) as usize;
            payload.resize(len.min(q.block_size), 0);
            cpu.copy_out(&q.bytes, q.block_at(header.block()), &mut payload);
        }
        let message = Message {
            from: usize::from(header.source() & 0xff),
            args: &args[..header.args().min(MAX_ARGS)],
            payload: &payload,
        };
        // A reply's handler may interrupt a request's that waits for space to reply.
        let before = self.in_handler.replace(true);
        self.handlers[usize::from(header.handler())](self, &message);
        self.in_handler.set(before);
        if header.has_block() {
            self.buffer.replace(payload);
        }
    }
}

/// A message waits for space.
struct Waiter<'a, 'w, P: Processor, C> {
    endpoint: &'a Endpoint<'w, P, C>,
    to: usize,
    kind: Kind,
}

impl<P: Processor, C> Clone for Waiter<'_, '_, P, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor, C> Copy for Waiter<'_, '_, P, C> {}

impl<P: Processor, C: Claim<P>> Meanwhile for Waiter<'_, '_, P, C> {
    fn is_gone(&self) -> bool {
        false
    }
    fn poll(&self) -> usize {
        match (self.endpoint.habits.way, self.kind) {
            (Way::Deaf, _) => 0,
            (_, Kind::Request) => self.endpoint.poll(),
            (_, Kind::Reply) => self.endpoint.poll_queue(Kind::Reply),
        }
    }
    fn pause(&self, round: u32) {
        let (e, k) = (self.endpoint, self.kind as usize);
        let claim = &e.world.members[self.to].sides[k].claim;
        let sender = e.senders[self.to][k].borrow();
        claim.await_space(&e.queues[self.to][k], &sender, e.cpu, &e.habits.period.at_full_queue(), round);
    }
    fn look_around(&self) -> bool {
        true
    }
}

impl<P: Processor, C: Claim<P>> Waiter<'_, '_, P, C> {
    fn until_claimed<T>(
        &self,
        mut attempt: impl FnMut(&mut Sender) -> Result<T, ClaimError>,
        sender: &RefCell<Sender>,
    ) -> T {
        let mut round = 0;
        loop {
            let result = attempt(&mut sender.borrow_mut());
            match result {
                Ok(claimed) => return claimed,
                Err(error) => assert_eq!(error, ClaimError::Full, "nobody closes a queue"),
            }
            if self.poll() == 0 {
                self.pause(round);
                round += 1;
            } else {
                round = 0;
            }
        }
    }
}
