//! The ladder on simulated machines: messages are whole, and the slot protocol needs
//! every one of its macros.

use towpath_sim::machines;

use super::faults::{self, ExchangeOutcome, SlotsForm, exchange};
use super::refined::{Empty, Polled, bursts, distributed, latency};
use super::*;
use crate::ladder::Indices;

fn sx4() -> Parameters {
    machines::by_name("sx4").unwrap()
}

#[test]
fn all_versions_carry_messages_of_all_protocols_whole() {
    // `ping_pong` compares every byte.
    for machine in ["sx4", "origin2000"] {
        let machine = machines::by_name(machine).unwrap();
        for version in Version::ALL {
            for bytes in [0, 57, 1024, 70_001] {
                let figures = ping_pong(&Rung::on(&machine, version, bytes)).unwrap();
                // Ours takes one line to the other node, the paper's versions at least two.
                let least = if version == Version::Towpath { 500.0 } else { 1_000.0 };
                assert!(figures.latency > least, "{version:?} {bytes}: {figures:?}");
            }
        }
    }
    // Two copies at 2.5 GB/s: one after the other, and ours piece by piece at both ends at once.
    for (version, least) in [(Version::SlotsTestAndSet, 7.5e5), (Version::Towpath, 4e5)] {
        let figures = ping_pong(&Rung::on(&sx4(), version, 1 << 20)).unwrap();
        assert!(figures.latency > least, "{figures:?}");
    }
}

#[test]
fn bytes_of_a_message_follow_from_their_places() {
    for bytes in [0, 7, 2048, 5000] {
        let all = message(1, 3, bytes);
        assert_eq!(all.len(), bytes);
        assert!(all.iter().enumerate().all(|(i, &b)| b == (i / 8 + i + 31 + 21) as u8), "{bytes}");
    }
}

#[test]
fn locks_are_counted() {
    let of = |version, bytes| ping_pong(&Rung::on(&sx4(), version, bytes)).unwrap();
    for (version, short, eager) in [
        (Version::SystemV, 4.0, 8.0),
        (Version::SlotsSystemV, 0.0, 4.0),
        (Version::TestAndSet, 4.0, 8.0),
        (Version::SlotsTestAndSet, 0.0, 4.0),
    ] {
        assert_eq!((of(version, 8).lock_operations, of(version, 2000).lock_operations), (short, eager));
        let flushes = of(version, 2000).flushes;
        assert_eq!(flushes > 0.0, matches!(version, Version::TestAndSet | Version::SlotsTestAndSet));
    }
}

#[test]
fn slot_protocol_needs_every_macro() {
    for seed in 1..=6 {
        assert_eq!(
            exchange(&sx4(), SlotsForm::Slots, faults::NONE, seed),
            ExchangeOutcome::Right,
            "seed {seed}"
        );
        for fault in faults::ORDINARY {
            let outcome = exchange(&sx4(), SlotsForm::Slots, fault, seed);
            assert_ne!(outcome, ExchangeOutcome::Right, "without {}, seed {seed}", fault.what);
        }
    }
    for fault in faults::UNORDERED {
        let is_stale = |seed| exchange(&sx4(), SlotsForm::Slots, fault, seed) == ExchangeOutcome::Stale;
        assert!((1..=200).any(is_stale), "{}", fault.what);
    }
}

#[test]
fn coherent_machines_need_no_macros() {
    let origin = machines::by_name("origin2000").unwrap();
    for fault in faults::ORDINARY.into_iter().chain(faults::UNORDERED) {
        assert_eq!(exchange(&origin, SlotsForm::Slots, fault, 1), ExchangeOutcome::Right, "{}", fault.what);
    }
}

#[test]
fn the_figures_as_printed_hang_on_any_machine() {
    for machine in machines::names() {
        let machine = machines::by_name(machine).unwrap();
        for seed in 1..=3 {
            let with =
                |indices, ready| exchange(&machine, SlotsForm::Figures(indices, ready), faults::NONE, seed);
            assert_eq!(with(Indices::Printed, 0), ExchangeOutcome::Hangs, "{}", machine.name);
            assert_eq!(with(Indices::Corrected, 0), ExchangeOutcome::Right, "{}", machine.name);
        }
    }
    // The line `pkt->ready = 0` is no slip: a packet that is passed on sets the bit with its own
    // copy.
    let left = |seed| exchange(&sx4(), SlotsForm::Figures(Indices::Corrected, 1), faults::NONE, seed);
    assert!((1..=20).any(|seed| left(seed) != ExchangeOutcome::Right));
}

#[test]
fn slots_for_a_few_keep_polling_bounded() {
    let of = |processes, polled| latency(&sx4(), processes, polled, 1).unwrap();
    assert!(of(32, Polled::All) > 2.0 * of(2, Polled::All));
    assert!(of(32, Polled::Chosen(2)) < 1.2 * of(4, Polled::Chosen(2)));
}

#[test]
fn a_slot_for_each_packet_of_a_burst_is_enough() {
    assert!(bursts(&sx4(), 1, 1).unwrap().waited > 0.5);
    assert_eq!(bursts(&sx4(), refined::BURST, 1).unwrap().waited, 0.0);
}

#[test]
fn distributed_flags_where_polled_need_no_remote_reads() {
    let origin = machines::by_name("origin2000").unwrap();
    let ours = distributed(&origin, Empty::AtTheSender, 1).unwrap();
    assert_eq!((ours.packets, ours.puts, ours.reads), (100, 600, 0));
    assert!(distributed(&origin, Empty::AtTheReceiver, 1).unwrap().reads >= 100);
}
