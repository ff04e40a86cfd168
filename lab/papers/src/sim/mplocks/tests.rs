//! Locks by message on `avalanche`: their costs in each state, exclusion, determinism.

use towpath_mplock::Protocol;
use towpath_sim::{Parameters, machines};

use super::*;
use crate::sim::{Run, Work};
use towpath_report::record::metrics;

fn avalanche(changes: &[&str]) -> Parameters {
    let mut machine = machines::by_name("avalanche").unwrap();
    for change in changes {
        machine.set_from_text(change).unwrap();
    }
    machine
}

fn cost(scheme: Scheme, state: State) -> (u64, u64) {
    let cost = acquisition(&avalanche(&[]), scheme, state, HomePlacement::From(3), false, 1).unwrap();
    (cost.hops, cost.interrupts)
}

#[test]
fn locks_by_message_cost_what_table_1_says() {
    let [central, distributed, reactive] = Protocol::ALL.map(Scheme::Message);
    for (scheme, expected) in [
        (central, [(2, 1), (2, 1), (2, 1)]),
        (distributed, [(0, 0), (3, 2), (1, 0)]),
        (reactive, [(0, 0), (2, 1), (1, 0)]),
    ] {
        assert_eq!(State::ALL.map(|state| cost(scheme, state)), expected, "{}", scheme.name());
    }
}

#[test]
fn central_manager_at_the_own_node_is_interrupted_too() {
    let at_requester = |protocol, state| {
        let (machine, scheme) = (avalanche(&[]), Scheme::Message(protocol));
        acquisition(&machine, scheme, state, HomePlacement::From(2), false, 1).unwrap()
    };
    let [central, distributed, reactive] = Protocol::ALL;
    for state in [State::LocalIdle, State::RemoteIdle] {
        let cost = at_requester(central, state);
        assert!(cost.interrupts == 1 && cost.cycles > 1_000.0, "{}: {cost:?}", state.name());
    }
    assert_eq!(at_requester(distributed, State::LocalIdle).interrupts, 0);
    assert_eq!(at_requester(reactive, State::RemoteIdle).interrupts, 0);
}

#[test]
fn locks_in_shared_memory_take_no_more_hops_than_table_1() {
    for (scheme, most) in [(Scheme::TestAndTestAndSet, [0, 8, 12]), (Scheme::Mcs, [0, 4, 12])] {
        let hops = State::ALL.map(|state| cost(scheme, state).0);
        assert!(hops.iter().zip(most).all(|(hops, most)| *hops <= most), "{}: {hops:?}", scheme.name());
    }
}

#[test]
fn programs_lose_no_update_and_are_the_same_by_seed() {
    for (name, pattern) in PATTERNS {
        for scheme in Scheme::ALL {
            let setting = Run::new(avalanche(&[]), 6, Work { ns: 1_000, spread: 0.2 }, 300);
            let [a, b, c] = [4, 4, 5].map(|seed| run(&setting.seed(seed), scheme, pattern).unwrap().values);
            assert_eq!(a, b, "{name}, {}", scheme.name());
            assert_ne!(a, c, "{name}, {}", scheme.name());
        }
    }
}

#[test]
fn central_locks_forward_nothing() {
    let setting = Run::new(avalanche(&[]), 16, Work { ns: 100, spread: 0.2 }, 800);
    let inside = |protocol| {
        let values = run(&setting, Scheme::Message(protocol), Pattern::ManyLocks).unwrap().values;
        values.iter().find(|v| v.0 == metrics::INTERRUPTS_INSIDE).unwrap().1
    };
    assert_eq!(inside(Protocol::Central), 0.0);
    assert!(inside(Protocol::Distributed) > 0.0);
}
