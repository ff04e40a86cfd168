//! Deaths, nodes that leave, and the warnings and data that outlive them.

use crate::network::{NODES, Network};
use towpath_mplock::{Mode, Protocol};

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
fn try_is_answered_when_owner_or_home_die() {
    for protocol in Protocol::ALL {
        let mut net = Network::new(protocol, NODES);
        net.use_twice(1);
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
fn data_whose_loss_was_told_do_not_come_back() {
    let mut net = Network::new(Protocol::Distributed, NODES);
    for node in [0, 3, 1] {
        net.acquire(node, Mode::Exclusive);
        net.settle_deliveries();
    }
    net.release_with(0, 17);
    net.deliver((0, 3));
    // They die on their way from node 3 to node 1, which is told so.
    net.release(3, true);
    net.acquire(3, Mode::Exclusive);
    net.deliver((3, 0));
    net.kill(3);
    for channel in [(0, 1), (0, 1), (1, 0), (0, 1)] {
        net.deliver(channel);
    }
    assert!(net.holds(1) && net.warned == 1 && net.version().is_none());
    net.release(1, true);
    // Node 0 has a copy, which goes with a request that only tries.
    net.request(0, Mode::Exclusive, true);
    net.settle_deliveries();
    assert!(net.holds(0) && net.warned == 1 && net.version().is_none());
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
