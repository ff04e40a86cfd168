//! The explorer over its whole list, within a fixed budget: correct subjects pass, with
//! and without deaths, and planted faults are found.

use towpath_explore::harness::Case;
use towpath_explore::subjects::{STRUCTURES, find, subjects};
use towpath_explore::{
    Fault, Liberties, Method, Plan, Schedule, SearchReport, SearchSettings, replay, search,
};
use towpath_sync::Policy;

const METHODS: [Method; 3] = [Method::Random, Method::Pct { depth: 3 }, Method::Dfs { preemptions: Some(2) }];

fn settings(method: Method, threads: usize, ops: usize, schedules: u64) -> SearchSettings {
    SearchSettings { method, ..SearchSettings::new(Plan { threads, ops }, schedules) }
}

fn passes(case: &Case, settings: &SearchSettings, policy: Policy) -> SearchReport {
    let report = search(case, settings, &mut |_| {}).unwrap();
    if let Some(found) = &report.found {
        panic!(
            "{} under {}, {settings:?}: {}, replay {}\n{}\n{}",
            case.name,
            policy.name(),
            found.failure.fault.name(),
            found.replay,
            found.failure.text,
            found.trace
        );
    }
    report
}

fn is_structure(case: &Case) -> bool {
    case.name.split('/').next().is_some_and(|family| STRUCTURES.contains(&family))
}

/// Number of schedules of a case: TOWPATH_SCHEDULES of the environment (CI sets it), or
/// this one.
fn schedules(otherwise: u64) -> u64 {
    std::env::var("TOWPATH_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

fn everything_passes(policy: Policy, otherwise: u64) {
    let schedules = schedules(otherwise);
    let cases = subjects(policy);
    assert!(cases.len() > 30);
    let right = |case: &&Case| !case.name.starts_with("planted/") && !is_structure(case);
    all_pass(cases.iter().filter(right), policy, schedules);
}

fn all_pass<'a>(cases: impl Iterator<Item = &'a Case>, policy: Policy, schedules: u64) {
    for case in cases {
        for method in METHODS {
            let settings = settings(method, 3, 4, schedules);
            let report = passes(case, &settings, policy);
            assert!(report.schedules == schedules || report.exhausted, "{}: {report:?}", case.name);
            let liberties = Liberties { kills: 1, ..Liberties::default() };
            let report = passes(case, &SearchSettings { liberties, ..settings }, policy);
            // An algorithm that endures deaths is not held up by any.
            assert!(report.stranded == 0 || !case.endures_deaths, "{}: {report:?}", case.name);
        }
    }
}

#[test]
fn everything_passes_while_waiters_park() {
    everything_passes(Policy::Park, 10);
}

#[test]
fn everything_passes_while_waiters_spin_before() {
    everything_passes(Policy::SpinThenPark, 6);
}

#[test]
fn everything_passes_while_waiters_spin() {
    everything_passes(Policy::Spin, 6);
}

#[test]
fn everything_passes_while_waiters_spin_and_yield() {
    everything_passes(Policy::SpinThenYield, 5);
}

#[test]
fn everything_passes_while_waiters_adapt() {
    everything_passes(Policy::Adaptive, 5);
}

/// Structures' threads wait for no other (over locks, for the holder): so one way of
/// waiting will do.
#[test]
fn every_structure_passes() {
    let schedules = schedules(6);
    let cases = subjects(Policy::Spin);
    let structures: Vec<&Case> = cases.iter().filter(|c| is_structure(c)).collect();
    // Over four kinds of DCAS; two over the one that the system rolls back; and the list without
    // DCAS.
    let repaired = structures.iter().filter(|c| c.name.starts_with("repair/")).count();
    assert_eq!(structures.len(), 4 * (STRUCTURES.len() - 1) + 2 + 1 + repaired);
    assert!(repaired > 20, "{repaired}");
    all_pass(structures.into_iter(), Policy::Spin, schedules);
}

/// `recover` asks once for each participant: a second one may die meanwhile.
#[test]
fn a_death_during_a_recovery_loses_no_node() {
    for name in ["repair/stack-harris", "repair/fifo-harris", "repair/list-guerraoui"] {
        let case = &find(name, Policy::Spin)[0];
        let liberties = Liberties { kills: 2, ..Liberties::default() };
        let settings = settings(Method::Random, 3, 3, schedules(600).max(600));
        passes(case, &SearchSettings { liberties, ..settings }, Policy::Spin);
    }
}

/// Few packets: a hole's next ticket was passed as void and counted as valid, and a
/// dead sender's packet was used again without an order.
#[test]
fn packets_passed_over_are_used_again_by_one() {
    for (name, kills) in [("channel/watched-towpath", 0), ("channel/watched-lock-free", 1)] {
        let case = &find(name, Policy::Spin)[0];
        let liberties = Liberties { kills, ..Liberties::default() };
        let settings = settings(Method::Random, 4, 3, schedules(600).max(600));
        passes(case, &SearchSettings { liberties, ..settings }, Policy::Spin);
    }
}

/// Two clients, a server's successors that die, and a receiver that takes a place for
/// ownerless: requests were overwritten or lost. In answer lines, too.
#[test]
fn requests_survive_their_servers_successors() {
    for (name, threads, ops, method, kills) in [
        ("towpath", 4, 2, Method::Random, 1),
        ("towpath", 3, 3, Method::Random, 2),
        ("towpath", 4, 2, Method::Pct { depth: 3 }, 3),
        ("towpath", 5, 2, Method::Random, 0),
        ("lines", 3, 4, Method::Random, 1),
        ("lines", 4, 3, Method::Random, 1),
        ("lines", 4, 3, Method::Pct { depth: 3 }, 3),
    ] {
        let case = &find(&format!("endpoint/{name}"), Policy::Spin)[0];
        let liberties = Liberties { kills, ..Liberties::default() };
        let settings = settings(method, threads, ops, schedules(150).max(150));
        passes(case, &SearchSettings { liberties, ..settings }, Policy::Spin);
    }
}

#[test]
fn all_schedules_of_two_threads() {
    for name in
        ["counter/ll-sc", "lock/ticket", "lock/mcs", "lock/clh", "lock/hybrid-queue", "queue/michael-scott"]
    {
        let case = &find(name, Policy::Park)[0];
        let report = passes(case, &settings(Method::Dfs { preemptions: None }, 2, 1, 200_000), Policy::Park);
        assert!(report.exhausted && report.schedules > 1, "{name}: {report:?}");
    }
}

#[test]
fn what_is_planted_is_found_and_fails_again() {
    let cases = find("planted", Policy::Park);
    assert!(cases.len() >= 3);
    for case in &cases {
        for method in [Method::Random, Method::Pct { depth: 4 }] {
            // A fault that only a death shows: waiters look for the dead again and again, so that
            // shortening each of many switches would take long.
            if case.endures_deaths && method == Method::Random {
                continue;
            }
            let liberties = Liberties { kills: case.endures_deaths.into(), ..Liberties::default() };
            let settings = SearchSettings { liberties, ..settings(method, 3, 4, 100_000) };
            let report = search(case, &settings, &mut |_| {}).unwrap();
            let what = format!("{} by {method:?}", case.name);
            let found = report.found.unwrap_or_else(|| panic!("{what}: nothing found"));
            println!("{what}: {} schedules, {:?}, {}", report.schedules, found.failure.fault, found.replay);
            // A node in two places is seen as a race of its owners, too.
            let likely =
                [Fault::NotLinearizable, Fault::Race, Fault::Broken, Fault::LostWakeUp, Fault::Deadlock];
            assert!(likely.contains(&found.failure.fault), "{what}: {}", found.failure.text);
            let schedule: Schedule = found.replay.to_string().parse().unwrap();
            let again = replay(case, &settings, &schedule).unwrap().found.expect("fails again");
            assert_eq!(
                (again.digest, again.failure, again.trace),
                (found.digest, found.failure, found.trace),
                "{what}"
            );
        }
    }
}

#[test]
fn names_are_found_by_family_and_with_underscores() {
    assert_eq!(find("queue/michael_scott", Policy::Park)[0].name, "queue/michael-scott");
    assert_eq!(find("lock/ticket", Policy::Park).len(), 1);
    assert!(find("counter", Policy::Park).len() == 3 && find("nothing", Policy::Park).is_empty());
}
