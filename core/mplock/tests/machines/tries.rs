//! Requests that only try.

use crate::network::{NODES, Network};
use towpath_mplock::{Mode, NodeState, Protocol};

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
            net.use_twice(1);
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
