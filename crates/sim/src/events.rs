//! The queue of what is going to happen: a binary heap in the order of (time, sequence).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds since the start.
pub type Time = u64;

/// What happens. The two numbers beside it are explained here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A thread goes on. (thread, generation)
    Resume,
    /// A request reaches its home. (processor)
    HomeArrive,
    /// A home has finished with a request. (node)
    HomeFree,
    /// What a processor waits for reaches it. (processor)
    Reply,
    /// A request was refused; the processor sends it again. (processor)
    Retry,
    /// An invalidation reaches a node. (line, node and requester)
    Invalidate,
    /// An acknowledgement of an invalidation reaches the requester. (processor)
    Acknowledge,
    /// An intervention reaches the owner of a line. (owner, requester)
    Intervene,
    /// The home learns that an intervention is over. (line)
    HomeUpdate,
    /// A request gets the bus. (processor)
    BusGrant,
    /// The other caches see an exclusive request on the bus. (processor, line)
    BusSnoop,
    /// A time slice is over. (processor, generation)
    Quantum,
    /// A blocked thread may run again. (thread, generation)
    Ready,
    /// The operating system takes a processor for an interrupt. (processor)
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub time: Time,
    /// Sequence in the upper 56 bits, kind in the lower 8: one comparison decides between events of the same time.
    order: u64,
    pub a: u32,
    pub b: u32,
}

impl Event {
    pub fn kind(&self) -> Kind {
        KINDS[(self.order & 0xff) as usize]
    }
}

const KINDS: [Kind; 14] = [
    Kind::Resume,
    Kind::HomeArrive,
    Kind::HomeFree,
    Kind::Reply,
    Kind::Retry,
    Kind::Invalidate,
    Kind::Acknowledge,
    Kind::Intervene,
    Kind::HomeUpdate,
    Kind::BusGrant,
    Kind::BusSnoop,
    Kind::Quantum,
    Kind::Ready,
    Kind::Interrupt,
];

/// The queue, with a hash of all that has happened.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    /// The time of the earliest event: nobody may run beyond it.
    pub horizon: Time,
    /// How many have happened.
    pub count: u64,
    /// Of all events so far, in order.
    pub hash: u64,
}

impl Events {
    pub fn new() -> Self {
        Events { horizon: Time::MAX, ..Events::default() }
    }

    #[inline]
    pub fn push(&mut self, time: Time, kind: Kind, a: usize, b: usize) {
        self.sequence += 1;
        self.horizon = self.horizon.min(time);
        let order = self.sequence << 8 | kind as u64;
        self.heap.push(Reverse(Event { time, order, a: a as u32, b: b as u32 }));
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let Reverse(event) = self.heap.pop()?;
        self.horizon = self.heap.peek().map_or(Time::MAX, |Reverse(next)| next.time);
        self.count += 1;
        let what = event.time ^ (event.order & 0xff) << 56 ^ u64::from(event.a) << 20 ^ u64::from(event.b);
        self.hash = (self.hash.rotate_left(23) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some(event)
    }

    /// When the next one happens.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(e)| e.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_sending() {
        let mut events = Events::new();
        for (time, a) in [(5, 0), (3, 1), (5, 2), (3, 3), (1, 4)] {
            events.push(time, Kind::Reply, a, 0);
        }
        assert_eq!(events.horizon, 1);
        let order: Vec<u32> = std::iter::from_fn(|| events.pop()).map(|e| e.a).collect();
        assert_eq!(order, [4, 1, 3, 0, 2]);
        assert_eq!((events.horizon, events.count), (Time::MAX, 5));
    }

    #[test]
    fn every_kind_survives_its_packing() {
        let mut events = Events::new();
        for kind in KINDS {
            events.push(0, kind, 1, 2);
            assert_eq!(events.pop().unwrap().kind(), kind);
        }
    }
}
