//! Random histories: requests, releases, cancellations, deaths, in any order of delivery.
//! At most one holder (or readers alone), tokens that grow, and no waiter that is left.

use crate::network::{NODES, Network};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use towpath_machine::Random;
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

/// History of a network.
struct History {
    net: Network,
    /// True if nodes may die, and holders may panic.
    has_deaths: bool,
    /// Number of nodes that may still die.
    deaths: usize,
    /// Number of nodes that may still die or leave.
    ends: usize,
}

impl History {
    fn new(protocol: Protocol, deaths: usize, ends: usize) -> History {
        History { net: Network::new(protocol, NODES), has_deaths: deaths > 0, deaths, ends }
    }

    /// Takes a step, if it can be taken. Returns whether it was.
    fn take(&mut self, step: &Step) -> bool {
        let net = &mut self.net;
        let home = usize::from(net.home_node);
        let (may_leave, may_die) = (self.ends > 0, self.ends > 0 && self.deaths > 0);
        match *step {
            Step::Acquire(node, mode) if net.alive[node] && net.may_ask(node) => net.acquire(node, mode),
            Step::Try(node, mode) if net.alive[node] && net.may_ask(node) => net.request(node, mode, true),
            Step::Release(node, repaired) if net.alive[node] && net.holds(node) => {
                net.release(node, repaired)
            }
            Step::Keep(node, hold) if net.alive[node] && net.holds(node) => {
                net.release_or_keep(node, true, hold);
            }
            Step::HandOver(node) if net.alive[node] && net.has_to_pass_on(node) => net.hand_over(node),
            Step::Lend(node, hold) if net.alive[node] && net.nodes[node].possible_borrower().is_some() => {
                net.lend(node, hold);
            }
            Step::Borrow(node, mode) if net.alive[node] && net.nodes[node].offer().is_some() => {
                net.borrow(node, mode);
            }
            Step::Panic(node) if self.has_deaths && net.alive[node] && net.holds(node) => net.panic(node),
            Step::Sleep(node) if net.alive[node] && net.nodes[node].loan().is_some() => {
                net.announce_sleep(node);
            }
            Step::Publish(node, number) if net.alive[node] && net.holds(node) => {
                net.release_with(node, number);
            }
            Step::Cancel(node) if net.alive[node] && net.nodes[node].wants().is_some() => net.cancel(node),
            Step::Forget(node) if net.alive[node] => net.forget(node),
            Step::Deliver(which) if !net.busy().is_empty() => {
                let busy = net.busy();
                net.deliver(busy[which % busy.len()]);
            }
            Step::Leave(node) if may_leave && net.alive[node] && home != node => {
                self.ends -= usize::from(net.leave_world(node));
            }
            Step::LeaveHome(successor) if may_leave && net.alive[successor] && home != successor => {
                self.ends -= usize::from(net.leave_home(successor));
            }
            Step::Kill(node) if may_die && net.alive[node] && home != node => {
                (self.deaths, self.ends) = (self.deaths - 1, self.ends - 1);
                net.kill(node);
            }
            Step::KillHome(successor) if may_die && net.alive[successor] && home != successor => {
                (self.deaths, self.ends) = (self.deaths - 1, self.ends - 1);
                net.kill_home(successor);
            }
            _ => return false,
        }
        net.check_exclusion();
        true
    }
}

/// Runs a history with at most so many nodes that die, and that die or leave.
fn run(protocol: Protocol, steps: &[Step], deaths: usize, ends: usize) -> History {
    let mut history = History::new(protocol, deaths, ends);
    for step in steps {
        history.take(step);
    }
    history
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
        end(run(protocol, &steps, 0, 0));
    }

    #[test]
    fn histories_with_nodes_that_leave(
        protocol in protocol(),
        steps in proptest::collection::vec(step(), 1..160),
    ) {
        end(run(protocol, &steps, 0, 3));
    }

    #[test]
    fn histories_with_deaths(protocol in protocol(), steps in proptest::collection::vec(step(), 1..160)) {
        end(run(protocol, &steps, 3, 3));
    }
}

/// Takes random steps, in a few parts, and notes them.
///
/// Some kinds are left out of a part, and the others have frequencies of its own; messages of some
/// nodes are slow: so that comes about, too, which takes many steps of few kinds.
fn wander(history: &mut History, random: &mut Random, steps: &mut Vec<Step>) {
    for _ in 0..1 + random.below(6) {
        let mut kinds = vec![0; 1 + random.below(24) as usize];
        for kind in 1..18 {
            let frequency = [0, 0, 1, 2, 4, 8][random.below(6) as usize];
            kinds.extend(std::iter::repeat_n(kind, frequency));
        }
        // Number of channels, in their order, of which one is chosen.
        let channels = [1, 2, 3, 64][random.below(4) as usize];
        for _ in 0..8 + random.below(120) {
            steps.push(step_of(kinds[random.below(kinds.len() as u64) as usize], channels, random));
            if !history.take(&steps[steps.len() - 1]) {
                steps.pop();
            }
        }
    }
}

/// Returns a random step of that kind.
fn step_of(kind: u32, channels: u64, random: &mut Random) -> Step {
    let node = random.below(NODES as u64) as usize;
    let mode = if random.below(4) == 0 { Mode::Shared } else { Mode::Exclusive };
    let (flag, number) = (random.below(2) == 0, random.below(9) as u32);
    match kind {
        0 => Step::Deliver(random.below(channels) as usize),
        1 | 2 => Step::Acquire(node, mode),
        3 => Step::Try(node, mode),
        4 => Step::Release(node, flag),
        5 => Step::Keep(node, number),
        6 => Step::HandOver(node),
        7 => Step::Lend(node, number),
        8 => Step::Borrow(node, mode),
        9 => Step::Sleep(node),
        10 => Step::Panic(node),
        11 => Step::Publish(node, random.word() as u32),
        12 => Step::Cancel(node),
        13 => Step::Forget(node),
        14 => Step::Kill(node),
        15 => Step::KillHome(node),
        16 => Step::Leave(node),
        _ => Step::LeaveHome(node),
    }
}

/// Brings the network of a history to rest. Without deaths none is told.
fn end(history: History) {
    let warned = history.net.warned;
    let all = ends_well(history.net);
    assert!(history.has_deaths || (warned, all) == (0, 0), "a warning without a death");
}

/// Random histories from `SEED` (0) on, `HISTORIES` (a million) of them.
///
/// Of one that fails, the steps that it takes are printed.
#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
fn many_histories() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number in SEED, HISTORIES"))
    };
    let (first, count) = (number("SEED", 0), number("HISTORIES", 1_000_000));
    for seed in first..first + count {
        let mut random = Random::new(seed);
        let protocol = Protocol::ALL[random.below(3) as usize];
        let (deaths, ends) = [(0, 3), (0, 0), (0, 3), (3, 3)][random.below(4) as usize];
        let mut steps = Vec::new();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut history = History::new(protocol, deaths, ends);
            wander(&mut history, &mut random, &mut steps);
            end(history);
        }));
        let Err(failure) = ended else { continue };
        let again = |steps: &[Step]| end(run(protocol, steps, deaths, ends));
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let mut at = 0;
        while at < steps.len() {
            let step = steps.remove(at);
            if catch_unwind(AssertUnwindSafe(|| again(&steps))).is_ok() {
                steps.insert(at, step);
                at += 1;
            }
        }
        std::panic::set_hook(report);
        println!("SEED={seed} {protocol:?}, {deaths} deaths: {steps:?}");
        again(&steps);
        std::panic::resume_unwind(failure);
    }
}
