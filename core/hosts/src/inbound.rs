//! Inbound messages of one host for one queue of a local endpoint.
//!
//! A message is placed in the queue as its sender's proxy would place it, or waits here while the
//! queue is full. Messages are counted as handled in the order in which they came: their sender's
//! host counts its own in the same order.

use std::collections::VecDeque;

use towpath_am::{Direction, Name, QueueWatch};

/// Messages of a host for a local queue.
#[derive(Debug)]
pub struct Inbound {
    to: Name,
    queue: QueueWatch,
    /// Tickets of messages that were placed and are not known to be handled; `None`: no
    /// sender was left that could place it.
    placed: VecDeque<Option<u64>>,
    /// Messages that wait for space: their numbers, and their items' bytes.
    waiting: VecDeque<(u64, Vec<u8>)>,
}

/// Name of an [`Inbound`]: the sender's host, the endpoint's place, the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InboundKey {
    pub from: u16,
    pub endpoint: u16,
    pub is_reply: bool,
}

impl InboundKey {
    pub fn direction(self) -> Direction {
        Direction::of(self.is_reply)
    }
}

impl Inbound {
    pub fn new(to: Name, queue: QueueWatch) -> Inbound {
        Inbound { to, queue, placed: VecDeque::new(), waiting: VecDeque::new() }
    }

    pub fn to(&self) -> Name {
        self.to
    }

    /// Returns whether no message is under way.
    pub fn is_idle(&self) -> bool {
        self.placed.is_empty() && self.waiting.is_empty()
    }

    /// Number of messages that were placed and are not known to be handled.
    pub fn unhandled(&self) -> usize {
        self.placed.len()
    }

    /// Returns whether the receiver polls while it stands at the barrier.
    pub fn polls_at_barrier(&self) -> bool {
        self.queue.polls_at_barrier()
    }

    /// Number of the first message that waits.
    pub fn first_waiting(&self) -> Option<u64> {
        self.waiting.front().map(|(number, _)| *number)
    }

    /// Items of the messages that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &[u8]> {
        self.waiting.iter().map(|(_, bytes)| &bytes[..])
    }

    /// Adds a message to those that wait.
    pub fn wait(&mut self, number: u64, bytes: &[u8]) {
        self.waiting.push_back((number, bytes.to_vec()));
    }

    /// The first message that waits, which the caller places or puts back.
    pub fn take_waiting(&mut self) -> Option<(u64, Vec<u8>)> {
        self.waiting.pop_front()
    }

    pub fn put_back(&mut self, message: (u64, Vec<u8>)) {
        self.waiting.push_front(message);
    }

    /// Notes that the next message was placed.
    pub fn placed(&mut self, ticket: Option<u64>) {
        self.placed.push_back(ticket);
    }

    /// Takes the messages that were handled. Returns their number.
    pub fn take_handled(&mut self) -> u64 {
        let mut count = 0;
        while let Some(first) = self.placed.front()
            && first.is_none_or(|ticket| self.queue.has_handled(ticket))
        {
            self.placed.pop_front();
            count += 1;
        }
        count
    }
}
