//! Failures of `am`'s endpoints on a simulated machine: the native text, under several
//! seeds and numbers of processors.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use towpath_am::Direction;
use towpath_am::claim::Claim;
use towpath_am::domain::{DomainMemory, Side};
use towpath_am::queue::Sender;
use towpath_am::{Name, Operation, Payload, SegmentKind, Status, Tag};
use towpath_machine::{Park, Processor};
use towpath_sim::{Sim, Simulation, machines};
use towpath_sync::Policy;

use super::domain::Habits;
use super::domain::{Endpoint, Simulated, name_of, on};
use super::waiting::Period;
use super::world::{Sizes, World};
use super::{Layer, MessageAlgorithm};

mod streams;

/// The program of a world's processes; rank 0 is usually the one that fails.
trait Program: Clone + 'static {
    const SIZES: Sizes = Sizes::SHORT;
    const WAITING: Policy = Policy::Spin;
    fn run(&self, place: &Spot<'_>);
}

/// The place of one process.
struct Spot<'m> {
    cpu: &'m Sim,
    world: &'m World,
    me: usize,
    members: usize,
    habits: Habits,
}

impl Spot<'_> {
    fn endpoint(&self, segment: SegmentKind) -> Endpoint<'_> {
        Simulated::new(self.cpu, self.world, self.me, self.habits).endpoint_with(segment)
    }

    /// Waits for something outside the simulated memory.
    fn wait_while(&self, condition: impl Fn() -> bool) {
        while condition() {
            self.cpu.work(1_000);
            // Lets the others come to the same time.
            self.cpu.yield_now();
        }
    }

    fn die(&self) {
        self.world.kill(self.me as u32);
    }
}

/// Number of streams of an endpoint, where the algorithm has them.
const STREAMS: u32 = 4;

/// Runs a program under an algorithm.
fn simulate<T: Program>(program: &T, name: &str, members: usize, seed: u64) {
    let algorithm = MessageAlgorithm::from_name(name).unwrap();
    let Layer { run, habits, .. } = Layer::on(machines::by_name("enterprise5000").unwrap(), members, 0);
    let mut simulation = Simulation::new(&run.machine, members, seed);
    let arena = simulation.arena();
    let mut config = T::SIZES.config(members, algorithm.kind());
    config.answer_lines = true;
    // Fewer than the senders of the largest world.
    config.streams = STREAMS;
    config.waiting = T::WAITING;
    let world = Rc::new(World::with_deaths(&arena, config, algorithm));
    for me in 0..members {
        let (program, world) = (program.clone(), world.clone());
        simulation.spawn(me, me, move |cpu| {
            program.run(&Spot { cpu, world: &world, me, members, habits });
        });
    }
    // Far longer than any of it takes.
    simulation.run_until(500_000_000_000).unwrap();
}

/// Runs all algorithms whose dead leave different things, with two, three and eight
/// processes.
fn everywhere<T: Program>(new: impl Fn() -> T, check: impl Fn(&T, usize)) {
    for algorithm in ["ticket", "posix", "lock-free", "towpath"] {
        for members in [2, 3, 8] {
            for seed in 1..=3 {
                let program = new();
                simulate(&program, algorithm, members, seed);
                check(&program, members);
            }
        }
    }
}

const ASK: u8 = 1;
const ANSWER: u8 = 2;

/// The fate of a process's requests, by the first argument of each.
#[derive(Default)]
struct Fate {
    answered: RefCell<Vec<u32>>,
    returned: RefCell<Vec<(u32, Status)>>,
}

impl Fate {
    /// Sets the handlers that note it.
    fn note<'m>(&'m self, endpoint: &Endpoint<'m>, operation: Operation) {
        on(endpoint, ANSWER, |token| self.answered.borrow_mut().push(token.args()[0]));
        on(endpoint, 0, move |token| {
            let back = token.returned().expect("handler 0 gets what came back");
            assert_eq!((back.operation, back.handler), (operation, ASK));
            self.returned.borrow_mut().push((token.args()[0], back.status));
        });
    }

    fn count(&self) -> usize {
        self.answered.borrow().len() + self.returned.borrow().len()
    }
}

fn answer<'m>(endpoint: &Endpoint<'m>) {
    on(endpoint, ASK, |token| token.reply(ANSWER, &token.args()[..1]).unwrap());
}

/// The others send; rank 0 answers a few requests and dies.
#[derive(Clone, Default)]
struct Death {
    answered: Rc<Cell<usize>>,
    returned: Rc<Cell<usize>>,
}

impl Program for Death {
    fn run(&self, place: &Spot<'_>) {
        const REQUESTS: u32 = 60;
        let fate = Fate::default();
        let endpoint = place.endpoint(SegmentKind::None);
        if place.me == 0 {
            answer(&endpoint);
            let mut handled = 0;
            while handled < 2 * place.members {
                handled += endpoint.poll();
            }
            return place.die();
        }
        fate.note(&endpoint, Operation::RequestShort);
        let server = name_of(&endpoint, 0);
        endpoint.map(0, server, Tag::ALL).unwrap();
        for n in 0..REQUESTS {
            endpoint.request(0, ASK, &[n]).unwrap();
            endpoint.poll();
        }
        while fate.count() < REQUESTS as usize {
            endpoint.poll();
        }
        let (answered, returned) = (fate.answered.borrow(), fate.returned.borrow());
        assert!(returned.iter().all(|(_, status)| *status == Status::Unreachable), "{returned:?}");
        // Those that it handled come first, then those that it did not, each in order.
        let all: Vec<u32> = answered.iter().copied().chain(returned.iter().map(|r| r.0)).collect();
        assert_eq!(all, (0..REQUESTS).collect::<Vec<_>>());
        self.answered.set(self.answered.get() + answered.len());
        self.returned.set(self.returned.get() + returned.len());
        // No endpoint can be mapped there any more.
        assert!(endpoint.map(1, server, Tag::ALL).is_err());
        assert!(endpoint.audit().is_clean(), "{:?}", endpoint.audit());
    }
}

#[test]
fn what_the_dead_did_not_handle_comes_back_as_unreachable() {
    everywhere(Death::default, |death, members| {
        assert!(death.answered.get() >= 2 * members, "it handled so many");
        assert!(death.returned.get() > 0, "it did not handle all");
    });
}

/// Rank 0 accepts one tag; the others address another one, then the right one, then a
/// handler that is not there.
#[derive(Clone, Default)]
struct Tags {
    done: Rc<Cell<usize>>,
}

impl Program for Tags {
    fn run(&self, place: &Spot<'_>) {
        let fate = Fate::default();
        let endpoint = place.endpoint(SegmentKind::None);
        if place.me == 0 {
            answer(&endpoint);
            endpoint.set_tag(Tag(7));
            while self.done.get() < place.members - 1 {
                endpoint.poll();
            }
            return;
        }
        fate.note(&endpoint, Operation::RequestShort);
        let server = name_of(&endpoint, 0);
        endpoint.map(0, server, Tag(8)).unwrap();
        endpoint.map(1, server, Tag(7)).unwrap();
        endpoint.request(0, ASK, &[1]).unwrap();
        endpoint.poll_until(|| fate.count() == 1);
        assert_eq!(*fate.returned.borrow(), [(1, Status::BadTag)]);
        endpoint.request(1, ASK, &[2]).unwrap();
        endpoint.poll_until(|| fate.count() == 2);
        assert_eq!(*fate.answered.borrow(), [2]);
        let missing = Rc::new(Cell::new(None));
        let noted = missing.clone();
        on(&endpoint, 0, move |token| noted.set(token.returned()));
        endpoint.request(1, 99, &[3]).unwrap();
        endpoint.poll_until(|| missing.get().is_some());
        let back = missing.get().unwrap();
        assert_eq!((back.status, back.handler, back.destination), (Status::BadHandler, 99, server));
        self.done.set(self.done.get() + 1);
    }
}

#[test]
fn message_wrong_tag_comes_back_right_tag_is_handled() {
    everywhere(Tags::default, |tags, members| assert_eq!(tags.done.get(), members - 1));
}

/// The others store into the segment of rank 0: some pieces where they belong, some
/// outside.
#[derive(Clone)]
struct Stores {
    segment: SegmentKind,
    done: Rc<Cell<usize>>,
}

const SEGMENT: usize = 4096;

/// The bytes that a rank stores, at an offset of its own.
fn pattern(rank: usize) -> Vec<u8> {
    (0..200).map(|i| (i + 31 * rank) as u8).collect()
}

impl Program for Stores {
    const SIZES: Sizes = Sizes { packets: 4, blocks: 2, block_size: 64, segment_bytes: SEGMENT as u64 };
    fn run(&self, place: &Spot<'_>) {
        let fate = Fate::default();
        let at = |rank: usize| 256 * rank as u64;
        if place.me == 0 {
            let endpoint = place.endpoint(self.segment);
            on(&endpoint, ASK, |token| {
                let Payload::Long { offset, len } = token.payload() else { panic!("{token:?}") };
                let mut bytes = vec![0; len as usize];
                token.segment().read(offset, &mut bytes);
                assert_eq!(bytes, pattern((offset / 256) as usize));
                token.reply(ANSWER, token.args()).unwrap();
            });
            while self.done.get() < place.members - 1 {
                endpoint.poll();
            }
            assert!(endpoint.audit().is_clean(), "{:?}", endpoint.audit());
            return;
        }
        let endpoint = place.endpoint(SegmentKind::None);
        fate.note(&endpoint, Operation::RequestLong);
        endpoint.map(0, name_of(&endpoint, 0), Tag::ALL).unwrap();
        let bytes = pattern(place.me);
        let outside = SEGMENT as u64 + 100;
        for (n, offset) in [at(place.me), outside, SEGMENT as u64 - 100].into_iter().enumerate() {
            endpoint.request_long(0, ASK, &[n as u32], &bytes, offset).unwrap();
        }
        endpoint.poll_until(|| fate.count() == 3);
        assert_eq!(*fate.answered.borrow(), [0]);
        assert_eq!(*fate.returned.borrow(), [(1, Status::BadSegmentOffset), (2, Status::BadLength)]);
        self.done.set(self.done.get() + 1);
    }
}

#[test]
fn long_transfer_beyond_segment_comes_back() {
    for segment in [SegmentKind::Private(SEGMENT), SegmentKind::Shared] {
        everywhere(
            || Stores { segment, done: Rc::default() },
            |stores, members| assert_eq!(stores.done.get(), members - 1),
        );
    }
}

/// The last rank dies holding a packet that it has claimed; the others send to rank 0 as
/// if nothing had happened.
#[derive(Clone, Default)]
struct Claimed {
    held: Rc<Cell<bool>>,
    done: Rc<Cell<usize>>,
}

impl Program for Claimed {
    const SIZES: Sizes = Sizes { packets: 8, ..Sizes::SHORT };
    fn run(&self, place: &Spot<'_>) {
        const REQUESTS: usize = 40;
        let fate = Fate::default();
        let endpoint = place.endpoint(SegmentKind::None);
        // With two processes the reader sends to itself.
        let senders = place.members - 1;
        let server = name_of(&endpoint, 0);
        if place.me == place.members - 1 {
            let (me, other) = (endpoint.name().to_bits(), server.to_bits());
            let (domain, wait) = (endpoint.domain(), &place.habits.period);
            let (entry, side) =
                (domain.entry(me as u16).unwrap(), domain.side(0, Direction::Request).unwrap());
            let mut sender = Sender::new(me as u16, (me >> 16) as u16, other >> 16);
            let claim = side.claim();
            claim.claim(side.queue(), &mut sender, place.cpu, wait, &entry.own.intents[0]).unwrap();
            place.die();
            return self.held.set(true);
        }
        answer(&endpoint);
        fate.note(&endpoint, Operation::RequestShort);
        endpoint.map(0, server, Tag::ALL).unwrap();
        place.wait_while(|| !self.held.get());
        for n in 0..REQUESTS {
            endpoint.request(0, ASK, &[n as u32]).unwrap();
        }
        endpoint.poll_until(|| fate.count() == REQUESTS);
        assert_eq!(*fate.answered.borrow(), (0..REQUESTS as u32).collect::<Vec<_>>());
        self.done.set(self.done.get() + 1);
        while self.done.get() < senders {
            endpoint.poll();
        }
        endpoint.recover();
        assert!(endpoint.audit().is_clean(), "{:?}", endpoint.audit());
    }
}

#[test]
fn a_packet_that_the_dead_had_claimed_holds_no_sender_up() {
    everywhere(Claimed::default, |claimed, members| assert_eq!(claimed.done.get(), members - 1));
}

/// Rank 0 dies with requests in its queue; rank 1 makes an endpoint in its place.
#[derive(Clone, Default)]
struct Succession {
    old: Rc<Cell<Option<Name>>>,
    sent: Rc<Cell<usize>>,
    opened: Rc<Cell<bool>>,
    returned: Rc<Cell<usize>>,
}

impl Program for Succession {
    fn run(&self, place: &Spot<'_>) {
        let fate = Fate::default();
        let endpoint = place.endpoint(SegmentKind::None);
        let others = place.members - 1;
        if place.me == 0 {
            self.old.set(Some(endpoint.name()));
            place.wait_while(|| self.sent.get() < others);
            return place.die();
        }
        fate.note(&endpoint, Operation::RequestShort);
        let old = name_of(&endpoint, 0);
        assert_eq!(Some(old), self.old.get());
        endpoint.map(0, old, Tag::ALL).unwrap();
        endpoint.request(0, ASK, &[place.me as u32]).unwrap();
        self.sent.set(self.sent.get() + 1);
        let successor = (place.me == 1).then(|| {
            place.wait_while(|| place.world.lives(0));
            let successor = place.endpoint(SegmentKind::None);
            assert_eq!(successor.name().to_bits() as u16, old.to_bits() as u16, "in its place");
            assert_ne!(successor.name(), old);
            self.opened.set(true);
            successor
        });
        place.wait_while(|| !self.opened.get());
        while self.returned.get() < others {
            if let Some(successor) = &successor {
                successor.poll();
            }
            endpoint.poll();
            if fate.count() == 1 && fate.answered.borrow().is_empty() {
                fate.answered.borrow_mut().push(u32::MAX);
                self.returned.set(self.returned.get() + 1);
            }
        }
        endpoint.recover();
        endpoint.poll();
        assert_eq!(*fate.returned.borrow(), [(place.me as u32, Status::Unreachable)], "once");
    }
}

#[test]
fn a_successor_sends_back_what_the_dead_did_not_handle() {
    everywhere(Succession::default, |s, members| assert_eq!(s.returned.get(), members - 1));
}

/// Rank 0 sleeps until requests come, and the others until they are answered.
#[derive(Clone, Default)]
struct Sleepers {
    done: Rc<Cell<usize>>,
    slowest: Rc<Cell<u64>>,
}

impl Program for Sleepers {
    const WAITING: Policy = Policy::Park;
    fn run(&self, place: &Spot<'_>) {
        let fate = Fate::default();
        let endpoint = place.endpoint(SegmentKind::None);
        if place.me == 0 {
            answer(&endpoint);
            while self.done.get() < place.members - 1 {
                endpoint.wait(Some(Duration::from_millis(20)));
                endpoint.poll();
            }
            return;
        }
        fate.note(&endpoint, Operation::RequestShort);
        endpoint.map(0, name_of(&endpoint, 0), Tag::ALL).unwrap();
        for n in 0..10 {
            // Long enough for the others to fall asleep.
            place.cpu.work(300_000);
            let start = place.cpu.now();
            endpoint.request(0, ASK, &[n]).unwrap();
            while fate.count() <= n as usize {
                endpoint.wait(Some(Duration::from_millis(20)));
                endpoint.poll();
            }
            self.slowest.set(self.slowest.get().max(place.cpu.now() - start));
        }
        self.done.set(self.done.get() + 1);
    }
}

/// Simulated time: a wake-up that is lost would cost one of the sleeps, which last 20 ms
/// or longer.
#[test]
fn sleepers_are_woken_by_what_comes() {
    for members in [2, 3, 8] {
        for seed in 1..=3 {
            let sleepers = Sleepers::default();
            simulate(&sleepers, "towpath", members, seed);
            assert_eq!(sleepers.done.get(), members - 1);
            assert!(sleepers.slowest.get() < 10_000_000, "{} ns", sleepers.slowest.get());
        }
    }
}

/// Rank 0 takes nothing, and dies when the others have long been waiting for space in its
/// queue.
#[derive(Clone, Default)]
struct Blocked {
    died: Rc<Cell<u64>>,
    latest: Rc<Cell<u64>>,
    done: Rc<Cell<usize>>,
}

impl Program for Blocked {
    fn run(&self, place: &Spot<'_>) {
        let endpoint = place.endpoint(SegmentKind::None);
        if place.me == 0 {
            // Long enough for the queue to fill, and for turns to have reached their full length.
            place.cpu.work(5_000_000);
            place.cpu.yield_now();
            self.died.set(place.cpu.now());
            return place.die();
        }
        let came_back = Rc::new(Cell::new(0));
        let count = came_back.clone();
        on(&endpoint, 0, move |_| count.set(count.get() + 1));
        endpoint.map(0, name_of(&endpoint, 0), Tag::ALL).unwrap();
        while came_back.get() == 0 {
            endpoint.request(0, ASK, &[0]).unwrap();
            endpoint.poll();
        }
        self.latest.set(self.latest.get().max(place.cpu.now()));
        self.done.set(self.done.get() + 1);
    }
}

/// Simulated time: natively a turn is a sleep of up to a millisecond, and 64 of them held
/// survivors up for as long.
#[test]
fn waiting_sender_learns_of_a_death_within_a_few_turns() {
    for members in [2, 3, 8] {
        for seed in 1..=3 {
            let blocked = Blocked::default();
            simulate(&blocked, "towpath", members, seed);
            assert_eq!(blocked.done.get(), members - 1);
            let turns = (blocked.latest.get() - blocked.died.get()) / Period::ENTERPRISE.space.pause(64);
            assert!(turns < 16, "{turns} turns, {members} members");
        }
    }
}
