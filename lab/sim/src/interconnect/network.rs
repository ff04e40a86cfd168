//! The network: how long messages travel, and which ports and links they occupy.
//!
//! **Hypercube.** Nodes hang on routers, whose numbers differ in as many bits as there are hops. A
//! hub's ports, in and out, are each occupied by a message for a while; so is the bisection, by
//! messages whose routers differ in the highest bit, if the machine says that this limits it.
//!
//! **Classes.** Measured latencies between caches, by distance: same group (they share a last-level
//! cache), same socket, across. They are whole latencies, so what the way to the directory and its
//! look-up have taken already is subtracted again from the reply.

use crate::event_queue::Time;
use crate::parameters::{CLASSES, Parameters};

/// A node's way into the network.
#[derive(Clone, Debug)]
struct Hub {
    router: u16,
    /// Time until which its ports are occupied.
    incoming: Time,
    outgoing: Time,
}

#[derive(Debug)]
pub(crate) struct Network {
    classes: bool,
    /// Node of each processor.
    nodes: Vec<u16>,
    hubs: Vec<Hub>,
    /// Number of bits set, for each pattern in which two routers' numbers differ.
    hops: Vec<u8>,
    to_hub: Time,
    to_processor: Time,
    first: Time,
    hop: Time,
    port_data: Time,
    port_request: Time,
    bisection: Time,
    /// The bit of a router's number that tells the halves apart; none if nothing limits
    /// what crosses from one to the other.
    highest: u16,
    group: usize,
    socket: usize,
    /// Times of each class: from cache to cache, and from memory.
    between: [Time; 3],
    memory: [Time; 3],
    /// Time that a request has taken when its home replies.
    before: Time,
    /// End of the bisection's occupancy in either direction, and a 0 for messages that
    /// don't cross it.
    crossing: [Time; 3],
    /// Messages that crossed the network.
    pub messages: u64,
}

impl Network {
    pub fn new(p: &Parameters, processors: usize) -> Self {
        let per_node = p.per_node as usize;
        let nodes = processors.div_ceil(per_node);
        let nodes_per_router = (p.nodes_per_router as usize).max(1);
        let routers = nodes.div_ceil(nodes_per_router).next_power_of_two();
        let hub = |node| Hub { router: (node / nodes_per_router) as u16, incoming: 0, outgoing: 0 };
        Network {
            classes: p.topology == CLASSES,
            nodes: (0..processors).map(|cpu| (cpu / per_node) as u16).collect(),
            hubs: (0..nodes).map(hub).collect(),
            hops: (0..routers).map(|bits| bits.count_ones() as u8).collect(),
            to_hub: p.to_hub,
            to_processor: p.to_processor,
            first: p.first_router,
            hop: p.hop,
            port_data: p.port_data,
            port_request: p.port_request,
            bisection: p.bisection,
            highest: if routers > 1 && p.bisection != 0 { (routers / 2) as u16 } else { 0 },
            group: (p.group as usize).max(1),
            socket: (p.socket as usize).max(1),
            between: [p.within_group, p.within_socket, p.across],
            memory: [p.memory_near, p.memory_near, p.memory_far],
            before: p.to_hub + p.occupancy_lookup,
            crossing: [0; 3],
            messages: 0,
        }
    }

    /// A processor's node.
    #[inline]
    pub fn node(&self, processor: usize) -> usize {
        usize::from(self.nodes[processor])
    }

    /// The class of the distance between two processors' nodes: 0 is local.
    #[inline]
    pub fn distance(&self, a: usize, b: usize) -> usize {
        if self.classes {
            return self.class(a, b);
        }
        let (a, b) = (self.node(a), self.node(b));
        let (from, to) = (self.hubs[a].router, self.hubs[b].router);
        if a == b { 0 } else { 1 + usize::from(self.hops[usize::from(from ^ to)]) }
    }

    fn class(&self, a: usize, b: usize) -> usize {
        match () {
            () if a / self.group == b / self.group => 0,
            () if a / self.socket == b / self.socket => 1,
            () => 2,
        }
    }

    /// Time at which a message from hub to hub that leaves now arrives.
    #[inline(always)]
    fn travel(&mut self, now: Time, from: usize, to: usize, data: bool) -> Time {
        if from == to {
            return now;
        }
        self.messages += 1;
        let occupancy = if data { self.port_data } else { self.port_request };
        let sender = &mut self.hubs[from];
        let router = sender.router;
        let mut leaves = now.max(sender.outgoing);
        sender.outgoing = leaves + occupancy;
        let receiver = &mut self.hubs[to];
        let bits = router ^ receiver.router;
        // Half of all messages cross, at random: no branch, which the host would mispredict.
        let crosses = bits & self.highest != 0;
        let direction = if crosses { usize::from(router & self.highest != 0) } else { 2 };
        leaves = leaves.max(self.crossing[direction]);
        let occupied = leaves + self.bisection * if data { 8 } else { 1 };
        self.crossing[direction] = if crosses { occupied } else { 0 };
        let arrives = leaves + self.first + self.hop * u64::from(self.hops[usize::from(bits)]);
        let taken = arrives.max(receiver.incoming);
        receiver.incoming = taken + occupancy;
        taken
    }

    /// A processor's request reaches the line's home.
    #[inline]
    pub fn request(&mut self, now: Time, from: usize, home: usize) -> Time {
        if self.classes {
            self.messages += 1;
            return now + self.to_hub;
        }
        self.travel(now + self.to_hub, self.node(from), home, false)
    }

    /// The home's reply reaches the processor that asked. With classes: as if from
    /// memory, less what has passed since the request was sent.
    #[inline]
    pub fn reply(&mut self, now: Time, home: usize, to: usize, data: bool) -> Time {
        if self.classes {
            self.messages += 1;
            let whole = if data { self.memory[self.class(home, to)] } else { self.between[0] };
            return now + whole.saturating_sub(self.before);
        }
        self.travel(now, home, self.node(to), data) + self.to_processor
    }

    /// A message from the home reaches a processor other than the one that asked.
    #[inline]
    pub fn forward(&mut self, now: Time, home: usize, asked: usize, to: usize) -> Time {
        if self.classes {
            self.messages += 1;
            return now + self.between[self.class(asked, to)] / 2;
        }
        self.travel(now, home, self.node(to), false) + self.to_processor
    }

    /// A message from one processor reaches another (the line itself, or an
    /// acknowledgement).
    #[inline]
    pub fn direct(&mut self, now: Time, from: usize, to: usize, data: bool) -> Time {
        if self.classes {
            self.messages += 1;
            let whole = self.between[self.class(from, to)];
            return now + (whole - whole / 2).saturating_sub(if data { self.before } else { 0 });
        }
        let (a, b) = (self.node(from), self.node(to));
        self.travel(now + self.to_hub, a, b, data) + self.to_processor
    }

    /// A message from a processor reaches a line's home.
    #[inline]
    pub fn back(&mut self, now: Time, from: usize, home: usize, data: bool) -> Time {
        if self.classes {
            self.messages += 1;
            return now + self.to_hub;
        }
        self.travel(now + self.to_hub, self.node(from), home, data)
    }
}
