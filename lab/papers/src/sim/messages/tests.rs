//! The message path on a simulated machine: nothing is lost, nothing comes twice, each
//! sender's messages come in order (`stress` checks each as it arrives).

use towpath_sim::machines;

use super::deadlock::{Traffic, Way, traffic};
use super::world::Sizes;
use super::*;

fn on(machine: &str, writers: usize, messages: u64) -> Layer {
    Layer::on(machines::by_name(machine).unwrap(), writers + 1, messages)
}

fn enterprise(writers: usize, messages: u64) -> Layer {
    on("enterprise5000", writers, messages)
}

fn pair() -> Layer {
    enterprise(1, 1000)
}

fn named(name: &str) -> MessageAlgorithm {
    MessageAlgorithm::from_name(name).unwrap()
}

#[test]
fn every_algorithm_carries_messages_of_1_2_3_7_writers() {
    for algorithm in MessageAlgorithm::ALL {
        for writers in [1, 2, 3, 7] {
            let figures = stress::stress(&enterprise(writers, 1000), algorithm).unwrap();
            assert!(figures.messages >= 500, "{} {writers}: {figures:?}", algorithm.name());
            assert!(figures.message > 100.0, "no model is as fast: {figures:?}");
        }
    }
}

#[test]
fn queues_of_two_packets_carry_them_too() {
    let tiny = Layer { sizes: Sizes { packets: 2, ..Sizes::SHORT }, ..enterprise(3, 300) };
    for algorithm in MessageAlgorithm::ALL {
        for seed in 1..=3 {
            stress::stress(&tiny.seed(seed), algorithm).unwrap();
        }
    }
}

#[test]
fn two_programs_at_one_time_keep_apart() {
    let mut two = enterprise(3, 1000);
    two.run.copies = 2;
    two.run.machine.set_from_text("os.quantum=200us").unwrap();
    for name in ["test-and-set", "posix", "lock-free", "towpath"] {
        let figures = stress::stress(&two, named(name)).unwrap();
        assert!(figures.counters.preemptions > 0, "{name}: {figures:?}");
    }
}

#[test]
fn a_directory_machine_carries_messages_as_well() {
    let origin = on("origin2000", 3, 300);
    for algorithm in MessageAlgorithm::ALL {
        stress::stress(&origin, algorithm).unwrap();
    }
}

#[test]
fn equal_seeds_give_equal_figures_and_others_do_not() {
    let run = |seed| stress::stress(&enterprise(3, 1000).seed(seed), named("ticket")).unwrap();
    assert_eq!(run(1).counters, run(1).counters);
    assert_ne!(run(1).counters, run(2).counters);
}

#[test]
fn the_calibrated_figures_are_what_they_were_calibrated_on() {
    let figures = logp::logp(&pair(), named("test-and-set")).unwrap().logp;
    assert!((figures.send_overhead / 1600.0 - 1.0).abs() < 0.01, "{figures:?}");
    assert!((figures.receive_overhead / 1200.0 - 1.0).abs() < 0.01, "{figures:?}");
}

#[test]
fn a_send_needs_the_exchanges_that_its_algorithm_needs() {
    // A fetch-and-add is made of one.
    for (name, short, long) in
        [("lock-free", 2, 4), ("towpath", 1, 3), ("ticket", 1, 2), ("test-and-set", 0, 0)]
    {
        let sent = logp::logp(&pair(), named(name)).unwrap().one_send;
        assert_eq!((sent.exchanges, sent.failed_exchanges), (short, 0), "{name}");
        let sent = bulk::bulk(&pair(), named(name)).unwrap().one_send;
        assert_eq!((sent.exchanges, sent.failed_exchanges), (long, 0), "{name}");
    }
}

#[test]
fn cycle_is_resolved_only_by_polling_while_waiting() {
    for algorithm in MessageAlgorithm::ALL {
        traffic(&pair(), algorithm, Traffic::Cycle, Way::Right).unwrap();
        assert!(traffic(&pair(), algorithm, Traffic::Cycle, Way::Deaf).is_err(), "{}", algorithm.name());
    }
}

#[test]
fn claims_packet_first_stand_still_block_first_do_not() {
    let mut patient = pair();
    patient.habits.patience = u64::MAX;
    for algorithm in MessageAlgorithm::ALL {
        // The wrong order need not stand still every time; the right one never does.
        for seed in 1..=3 {
            traffic(&patient.seed(seed), algorithm, Traffic::Bulk, Way::Right).unwrap();
        }
        let stands = |seed| traffic(&patient.seed(seed), algorithm, Traffic::Bulk, Way::PacketFirst).is_err();
        assert!((1..=40).any(stands), "{}", algorithm.name());
    }
}

#[test]
fn receiver_looking_past_a_claim_ends_the_standstill() {
    for seed in 1..=3 {
        traffic(&pair().seed(seed), named("lock-free"), Traffic::Bulk, Way::PacketFirst).unwrap();
    }
}

#[test]
fn bulk_transfers_are_slower_than_copying() {
    let copying = bulk::copy_rate(&pair()).unwrap();
    for name in ["ticket", "lock-free"] {
        let bandwidth = bulk::bulk(&pair(), named(name)).unwrap().bandwidth;
        assert!(bandwidth > 0.0 && bandwidth < copying, "{name}: {bandwidth} of {copying}");
    }
}
