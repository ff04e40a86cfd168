//! Random sends, receives and cancellations between three endpoints, against a model:
//! what was sent arrives once, whole, where it fits, and equal receives get one sender's messages
//! in order.

mod common;

use std::collections::HashMap;

use common::{Node, nodes, pattern, settle};
use towpath_fi::device::resource::completion::error;
use towpath_fi::device::tune::settings::Settings;
use towpath_machine::Random;

struct Posted {
    from: Option<u32>,
    tag: u64,
    ignore: u64,
    into: Vec<u8>,
}

/// Number, tag, bytes.
type Numbered = (u64, u64, Vec<u8>);
/// Receiver, sender, tag, ignored bits.
type Key = (u32, u32, u64, u64);

struct World {
    nodes: Vec<Node>,
    /// Messages that were not received yet, by sender and receiver: number, tag, bytes.
    sent: HashMap<(u32, u32), Vec<Numbered>>,
    /// Receive (in the order of posting) that got each message, by receiver, sender, tag
    /// and ignored bits.
    got: HashMap<Key, Vec<(usize, u64)>>,
    posted: Vec<HashMap<usize, Posted>>,
    next: usize,
}

impl World {
    fn collect(&mut self) {
        for to in 0..self.nodes.len() {
            while let Some(report) = self.nodes[to].next_received() {
                let posted = self.posted[to].remove(&report.context).expect("a receive that was posted");
                if report.error == error::CANCELLED {
                    continue;
                }
                assert_eq!(report.error, 0);
                let from = report.source as u32;
                assert!(posted.from.is_none_or(|wanted| wanted == from));
                assert_eq!((report.tag ^ posted.tag) & !posted.ignore, 0);
                let queue = self.sent.get_mut(&(from, to as u32)).expect("a node sent it");
                let which = queue.iter().position(|(number, ..)| *number == report.data);
                let (number, tag, bytes) = queue.remove(which.expect("received once"));
                assert_eq!(tag, report.tag);
                assert!(bytes == posted.into[..report.len], "{} bytes from {from} to {to}", bytes.len());
                if posted.from.is_some() {
                    let key = (to as u32, from, posted.tag, posted.ignore);
                    self.got.entry(key).or_default().push((report.context, number));
                }
            }
            while let Some(report) = self.nodes[to].next_sent() {
                assert_eq!(report.error, 0);
            }
        }
    }
}

fn run(seed: u64, settings: Settings) {
    let mut random = Random::new(seed);
    let mut world = World {
        nodes: nodes(3, settings),
        sent: HashMap::new(),
        got: HashMap::new(),
        posted: (0..3).map(|_| HashMap::new()).collect(),
        next: 1,
    };
    let lengths = [0, 8, 30, 100, 300, 5000, 20_000, 70_000];
    // Bytes stay until the end: sends refer to them.
    let bytes: Vec<Vec<u8>> = (0..64).map(|i| pattern(lengths[i % lengths.len()], i)).collect();
    for _ in 0..600 {
        let (a, b) = (random.below(3) as u32, random.below(3) as u32);
        match random.below(10) {
            0..4 => {
                let what = &bytes[random.below(64) as usize];
                let tag = random.below(4);
                let number = world.next as u64;
                world.next += 1;
                if world.nodes[a as usize].send_with(b, Some(tag), what, Some(number), 0, false) {
                    world.sent.entry((a, b)).or_default().push((number, tag, what.clone()));
                }
            }
            4..8 => {
                let from = (random.below(2) == 0).then_some(b);
                let ignore = [0, 1, 3][random.below(3) as usize];
                let tag = random.below(4);
                let context = world.next;
                world.next += 1;
                let mut posted = Posted { from, tag, ignore, into: vec![0; 70_000] };
                world.nodes[a as usize].receive(from, tag, ignore, &mut posted.into, context);
                world.posted[a as usize].insert(context, posted);
            }
            8 => {
                let mut contexts: Vec<usize> = world.posted[a as usize].keys().copied().collect();
                contexts.sort_unstable();
                if !contexts.is_empty() {
                    let context = contexts[random.below(contexts.len() as u64) as usize];
                    world.nodes[a as usize].endpoint.cancel(context);
                }
            }
            _ => {
                world.nodes[a as usize].endpoint.progress();
                world.collect();
            }
        }
    }
    settle(&mut world.nodes);
    world.collect();
    // Whatever is left is taken by receives that take everything.
    for to in 0..3u32 {
        let contexts: Vec<usize> = world.posted[to as usize].keys().copied().collect();
        for context in contexts {
            world.nodes[to as usize].endpoint.cancel(context);
        }
        settle(&mut world.nodes);
        world.collect();
        let left: usize = (0..3).filter_map(|from| world.sent.get(&(from, to))).map(Vec::len).sum();
        for _ in 0..left {
            let context = world.next;
            world.next += 1;
            let mut posted = Posted { from: None, tag: 0, ignore: u64::MAX, into: vec![0; 70_000] };
            world.nodes[to as usize].receive(None, 0, u64::MAX, &mut posted.into, context);
            world.posted[to as usize].insert(context, posted);
        }
        settle(&mut world.nodes);
        world.collect();
        assert!(world.posted[to as usize].is_empty(), "seed {seed}: messages are missing at {to}");
    }
    assert!(world.sent.values().all(Vec::is_empty));
    // Equal receives get the messages in the order in which they were sent.
    for got in world.got.values_mut() {
        got.sort_unstable();
        assert!(got.is_sorted_by_key(|&(_, number)| number), "seed {seed}: overtaken: {got:?}");
    }
}

#[test]
fn messages_arrive_whole_once_and_in_order() {
    let usual = Settings::default();
    for seed in 0..20 {
        run(seed, usual);
        run(seed, Settings { direct: Some(0), ..usual });
        run(seed, Settings { ring_after: u32::MAX, ..usual });
        run(seed, Settings { ring_after: 20, rings: 1, unexpected: 30_000, ..usual });
        run(seed, Settings { direct: Some(1), eager: 200, ..usual });
    }
}
