//! Table 1 of the paper: hops and interrupts until a lock is acquired, by its state.

use crate::network::{Network, Side};
use towpath_mplock::{Mode, NodeState, Protocol};

/// Hops and interrupts on the way to an acquisition.
///
/// A message to another node is a hop; one that its receiver does not wait for is an interrupt.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    hops: u32,
    interrupts: u32,
}

/// Delivers messages, one after the other, until `node` holds the lock.
fn until_held(net: &mut Network, node: usize) -> Cost {
    let mut cost = Cost { hops: 0, interrupts: 0 };
    while !net.holds(node) {
        let channel = net.busy()[0];
        let (from, to) = channel;
        let waits = usize::from(to) == node && matches!(net.state(node), NodeState::Waits(_));
        let side = net.deliver(channel);
        if from != to {
            cost.hops += 1;
            cost.interrupts += u32::from(side == Side::Home || !waits);
        }
    }
    cost
}

fn lock(net: &mut Network, node: usize) -> Cost {
    net.acquire(node, Mode::Exclusive);
    until_held(net, node)
}

fn lock_and_release(net: &mut Network, node: usize) {
    lock(net, node);
    net.release(node, true);
    net.settle_deliveries();
}

fn cost(hops: u32, interrupts: u32) -> Cost {
    Cost { hops, interrupts }
}

/// The home is node 0; none of the others is.
fn network(protocol: Protocol) -> Network {
    Network::new(protocol, 4)
}

#[test]
fn local_idle_lock_needs_no_message_but_in_central() {
    for (protocol, uses, expected) in [
        (Protocol::Central, 5, cost(2, 1)),
        (Protocol::Distributed, 1, cost(0, 0)),
        // The home has to see that one node alone uses it.
        (Protocol::Reactive, 2, cost(0, 0)),
    ] {
        let mut net = network(protocol);
        for _ in 0..uses {
            lock_and_release(&mut net, 1);
        }
        assert_eq!(lock(&mut net, 1), expected, "{protocol:?}");
    }
}

#[test]
fn remote_idle_lock_costs_what_the_paper_says() {
    for (protocol, expected) in [
        (Protocol::Central, cost(2, 1)),
        (Protocol::Distributed, cost(3, 2)),
        (Protocol::Reactive, cost(2, 1)),
    ] {
        let mut net = network(protocol);
        lock_and_release(&mut net, 1);
        assert_eq!(lock(&mut net, 2), expected, "{protocol:?}");
    }
}

#[test]
fn remote_busy_lock_costs_what_the_paper_says() {
    for (protocol, expected) in [
        (Protocol::Central, cost(2, 1)),
        (Protocol::Distributed, cost(1, 0)),
        (Protocol::Reactive, cost(1, 0)),
    ] {
        let mut net = network(protocol);
        lock(&mut net, 1);
        net.acquire(2, Mode::Exclusive);
        net.settle_deliveries();
        assert!(!net.holds(2));
        net.release(1, true);
        assert_eq!(until_held(&mut net, 2), expected, "{protocol:?}");
    }
}

#[test]
fn reactive_lock_comes_home_when_others_use_it() {
    let mut net = network(Protocol::Reactive);
    for _ in 0..3 {
        lock_and_release(&mut net, 1);
    }
    assert_eq!(net.state(1), NodeState::Cached);
    // It is fetched from there once, and is at its home afterwards.
    assert_eq!(lock(&mut net, 2), cost(3, 2));
    net.release(2, true);
    net.settle_deliveries();
    assert_eq!(net.state(2), NodeState::Absent);
    assert_eq!(lock(&mut net, 3), cost(2, 1));
}

#[test]
fn reactive_lock_that_others_wait_for_stays_with_the_last() {
    let mut net = network(Protocol::Reactive);
    lock(&mut net, 1);
    for waiter in [2, 3] {
        net.acquire(waiter, Mode::Exclusive);
        net.settle_deliveries();
    }
    // Node 2 was the only waiter when the home named it to node 1, and does not keep the lock.
    for (holder, next) in [(1, 2), (2, 3)] {
        net.release(holder, true);
        assert_eq!(until_held(&mut net, next), cost(1, 0));
    }
    net.release(3, true);
    net.settle_deliveries();
    assert_eq!(net.state(3), NodeState::Cached);
    assert_eq!(lock(&mut net, 3), cost(0, 0));
    net.release(3, true);
    // It is fetched from there once, and is at its home afterwards.
    lock_and_release(&mut net, 2);
    assert_eq!(lock(&mut net, 1), cost(2, 1));
}

#[test]
fn home_itself_sends_itself_no_hops() {
    let mut net = network(Protocol::Central);
    assert_eq!(lock(&mut net, 0), cost(0, 0));
}
