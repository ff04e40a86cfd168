//! Steps of a pump one by one: the order in which it tells, and which event waits.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use towpath_am::packet::Form;
use towpath_am::{Direction, Endpoint, ForwardedMessage, MAX_ARGS, Name, Tag, WorldConfig};
use towpath_net::{Key, Link, Listener};
use towpath_shm::{HostArrival, World};

use crate::Hosts;
use crate::expectation::Expectation;
use crate::item::{self, ALL, Item, RankChange};
use crate::link_queue::LinkQueue;
use crate::pump::Pump;
use crate::remote::code_of;

/// Name of the other host's endpoint.
const THERE: Name = Name::from_bits(1 << 16 | 1);

/// Host 0 with one rank, whose pump the test moves; the test is host 1.
struct Alone {
    world: World,
    endpoint: Option<Endpoint>,
    pump: Pump,
    queue: Arc<LinkQueue>,
    link: Link,
}

fn link() -> (Link, Link) {
    let key = Key::generate();
    let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(anywhere, &key, "test").unwrap();
    let address = listener.address();
    let other = std::thread::spawn(move || listener.accept().unwrap().handshake().unwrap());
    let link = Link::connect(address, &key, "test", Duration::from_secs(10)).unwrap();
    (link, other.join().unwrap())
}

impl Alone {
    fn new() -> Alone {
        let config = WorldConfig { packets: 16, blocks: 2, block_size: 64, ..WorldConfig::new(2) };
        let part = World::create_part(&config.spec(None), 0..1).unwrap();
        let (here, there) = link();
        let monitor = here.monitor();
        let queue = Arc::new(LinkQueue::new(here.split().0, monitor));
        let hosts = Hosts::new(&[1, 1], 0).unwrap();
        let pump = Pump::new(&part, hosts, vec![(1, queue.clone())]).unwrap();
        let world = part.reopen().unwrap();
        world.enter(Some(0)).unwrap();
        let endpoint = Endpoint::new(&world).unwrap();
        let mut alone = Alone { world, endpoint: Some(endpoint), pump, queue, link: there };
        let name = alone.endpoint().name();
        assert_eq!(alone.pass(), ["rank 0 Came", &format!("opened {name:?}")]);
        alone.receive(&Item::Rank(1, RankChange::Came));
        alone.receive(&Item::Opened(THERE, 1));
        assert_eq!(alone.pass(), [""; 0]);
        alone.endpoint().map_world().unwrap();
        alone
    }

    fn endpoint(&self) -> &Endpoint {
        self.endpoint.as_ref().unwrap()
    }

    /// Makes a step. Returns the items that the other host is told by it.
    fn pass(&mut self) -> Vec<String> {
        // A last item, so that there is something to wait for.
        self.pump.pass();
        self.pump.tell(None, b"end");
        self.queue.send();
        let mut told = Vec::new();
        let mut frame = Vec::new();
        loop {
            self.link.receive(&mut frame).unwrap();
            let mut rest = &frame[..];
            while !rest.is_empty() {
                let mut args = [0; MAX_ARGS];
                match item::next(&mut rest).unwrap().item(&mut args).unwrap() {
                    Item::Note(_) => return told,
                    Item::Message { message, .. } => {
                        told.push(format!("message {:?} {:?}", message.direction, message.args));
                    }
                    Item::Handled { count, .. } => told.push(format!("handled {count}")),
                    Item::Rank(rank, change) => told.push(format!("rank {rank} {change:?}")),
                    Item::Opened(name, _) => told.push(format!("opened {name:?}")),
                    Item::Closed(_) => told.push("closed".into()),
                    Item::Arrival(_) => told.push("arrival".into()),
                    Item::Conclude(episode, dead) => told.push(format!("conclude {episode} {dead:?}")),
                }
            }
        }
    }

    /// Has the pump receive an item of the other host.
    fn receive(&mut self, item: &Item<'_>) {
        let mut frame = Vec::new();
        item::write(&mut frame, ALL, 1, item);
        self.pump.receive(1, &frame).unwrap();
    }

    /// Has the pump receive a request of the other host.
    fn receive_request(&mut self, n: u32) {
        self.receive_message(Direction::Request, n);
    }

    fn receive_message(&mut self, direction: Direction, n: u32) {
        let message = ForwardedMessage {
            direction,
            form: Form::Short,
            handler: 1,
            tag: Tag::ALL,
            args: &[n],
            aux: 0,
            source: code_of(THERE),
            piece: None,
        };
        let to = self.endpoint().name();
        let mut frame = Vec::new();
        item::write(&mut frame, 0, 1, &Item::Message { to, message });
        self.pump.receive(1, &frame).unwrap();
    }
}

#[test]
fn request_counts_as_handled_behind_its_reply() {
    let mut alone = Alone::new();
    alone.endpoint().set_handler(1, |request| request.reply(2, &[request.args()[0] + 1]).unwrap());
    alone.receive_request(5);
    assert_eq!(alone.pass(), [""; 0]);
    assert_eq!(alone.pump.expectation(), Expectation::Progress);
    assert_eq!(alone.endpoint().poll(), 1);
    assert_eq!(alone.pass(), ["message Reply [6]", "handled 1"]);
    assert_eq!(alone.pump.expectation(), Expectation::Nothing);
}

#[test]
fn end_is_told_behind_the_last_message() {
    let mut alone = Alone::new();
    alone.endpoint().request(1, 1, &[7]).unwrap();
    alone.endpoint = None;
    assert_eq!(alone.pass(), ["message Request [7]", "closed"]);
    alone.endpoint = Some(Endpoint::new(&alone.world).unwrap());
    alone.endpoint().map_world().unwrap();
    // Its message before it has been told: it is told first.
    alone.endpoint().request(1, 1, &[8]).unwrap();
    let opened = format!("opened {:?}", alone.endpoint().name());
    assert_eq!(alone.pass(), [&opened, "message Request [8]"]);
    alone.endpoint().request(1, 1, &[9]).unwrap();
    alone.world.fail();
    assert_eq!(alone.pass(), ["message Request [9]", "rank 0 Died"]);
    assert_eq!(alone.pass(), [""; 0]);
}

#[test]
fn arrival_is_told_behind_the_messages_before_it() {
    let mut alone = Alone::new();
    alone.receive(&Item::Arrival(HostArrival::All(1)));
    assert_eq!(alone.pass(), [""; 0]);
    alone.endpoint().request(1, 1, &[7]).unwrap();
    let episode = alone.world.arrive().unwrap();
    assert_eq!(alone.pass(), ["message Request [7]", "conclude 1 None"]);
    episode.outcome().unwrap();
}

#[test]
fn messages_of_the_dead_keep_no_episode_open() {
    let mut alone = Alone::new();
    alone.endpoint().set_handler(1, |_| ());
    let episode = alone.world.arrive().unwrap();
    alone.pass();
    (0..17).for_each(|n| alone.receive_request(n));
    alone.receive(&Item::Rank(1, RankChange::Died));
    alone.receive(&Item::Arrival(HostArrival::NoneExpected));
    // The queue takes sixteen. The last one's sender is dead, and no other proxy could place it.
    assert_eq!(alone.pass(), ["conclude 1 Some(1)"]);
    assert!(episode.outcome().is_err());
    assert_eq!(alone.endpoint().poll(), 16);
}

#[test]
fn waiting_message_keeps_an_episode_open() {
    let mut alone = Alone::new();
    alone.endpoint().set_handler(1, |_| ());
    std::mem::forget(alone.endpoint().polls_at_barrier());
    let episode = alone.world.arrive().unwrap();
    assert_eq!(alone.pass(), [""; 0]);
    (0..17).for_each(|n| alone.receive_request(n));
    alone.receive(&Item::Arrival(HostArrival::All(1)));
    assert_eq!(alone.pass(), ["conclude 1 None"]);
    assert_eq!(alone.pump.expectation(), Expectation::Space);
    alone.receive_request(17);
    alone.pass();
    assert!(!episode.is_over(), "the seventeenth message waits");
    assert_eq!(alone.endpoint().poll(), 16);
    assert_eq!(alone.pass(), ["handled 16"]);
    assert!(episode.is_over());
    assert_eq!(alone.endpoint().poll(), 2);
    assert_eq!(alone.pass(), ["handled 2"]);
}

#[test]
fn message_for_a_rank_that_does_not_poll_keeps_no_episode_open() {
    let mut alone = Alone::new();
    alone.endpoint().set_handler(1, |_| ());
    drop(alone.endpoint().polls_at_barrier());
    let episode = alone.world.arrive().unwrap();
    alone.pass();
    (0..17).for_each(|n| alone.receive_request(n));
    alone.receive(&Item::Arrival(HostArrival::All(1)));
    assert_eq!(alone.pass(), ["conclude 1 None"]);
    assert!(episode.is_over());
    // The seventeenth is placed after the end.
    assert_eq!(alone.endpoint().poll(), 16);
    assert_eq!(alone.pass(), ["handled 16"]);
    assert_eq!(alone.endpoint().poll(), 1);
    // A successor's endpoint starts without its predecessor's word.
    std::mem::forget(alone.endpoint().polls_at_barrier());
    alone.endpoint = None;
    alone.endpoint = Some(Endpoint::new(&alone.world).unwrap());
    alone.endpoint().set_handler(1, |_| ());
    alone.pass();
    let episode = alone.world.arrive().unwrap();
    alone.pass();
    (0..17).for_each(|n| alone.receive_request(n));
    alone.receive(&Item::Arrival(HostArrival::All(2)));
    alone.pass();
    assert!(episode.is_over());
}

#[test]
fn leaving_waits_for_the_leaver_s_messages_and_death_does_not() {
    for died in [false, true] {
        let mut alone = Alone::new();
        alone.endpoint().set_handler(1, |_| ());
        (0..17).for_each(|n| alone.receive_request(n));
        alone.receive(&Item::Rank(1, if died { RankChange::Died } else { RankChange::Left }));
        alone.pass();
        assert_eq!((alone.world.has_died(1), alone.world.participant(1).is_some()), (died, !died));
        assert_eq!(alone.endpoint().poll(), 16);
        alone.pass();
        assert!(alone.world.participant(1).is_none());
        assert_eq!(alone.endpoint().poll(), usize::from(!died));
    }
}

#[test]
fn last_rank_that_can_place_replies_dies_behind_them() {
    for is_lost in [false, true] {
        let mut alone = Alone::new();
        alone.endpoint().set_handler(1, |_| ());
        (0..17).for_each(|n| alone.receive_message(Direction::Reply, n));
        let count = |alone: &Alone| (alone.world.has_died(1), alone.endpoint().poll());
        if is_lost {
            alone.pump.lose(1, "a test");
            alone.pump.lose(1, "again");
        } else {
            alone.receive(&Item::Rank(1, RankChange::Died));
        }
        // Its seventeenth reply waits: that request was handled, and does not come back.
        alone.pump.pass();
        let deaths = alone.world.deaths();
        assert_eq!(count(&alone), (false, 16), "lost: {is_lost}");
        alone.pump.pass();
        assert_eq!(count(&alone), (true, 1), "lost: {is_lost}");
        assert_eq!(alone.world.deaths(), deaths + 1);
        alone.pump.pass();
        assert_eq!(alone.world.deaths(), deaths + 1, "once");
        // A receiver that ends lets the last rank go.
        if !is_lost {
            let mut alone = Alone::new();
            (0..17).for_each(|n| alone.receive_message(Direction::Reply, n));
            alone.receive(&Item::Rank(1, RankChange::Died));
            alone.endpoint = None;
            alone.pump.pass();
            alone.pump.pass();
            assert!(alone.world.has_died(1));
        }
    }
}

#[test]
fn request_whose_reply_waits_comes_back_when_the_gateway_ends() {
    for is_placed in [false, true] {
        let mut alone = Alone::new();
        let [replies, returned] = [0, 0].map(|none| Arc::new(AtomicU32::new(none)));
        let (a, b) = (replies.clone(), returned.clone());
        alone.endpoint().set_handler(1, move |_| _ = a.fetch_add(1, Relaxed));
        alone.endpoint().set_handler(0, move |_| _ = b.fetch_add(1, Relaxed));
        alone.endpoint().request(1, 1, &[7]).unwrap();
        assert_eq!(alone.pass(), ["message Request [7]"]);
        // The queue takes sixteen: the seventeenth, which is the answer, waits.
        (0..17).for_each(|n| alone.receive_message(Direction::Reply, n));
        alone.receive(&Item::Handled { by: THERE, direction: Direction::Request, count: 1 });
        alone.pump.pass();
        if is_placed {
            assert_eq!(alone.endpoint().poll(), 16);
            alone.pump.pass();
        }
        let Alone { pump, endpoint, world, .. } = alone;
        drop(pump);
        let endpoint = endpoint.unwrap();
        let came = || (replies.load(Relaxed), returned.load(Relaxed));
        let begun = Instant::now();
        // Requests come back when the endpoint looks for deaths.
        while came().0 + came().1 < 17 && begun.elapsed() < Duration::from_secs(20) {
            endpoint.poll();
        }
        endpoint.poll();
        assert_eq!(came(), if is_placed { (17, 0) } else { (16, 1) });
        drop(world);
    }
}
