//! Random histories: requests, releases, cancellations, deaths, in any order of delivery.
//! At most one holder (or readers alone), tokens that grow, and no waiter that is left.

mod network;

use network::Network;
use proptest::prelude::*;
use towpath_mplock::{Mode, NodeState, Protocol};

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize, Mode),
    Release(usize, bool),
    Cancel(usize),
    Forget(usize),
    Deliver(usize),
    Kill(usize),
    KillHome(usize),
}

const NODES: usize = 5;

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES;
    prop_oneof![
        6 => (node.clone(), prop_oneof![3 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)])
            .prop_map(|(node, mode)| Step::Acquire(node, mode)),
        5 => (node.clone(), any::<bool>()).prop_map(|(node, repaired)| Step::Release(node, repaired)),
        1 => node.clone().prop_map(Step::Cancel),
        1 => node.clone().prop_map(Step::Forget),
        14 => (0..64usize).prop_map(Step::Deliver),
        1 => node.clone().prop_map(Step::Kill),
        1 => node.prop_map(Step::KillHome),
    ]
}

fn run(protocol: Protocol, steps: &[Step], deaths: usize) -> Network {
    let mut net = Network::new(protocol, NODES);
    let mut left = deaths;
    for step in steps {
        match *step {
            Step::Acquire(node, mode) if net.alive[node] => {
                if matches!(
                    net.state(node),
                    NodeState::Absent | NodeState::Cached | NodeState::Abandoned { .. }
                ) {
                    net.acquire(node, mode);
                }
            }
            Step::Release(node, repaired) if net.alive[node] && net.holds(node) => {
                net.release(node, repaired)
            }
            Step::Cancel(node) if net.alive[node] => net.cancel(node),
            Step::Forget(node) if net.alive[node] => net.forget(node),
            Step::Deliver(which) => {
                let busy = net.busy();
                if !busy.is_empty() {
                    net.deliver(busy[which % busy.len()]);
                }
            }
            Step::Kill(node) if left > 0 && net.alive[node] && usize::from(net.home_node) != node => {
                left -= 1;
                net.kill(node);
            }
            Step::KillHome(successor)
                if left > 0 && net.alive[successor] && usize::from(net.home_node) != successor =>
            {
                left -= 1;
                net.kill_home(successor);
            }
            _ => {}
        }
        net.check_exclusion();
    }
    net
}

/// All that wait are served in the end, and the lock can be had by each survivor.
fn ends_well(mut net: Network) {
    net.settle();
    for node in 0..NODES {
        if !net.alive[node] {
            continue;
        }
        assert!(
            matches!(net.state(node), NodeState::Absent | NodeState::Cached),
            "node {node} waits for ever: {net:#?}"
        );
        net.acquire(node, Mode::Exclusive);
        while !net.holds(node) {
            let channel = *net.busy().first().expect("a message under way");
            net.deliver(channel);
        }
        net.release(node, true);
        net.settle();
    }
    assert!(net.home.is_unused() || net.nodes.iter().any(|n| n.state() == NodeState::Cached), "{net:#?}");
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Central), Just(Protocol::Distributed), Just(Protocol::Reactive)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories_without_deaths(protocol in protocol(), steps in proptest::collection::vec(step(), 1..120)) {
        let net = run(protocol, &steps, 0);
        prop_assert_eq!(net.warned, 0);
        ends_well(net);
    }

    #[test]
    fn histories_with_deaths(protocol in protocol(), steps in proptest::collection::vec(step(), 1..160)) {
        ends_well(run(protocol, &steps, 3));
    }
}

#[test]
fn death_of_a_holder_is_told_until_it_is_repaired() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        net.acquire(1, Mode::Exclusive);
        net.settle_deliveries();
        net.acquire(2, Mode::Exclusive);
        net.settle_deliveries();
        net.kill(1);
        net.settle_deliveries();
        assert!(net.holds(2), "{protocol:?}");
        assert_eq!(net.warned, 1, "{protocol:?}");
        // Not repaired: told again.
        net.release(2, false);
        net.acquire(3, Mode::Exclusive);
        net.settle_deliveries();
        assert_eq!(net.warned, 2, "{protocol:?}");
        net.release(3, true);
        net.acquire(4, Mode::Exclusive);
        net.settle_deliveries();
        assert!(net.holds(4) && net.warned == 2, "{protocol:?}");
    }
}

#[test]
fn death_of_a_waiter_is_no_owners_death() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        for node in 1..4 {
            net.acquire(node, Mode::Exclusive);
            net.settle_deliveries();
        }
        net.kill(2);
        net.settle_deliveries();
        assert!(net.holds(1));
        net.release(1, true);
        net.settle_deliveries();
        assert!(net.holds(3) && net.warned == 0, "{protocol:?}");
    }
}

#[test]
fn new_home_finds_a_living_holder_and_its_waiters() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        for node in 1..4 {
            net.acquire(node, Mode::Exclusive);
            net.settle_deliveries();
        }
        let before = net.last;
        net.kill_home(4);
        net.settle_deliveries();
        assert!(net.holds(1), "{protocol:?}");
        net.settle();
        assert!(net.last > before && net.last.epoch() >= before.epoch());
        assert_eq!(net.warned, 0, "{protocol:?}");
    }
}

#[test]
fn death_is_told_if_the_node_before_forgot_the_lock() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        for node in 1..4 {
            net.acquire(node, Mode::Exclusive);
            net.settle_deliveries();
        }
        net.release(1, true);
        net.settle_deliveries();
        assert!(net.holds(2), "{protocol:?}");
        net.forget(1);
        net.kill(2);
        net.settle_deliveries();
        assert!(net.holds(3) && net.warned == 1, "{protocol:?}");
    }
}

#[test]
fn holder_that_returns_to_a_new_home_is_no_dead_owner() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        net.acquire(1, Mode::Exclusive);
        net.settle_deliveries();
        net.kill_home(4);
        net.release(1, true);
        net.acquire(2, Mode::Exclusive);
        net.settle();
        assert_eq!(net.warned, 0, "{protocol:?}");
    }
}
