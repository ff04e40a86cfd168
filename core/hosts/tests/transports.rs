//! Links and worlds over TCP and over libfabric, beside each other.
//!
//! Skipped where there is no libfabric. For the figures:
//! `cargo test --release -p towpath-hosts --test transports -- --ignored --nocapture`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use towpath_am::{Endpoint, WorldConfig};
use towpath_hosts::{Gateway, Hosts};
use towpath_net::{Key, Link, Listener};
use towpath_shm::World;

const LONG: Duration = Duration::from_secs(60);
/// Number of bytes of a link's message in a round trip: a short request's.
const SHORT: usize = 60;
/// Number of bytes of a frame, or of a world's message, in a stream.
const FRAME: usize = 64 << 10;
const MEDIUM: usize = 4 << 10;

/// A link and its other end, over TCP or over a provider; `None`: libfabric is not there.
fn link(provider: Option<&'static str>) -> Option<(Link, Link)> {
    let key = Key::generate();
    let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(anywhere, &key, "test").unwrap();
    let address = listener.address();
    let moved = move |link: Link| match provider {
        Some(provider) => link.over_fabric(provider, LONG),
        None => Ok(link),
    };
    let other = thread::spawn(move || moved(listener.accept().unwrap().handshake().unwrap()));
    let here = moved(Link::connect(address, &key, "test", LONG).unwrap());
    match (here, other.join().unwrap()) {
        (Ok(here), Ok(there)) => Some((here, there)),
        (Err(error), _) if error.to_string().contains("is not installed here") => {
            eprintln!("skipped: {error}");
            None
        }
        (here, there) => panic!("{here:?} {there:?}"),
    }
}

/// Two hosts with a rank each.
struct Pair {
    worlds: [World; 2],
    gateways: [Gateway; 2],
}

impl Pair {
    fn new(links: (Link, Link)) -> Pair {
        let spec = WorldConfig::new(2).spec(None);
        let worlds = [0..1, 1..2].map(|ranks| World::create_part(&spec, ranks).unwrap());
        let hosts = |me| Hosts::new(&[1, 1], me).unwrap();
        let there = Gateway::start(&worlds[1], hosts(1), vec![(0, links.1)]).unwrap();
        let here = Gateway::start(&worlds[0], hosts(0), vec![(1, links.0)]).unwrap();
        Pair { worlds, gateways: [here, there] }
    }

    /// Runs `ask` as rank 0, while rank 1 answers short (1) and medium requests (2).
    fn run<R: Send>(self, ask: impl FnOnce(&Endpoint, &AtomicU32) -> R + Send) -> R {
        let answers = Arc::new(AtomicU32::new(0));
        let result = thread::scope(|scope| {
            let [here, there] = &self.worlds;
            scope.spawn(move || {
                let world = there.reopen().unwrap();
                world.enter(Some(1)).unwrap();
                let endpoint = Endpoint::new(&world).unwrap();
                let ended = Arc::new(AtomicU32::new(0));
                let note = ended.clone();
                endpoint.set_handler(1, |message| message.reply(1, message.args()).unwrap());
                endpoint.set_handler(2, |message| message.reply(1, &[]).unwrap());
                endpoint.set_handler(3, move |_| note.store(1, Relaxed));
                endpoint.map_world().unwrap();
                endpoint.barrier().unwrap();
                endpoint.poll_until(|| ended.load(Relaxed) == 1);
                endpoint.barrier().unwrap();
            });
            let asking = scope.spawn(|| {
                let world = here.reopen().unwrap();
                world.enter(Some(0)).unwrap();
                let endpoint = Endpoint::new(&world).unwrap();
                let note = answers.clone();
                endpoint.set_handler(1, move |_| _ = note.fetch_add(1, Relaxed));
                endpoint.map_world().unwrap();
                endpoint.barrier().unwrap();
                let result = ask(&endpoint, &answers);
                endpoint.request(1, 3, &[]).unwrap();
                endpoint.barrier().unwrap();
                result
            });
            asking.join().unwrap()
        });
        let [here, there] = self.gateways;
        here.close();
        there.close();
        result
    }
}

/// Seconds of a question and its answer in a world.
fn world_round_trip(links: (Link, Link), times: u32) -> f64 {
    Pair::new(links).run(|endpoint, answers| {
        let ask = |n: u32| {
            endpoint.request(1, 1, &[n]).unwrap();
            endpoint.poll_until(|| answers.load(Relaxed) > n);
        };
        (0..times / 10).for_each(ask);
        let begin = Instant::now();
        (times / 10..times).for_each(ask);
        begin.elapsed().as_secs_f64() / f64::from(times - times / 10)
    })
}

/// Bytes in a second of a world's medium messages.
fn world_stream(links: (Link, Link), times: u32) -> f64 {
    Pair::new(links).run(|endpoint, answers| {
        let begin = Instant::now();
        for _ in 0..times {
            endpoint.request_medium(1, 2, &[], &[7; MEDIUM]).unwrap();
        }
        endpoint.poll_until(|| answers.load(Relaxed) == times);
        f64::from(times) * MEDIUM as f64 / begin.elapsed().as_secs_f64()
    })
}

/// Seconds of a frame and its echo.
fn link_round_trip((mut here, mut there): (Link, Link), times: u32) -> f64 {
    let echo = thread::spawn(move || {
        let mut frame = Vec::new();
        while there.receive(&mut frame).is_ok() {
            there.send(&frame).unwrap();
        }
    });
    let mut frame = vec![0; SHORT];
    let mut ask = |_| {
        here.send(&[1; SHORT]).unwrap();
        here.receive(&mut frame).unwrap();
    };
    (0..times / 10).for_each(&mut ask);
    let begin = Instant::now();
    (times / 10..times).for_each(&mut ask);
    let time = begin.elapsed().as_secs_f64() / f64::from(times - times / 10);
    drop(here);
    echo.join().unwrap();
    time
}

/// Bytes in a second of frames in one direction.
fn link_stream((mut here, mut there): (Link, Link), times: u32) -> f64 {
    let counts = thread::spawn(move || {
        let mut frame = Vec::new();
        for _ in 0..times {
            there.receive(&mut frame).unwrap();
        }
        there.send(b"all").unwrap();
        // The link lasts until the peer has the answer.
        let _ = there.receive(&mut frame);
    });
    let begin = Instant::now();
    for _ in 0..times {
        here.send(&[7; FRAME]).unwrap();
    }
    here.receive(&mut Vec::new()).unwrap();
    let rate = f64::from(times) * FRAME as f64 / begin.elapsed().as_secs_f64();
    drop(here);
    counts.join().unwrap();
    rate
}

#[test]
fn gateways_over_libfabric_carry_questions_and_streams() {
    let Some(links) = link(Some("tcp")) else { return };
    world_round_trip(links, 50);
    world_stream(link(Some("tcp")).unwrap(), 300);
}

#[test]
#[ignore = "figures"]
fn transports_beside_each_other() {
    let rounds = std::env::var("ROUNDS").map_or(7, |text| text.parse().unwrap());
    type Measured = (&'static str, fn((Link, Link), u32) -> f64, u32, f64);
    let figures: [Measured; 4] = [
        ("link, there and back, µs", link_round_trip, 5_000, 1e6),
        ("link, stream of 64 KiB, MB/s", link_stream, 2_000, 1e-6),
        ("world, there and back, µs", world_round_trip, 3_000, 1e6),
        ("world, stream of 4 KiB, MB/s", world_stream, 10_000, 1e-6),
    ];
    for (name, measure, times, unit) in figures {
        let mut values = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (provider, values) in [None, Some("tcp")].into_iter().zip(&mut values) {
                let Some(links) = link(provider) else { return };
                values.push(measure(links, times) * unit);
            }
        }
        for (transport, mut values) in ["tcp", "fabric:tcp"].into_iter().zip(values) {
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            println!("{name}: {transport} {:.1} ({least:.1} to {most:.1})", values[values.len() / 2]);
        }
    }
}
