//! Frames that make no sense, from a stranger that may send anything. The messages of
//! others do not suffer, no memory is touched that was not offered, and nothing fails but the
//! stranger's own.
#![allow(unsafe_code)]

mod common;

use common::{Node, nodes, over, pattern, ticket};
use towpath_fi::device::link::{Link, SendResult};
use towpath_fi::device::operation::{Refusal, SendRequest};
use towpath_fi::device::protocol::frame::FrameKind;
use towpath_fi::device::protocol::wire::{PayloadSource, RawFrame, WORDS};
use towpath_fi::device::resource::completion::{Class, error};
use towpath_fi::device::rma::onesided::RmaTarget;
use towpath_fi::device::rma::regions::Region;
use towpath_fi::device::tune::settings::Settings;
use towpath_machine::Random;

const VICTIM: usize = 0;
const HONEST: usize = 1;
const STRANGER: usize = 2;
/// A key that the stranger does not know.
const SECRET: u64 = 0xfeed_beef_dead_cafe;

/// Numbers that might mean something, and others.
fn word(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => random.word(),
        1 => u64::MAX - random.below(16),
        2 => 1 << random.below(64),
        3 => random.below(1 << 20),
        4 => random.below(4) << 32 | random.below(16),
        _ => random.below(16),
    }
}

fn progress(n: &mut [Node]) {
    n.iter_mut().for_each(|node| {
        node.endpoint.progress();
    });
}

fn attack(seed: u64, settings: Settings) {
    let mut random = Random::new(seed);
    let mut n = nodes(3, settings);
    let secret = vec![0x5a; 10_000];
    let region = Region {
        base: secret.as_ptr() as usize,
        len: secret.len(),
        first: 0,
        readable: true,
        writable: true,
    };
    // SAFETY: the bytes outlive the endpoints, and nothing is to touch them.
    assert!(unsafe { n[VICTIM].endpoint.core.regions.add(SECRET, region) });
    let (own, to) = (n[STRANGER].endpoint.port.address, n[VICTIM].endpoint.port.address);
    let mut link = Link::join(&to, &own).expect("the victim is there");
    let mut payload = vec![0u8; 8192];
    // Operations of the victim with the stranger: their numbers are worth guessing.
    let long = pattern(300_000, 5);
    let mut space = vec![0; 300_000];
    let mut space2 = vec![0; 5000];
    let mut honest = Vec::new();
    for round in 0..1500u64 {
        if round % 50 == 0 {
            let message = SendRequest {
                peer: STRANGER as u32,
                tag: Some(round),
                buffer: &over(&long),
                data: None,
                ticket: ticket(0, Class::Send),
                inject: false,
                matched: round % 100 == 0,
            };
            // Refused once the stranger has said good-bye.
            let sent = n[VICTIM].endpoint.core.send(&message);
            assert!(matches!(sent, Ok(()) | Err(Refusal::Again | Refusal::Unreachable)));
            n[VICTIM].receive(Some(STRANGER as u32), round, 7, &mut space, 1 << 20);
            let from = RmaTarget { peer: STRANGER as u32, address: 0, key: 1 };
            let read = n[VICTIM].endpoint.core.read(from, &over(&space2), ticket(0, Class::Read));
            assert!(matches!(read, Ok(()) | Err(Refusal::Again | Refusal::Unreachable)));
        }
        for byte in &mut payload[..64] {
            *byte = random.word() as u8;
        }
        let kind = FrameKind::ALL[random.below(20) as usize].0;
        // A good-bye ends it all: not often.
        if kind == FrameKind::Disconnect && random.below(40) > 0 {
            continue;
        }
        let words: [u64; WORDS] = core::array::from_fn(|_| word(&mut random));
        let len = [0, 8, 16, 40, 5000, 8192][random.below(6) as usize];
        let frame =
            RawFrame { kind, tag: word(&mut random), words, content: PayloadSource::Bytes(&payload[..len]) };
        if link.send(&frame) != SendResult::Yes {
            progress(&mut n);
        }
        // Honest messages in between.
        if round % 7 == 0 {
            let len = [8, 400, 20_000, 100_000][round as usize / 7 % 4];
            let (bytes, mut into) = (pattern(len, round as usize), vec![0; len]);
            n[VICTIM].receive(Some(HONEST as u32), round, 0, &mut into, round as usize);
            while !n[HONEST].send(VICTIM as u32, round, &bytes, 0) {
                progress(&mut n);
            }
            honest.push((round as usize, bytes, into));
        }
        progress(&mut n);
        if round % 40 == 0 {
            n[VICTIM].endpoint.look_after();
        }
    }
    // The honest ones have all arrived, whole.
    let mut left: Vec<usize> = honest.iter().map(|(context, ..)| *context).collect();
    let mut rounds = 0;
    while !left.is_empty() {
        progress(&mut n);
        while let Some(report) = n[VICTIM].next_received() {
            if let Some(place) = left.iter().position(|&context| context == report.context) {
                assert_eq!((report.error, report.source), (0, HONEST as u64), "seed {seed}");
                left.swap_remove(place);
            }
        }
        rounds += 1;
        assert!(rounds < 1_000_000, "seed {seed}: {} honest messages do not arrive", left.len());
    }
    for (context, bytes, into) in &honest {
        assert!(bytes == into, "seed {seed}: message {context}");
    }
    assert!(over(&secret).to_vec() == vec![0x5a; 10_000], "seed {seed}: memory was written to");
    // Each report about the stranger is one of the known outcomes.
    while let Some(report) = n[VICTIM].next_sent() {
        let known = [0, error::UNREACHABLE, error::NO_KEY, error::INVALID];
        assert!(known.contains(&report.error), "seed {seed}: {report:?}");
    }
    space2.fill(0);
}

#[test]
fn nonsense_harms_no_peer() {
    let usual = Settings::default();
    for seed in 0..10 {
        attack(seed, usual);
        attack(seed + 100, Settings { ring_after: u32::MAX, ..usual });
        attack(seed + 200, Settings { direct: Some(1), eager: 1000, unexpected: 10_000, ..usual });
    }
}
