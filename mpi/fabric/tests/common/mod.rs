//! Endpoints in one process, driven by hand.
#![allow(dead_code, unsafe_code)]

pub mod mortals;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use towpath_fi::device::connect::address::{ADDRESS_BYTES, Address};
use towpath_fi::device::endpoint::{Endpoint, EndpointCore};
use towpath_fi::device::operation::Receive;
use towpath_fi::device::operation::{Refusal, SendRequest};
use towpath_fi::device::resource::buffers::Buffer;
use towpath_fi::device::resource::completion::{Class, Completion, CompletionQueue, CompletionTicket};
use towpath_fi::device::tune::settings::Settings;

/// An endpoint, and where it reports.
pub struct Node {
    pub endpoint: Endpoint,
    pub sent: Rc<CompletionQueue>,
    pub received: Rc<CompletionQueue>,
}

/// An endpoint by itself.
pub fn open(settings: Settings) -> Node {
    let mut endpoint = Endpoint::open(settings).expect("an endpoint can be opened");
    let (sent, received) = (Rc::default(), Rc::default());
    endpoint.core.reports.transmit = Some(Rc::clone(&sent));
    endpoint.core.reports.receive = Some(Rc::clone(&received));
    Node { endpoint, sent, received }
}

/// Sends its address.
pub fn tell(node: &Node, to: &mut UnixStream) {
    to.write_all(&node.endpoint.port.address.to_bytes()).expect("the other is there");
}

/// Takes the other's address: its number as a peer.
pub fn learn(node: &mut Node, from: &mut UnixStream) -> u32 {
    let mut bytes = [0; ADDRESS_BYTES];
    from.read_exact(&mut bytes).expect("the other is there");
    let address = Address::from_bytes(&bytes).expect("an address");
    let peer = node.endpoint.core.peer(address);
    node.endpoint.core.peers[peer as usize].listed = u64::from(peer);
    peer
}

/// Makes progress, and looks after the others, until something is so.
pub fn wait_for(node: &mut Node, mut done: impl FnMut(&mut Node) -> bool) {
    let mut looked = Instant::now();
    while !done(node) {
        node.endpoint.progress();
        if looked.elapsed() > Duration::from_millis(2) {
            node.endpoint.look_after();
            looked = Instant::now();
        }
        std::thread::yield_now();
    }
}

/// Opens so many endpoints that know each other: number `i` is peer `i` of each, listed
/// under that number.
pub fn nodes(n: usize, settings: Settings) -> Vec<Node> {
    let mut nodes: Vec<Node> = (0..n).map(|_| open(settings)).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.endpoint.port.address).collect();
    for node in &mut nodes {
        for (i, address) in addresses.iter().enumerate() {
            assert_eq!(node.endpoint.core.peer(*address), i as u32);
            node.endpoint.core.peers[i].listed = i as u64;
        }
    }
    nodes
}

/// A buffer over bytes that the test keeps.
pub fn over(bytes: &[u8]) -> Buffer {
    // SAFETY: the tests keep the bytes until the operation's completion, and no other code uses
    // them until then.
    unsafe { Buffer::one(bytes.as_ptr() as usize, bytes.len()) }
}

pub fn ticket(context: usize, class: Class) -> CompletionTicket {
    CompletionTicket { context, flags: 0, notify: true, class }
}

impl Node {
    /// Starts a tagged send; `false`: there is no space.
    pub fn send(&mut self, to: u32, tag: u64, bytes: &[u8], context: usize) -> bool {
        self.send_with(to, Some(tag), bytes, None, context, false)
    }

    pub fn send_with(
        &mut self,
        peer: u32,
        tag: Option<u64>,
        bytes: &[u8],
        data: Option<u64>,
        context: usize,
        matched: bool,
    ) -> bool {
        let ticket = ticket(context, Class::Send);
        let buffer = &over(bytes);
        let message = SendRequest { peer, tag, buffer, data, ticket, inject: false, matched };
        match self.endpoint.core.send(&message) {
            Ok(()) => true,
            Err(Refusal::Again) => false,
            Err(other) => panic!("a send was refused: {other:?}"),
        }
    }

    /// Posts a tagged receive.
    pub fn receive(&mut self, from: Option<u32>, tag: u64, ignore: u64, into: &mut [u8], context: usize) {
        self.endpoint.receive(true, EndpointCore::pattern(from, tag, ignore), receive(into, context));
    }

    /// The next report about a receive, errors too.
    pub fn next_received(&mut self) -> Option<Completion> {
        self.received.pop().or_else(|| self.received.pop_error())
    }

    /// The next report about anything else, errors too.
    pub fn next_sent(&mut self) -> Option<Completion> {
        self.sent.pop().or_else(|| self.sent.pop_error())
    }
}

pub fn receive(into: &mut [u8], context: usize) -> Receive {
    Receive { buffer: over(into), context, flags: 0, notify: true, multi: None }
}

/// Lets all make progress until nothing happens any more.
pub fn settle(nodes: &mut [Node]) {
    let mut quiet = 0;
    while quiet < 3 {
        let taken: usize = nodes.iter_mut().map(|node| node.endpoint.progress()).sum();
        let stuck = nodes.iter().any(|node| node.endpoint.is_stuck());
        quiet = if taken > 0 || stuck { 0 } else { quiet + 1 };
    }
}

pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}
