//! Streams of simulated endpoints: order beside the queue, and the death of either side.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_am::domain::DomainMemory;
use towpath_am::packet::LINE_ARGS;
use towpath_am::stream::{Ends, OPEN};
use towpath_am::{MAX_ARGS, Operation, SegmentKind, Status, Tag};

use super::super::domain::{Endpoint, name_of, on};
use super::{ASK, Fate, Program, STREAMS, Spot, simulate};

/// Number of requests of a sender: several laps of a stream.
const REQUESTS: u32 = 1200;
/// Number of requests after which a sender dies, in the midst of its stream.
const HALF: u32 = REQUESTS / 2;

/// A process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillableReceiver {
    Neither,
    /// Rank 0, when it has handled so many requests.
    Receiver(usize),
    /// The last rank.
    Sender,
}

/// Requests of all others to rank 0, most of them short enough for a stream.
#[derive(Clone)]
struct StreamedRecords {
    victim: KillableReceiver,
    /// Numbers of the requests of each rank that rank 0 has handled.
    handled: Rc<RefCell<Vec<Vec<u32>>>>,
    returned: Rc<Cell<usize>>,
    /// Number of senders that have had a stream.
    opened: Rc<Cell<usize>>,
    done: Rc<Cell<usize>>,
}

impl StreamedRecords {
    fn new(victim: KillableReceiver) -> StreamedRecords {
        let none = || Rc::new(Cell::new(0));
        let handled = Rc::new(RefCell::new(vec![Vec::new(); 8]));
        StreamedRecords { victim, handled, returned: none(), opened: none(), done: none() }
    }

    fn handled(&self) -> usize {
        self.handled.borrow().iter().map(Vec::len).sum()
    }

    /// Number of requests that are sent in all.
    fn sent(&self, members: usize) -> usize {
        let missing = if self.victim == KillableReceiver::Sender { HALF } else { 0 };
        (members - 1) * REQUESTS as usize - missing as usize
    }

    fn receive(&self, place: &Spot<'_>, endpoint: &Endpoint<'_>) {
        let indices = indices(place, endpoint);
        let enough = match self.victim {
            KillableReceiver::Receiver(enough) => enough,
            _ => self.sent(place.members),
        };
        while self.handled() < enough {
            endpoint.poll();
        }
        if let KillableReceiver::Receiver(_) = self.victim {
            return place.die();
        }
        // The streams of the dead are taken back, those of the living stay.
        place.wait_while(|| self.done.get() < place.members - 1);
        endpoint.recover();
        let dead = (self.victim == KillableReceiver::Sender).then_some(place.members - 1);
        for rank in 1..place.members {
            assert!(
                Some(rank) != dead || !has_stream(endpoint, indices[rank], indices[0]),
                "its stream is free"
            );
        }
        assert!(endpoint.audit().is_clean(), "{:?}", endpoint.audit());
    }

    fn send(&self, place: &Spot<'_>, endpoint: &Endpoint<'_>, fate: &Fate) {
        let is_victim = self.victim == KillableReceiver::Sender && place.me == place.members - 1;
        let indices = indices(place, endpoint);
        let has_stream = || has_stream(endpoint, indices[place.me], indices[0]);
        let mut opened = false;
        for n in 0..if is_victim { HALF } else { REQUESTS } {
            // Some have more arguments than a record: they go through the queue. Few, since a
            // poll's quota does not count the records before a packet.
            let count = if n % 300 == 299 { MAX_ARGS } else { 2 + n as usize % (LINE_ARGS - 1) };
            let mut args = [n; MAX_ARGS];
            args[1] = place.me as u32;
            endpoint.request(0, ASK, &args[..count]).unwrap();
            opened |= has_stream();
        }
        self.opened.set(self.opened.get() + usize::from(opened));
        if is_victim {
            place.die();
            return self.done.set(self.done.get() + 1);
        }
        let own = || self.handled.borrow()[place.me].len() + fate.returned.borrow().len();
        while own() < REQUESTS as usize {
            endpoint.poll();
        }
        let returned = fate.returned.borrow();
        assert!(returned.iter().all(|(_, status)| *status == Status::Unreachable), "{returned:?}");
        // Those that it handled come first, then those that it did not, each in order.
        let mut all = self.handled.borrow()[place.me].clone();
        all.extend(returned.iter().map(|(n, _)| *n));
        assert_eq!(all, (0..REQUESTS).collect::<Vec<_>>());
        self.returned.set(self.returned.get() + returned.len());
        if let KillableReceiver::Receiver(_) = self.victim {
            // It may have handled all of this sender's requests.
            place.wait_while(|| place.world.lives(0));
            endpoint.recover();
            assert!(!has_stream(), "given back");
        }
        self.done.set(self.done.get() + 1);
    }
}

/// Indices of all ranks' endpoints: asked for while all live.
fn indices(place: &Spot<'_>, endpoint: &Endpoint<'_>) -> Vec<u16> {
    (0..place.members).map(|rank| name_of(endpoint, rank).to_bits() as u16).collect()
}

/// Returns whether a sender has a stream of a receiver; both are given by their indices.
fn has_stream(endpoint: &Endpoint<'_>, sender: u16, receiver: u16) -> bool {
    let domain = endpoint.domain();
    let mut streams = (0..STREAMS).filter_map(|number| domain.stream(receiver, number));
    streams.any(|stream| {
        let owner = stream.owner(domain.cpu());
        owner & OPEN != 0 && Ends::of(owner).is_some_and(|ends| ends.endpoint == sender)
    })
}

impl Program for StreamedRecords {
    fn run(&self, place: &Spot<'_>) {
        let fate = Fate::default();
        let endpoint = place.endpoint(SegmentKind::None);
        if place.me == 0 {
            on(&endpoint, ASK, |token| {
                let (n, rank) = (token.args()[0], token.args()[1]);
                assert!(token.args()[2..].iter().all(|arg| *arg == n), "{:?}", token.args());
                self.handled.borrow_mut()[rank as usize].push(n);
            });
            return self.receive(place, &endpoint);
        }
        fate.note(&endpoint, Operation::RequestShort);
        endpoint.map(0, name_of(&endpoint, 0), Tag::ALL).unwrap();
        self.send(place, &endpoint, &fate);
    }
}

/// Runs it with two, three and eight processes; checks each run.
fn with(victim: impl Fn(usize) -> KillableReceiver, check: impl Fn(&StreamedRecords, usize)) {
    for members in [2, 3, 8] {
        for seed in 1..=2 {
            let streamed = StreamedRecords::new(victim(members));
            simulate(&streamed, "towpath", members, seed);
            assert_eq!(streamed.done.get(), members - 1);
            // The others find none that is free.
            let opened = (members - 1).min(STREAMS as usize);
            assert_eq!(streamed.opened.get(), opened, "{members} members");
            check(&streamed, members);
        }
    }
}

#[test]
fn requests_in_streams_and_queue_are_handled_in_order() {
    with(
        |_| KillableReceiver::Neither,
        |streamed, members| assert_eq!(streamed.handled(), streamed.sent(members)),
    );
}

#[test]
fn records_that_the_dead_did_not_handle_come_back_in_order() {
    with(
        |members| KillableReceiver::Receiver((members - 1) * REQUESTS as usize / 2),
        |streamed, members| {
            assert!(streamed.returned.get() > 0, "it did not handle all");
            assert_eq!(streamed.handled() + streamed.returned.get(), streamed.sent(members));
        },
    );
}

#[test]
fn records_of_a_dead_sender_are_handled_and_its_stream_is_free() {
    with(
        |_| KillableReceiver::Sender,
        |streamed, members| {
            let of_the_dead = &streamed.handled.borrow()[members - 1];
            assert_eq!(*of_the_dead, (0..HALF).collect::<Vec<_>>());
        },
    );
}
