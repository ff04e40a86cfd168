//! Locks that are kept for several acquisitions, and lent.

use crate::network::{NODES, Network};
use towpath_mplock::{Mode, NodeState, Protocol};

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

/// A borrower gives the lock back before its turn, during an inquiry.
///
/// It has not heard of the end of a node behind it, and the others have answered already.
#[test]
fn return_of_a_borrower_before_its_turn_loses_no_waiter() {
    for dies in [false, true] {
        let mut net = lent(Protocol::Distributed, 9);
        assert!(net.borrow(3, Mode::Exclusive));
        net.acquire(4, Mode::Exclusive);
        net.deliver((4, 0));
        if dies {
            net.kill(4);
        } else {
            assert!(net.leave_world(4));
        }
        for node in [1, 2] {
            net.deliver((0, node));
            net.deliver((node, 0));
        }
        net.release(3, true);
        net.forget(3);
        net.settle_deliveries();
        assert!(net.holds(2) && net.warned == 0, "{net:#?}");
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
