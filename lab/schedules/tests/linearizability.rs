//! The linearizability checker against brute force: on small random histories both say
//! the same.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use towpath_schedules::{
    Call, FirstInFirstOut, Increment, IncrementCounter, Lifo, NoOrder, OrderedCalls, Specification, Transfer,
    Transferred, linearize,
};

/// Judges calls that are ordered by their times.
fn by_time<S: Specification>(
    specification: &S,
    calls: &[Call<S::Op, S::Result>],
) -> Result<Vec<usize>, NoOrder> {
    linearize(specification, &OrderedCalls::by_time(calls.to_vec()))
}

/// Every order of every choice of calls: all that ended, and any of those that did not.
fn brute_force<S: Specification>(
    specification: &S,
    calls: &[Call<S::Op, S::Result>],
    done: &mut Vec<usize>,
    state: &S::State,
) -> bool {
    let finished = (0..calls.len()).all(|i| done.contains(&i) || calls[i].responded.is_none());
    if finished {
        return true;
    }
    for i in 0..calls.len() {
        if done.contains(&i) {
            continue;
        }
        // Does another call that is still to come have ended before this one began?
        let overtakes = (0..calls.len()).any(|j| {
            j != i
                && !done.contains(&j)
                && calls[j].responded.as_ref().is_some_and(|(end, _)| *end < calls[i].invoked)
        });
        let result = calls[i].responded.as_ref().map(|r| &r.1);
        if overtakes {
            continue;
        }
        if let Some(next) = specification.step(state, &calls[i].op, result) {
            done.push(i);
            if brute_force(specification, calls, done, &next) {
                return true;
            }
            done.pop();
        }
    }
    false
}

/// Calls of up to three threads: `(thread, gap, length, operation, result)`; one that
/// takes too long never ends.
type Raw = Vec<(usize, u64, u64, usize, usize)>;

fn raw() -> impl Strategy<Value = Raw> {
    prop::collection::vec((0usize..3, 0u64..4, 1u64..8, 0usize..4, 0usize..4), 0..7)
}

/// Makes histories of them: instants are all different, and a thread's calls follow each
/// other.
fn history<Op, Res>(raw: &Raw, make: impl Fn(usize, usize, usize) -> (Op, Res)) -> Vec<Call<Op, Res>> {
    let mut now = [0u64; 3];
    let mut over = [false; 3];
    let mut calls = Vec::new();
    for (n, &(thread, gap, length, what, result)) in raw.iter().enumerate() {
        if over[thread] {
            continue;
        }
        let from = now[thread] + gap;
        let to = from + length;
        now[thread] = to + 1;
        let (op, result) = make(n, what, result);
        // Instants of different threads never coincide.
        let at = |t: u64| t * 3 + thread as u64;
        over[thread] = length == 7;
        let responded = (length != 7).then_some((at(to), result));
        calls.push(Call { thread, op, invoked: at(from), responded });
    }
    calls
}

fn transfer(n: usize, what: usize, result: usize) -> (Transfer, Transferred) {
    if what < 2 {
        let result = if result == 0 { Transferred::Full } else { Transferred::Done };
        (Transfer::Put(n as u64 % 3), result)
    } else if result == 3 {
        (Transfer::Take, Transferred::Empty)
    } else {
        (Transfer::Take, Transferred::Value(result as u64))
    }
}

fn agree<S: Specification>(specification: &S, calls: &[Call<S::Op, S::Result>]) -> Result<(), TestCaseError> {
    let expected = brute_force(specification, calls, &mut Vec::new(), &specification.initial());
    let found = by_time(specification, calls);
    prop_assert_eq!(found.is_ok(), expected, "{:?}", calls);
    if let Ok(order) = found {
        // The order that is given really explains the calls.
        let mut state = specification.initial();
        for i in &order {
            let result = calls[*i].responded.as_ref().map(|r| &r.1);
            state = specification.step(&state, &calls[*i].op, result).expect("an order that can be taken");
        }
        for (n, i) in order.iter().enumerate() {
            let before = &order[..n];
            let late = before
                .iter()
                .any(|j| calls[*i].responded.as_ref().is_some_and(|(end, _)| *end < calls[*j].invoked));
            prop_assert!(!late, "out of order: {:?} of {:?}", order, calls);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn queues(raw in raw()) {
        agree(&FirstInFirstOut { room: 2 }, &history(&raw, transfer))?;
    }

    #[test]
    fn stacks(raw in raw()) {
        agree(&Lifo { room: 3 }, &history(&raw, transfer))?;
    }

    #[test]
    fn counters(raw in raw()) {
        agree(&IncrementCounter, &history(&raw, |_, _, result| (Increment, result as u64)))?;
    }
}

#[test]
fn random_histories_are_of_both_kinds() {
    let mut runner = TestRunner::deterministic();
    let mut verdicts = [0; 2];
    for _ in 0..1_000 {
        let raw = raw().new_tree(&mut runner).unwrap().current();
        let calls = history(&raw, transfer);
        if calls.len() > 2 {
            verdicts[usize::from(by_time(&FirstInFirstOut { room: 2 }, &calls).is_ok())] += 1;
        }
    }
    assert!(verdicts[0] > 100 && verdicts[1] > 100, "{verdicts:?}");
}

#[test]
fn both_verdicts_occur() {
    let call =
        |thread, op, from, to, result| Call { thread, op, invoked: from, responded: Some((to, result)) };
    let put = |from, to| call(0, Transfer::Put(7), from, to, Transferred::Done);
    let fifo = FirstInFirstOut { room: 4 };
    let empty = |from, to| call(1, Transfer::Take, from, to, Transferred::Empty);
    assert_eq!(by_time(&fifo, &[put(1, 2), empty(1, 3)]).unwrap(), [1, 0]);
    let error = by_time(&fifo, &[put(1, 2), empty(3, 4)]).unwrap_err();
    assert_eq!(error.explained, 1);
    assert!(error.text.contains("Put(7) = Done") && error.text.contains("Take = Empty"), "{}", error.text);
    // A call that never ended may have put it in, or not.
    let value = call(1, Transfer::Take, 3, 4, Transferred::Value(7));
    let pending = Call { thread: 0, op: Transfer::Put(7), invoked: 1, responded: None };
    assert!(by_time(&fifo, &[pending.clone(), value]).is_ok());
    assert!(by_time(&fifo, &[pending, empty(3, 4)]).is_ok());
}

#[test]
fn a_full_queue_has_a_reason() {
    let call =
        |thread, op, from, to, result| Call { thread, op, invoked: from, responded: Some((to, result)) };
    let put = |value, from, to, result| call(0, Transfer::Put(value), from, to, result);
    let fifo = FirstInFirstOut { room: 1 };
    let full = put(2, 3, 4, Transferred::Full);
    let judge = |calls: &[_]| fifo.judge(&OrderedCalls::by_time(calls.to_vec()));
    assert!(judge(&[put(1, 1, 2, Transferred::Done), full.clone()]).is_ok());
    assert!(judge(std::slice::from_ref(&full)).unwrap_err().text.contains("found it full"));
    // Taken out again before: there was space.
    let taken = call(1, Transfer::Take, 5, 6, Transferred::Value(1));
    let again = put(3, 7, 8, Transferred::Full);
    let calls = [put(1, 1, 2, Transferred::Done), taken, again];
    assert_eq!(judge(&calls).unwrap_err().explained, 2);
}
