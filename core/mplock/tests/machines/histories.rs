//! Random histories: requests, releases, cancellations, deaths, in any order of delivery.
//! At most one holder (or readers alone), tokens that grow, and no waiter that is left.

use crate::network::Network;
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

const NODES: usize = 5;

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
fn warning_outlives_homes_that_leave_before_they_hear_it() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        net.acquire(1, Mode::Exclusive);
        net.settle_deliveries();
        net.panic(1);
        for successor in [4, 2] {
            // Node 1 answers, and the home is gone before it has the answer.
            assert!(net.leave_home(successor), "{protocol:?}");
            net.deliver((successor as u16, 1));
        }
        net.acquire(3, Mode::Exclusive);
        net.settle_deliveries();
        assert!(net.holds(3) && net.warned == 1, "{protocol:?}");
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

#[test]
fn try_is_refused_while_another_node_holds_the_lock() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        // The second time it may keep the lock.
        for uses in 1..3 {
            net.acquire(1, Mode::Exclusive);
            net.settle_deliveries();
            for mode in [Mode::Exclusive, Mode::Shared] {
                net.request(2, mode, true);
                net.settle_deliveries();
                assert_eq!(net.state(2), NodeState::Absent, "{protocol:?}");
            }
            assert_eq!(net.refused, 2 * uses, "{protocol:?}");
            net.release(1, true);
            net.settle_deliveries();
        }
    }
}

#[test]
fn try_fetches_an_idle_lock_from_the_node_that_keeps_it() {
    for protocol in Protocol::ALL {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let mut net = Network::new(protocol, NODES);
            for _ in 0..2 {
                net.acquire(1, Mode::Exclusive);
                net.settle_deliveries();
                net.release(1, true);
                net.settle_deliveries();
            }
            // Of two that try at once, one has it; readers both.
            net.request(2, mode, true);
            net.request(3, mode, true);
            net.settle_deliveries();
            let holders = [2, 3].into_iter().filter(|&node| net.holds(node)).count();
            let expected = if mode == Mode::Shared { 2 } else { 1 };
            assert_eq!((holders, net.refused as usize), (expected, 2 - expected), "{protocol:?}");
        }
    }
}

#[test]
fn try_comes_before_waiters_that_come_later() {
    let mut net = Network::new(Protocol::Distributed, NODES);
    net.acquire(1, Mode::Exclusive);
    net.settle_deliveries();
    net.release(1, true);
    net.request(2, Mode::Exclusive, true);
    net.deliver((2, 0));
    for node in [3, 4] {
        net.acquire(node, Mode::Exclusive);
        net.deliver((node as u16, 0));
    }
    net.settle_deliveries();
    assert!(net.holds(2));
    for (holder, next) in [(2, 3), (3, 4)] {
        net.release(holder, true);
        net.settle_deliveries();
        assert!(net.holds(next), "{net:#?}");
    }
}

#[test]
fn try_is_answered_when_owner_or_home_die() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        for _ in 0..2 {
            net.acquire(1, Mode::Exclusive);
            net.settle_deliveries();
            net.release(1, true);
            net.settle_deliveries();
        }
        net.request(2, Mode::Exclusive, true);
        net.deliver((2, 0));
        if protocol != Protocol::Central {
            net.kill(1);
        }
        net.kill_home(4);
        net.settle_deliveries();
        assert!(net.holds(2), "{protocol:?}: {net:#?}");
    }
}

#[test]
fn dead_holder_leaves_the_data_of_the_last_release() {
    for protocol in Protocol::ALL {
        // From node to node or through the home; with the node before that keeps its state or not.
        for forgets in [false, true] {
            let mut net = Network::new(protocol, NODES);
            for node in 1..4 {
                net.acquire(node, Mode::Exclusive);
                net.settle_deliveries();
            }
            net.release_with(1, 17);
            net.settle_deliveries();
            let version = net.version();
            assert!(net.holds(2) && version.is_some());
            if forgets {
                net.forget(1);
            }
            net.kill(2);
            net.settle_deliveries();
            assert!(net.holds(3) && net.warned == 1);
            assert_eq!(net.version(), version, "{protocol:?}");
        }
    }
}

#[test]
fn survivors_copy_of_data_outlives_their_home() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        net.acquire(1, Mode::Exclusive);
        net.settle_deliveries();
        net.release_with(1, 17);
        net.settle_deliveries();
        let version = net.version();
        net.kill_home(4);
        net.acquire(2, Mode::Exclusive);
        net.settle_deliveries();
        assert!(net.holds(2));
        assert_eq!(net.version(), version, "{protocol:?}");
    }
}

#[test]
fn data_that_died_on_their_way_are_told() {
    let mut net = Network::new(Protocol::Distributed, NODES);
    for node in [1, 2] {
        net.acquire(node, Mode::Exclusive);
        net.settle_deliveries();
    }
    // Its grant to node 2, with data, is overtaken by the home's inquiry.
    net.release_with(1, 17);
    net.acquire(1, Mode::Exclusive);
    net.deliver((1, 0));
    net.kill(1);
    while net.busy().iter().any(|&channel| channel != (1, 2)) {
        let channel = *net.busy().iter().find(|&&channel| channel != (1, 2)).unwrap();
        net.deliver(channel);
    }
    assert!(net.holds(2) && net.warned == 1);
    assert_eq!(net.version(), None);
}

#[test]
fn lock_that_is_kept_goes_on_after_its_budget() {
    for protocol in [Protocol::Distributed, Protocol::Reactive] {
        let mut net = Network::new(protocol, NODES);
        for node in 1..4 {
            net.acquire(node, Mode::Exclusive);
            net.settle_deliveries();
        }
        for uses in 1..=4 {
            assert!(net.holds(1), "{protocol:?}, {uses}");
            net.release_or_keep(1, true, 4);
            net.settle_deliveries();
            if uses < 4 {
                assert_eq!(net.state(1), NodeState::Kept);
                net.acquire(1, Mode::Exclusive);
            }
        }
        // The nodes behind it are served in their order; the death of a keeper loses nothing.
        assert!(net.holds(2));
        net.release_or_keep(2, true, 2);
        assert_eq!(net.state(2), NodeState::Kept);
        net.kill(2);
        net.settle_deliveries();
        assert!(net.holds(3));
    }
}

/// A node that keeps the lock and has lent it to the next one, and one that waits behind.
fn lent(protocol: Protocol, hold: u32) -> Network {
    let mut net = Network::new(protocol, NODES);
    for node in 1..4 {
        net.acquire(node, Mode::Exclusive);
        net.settle_deliveries();
    }
    net.release_or_keep(1, true, hold);
    net.lend(1, hold);
    net.settle_deliveries();
    assert!(net.nodes[1].lent().is_some() && net.nodes[2].offer().is_some());
    net
}

#[test]
fn loan_is_bounded_by_its_lenders_acquisitions() {
    for protocol in [Protocol::Distributed, Protocol::Reactive] {
        for hold in 2..6 {
            let mut net = lent(protocol, hold);
            let mut users = vec![1];
            loop {
                if net.borrow(2, Mode::Exclusive) {
                    assert!(net.nodes[2].is_borrowed());
                    users.push(2);
                    net.release_or_keep(2, true, 0);
                } else {
                    break;
                }
                if net.state(1) != NodeState::Kept || !net.may_ask(2) {
                    break;
                }
                net.acquire(1, Mode::Exclusive);
                if !net.holds(1) {
                    break;
                }
                users.push(1);
                net.release_or_keep(1, true, hold);
            }
            net.settle_deliveries();
            assert_eq!(users.len(), hold as usize, "{protocol:?}: {users:?}");
            net.settle();
            assert_eq!(net.warned, 0, "{protocol:?}");
        }
    }
}

#[test]
fn borrower_that_holds_the_lock_when_its_loan_ends_has_it() {
    for ends in ["hand over", "lender wants it", "lender dies", "waiter dies"] {
        let mut net = lent(Protocol::Distributed, 9);
        assert!(net.borrow(2, Mode::Exclusive));
        match ends {
            "hand over" => net.hand_over(1),
            "lender wants it" => net.acquire(1, Mode::Exclusive),
            "lender dies" => net.kill(1),
            _ => net.kill(3),
        }
        net.settle_deliveries();
        assert!(net.holds(2), "{ends}");
        net.release(2, true);
        net.settle();
        assert_eq!(net.warned, 0, "{ends}");
    }
}

#[test]
fn borrower_that_dies_with_the_lock_is_told() {
    let mut net = lent(Protocol::Distributed, 9);
    assert!(net.borrow(2, Mode::Exclusive));
    net.kill(2);
    net.settle_deliveries();
    net.hand_over(1);
    net.settle_deliveries();
    assert!(net.holds(3) && net.warned == 1, "{net:#?}");
}

#[test]
fn borrower_keeps_its_place_when_it_only_computes() {
    let mut net = lent(Protocol::Distributed, 9);
    assert!(net.borrow(2, Mode::Exclusive));
    net.release(2, true);
    net.acquire(2, Mode::Exclusive);
    net.hand_over(1);
    net.settle_deliveries();
    assert!(net.holds(2));
    net.release(2, true);
    net.settle_deliveries();
    assert!(net.holds(3));
}

#[test]
fn data_of_a_borrower_reach_the_next_holder() {
    let mut net = lent(Protocol::Distributed, 9);
    assert!(net.borrow(2, Mode::Exclusive));
    net.release_with(2, 17);
    net.settle_deliveries();
    net.hand_over(1);
    net.settle_deliveries();
    assert!(net.holds(3) && net.version().is_some());
}

#[test]
fn loan_reaches_all_that_wait_and_their_order_stays() {
    for protocol in [Protocol::Distributed, Protocol::Reactive] {
        let mut net = lent(protocol, 99);
        net.acquire(4, Mode::Exclusive);
        net.settle_deliveries();
        for node in [4, 2, 3, 2, 4] {
            assert!(net.borrow(node, Mode::Exclusive), "{protocol:?}: node {node}");
            assert!(!net.borrow(if node == 2 { 3 } else { 2 }, Mode::Exclusive), "taken by {node}");
            net.release_or_keep(node, true, 9);
        }
        for node in 2..5 {
            net.acquire(node, Mode::Exclusive);
        }
        net.hand_over(1);
        for node in 2..5 {
            net.settle_deliveries();
            assert!(net.holds(node), "{protocol:?}: node {node} in its turn");
            net.release(node, true);
        }
        net.settle();
        assert_eq!(net.warned, 0);
    }
}

#[test]
fn borrower_out_of_turn_keeps_the_lock_through_deaths() {
    for dies in ["lender", "waiter", "borrower"] {
        let mut net = lent(Protocol::Distributed, 9);
        assert!(net.borrow(3, Mode::Exclusive));
        net.kill(match dies {
            "lender" => 1,
            "waiter" => 2,
            _ => 3,
        });
        net.settle_deliveries();
        assert_eq!(net.holds(2), dies == "borrower", "{dies}");
        assert!(net.holds(3), "it has it, or has died with it");
        net.settle();
        assert_eq!(net.warned > 0, dies == "borrower", "{dies}");
    }
}

#[test]
fn borrower_that_panics_is_told_to_the_next() {
    let mut net = lent(Protocol::Distributed, 9);
    assert!(net.borrow(3, Mode::Exclusive));
    net.panic(3);
    net.settle_deliveries();
    net.acquire(1, Mode::Exclusive);
    assert!(net.holds(1) && net.warned == 1);
    // The lender, which gets the lock by message, dies before it has it.
    let mut net = lent(Protocol::Distributed, 9);
    assert!(net.borrow(3, Mode::Exclusive));
    net.panic(3);
    net.kill(1);
    net.settle_deliveries();
    assert!(net.holds(2) && net.warned == 1);
}

/// A holder panics and passes the lock to a node that leaves before it has it.
///
/// The home learns of the passing, and of its warning, by the sender's next request.
fn warning_to_a_node_that_leaves(protocol: Protocol, tries: bool) {
    let mut net = Network::new(protocol, NODES);
    for node in [3, 4, 0] {
        net.acquire(node, Mode::Exclusive);
        net.settle_deliveries();
    }
    net.panic(3);
    net.request(3, Mode::Exclusive, tries);
    net.deliver((3, 0));
    assert!(net.leave_world(4));
    net.settle_deliveries();
    assert!(net.holds(0) && net.warned == 1, "{protocol:?}");
}

#[test]
fn warning_on_its_way_to_a_node_that_leaves_is_told() {
    Protocol::ALL.into_iter().for_each(|protocol| warning_to_a_node_that_leaves(protocol, false));
}

#[test]
fn warning_of_a_sender_that_only_tries_again_is_told() {
    Protocol::ALL.into_iter().for_each(|protocol| warning_to_a_node_that_leaves(protocol, true));
}

#[test]
fn warning_on_its_way_to_a_home_that_leaves_is_told() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        for node in [1, 2] {
            net.acquire(node, Mode::Exclusive);
            net.settle_deliveries();
        }
        // Node 1 tells of the same token, without the warning.
        net.release(1, true);
        net.settle_deliveries();
        net.panic(2);
        assert!(net.leave_home(4));
        net.acquire(3, Mode::Exclusive);
        net.settle_deliveries();
        assert!(net.holds(3) && net.warned == 1, "{protocol:?}");
    }
}
