//! An operation is stopped before each of its accesses in turn; there, another
//! participant, or a signal handler of the same one, performs all short sequences of operations;
//! and the first one goes on, or is dead. The outcome must be that of some order of the operations
//! explains, nothing may be lost, and what the dead left must be found.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use towpath_structures::dcas::{Actor, Bershad, Guerraoui, Hardware, Harris, Locked};
use towpath_structures::nonblocking::{Fifo, HarrisMichaelList, HashMap, List, StableError, Stack};
use towpath_structures::planted::GuerraouiUntagged;

use crate::for_each_structure;
use crate::models::{Model, Op, Out};
use crate::stepped::{Here, Stepped, wait};
use crate::subjects::{Subject, TwoWords};

/// Performer of the other operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intruder {
    /// Another participant; then the first one goes on.
    Other,
    /// A signal handler of the same participant; then the first one goes on.
    Handler,
    /// Another participant; the first one is dead.
    Survivor,
}

struct Death;

fn act<T: Subject<Stepped>>(subject: &T, cpu: &Stepped, me: usize, op: Op) -> Result<Out, StableError> {
    let wait = wait(me);
    match subject.act(&Actor { cpu, wait: &wait, me }, op) {
        Ok(answer) => Ok(Out::Is(answer)),
        Err(StableError::Exhausted) => Ok(Out::Full),
        Err(error) => Err(error),
    }
}

/// Operations that are tried. Few keys, so that operations meet.
fn operations() -> [Op; 4] {
    [Op::Put(1, 50), Op::Put(2, 60), Op::Take(1), Op::Get(1)]
}

/// All sequences of up to this many operations.
fn sequences(longest: usize) -> Vec<Vec<Op>> {
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..longest {
        last = last
            .iter()
            .flat_map(|s: &Vec<Op>| operations().map(|op| [s.clone(), vec![op]].concat()))
            .collect();
        all.extend(last.clone());
    }
    all
}

/// Returns whether some place of the first one's operation among the others' explains all
/// outcomes. The others' first `during` were performed while it was stopped.
fn explained<M: Model>(begin: &M, first: (Op, Out), others: &[(Op, Out)], during: usize) -> bool {
    let absent = first.1 == Out::Died;
    let mut places: Vec<Option<usize>> = (0..=during).map(Some).collect();
    places.extend(absent.then_some(None));
    places.into_iter().any(|place| {
        let mut model = begin.clone();
        let mut sequence = others.to_vec();
        if let Some(place) = place {
            sequence.insert(place, first);
        }
        sequence.into_iter().all(|(op, out)| match out {
            Out::Full => true,
            Out::Died => {
                model.apply(op);
                true
            }
            Out::Is(answer) => model.apply(op) == answer,
        })
    })
}

/// Runs all cases. Returns the first that nothing explains, and how many there were.
fn search<T: Subject<Stepped>>(intruder: Intruder, longest: usize) -> (Option<String>, u64) {
    let sequences = sequences(longest);
    let mut cases = 0;
    for before in [&[][..], &[Op::Put(1, 7)][..], &[Op::Put(2, 8), Op::Put(1, 7), Op::Put(3, 9)][..]] {
        for first in operations() {
            for others in &sequences {
                for at in 1.. {
                    match case::<T>(intruder, before, first, others, at) {
                        Case::Over => break,
                        Case::Explained => cases += 1,
                        Case::Wrong(what) => {
                            let what = format!(
                                "{}, {intruder:?}: after {before:?}: {first:?} stopped before access {at}: {what}",
                                T::name()
                            );
                            return (Some(what), cases);
                        }
                    }
                }
            }
        }
    }
    (None, cases)
}

enum Case {
    /// The operation has fewer accesses.
    Over,
    Explained,
    Wrong(String),
}

fn case<T: Subject<Stepped>>(intruder: Intruder, before: &[Op], first: Op, others: &[Op], at: u64) -> Case {
    let subject = Rc::new(T::new(&Here, 8, 2));
    let calm = Stepped::undisturbed(1);
    let mut model = T::Model::default();
    // The number with which some structures begin is never used again: get rid of it.
    for op in [Op::Put(5, 5), Op::Take(5)].iter().chain(before) {
        model.apply(*op);
        act(&*subject, &calm, 1, *op).expect("no operation is in the way");
    }
    let other = if intruder == Intruder::Handler { 0 } else { 1 };
    let log = Rc::new(RefCell::new(Vec::new()));
    let instead = {
        let (subject, log, others) = (subject.clone(), log.clone(), others.to_vec());
        move || {
            let cpu = Stepped::undisturbed(other as u32);
            for op in others {
                let out = act(&*subject, &cpu, other, op);
                log.borrow_mut().push((op, out));
            }
            if intruder == Intruder::Survivor {
                resume_unwind(Box::new(Death));
            }
        }
    };
    let cpu = Stepped::new(0, at, instead);
    let out = match catch_unwind(AssertUnwindSafe(|| act(&*subject, &cpu, 0, first))) {
        Ok(out) => out,
        Err(death) if death.is::<Death>() => Ok(Out::Died),
        Err(other) => resume_unwind(other),
    };
    if !cpu.was_disturbed() {
        return Case::Over;
    }
    let out = match out {
        Ok(out) => out,
        Err(error) => return Case::Wrong(format!("{error:?}")),
    };
    let during = log.borrow().len();
    if out == Out::Died {
        // As a survivor, and as a successor.
        for me in [1, 0] {
            let wait = wait(me);
            let actor = Actor { cpu: &calm, wait: &wait, me };
            match subject.recover(&actor, |p| p == 0) {
                Ok(audit) if audit.pending == 0 => {}
                other => return Case::Wrong(format!("recovery: {other:?}")),
            }
        }
    }
    let wait = wait(1);
    let inventory = subject.inventory(&Actor { cpu: &calm, wait: &wait, me: 1 });
    if !inventory.is_ok_and(|c| c.free + c.reachable == c.all) {
        return Case::Wrong(format!("{inventory:?}; the others: {:?}", log.borrow()));
    }
    // Everything comes out, and it is still good for something, under both numbers.
    let rest = [0, 1, 2].map(Op::Get).into_iter().chain([1, 2, 3, 1, 2, 3, 1].map(Op::Take));
    for (me, op) in rest.chain([Op::Put(4, 4), Op::Get(4), Op::Take(4)]).enumerate() {
        if matches!(op, Op::Get(2..)) && T::Model::default().len() == 0 && T::name().len() < 10 {
            continue; // There are only two words.
        }
        let out = act(&*subject, &calm, me % 2, op);
        log.borrow_mut().push((op, out));
    }
    let mut plain = Vec::new();
    for (op, out) in log.borrow().iter() {
        match out {
            Ok(out) => plain.push((*op, *out)),
            Err(error) => return Case::Wrong(format!("{op:?} of the other: {error:?}")),
        }
    }
    if explained(&model, (first, out), &plain, during) {
        Case::Explained
    } else {
        Case::Wrong(format!("{out:?}; the others: {plain:?}, {during} of them meanwhile"))
    }
}

fn is_explained<T: Subject<Stepped>>(intruder: Intruder, longest: usize) {
    let (case, cases) = search::<T>(intruder, longest);
    assert_eq!(case, None);
    assert!(cases > 100, "{}: {cases} cases", T::name());
}

/// Longer sequences by the environment variable.
fn longest(quick: usize) -> usize {
    std::env::var("TOWPATH_LONGEST").ok().and_then(|n| n.parse().ok()).unwrap_or(quick)
}

/// Structures that are not made of the same chains as a list.
fn harris_roles(quick: usize) {
    for intruder in [Intruder::Other, Intruder::Handler, Intruder::Survivor] {
        is_explained::<TwoWords<Stepped, Harris<Stepped>>>(intruder, longest(quick + 1));
        is_explained::<Fifo<Stepped, Harris<Stepped>>>(intruder, longest(quick));
        is_explained::<List<Stepped, Harris<Stepped>>>(intruder, longest(quick));
    }
}

/// One test for each intruder, so that they run side by side.
fn guerraoui_and(intruder: Intruder, quick: usize) {
    for_each_structure!(Stepped, Guerraoui<Stepped> => is_explained(intruder, longest(quick)));
}

#[test]
fn guerraoui_and_another() {
    guerraoui_and(Intruder::Other, 1);
}

#[test]
fn guerraoui_and_a_handler() {
    guerraoui_and(Intruder::Handler, 1);
}

#[test]
fn guerraoui_and_a_survivor() {
    guerraoui_and(Intruder::Survivor, 1);
}

#[test]
#[ignore = "ten seconds"]
fn guerraoui_and_two_operations() {
    for intruder in [Intruder::Other, Intruder::Handler, Intruder::Survivor] {
        guerraoui_and(intruder, 2);
    }
}

#[test]
fn harris() {
    harris_roles(1);
}

#[test]
fn hardware() {
    for intruder in [Intruder::Other, Intruder::Handler, Intruder::Survivor] {
        is_explained::<Stack<Stepped, Hardware<Stepped>>>(intruder, longest(2));
        is_explained::<HashMap<Stepped, Hardware<Stepped>>>(intruder, longest(2));
    }
}

#[test]
fn compare_and_swap_only() {
    for intruder in [Intruder::Other, Intruder::Handler, Intruder::Survivor] {
        is_explained::<HarrisMichaelList<Stepped>>(intruder, longest(2));
    }
}

/// Words without counts: a late participant gives a word its new value a second time.
#[test]
fn untagged_words_are_found_out() {
    let (case, cases) = search::<TwoWords<Stepped, GuerraouiUntagged<Stepped>>>(Intruder::Other, 3);
    eprintln!("after {cases} cases: {}", case.expect("not found"));
}

/// G19: under Bershad's lock a reader sees a value that is taken back; a survivor of a
/// dead holder does, too.
#[test]
fn tentative_values_are_seen() {
    let (case, cases) = search::<TwoWords<Stepped, Bershad<Stepped>>>(Intruder::Survivor, 2);
    eprintln!("after {cases} cases: {}", case.expect("not found"));
}

/// Deaths under Bershad's lock are rolled back or forward: the next holders see nothing
/// of them.
#[test]
fn the_dead_are_rolled() {
    is_explained::<TwoWords<Stepped, Bershad<Stepped>>>(Intruder::Survivor, 0);
    is_explained::<List<Stepped, Bershad<Stepped>>>(Intruder::Survivor, 0);
}

/// Claim G20: a handler on top of an update waits for the update (and is
/// told so) if there are locks.
#[test]
fn handlers_and_locks_do_not_go_together() {
    for case in [
        search::<List<Stepped, Locked<Stepped>>>(Intruder::Handler, 1).0,
        search::<List<Stepped, Bershad<Stepped>>>(Intruder::Handler, 1).0,
    ] {
        assert!(case.expect("it would wait for ever").contains("use a DCAS without locks"));
    }
}
