//! Search for an order of the calls that keeps the order of the run, and in which a
//! sequential object would have given these results.
//!
//! **Source.** Wing & Gong 1993, *Testing and Verifying Concurrent Objects*, with the memory of
//! configurations of Lowe 2017, *Testing for Linearizability*: a set of calls that have taken
//! effect and a state that this leaves are looked at once.
//!
//! A call that never ended (its thread died, or waits) may have taken effect at any instant after
//! its beginning, or not at all.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

use crate::history::{Call, OrderedCalls, render};

/// Behaviour of an object when one call comes after the other.
pub trait Specification {
    /// The object's state.
    type State: Clone + Eq + Hash;
    /// Operations.
    type Op: Clone + Debug;
    /// Results.
    type Result: Clone + Debug;

    /// Returns the state of a new object.
    fn initial(&self) -> Self::State;

    /// The state after the call, if it could have had this result; `None` if not. A call
    /// without a result is one that never ended: it may take the effect that it has in this state.
    fn step(&self, state: &Self::State, op: &Self::Op, result: Option<&Self::Result>) -> Option<Self::State>;
}

/// Reason why a history isn't linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoOrder {
    /// Maximum number of calls that an order can explain.
    pub explained: usize,
    /// The calls.
    pub text: String,
}

/// Searches an order. `Ok`: the calls, by their places in the history, in one that
/// explains them.
///
/// # Errors
///
/// If there is none.
pub fn linearize<S: Specification>(
    specification: &S,
    ordered: &OrderedCalls<S::Op, S::Result>,
) -> Result<Vec<usize>, NoOrder> {
    let calls = ordered.as_slice();
    let completed = calls.iter().enumerate().filter(|(_, c)| c.responded.is_some());
    let completed = completed.fold(0u128, |bits, (i, _)| bits | 1 << i);
    let (seen, order) = (HashSet::default(), Vec::new());
    let mut search = Search { specification, ordered, calls, completed, seen, order, explained: 0 };
    if search.from(0, &specification.initial()) {
        return Ok(search.order);
    }
    Err(NoOrder { explained: search.explained, text: render(calls) })
}

struct Search<'a, S: Specification> {
    specification: &'a S,
    ordered: &'a OrderedCalls<S::Op, S::Result>,
    calls: &'a [Call<S::Op, S::Result>],
    completed: u128,
    /// Configurations that lead nowhere. Only asked whether it has one: in no order.
    seen: HashSet<(u128, S::State), BuildHasherDefault<DefaultHasher>>,
    order: Vec<usize>,
    explained: usize,
}

impl<S: Specification> Search<'_, S> {
    /// Returns whether the calls that are not in `done` can follow in this state.
    fn from(&mut self, done: u128, state: &S::State) -> bool {
        self.explained = self.explained.max((done & self.completed).count_ones() as usize);
        if done & self.completed == self.completed {
            return true;
        }
        let next = |i: usize| done >> i & 1 == 0 && self.ordered.before(i) & !done == 0;
        for i in (0..self.calls.len()).filter(|&i| next(i)) {
            let call = &self.calls[i];
            let result = call.responded.as_ref().map(|r| &r.1);
            let Some(next) = self.specification.step(state, &call.op, result) else { continue };
            let after = done | 1 << i;
            if self.seen.contains(&(after, next.clone())) {
                continue;
            }
            self.order.push(i);
            if self.from(after, &next) {
                return true;
            }
            self.order.pop();
            self.seen.insert((after, next));
        }
        false
    }
}
