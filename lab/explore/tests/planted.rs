//! Every fault that was planted is found within a budget, by each method that can; its
//! schedule is short, and fails again in the same way.

mod support;

use std::cell::Cell;
use std::rc::Rc;
use support::{
    Aba, Slip, barrier, counter, crossed, figure_1, load_then_store, lock, michael_scott, sleeping, stack,
};

use towpath_explore::harness::Case;
use towpath_explore::{
    ExploredMemory, Explorer, Fault, FoundFault, Liberties, Method, Plan, Schedule, SearchSettings,
    SubjectExtras, SubjectRun, Word, replay, replay_seed, search,
};
use towpath_machine::{Arena, FenceReach, Ordering, Place, Processor};
use towpath_sync::Policy;
use towpath_sync::locks::{Posix, Ticket};

const RANDOM: Method = Method::Random;
const PCT: Method = Method::Pct { depth: 4 };
const DFS: Method = Method::Dfs { preemptions: Some(3) };

fn settings(method: Method, threads: usize, ops: usize, schedules: u64) -> SearchSettings {
    SearchSettings { method, ..SearchSettings::new(Plan { threads, ops }, schedules) }
}

/// Searches, expects the fault, and replays it both ways.
fn find(case: &Case, settings: &SearchSettings, fault: Fault) -> FoundFault {
    let report = search(case, settings, &mut |_| {}).unwrap();
    let what = format!("{} by {:?}, {} schedules", case.name, settings.method, report.schedules);
    let found = report.found.unwrap_or_else(|| panic!("{what}: nothing found"));
    println!("{what}: {} -> {}\n{}\n{}", found.original, found.replay, found.failure.text, found.trace);
    assert_eq!(found.failure.fault, fault, "{what}: {}", found.failure.text);
    assert!(found.shortest.size() <= found.original.size(), "{what}");

    // The schedule, given as a text, does the same again.
    for text in [found.shortest.to_string(), found.replay.to_string()] {
        let schedule: Schedule = text.parse().unwrap();
        let again = replay(case, settings, &schedule).unwrap().found.expect("fails again");
        assert_eq!((again.failure, again.digest), (found.failure.clone(), found.digest), "{what}");
        assert_eq!((&again.trace, &again.shortest), (&found.trace, &found.shortest), "{what}");
    }
    if let Some(seed) = found.seed {
        let again = replay_seed(case, settings, seed).unwrap().found.expect("fails again");
        assert_eq!(
            (again.original, again.shortest),
            (found.original.clone(), found.shortest.clone()),
            "{what}"
        );
    }
    found
}

#[test]
fn a_missing_look_at_the_head() {
    let case = michael_scott("michael-scott", false);
    for method in [RANDOM, PCT] {
        find(&case, &settings(method, 3, 4, 200_000), Fault::NotLinearizable);
    }
}

#[test]
fn the_fetch_op_queue_as_printed() {
    for method in [RANDOM, PCT, DFS] {
        let found = find(&figure_1(true), &settings(method, 2, 2, 10_000), Fault::NotLinearizable);
        assert!(found.shortest.switches() <= 2, "{}", found.shortest);
    }
}

#[test]
fn a_node_that_went_and_came_back() {
    let case = stack("stack", Aba::Unprotected);
    let mut faults = Vec::new();
    for method in [RANDOM, PCT, DFS] {
        let settings = settings(method, 3, 4, 100_000);
        let fault = search(&case, &settings, &mut |_| {}).unwrap().found.expect("found").failure.fault;
        let found = find(&case, &settings, fault);
        assert!(found.trace.contains("compare_exchange") && found.trace.contains("top"), "{}", found.trace);
        faults.push(fault);
    }
    // A race: the taker of a node that is in use again does not know its value's sender.
    assert!(faults.iter().all(|fault| matches!(fault, Fault::Race | Fault::NotLinearizable)), "{faults:?}");
    assert!(faults.contains(&Fault::NotLinearizable), "{faults:?}");
}

#[test]
fn a_barrier_without_a_sense() {
    for method in [RANDOM, PCT, DFS] {
        // A waiter that has not yet seen that the count was set back is left behind.
        find(&barrier(false), &settings(method, 3, 3, 10_000), Fault::Deadlock);
    }
}

#[test]
fn a_lost_wake_up() {
    for method in [RANDOM, PCT, DFS] {
        let found = find(&sleeping(Slip::LooksTooEarly), &settings(method, 2, 2, 10_000), Fault::LostWakeUp);
        assert!(found.failure.text.contains("sleeps on held"), "{}", found.failure.text);
        assert!(found.trace.contains("falls asleep"), "{}", found.trace);
    }
}

#[test]
fn a_deadlock() {
    for method in [RANDOM, PCT, DFS] {
        find(&crossed::<Ticket<_>>(false), &settings(method, 2, 2, 10_000), Fault::Deadlock);
        find(&crossed::<Posix<_>>(false), &settings(method, 2, 2, 10_000), Fault::Deadlock);
    }
}

#[test]
fn a_lock_that_does_not_exclude() {
    for method in [RANDOM, PCT, DFS] {
        let report =
            search(&sleeping(Slip::TestThenSet), &settings(method, 2, 2, 1_000), &mut |_| {}).unwrap();
        let fault = report.found.expect("found").failure.fault;
        assert!(matches!(fault, Fault::Race | Fault::Broken), "{fault:?}");
    }
}

#[test]
fn a_release_that_orders_nothing() {
    for method in [RANDOM, PCT, DFS] {
        find(&sleeping(Slip::Relaxed), &settings(method, 2, 1, 1_000), Fault::Race);
    }
}

#[test]
fn a_lost_update() {
    for method in [RANDOM, PCT, DFS] {
        let found = find(&counter(load_then_store), &settings(method, 2, 1, 1_000), Fault::NotLinearizable);
        // One load, the other's load and store, and the store.
        assert!(found.shortest.switches() <= 3, "{}", found.shortest);
    }
}

#[test]
fn what_only_a_death_brings_about() {
    // A stack whose nodes travel in the thread's hands endures deaths; a lock does not, and says so
    // only if it is asked to.
    let waits = sleeping(Slip::None);
    let mut settings = settings(RANDOM, 2, 2, 300);
    settings.liberties = Liberties { kills: 1, ..Liberties::default() };
    let report = search(&waits, &settings, &mut |_| {}).unwrap();
    assert!(report.found.is_none() && report.stranded > 0, "{report:?}");
    let claims_to = Case { endures_deaths: true, ..lock::<Ticket<_>>(Policy::Spin) };
    for method in [RANDOM, PCT, DFS] {
        let found = find(&claims_to, &SearchSettings { method, ..settings }, Fault::Deadlock);
        assert!(found.failure.text.contains("is dead"), "{}", found.failure.text);
        assert!(found.replay.to_string().contains('k'), "{}", found.replay);
    }
}

/// Access between two stores of a thread that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    Release,
    Fence,
    Look,
}

/// Thread 0 stores two words, and dies or is interrupted.
///
/// A survivor, or its handler, that finds the second finds the first.
struct TwoStores([Word; 2], Between);

impl SubjectRun for TwoStores {
    fn thread(&self, cpu: &Explorer) {
        let TwoStores([first, second], between) = self;
        cpu.store(first, 1, Ordering::Relaxed);
        let order = if *between == Between::Release { Ordering::Release } else { Ordering::Relaxed };
        match between {
            Between::Nothing | Between::Release => {}
            Between::Fence => cpu.compiler_fence(Ordering::SeqCst),
            Between::Look => drop(cpu.load(first, Ordering::Relaxed)),
        }
        cpu.store(second, 1, order);
        cpu.load(second, Ordering::Relaxed);
    }
    fn interrupt(&self, cpu: &Explorer) {
        self.last(cpu);
    }
    fn last(&self, cpu: &Explorer) {
        let [first, second] = [&self.0[0], &self.0[1]].map(|word| cpu.load(word, Ordering::Relaxed));
        assert!(first >= second, "the second store without the first");
    }
}

#[test]
fn a_store_that_a_compiler_moved_behind_an_event() {
    let search = |between, extras| {
        let make = move |_: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(Rc::new(TwoStores([0, 1].map(|_| memory.word(Place::NewLine, 0)), between)))
        };
        let case = Case { endures_deaths: true, extras, ..Case::new("two stores", "", make) };
        let kills = u32::from(!extras.is_interrupted);
        let liberties = Liberties { kills, ..Liberties::default() };
        search(&case, &SearchSettings { liberties, ..settings(DFS, 1, 1, 1_000) }, &mut |_| {}).unwrap()
    };
    let none = SubjectExtras::default();
    for (extras, replay) in [
        (SubjectExtras { loses_stores: true, ..none }, "0l2"),
        (SubjectExtras { is_interrupted: true, ..none }, "0s2"),
    ] {
        let found = search(Between::Nothing, extras).found.expect("found");
        assert!(found.replay.to_string().contains(replay), "{}", found.replay);
        for between in [Between::Release, Between::Fence, Between::Look] {
            assert!(search(between, extras).found.is_none(), "{between:?}");
        }
    }
    assert!(search(Between::Nothing, none).found.is_none(), "it dies with all its stores");
}

/// Fence between a thread's store and its look at the other's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Nothing,
    Light,
    Heavy,
}

/// Two threads store, each into its word, and look at the other's: one of them sees it.
struct StoresAndLooks([Word; 2], [Side; 2], [Cell<u64>; 2]);

impl SubjectRun for StoresAndLooks {
    fn thread(&self, cpu: &Explorer) {
        let (StoresAndLooks(words, sides, seen), me) = (self, cpu.id());
        cpu.store(&words[me], 1, Ordering::Relaxed);
        match sides[me] {
            Side::Nothing => {}
            Side::Light => cpu.light_fence(Ordering::SeqCst),
            Side::Heavy => cpu.heavy_fence(Ordering::SeqCst, FenceReach::Threads),
        }
        seen[me].set(cpu.load(&words[1 - me], Ordering::Relaxed));
    }
    fn last(&self, _cpu: &Explorer) {
        assert!(self.2.iter().any(|seen| seen.get() == 1), "neither has seen the other's store");
    }
}

#[test]
fn an_asymmetric_fence_without_one_of_its_sides() {
    for sides in
        [[Side::Light, Side::Heavy], [Side::Heavy; 2], [Side::Light; 2], [Side::Nothing, Side::Heavy]]
    {
        let make = move |_: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            let words = [0, 1].map(|_| memory.word(Place::NewLine, 0));
            Ok(Rc::new(StoresAndLooks(words, sides, [const { Cell::new(0) }; 2])))
        };
        let case = Case::new("stores and looks", "", make);
        let report = search(&case, &settings(DFS, 2, 1, 10_000), &mut |_| {}).unwrap();
        let is_sound = sides[1] == Side::Heavy && sides[0] != Side::Nothing;
        assert_eq!(report.found.is_none(), is_sound, "{sides:?}, {} schedules", report.schedules);
    }
}
