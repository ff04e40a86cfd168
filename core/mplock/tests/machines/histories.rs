//! Random histories: requests, releases, cancellations, deaths, in any order of delivery.
//! At most one holder (or readers alone), tokens that grow, and no waiter that is left.

use crate::network::{NODES, Network};
use proptest::prelude::*;
use towpath_mplock::{Mode, NodeState, Protocol};

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize, Mode),
    Try(usize, Mode),
    Release(usize, bool),
    Keep(usize, u32),
    HandOver(usize),
    Lend(usize, u32),
    Borrow(usize, Mode),
    Sleep(usize),
    Panic(usize),
    Publish(usize, u32),
    Cancel(usize),
    Forget(usize),
    Deliver(usize),
    Kill(usize),
    KillHome(usize),
    Leave(usize),
    LeaveHome(usize),
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)]
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES;
    prop_oneof![
        6 => (node.clone(), mode()).prop_map(|(node, mode)| Step::Acquire(node, mode)),
        2 => (node.clone(), mode()).prop_map(|(node, mode)| Step::Try(node, mode)),
        3 => (node.clone(), any::<bool>()).prop_map(|(node, repaired)| Step::Release(node, repaired)),
        3 => (node.clone(), 0..6u32).prop_map(|(node, hold)| Step::Keep(node, hold)),
        1 => node.clone().prop_map(Step::HandOver),
        3 => (node.clone(), 0..9u32).prop_map(|(node, hold)| Step::Lend(node, hold)),
        5 => (node.clone(), mode()).prop_map(|(node, mode)| Step::Borrow(node, mode)),
        1 => node.clone().prop_map(Step::Sleep),
        1 => node.clone().prop_map(Step::Panic),
        3 => (node.clone(), any::<u32>()).prop_map(|(node, number)| Step::Publish(node, number)),
        1 => node.clone().prop_map(Step::Cancel),
        1 => node.clone().prop_map(Step::Forget),
        14 => (0..64usize).prop_map(Step::Deliver),
        1 => node.clone().prop_map(Step::Kill),
        1 => node.clone().prop_map(Step::KillHome),
        1 => node.clone().prop_map(Step::Leave),
        1 => node.prop_map(Step::LeaveHome),
    ]
}

/// Runs a history with at most so many nodes that die, and that die or leave.
fn run(protocol: Protocol, steps: &[Step], deaths: usize, ends: usize) -> Network {
    let mut net = Network::new(protocol, NODES);
    let (mut left, mut ends) = (deaths, ends);
    for step in steps {
        match *step {
            Step::Acquire(node, mode) if net.alive[node] && net.may_ask(node) => net.acquire(node, mode),
            Step::Try(node, mode) if net.alive[node] && net.may_ask(node) => net.request(node, mode, true),
            Step::Release(node, repaired) if net.alive[node] && net.holds(node) => {
                net.release(node, repaired)
            }
            Step::Keep(node, hold) if net.alive[node] && net.holds(node) => {
                net.release_or_keep(node, true, hold);
            }
            Step::HandOver(node) if net.alive[node] => net.hand_over(node),
            Step::Lend(node, hold) if net.alive[node] => net.lend(node, hold),
            Step::Borrow(node, mode) if net.alive[node] => drop(net.borrow(node, mode)),
            Step::Panic(node) if deaths > 0 && net.alive[node] && net.holds(node) => {
                net.panic(node);
            }
            Step::Sleep(node) if net.alive[node] => net.announce_sleep(node),
            Step::Publish(node, number) if net.alive[node] && net.holds(node) => {
                net.release_with(node, number);
            }
            Step::Cancel(node) if net.alive[node] => net.cancel(node),
            Step::Forget(node) if net.alive[node] => net.forget(node),
            Step::Deliver(which) => {
                let busy = net.busy();
                if !busy.is_empty() {
                    net.deliver(busy[which % busy.len()]);
                }
            }
            Step::Leave(node) if ends > 0 && net.alive[node] && usize::from(net.home_node) != node => {
                ends -= usize::from(net.leave_world(node));
            }
            Step::LeaveHome(successor)
                if ends > 0 && net.alive[successor] && usize::from(net.home_node) != successor =>
            {
                ends -= usize::from(net.leave_home(successor));
            }
            Step::Kill(node)
                if left > 0 && ends > 0 && net.alive[node] && usize::from(net.home_node) != node =>
            {
                (left, ends) = (left - 1, ends - 1);
                net.kill(node);
            }
            Step::KillHome(successor)
                if left > 0
                    && ends > 0
                    && net.alive[successor]
                    && usize::from(net.home_node) != successor =>
            {
                (left, ends) = (left - 1, ends - 1);
                net.kill_home(successor);
            }
            _ => {}
        }
        net.check_exclusion();
    }
    net
}

/// Requests that only try are answered whether the lock is released or not. All that wait
/// are served in the end, and the lock can be had by each survivor.
///
/// Returns the number of holders that were told of a death.
fn ends_well(mut net: Network) -> u32 {
    net.settle_deliveries();
    assert!(!net.trying.contains(&true), "a request that only tries has no answer: {net:#?}");
    net.settle();
    for node in 0..NODES {
        if !net.alive[node] {
            continue;
        }
        assert!(
            matches!(net.state(node), NodeState::Absent | NodeState::Cached),
            "node {node} waits for ever: {net:#?}"
        );
        for tries in [false, true] {
            net.request(node, Mode::Exclusive, tries);
            while !net.holds(node) {
                let channel = *net.busy().first().expect("a message under way");
                net.deliver(channel);
            }
            net.release(node, true);
            net.settle();
        }
    }
    let cached = net.nodes.iter().any(|node| node.state() == NodeState::Cached);
    assert!(net.home.is_unused() || net.home.data().is_some() || cached, "{net:#?}");
    net.warned
}

/// Number of histories of each kind; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(2_500)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Central), Just(Protocol::Distributed), Just(Protocol::Reactive)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories_without_deaths(protocol in protocol(), steps in proptest::collection::vec(step(), 1..120)) {
        let net = run(protocol, &steps, 0, 0);
        prop_assert_eq!(net.warned, 0);
        ends_well(net);
    }

    #[test]
    fn histories_with_nodes_that_leave(
        protocol in protocol(),
        steps in proptest::collection::vec(step(), 1..160),
    ) {
        let net = run(protocol, &steps, 0, 3);
        prop_assert_eq!(net.warned, 0);
        prop_assert_eq!(ends_well(net), 0);
    }

    #[test]
    fn histories_with_deaths(protocol in protocol(), steps in proptest::collection::vec(step(), 1..160)) {
        ends_well(run(protocol, &steps, 3, 3));
    }
}
