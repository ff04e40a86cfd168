//! Every queue that does without locks is interrupted: one participant's operation is
//! stopped before each of its accesses in turn, another one does all short sequences of operations
//! there, and the first one goes on, or is dead (then also behind a robust lock). The outcome must
//! be that of some order of the operations. The planted faults must be found so.

mod stepped;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_structures::for_each_queue;
use towpath_structures::planted::{MichaelScottNoRecheck, MichaelScottUncounted};
use towpath_structures::queues::{ConcurrentQueue, FetchOpArray, QueueError};

use stepped::{Here, Stepped, wait};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Enqueue(u64),
    Dequeue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Took(Option<u64>),
    /// Nothing was done: there was no room, or only the one that is stopped could have
    /// brought what is waited for.
    GaveUp,
    /// Done or not: the participant died.
    Died,
}

fn act<Q: ConcurrentQueue<Stepped>>(queue: &Q, cpu: &Stepped, operation: Operation) -> Outcome {
    let me = cpu.id();
    let wait = wait(me);
    let result = match operation {
        Operation::Enqueue(value) => queue.enqueue(cpu, &wait, me, value).map(|()| Outcome::Done),
        Operation::Dequeue => queue.dequeue(cpu, &wait, me).map(Outcome::Took),
    };
    match result {
        Ok(outcome) => outcome,
        Err(QueueError::Abandoned | QueueError::Full) if Q::BLOCKING => Outcome::GaveUp,
        Err(error) => panic!("{}: {error}", Q::NAME),
    }
}

fn agrees(model: &mut VecDeque<u64>, operation: Operation, outcome: Outcome) -> bool {
    match (operation, outcome) {
        (_, Outcome::GaveUp) => true,
        (Operation::Enqueue(value), _) => {
            model.push_back(value);
            true
        }
        (Operation::Dequeue, Outcome::Died) => {
            model.pop_front();
            true
        }
        (Operation::Dequeue, _) => outcome == Outcome::Took(model.pop_front()),
    }
}

/// Returns whether some place of the first one's operation among the other's explains all
/// outcomes.
fn explained(
    before: u64,
    first: (Operation, Outcome),
    others: &[(Operation, Outcome)],
    during: usize,
) -> bool {
    let absent = first.1 == Outcome::Died;
    // While it was stopped, or, if it died, whenever another operation completed it; or, if it
    // died, never.
    let latest = if absent { others.len() } else { during };
    let mut places: Vec<Option<usize>> = (0..=latest).map(Some).collect();
    places.extend(absent.then_some(None));
    places.into_iter().any(|place| {
        let mut model: VecDeque<u64> = (0..before).collect();
        let mut sequence = others.to_vec();
        if let Some(place) = place {
            sequence.insert(place, first);
        }
        sequence.into_iter().all(|(operation, outcome)| agrees(&mut model, operation, outcome))
    })
}

/// All sequences of up to this many operations.
fn sequences(longest: u32) -> impl Iterator<Item = Vec<Operation>> {
    (0..=longest).flat_map(|length| {
        (0..1u64 << length).map(move |bits| {
            (0..u64::from(length))
                .map(|i| if bits >> i & 1 == 0 { Operation::Enqueue(200 + i) } else { Operation::Dequeue })
                .collect()
        })
    })
}

/// Death of the participant.
struct Death;

/// Runs all cases. Returns the first that nothing explains, and how many there were.
fn search<Q: ConcurrentQueue<Stepped>>(capacity: usize, longest: u32, dies: bool) -> (Option<String>, u64) {
    let mut cases = 0;
    for before in 0..3.min(capacity as u64 + 1) {
        for operation in [Operation::Enqueue(100), Operation::Dequeue] {
            for others in sequences(longest) {
                for at in 1.. {
                    let queue = Rc::new(Q::new(&Here, capacity, 2));
                    let calm = Stepped::undisturbed(1);
                    // The node that a list begins with is never used again: get rid of it.
                    assert_eq!(act(&*queue, &calm, Operation::Enqueue(99)), Outcome::Done);
                    assert_eq!(act(&*queue, &calm, Operation::Dequeue), Outcome::Took(Some(99)));
                    for value in 0..before {
                        assert_eq!(act(&*queue, &calm, Operation::Enqueue(value)), Outcome::Done);
                    }
                    let log = Rc::new(RefCell::new(Vec::new()));
                    let instead = {
                        let (queue, log, others) = (queue.clone(), log.clone(), others.clone());
                        move || {
                            let cpu = Stepped::undisturbed(1);
                            for other in others {
                                let outcome = act(&*queue, &cpu, other);
                                log.borrow_mut().push((other, outcome));
                            }
                            if dies {
                                resume_unwind(Box::new(Death));
                            }
                        }
                    };
                    let cpu = Stepped::new(0, at, instead);
                    let outcome = match catch_unwind(AssertUnwindSafe(|| act(&*queue, &cpu, operation))) {
                        Ok(outcome) => outcome,
                        Err(death) if death.is::<Death>() => Outcome::Died,
                        Err(other) => resume_unwind(other),
                    };
                    if !cpu.was_disturbed() {
                        break; // It has fewer accesses.
                    }
                    cases += 1;
                    // The other one is through: nothing is left to wait for.
                    let full = matches!(operation, Operation::Enqueue(_)) && Q::BLOCKING;
                    assert!(full || outcome != Outcome::GaveUp, "{}: {others:?} before access {at}", Q::NAME);
                    let during = log.borrow().len();
                    for _ in 0..before + u64::from(longest) + 2 {
                        let outcome = act(&*queue, &calm, Operation::Dequeue);
                        assert_ne!(outcome, Outcome::GaveUp, "{}: {others:?} before access {at}", Q::NAME);
                        log.borrow_mut().push((Operation::Dequeue, outcome));
                    }
                    let log = log.borrow();
                    if !explained(before, (operation, outcome), &log, during) {
                        let case = format!(
                            "{}: {before} in; {operation:?} before access {at}: {outcome:?}; the other: {log:?}",
                            Q::NAME
                        );
                        return (Some(case), cases);
                    }
                }
            }
        }
    }
    (None, cases)
}

fn is_explained<Q: ConcurrentQueue<Stepped>>() {
    if Q::BLOCKING && Q::NAME != "fetch-op-array" {
        return; // A waiter for the lock would wait for ever.
    }
    let (case, cases) = search::<Q>(8, 4, false);
    assert_eq!(case, None);
    assert!(cases > 500, "{}: {cases} cases", Q::NAME);
}

#[test]
fn interrupted_anywhere() {
    for_each_queue!([atomics ll_sc fetch_op] Stepped, 2 => is_explained());
}

/// Three or four slots: the array comes round while the first one looks, and it clears
/// what it did not come for.
#[test]
fn a_lap_of_the_array_meanwhile() {
    for capacity in [1, 2] {
        let (case, cases) = search::<FetchOpArray<Stepped>>(capacity, 7, false);
        assert_eq!(case, None);
        assert!(cases > 2_000, "{cases} cases");
    }
}

fn death_is_explained<Q: ConcurrentQueue<Stepped>>() {
    if !Q::BLOCKING || Q::NAME.ends_with("/robust") {
        assert_eq!(search::<Q>(8, 4, true).0, None);
    }
}

#[test]
fn dead_anywhere() {
    for_each_queue!([atomics ll_sc fetch_op] Stepped, 2 => death_is_explained());
}

#[test]
fn planted_faults_are_found() {
    for (case, cases) in [
        search::<MichaelScottNoRecheck<Stepped>>(8, 4, false),
        search::<MichaelScottUncounted<Stepped>>(8, 4, false),
    ] {
        let case = case.unwrap_or_else(|| panic!("not found in {cases} cases"));
        eprintln!("after {cases} cases: {case}");
    }
}
