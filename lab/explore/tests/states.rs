//! Searches that go to every state once.
//!
//! They end where others do not, find planted faults, and refuse subjects whose states they cannot
//! tell apart.

use std::cell::Cell;
use std::rc::Rc;

use towpath_explore::harness::Case;
use towpath_explore::subjects::find;
use towpath_explore::{
    End, Error, ExploredMemory, Explorer, Liberties, MemoryModel, Method, OpenCalls, Plan, SearchReport,
    SearchSettings, SubjectRun, Word, replay, search,
};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::Policy;

fn subject(name: &str) -> Case {
    find(name, Policy::Spin).into_iter().find(|case| case.name == name).expect("a subject")
}

fn settings(threads: usize, ops: usize) -> SearchSettings {
    SearchSettings { method: Method::States, ..SearchSettings::new(Plan { threads, ops }, u64::MAX) }
}

fn every_state(name: &str, settings: &SearchSettings) -> SearchReport {
    let report = search(&subject(name), settings, &mut |_| {}).unwrap();
    assert!(report.exhausted && report.found.is_none(), "{name}: {report:?}");
    report
}

/// More threads and operations have more states.
#[test]
fn every_state_of_a_queue() {
    let name = "queue/michael-scott";
    let extents = [(2, 1), (2, 2), (3, 1), (2, 3)];
    let counts = extents.map(|(threads, ops)| {
        let of = |memory| every_state(name, &SearchSettings { memory, ..settings(threads, ops) }).states;
        [of(MemoryModel::Sc), of(MemoryModel::C11)]
    });
    println!("{counts:?}");
    for memory in [0, 1] {
        let counts = counts.map(|of| of[memory]);
        assert!(counts.is_sorted() && counts[3] > 1_000, "{counts:?}");
    }
}

#[test]
fn every_state_of_others() {
    for name in [
        "queue/prakash-lee-johnson",
        "queue/two-lock/ticket",
        "queue/two-ended/anderson",
        "queue/two-ended/test-and-set",
        "fifo/guerraoui",
    ] {
        every_state(name, &settings(2, 1));
    }
}

#[test]
fn what_is_planted_is_found_and_fails_again() {
    for (name, threads, ops) in
        [("planted/michael-scott-no-recheck", 2, 3), ("planted/fetch-op-array-as-printed", 2, 2)]
    {
        let (case, settings) = (subject(name), settings(threads, ops));
        let report = search(&case, &settings, &mut |_| {}).unwrap();
        let found = report.found.unwrap_or_else(|| panic!("{name}: nothing found"));
        let again = replay(&case, &settings, &found.replay).unwrap().found.expect("fails again");
        assert_eq!((again.digest, again.failure), (found.digest, found.failure), "{name}");
    }
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let refused = |name, policy, settings: &SearchSettings| {
        let case = find(name, policy).into_iter().find(|case| case.name == name).expect("a subject");
        search(&case, settings, &mut |_| {}).expect_err(name)
    };
    let deaths = Liberties { kills: 1, ..Liberties::default() };
    let with_deaths = SearchSettings { liberties: deaths, ..settings(2, 2) };
    assert_eq!(refused("queue/michael-scott", Policy::Spin, &with_deaths), Error::Deaths);
    for (name, policy) in [
        ("queue/michael-scott/ll-sc", Policy::Spin),
        ("lock/ticket", Policy::Spin),
        ("queue/two-ended/mcs", Policy::Park),
        ("transfer/per-sender-closed", Policy::Spin),
    ] {
        let error = refused(name, policy, &settings(2, 2));
        assert!(matches!(&error, Error::Unmergeable { subject, .. } if subject == name), "{error}");
    }
}

/// Threads that choose a word by the number of starts of all.
struct Counted {
    words: [Word; 2],
    starts: Cell<usize>,
}

impl SubjectRun for Counted {
    fn thread(&self, cpu: &Explorer) {
        let word = &self.words[self.starts.replace(self.starts.get() + 1) % 2];
        let _ = cpu.fetch_add(word, 1, Ordering::AcqRel);
        let _ = cpu.fetch_add(word, 1, Ordering::AcqRel);
    }
    fn open_calls(&self, _end: &End) -> Option<OpenCalls> {
        Some(OpenCalls::default())
    }
}

#[test]
fn what_threads_keep_outside_their_stacks_is_noticed() {
    let make = |_: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let words = [0, 1].map(|_| memory.word(Place::NewLine, 0));
        Ok(Rc::new(Counted { words, starts: Cell::new(0) }))
    };
    let report = search(&Case::new("counted", "", make), &settings(3, 1), &mut |_| {}).unwrap();
    let text = format!("{:?}", report.found.expect("a fault").failure);
    assert!(text.contains("keeps something outside its stack"), "{text}");
}
