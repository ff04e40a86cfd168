//! C11's memory: the standard litmus tests, with allowed and forbidden outcomes; and
//! random programs, whose outcomes are those that the axioms of RC11 allow.
//!
//! Load buffering (but of an exchange that changes nothing) and values out of thin air are left
//! out: see `load_buffering_is_left_out`.

mod axioms;
mod program;

use std::collections::BTreeSet;

use program::{Act, Outcome, Program, fence, load, outcomes, outcomes_with, store, update};
use towpath_machine::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use towpath_schedules::{MemoryModel, SubjectExtras};

const X: usize = 0;
const Y: usize = 1;

/// All outcomes: the values that loads took, thread by thread.
fn all(threads: &[&[Act]]) -> BTreeSet<Vec<u64>> {
    let program = Program(threads.iter().map(|acts| acts.to_vec()).collect());
    let found = outcomes(&program, MemoryModel::C11);
    assert_eq!(found, axioms::outcomes(&program, false), "{program:?}");
    let in_order = outcomes(&program, MemoryModel::Sc);
    assert!(in_order.is_subset(&found), "{program:?}");
    found.into_iter().map(|Outcome { taken, .. }| taken.concat()).collect()
}

/// The last values of the words.
fn ends(threads: &[&[Act]]) -> BTreeSet<[u64; 2]> {
    let program = Program(threads.iter().map(|acts| acts.to_vec()).collect());
    let found = outcomes(&program, MemoryModel::C11);
    assert_eq!(found, axioms::outcomes(&program, false), "{program:?}");
    found.into_iter().map(|Outcome { last, .. }| last).collect()
}

fn allows(threads: &[&[Act]], outcome: &[u64]) -> bool {
    all(threads).contains(outcome)
}

#[test]
fn message_passing() {
    let passing = |stored, loaded| {
        allows(&[&[store(X, 1, Relaxed), store(Y, 1, stored)], &[load(Y, loaded), load(X, Relaxed)]], &[1, 0])
    };
    assert!(passing(Relaxed, Relaxed) && passing(Release, Relaxed) && passing(Relaxed, Acquire));
    assert!(!passing(Release, Acquire) && !passing(SeqCst, SeqCst));
}

#[test]
fn message_passing_by_fences() {
    let passing = |before, after| {
        allows(
            &[
                &[store(X, 1, Relaxed), fence(before), store(Y, 1, Relaxed)],
                &[load(Y, Relaxed), fence(after), load(X, Relaxed)],
            ],
            &[1, 0],
        )
    };
    assert!(!passing(Release, Acquire) && !passing(AcqRel, AcqRel) && !passing(SeqCst, SeqCst));
    assert!(passing(Acquire, Acquire) && passing(Release, Release));
}

#[test]
fn store_buffering() {
    let buffered = |stored, loaded| {
        allows(&[&[store(X, 1, stored), load(Y, loaded)], &[store(Y, 1, stored), load(X, loaded)]], &[0, 0])
    };
    assert!(buffered(Relaxed, Relaxed) && buffered(Release, Acquire) && buffered(SeqCst, Acquire));
    assert!(!buffered(SeqCst, SeqCst));
    // Sequentially consistent fences in both threads, or one and accesses in the other.
    let fenced = |one, other| {
        allows(
            &[
                &[store(X, 1, Relaxed), fence(one), load(Y, Relaxed)],
                &[store(Y, 1, Relaxed), fence(other), load(X, Relaxed)],
            ],
            &[0, 0],
        )
    };
    assert!(!fenced(SeqCst, SeqCst) && fenced(SeqCst, AcqRel) && fenced(AcqRel, AcqRel));
    let mixed = |order| {
        allows(
            &[
                &[store(X, 1, order), load(Y, order)],
                &[store(Y, 1, Relaxed), fence(SeqCst), load(X, Relaxed)],
            ],
            &[0, 0],
        )
    };
    assert!(!mixed(SeqCst) && mixed(Relaxed));
}

/// C11 allows it; the explorer, as RC11, does not make it.
#[test]
fn load_buffering_is_left_out() {
    let both = [&[load(X, Relaxed), store(Y, 1, Relaxed)][..], &[load(Y, Relaxed), store(X, 1, Relaxed)]];
    assert!(!allows(&both, &[1, 1]) && allows(&both, &[0, 1]) && allows(&both, &[1, 0]));
}

/// An exchange that changes nothing may come before an update that was made already.
#[test]
fn load_buffering_of_an_exchange_that_changes_nothing() {
    let buffered = |stored, loaded| {
        let same = Act::Compare(X, 0, 0, Relaxed, Relaxed);
        let threads =
            [vec![update(X, 1, Relaxed), store(Y, 1, stored)], vec![load(Y, loaded), same]].to_vec();
        let found = outcomes(&Program(threads), MemoryModel::C11);
        found.iter().any(|Outcome { taken, last }| taken.concat() == [0, 1, 0] && *last == [1, 1])
    };
    assert!(buffered(Relaxed, Relaxed) && !buffered(Release, Acquire));
}

/// An order of sequentially consistent accesses that contradicts that of weaker ones.
#[test]
fn order_that_contradicts_weaker_accesses() {
    let program = |loaded| {
        let threads = [
            vec![store(X, 1, SeqCst)],
            vec![load(X, loaded), load(Y, SeqCst)],
            vec![store(Y, 1, SeqCst), load(X, SeqCst)],
        ];
        Program(threads.to_vec())
    };
    let free = SubjectExtras { has_free_order: true, ..SubjectExtras::default() };
    for (order, is_allowed) in [(Relaxed, true), (Acquire, true), (SeqCst, false)] {
        let found = outcomes_with(&program(order), MemoryModel::C11, free);
        assert_eq!(found, axioms::outcomes(&program(order), true), "{order:?}");
        let is_found = |found: &BTreeSet<Outcome>| found.iter().any(|o| o.taken.concat() == [1, 0, 0]);
        assert_eq!(is_found(&found), is_allowed, "{order:?}");
        assert!(!is_found(&outcomes(&program(order), MemoryModel::C11)), "left out");
    }
    for seed in 0..3 {
        let program = Program::random(seed);
        let [free, usual] =
            [free, SubjectExtras::default()].map(|extras| outcomes_with(&program, MemoryModel::C11, extras));
        let allowed = axioms::outcomes(&program, true);
        assert!(usual.is_subset(&free) && free.is_subset(&allowed), "program {seed}");
    }
}

#[test]
fn independent_reads_of_independent_writes() {
    let disagree = |stored, loaded, between: Option<Ordering>| {
        let reader = |first, second| {
            let loads = [load(first, loaded), load(second, loaded)];
            let fences: Vec<Act> = between.into_iter().map(fence).collect();
            [&loads[..1], &fences, &loads[1..]].concat()
        };
        let (one, other) = (reader(X, Y), reader(Y, X));
        allows(&[&[store(X, 1, stored)], &[store(Y, 1, stored)], &one, &other], &[1, 0, 1, 0])
    };
    assert!(disagree(Relaxed, Relaxed, None) && disagree(Release, Acquire, None));
    assert!(!disagree(SeqCst, SeqCst, None) && !disagree(Relaxed, Relaxed, Some(SeqCst)));
    assert!(disagree(Release, Acquire, Some(AcqRel)));
}

#[test]
fn two_writes_in_either_order() {
    let crossed = |order| {
        ends(&[&[store(X, 1, order), store(Y, 2, order)], &[store(Y, 1, order), store(X, 2, order)]])
            .contains(&[1, 1])
    };
    assert!(crossed(Relaxed) && crossed(Release) && !crossed(SeqCst));
    let fenced = ends(&[
        &[store(X, 1, Relaxed), fence(SeqCst), store(Y, 2, Relaxed)],
        &[store(Y, 1, Relaxed), fence(SeqCst), store(X, 2, Relaxed)],
    ]);
    assert!(!fenced.contains(&[1, 1]));
}

#[test]
fn a_word_is_coherent() {
    // Of two loads the second does not go back; nor behind an own store.
    let (one, two) = (store(X, 1, Relaxed), store(X, 2, Relaxed));
    let look = load(X, Relaxed);
    assert!(!allows(&[&[one], &[look, look]], &[1, 0]));
    assert!(!allows(&[&[one, look]], &[0]) && allows(&[&[one, look], &[two]], &[2]));
    assert_eq!(ends(&[&[one, two]]), BTreeSet::from([[2, 0]]));
    // All agree in which order two stores came.
    let agree = all(&[&[one], &[two], &[look, look], &[look, look]]);
    assert!(!agree.contains(&vec![1, 2, 2, 1]) && agree.contains(&vec![1, 2, 1, 2]));
    // A load before the own store does not take what comes after it.
    assert!(!ends(&[&[look, one], &[two]]).is_empty() && !all(&[&[look, one]]).contains(&vec![1]));
}

#[test]
fn release_sequences() {
    let (data, flag) = (store(X, 1, Relaxed), store(Y, 1, Release));
    let reader = [load(Y, Acquire), load(X, Relaxed)];
    // An update of any order continues it. Another store does not, even the same thread's.
    for order in [Relaxed, Acquire, Release] {
        assert!(!allows(&[&[data, flag], &[update(Y, 10, order)], &reader], &[1, 11, 0]), "{order:?}");
    }
    assert!(allows(&[&[data, flag], &[store(Y, 11, Relaxed)], &reader], &[11, 0]));
    assert!(allows(&[&[data, flag, store(Y, 11, Relaxed)], &reader], &[11, 0]));
    // Not what it did not find.
    assert!(allows(&[&[data, flag], &[update(Y, 10, Relaxed)], &reader], &[0, 10, 0]));
}

#[test]
fn updates_are_indivisible() {
    let add = update(X, 1, Relaxed);
    let both = all(&[&[add], &[add]]);
    assert_eq!(both, BTreeSet::from([vec![0, 1], vec![1, 0]]));
    assert_eq!(ends(&[&[add, add], &[add]]), BTreeSet::from([[3, 0]]));
    // A store may come before or after, not in between.
    assert_eq!(ends(&[&[add], &[store(X, 5, Relaxed)]]), BTreeSet::from([[6, 0], [5, 0]]));
}

#[test]
fn reads_that_cause_writes() {
    // WRC and ISA2: order is handed on from thread to thread.
    let caused = |order, seen| {
        allows(
            &[
                &[store(X, 1, Relaxed)],
                &[load(X, seen), store(Y, 1, order)],
                &[load(Y, Acquire), load(X, Relaxed)],
            ],
            &[1, 1, 0],
        )
    };
    assert!(!caused(Release, Relaxed) && caused(Relaxed, Relaxed));
    // RWC with fences.
    let read_write_cause = |between| {
        allows(
            &[
                &[store(X, 1, Relaxed)],
                &[load(X, Relaxed), fence(between), load(Y, Relaxed)],
                &[store(Y, 1, Relaxed), fence(SeqCst), load(X, Relaxed)],
            ],
            &[1, 0, 0],
        )
    };
    assert!(!read_write_cause(SeqCst) && read_write_cause(AcqRel));
}

/// The outcomes of random programs are those that RC11's axioms allow.
#[test]
fn random_programs_do_as_the_axioms_say() {
    let programs = std::env::var("TOWPATH_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut weak = 0;
    for seed in 0..programs {
        let program = Program::random(seed);
        let found = outcomes(&program, MemoryModel::C11);
        let allowed = axioms::outcomes(&program, false);
        let [missing, wrong] = [allowed.difference(&found), found.difference(&allowed)].map(Vec::from_iter);
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "program {seed}: {program:?}: does not find {missing:?}, and finds {wrong:?}, which is forbidden"
        );
        weak += usize::from(found.len() > outcomes(&program, MemoryModel::Sc).len());
    }
    assert!(weak > programs as usize / 10, "{weak} of {programs} programs are weak");
}
