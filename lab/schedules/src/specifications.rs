//! Sequential objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Call, OrderedCalls};
use crate::linearizability::{NoOrder, Specification, linearize};

/// Operations on a queue or a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// Put a value in.
    Put(u64),
    /// Take one out.
    Take,
}

/// Results of operations on a queue or a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transferred {
    /// Put in.
    Done,
    /// No space.
    Full,
    /// This was taken.
    Value(u64),
    /// Nothing.
    Empty,
}

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub struct FirstInFirstOut {
    /// Least number of values for which it has room: it must not be full before.
    pub room: usize,
}

/// Last in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Lifo {
    /// Least number of values for which it has room: it must not be full before.
    pub room: usize,
}

/// A step of either; `oldest`: which end is taken from. That it is full is no business of
/// the state: see [`full_without_reason`].
fn transfer(state: &[u64], op: Transfer, result: Option<&Transferred>, oldest: bool) -> Option<Vec<u64>> {
    let mut next = state.to_vec();
    match (op, result) {
        (Transfer::Put(value), None | Some(Transferred::Done)) => next.push(value),
        (Transfer::Put(_), Some(Transferred::Full)) => {}
        (Transfer::Take, Some(Transferred::Empty)) if state.is_empty() => {}
        (Transfer::Take, None) if state.is_empty() => {}
        (Transfer::Take, _) if state.is_empty() => return None,
        (Transfer::Take, result) => {
            let taken = if oldest { next.remove(0) } else { next.pop()? };
            if result.is_some_and(|r| *r != Transferred::Value(taken)) {
                return None;
            }
        }
        (Transfer::Put(_), _) => return None,
    }
    Some(next)
}

macro_rules! container {
    ($name:ident, $oldest:literal) => {
        impl Specification for $name {
            type State = Vec<u64>;
            type Op = Transfer;
            type Result = Transferred;

            fn initial(&self) -> Vec<u64> {
                Vec::new()
            }
            fn step(
                &self,
                state: &Vec<u64>,
                op: &Transfer,
                result: Option<&Transferred>,
            ) -> Option<Vec<u64>> {
                transfer(state, *op, result, $oldest)
            }
        }

        impl $name {
            /// Checks that the calls can be explained, and that each `Full` has a reason.
            ///
            /// # Errors
            ///
            /// The calls, if not.
            pub fn judge(&self, calls: &OrderedCalls<Transfer, Transferred>) -> Result<(), NoOrder> {
                if let Some(at) = full_without_reason(calls, self.room) {
                    let text = format!(
                        "call {at} found it full, though fewer than {} places can have been in use\n{}",
                        self.room,
                        crate::history::render(calls.as_slice())
                    );
                    return Err(NoOrder { explained: at, text });
                }
                linearize(self, calls).map(drop)
            }
        }
    };
}

container!(FirstInFirstOut, true);
container!(Lifo, false);

/// The first call that found the object full although that cannot be.
///
/// A place that another thread takes or gives back at that time is out of reach, so "full" is no
/// statement about the values alone: it has a reason if values and calls in progress together, at
/// most, have taken all places.
pub fn full_without_reason(ordered: &OrderedCalls<Transfer, Transferred>, room: usize) -> Option<usize> {
    let calls = ordered.as_slice();
    let result = |call: usize| calls[call].responded.as_ref().map(|r| &r.1);
    (0..calls.len()).filter(|&call| result(call) == Some(&Transferred::Full)).find(|&call| {
        let others = || (0..calls.len()).filter(|&other| other != call);
        let earlier = || others().filter(|&other| ordered.precedes(other, call));
        let puts = earlier().filter(|&other| result(other) == Some(&Transferred::Done)).count();
        let takes = earlier().filter(|&other| matches!(result(other), Some(Transferred::Value(_)))).count();
        let overlapping =
            others().filter(|&other| !ordered.precedes(other, call) && !ordered.precedes(call, other));
        (puts + overlapping.count()).saturating_sub(takes) < room
    })
}

/// Counter of which each call adds one and returns the old value.
#[derive(Clone, Copy, Debug, Default)]
pub struct IncrementCounter;

/// Adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Increment;

impl Specification for IncrementCounter {
    type State = u64;
    type Op = Increment;
    type Result = u64;

    fn initial(&self) -> u64 {
        0
    }
    fn step(&self, state: &u64, _op: &Increment, result: Option<&u64>) -> Option<u64> {
        result.is_none_or(|r| r == state).then_some(state + 1)
    }
}

/// Checks a barrier: a thread that leaves an episode finds that all have come. Returns
/// the first call that leaves too early, and the threads that had not come.
pub fn leaves_too_early<R>(calls: &[Call<u64, R>], threads: usize) -> Option<(usize, usize)> {
    calls.iter().enumerate().find_map(|(at, call)| {
        let end = call.responded.as_ref()?.0;
        let missing = (0..threads).find(|&thread| {
            !calls.iter().any(|c| c.thread == thread && c.op == call.op && c.invoked < end)
        })?;
        Some((at, missing))
    })
}

/// A lock: from when it is had until it is begun to be released (or for ever, if its
/// holder died), no other thread has it. Returns two calls that overlap.
///
/// `inside` are those times, by the thread; the end is `None` if there is none.
pub fn overlap(inside: &[(usize, u64, Option<u64>)]) -> Option<(usize, usize)> {
    let before =
        |a: &(usize, u64, Option<u64>), b: &(usize, u64, Option<u64>)| a.2.is_some_and(|end| end < b.1);
    (0..inside.len()).find_map(|i| {
        let j = (i + 1..inside.len())
            .find(|&j| !before(&inside[i], &inside[j]) && !before(&inside[j], &inside[i]))?;
        Some((i, j))
    })
}

/// Operations on an object with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lookup {
    /// Put a value in, under a key or with a priority.
    Insert(u64, u64),
    /// Take the key out; from a priority queue, whatever is first.
    Remove(u64),
    /// Look at it.
    Get(u64),
}

/// Results of operations on an object with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyedResult {
    /// This was, or is, there.
    Value(u64),
    /// Nothing.
    Nothing,
    /// No space, which does not occur in these specifications.
    Full,
}

/// Keys in order, each with a value. Its calls answer with the value that was there.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// True if a value that is put in replaces the one that is there.
    pub replaces: bool,
}

/// The least priority first, in the order of arrival among equals. Its calls answer with
/// the value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Priorities;

/// Any of the objects with keys.
#[derive(Clone, Copy, Debug)]
pub enum KeyedObject {
    /// Keys, each with a value.
    Map(Map),
    /// Priorities.
    Priorities,
    /// Keys alone.
    Set,
}

impl KeyedObject {
    /// Checks that the calls can be explained.
    ///
    /// # Errors
    ///
    /// The calls, if not.
    pub fn judge(&self, calls: &OrderedCalls<Lookup, KeyedResult>) -> Result<(), NoOrder> {
        match self {
            KeyedObject::Map(map) => linearize(map, calls),
            KeyedObject::Priorities => linearize(&Priorities, calls),
            KeyedObject::Set => linearize(&Set, calls),
        }
        .map(drop)
    }
}

impl From<Map> for KeyedObject {
    fn from(map: Map) -> Self {
        KeyedObject::Map(map)
    }
}

impl From<Priorities> for KeyedObject {
    fn from(_: Priorities) -> Self {
        KeyedObject::Priorities
    }
}

impl From<Set> for KeyedObject {
    fn from(_: Set) -> Self {
        KeyedObject::Set
    }
}

/// A step that has this answer, if it could have.
fn answered<S>(state: S, answer: Option<u64>, result: Option<&KeyedResult>) -> Option<S> {
    let expected = answer.map_or(KeyedResult::Nothing, KeyedResult::Value);
    result.is_none_or(|result| *result == expected).then_some(state)
}

impl Specification for Map {
    type State = BTreeMap<u64, u64>;
    type Op = Lookup;
    type Result = KeyedResult;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }
    fn step(&self, state: &Self::State, op: &Lookup, result: Option<&KeyedResult>) -> Option<Self::State> {
        let mut next = state.clone();
        let answer = match *op {
            Lookup::Insert(key, value) => {
                let there = state.get(&key).copied();
                if there.is_none() || self.replaces {
                    next.insert(key, value);
                }
                there
            }
            Lookup::Remove(key) => next.remove(&key),
            Lookup::Get(key) => state.get(&key).copied(),
        };
        answered(next, answer, result)
    }
}

impl Specification for Priorities {
    type State = Vec<(u64, u64)>;
    type Op = Lookup;
    type Result = KeyedResult;

    fn initial(&self) -> Self::State {
        Vec::new()
    }
    fn step(&self, state: &Self::State, op: &Lookup, result: Option<&KeyedResult>) -> Option<Self::State> {
        let mut next = state.clone();
        let first = state.first().map(|(_, value)| *value);
        let answer = match *op {
            Lookup::Insert(priority, value) => {
                next.insert(state.partition_point(|(p, _)| *p <= priority), (priority, value));
                None
            }
            Lookup::Remove(_) => {
                next.drain(..1.min(state.len()));
                first
            }
            Lookup::Get(_) => first,
        };
        answered(next, answer, result)
    }
}

/// Two words that change together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair;

/// Operations on a pair of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairCall {
    /// Read one of them.
    Read(usize),
    /// Give both new values if they have the old ones.
    Swap {
        /// Values that they must have.
        old: [u64; 2],
        /// Values that they get.
        new: [u64; 2],
    },
}

impl Specification for Pair {
    type State = [u64; 2];
    type Op = PairCall;
    /// The value; or 1 for a swap that was made, and 0 for one that was not.
    type Result = u64;

    fn initial(&self) -> [u64; 2] {
        [0; 2]
    }
    fn step(&self, state: &[u64; 2], op: &PairCall, result: Option<&u64>) -> Option<[u64; 2]> {
        let (next, answer) = match *op {
            PairCall::Read(which) => (*state, state[which]),
            PairCall::Swap { old, new } if *state == old => (new, 1),
            PairCall::Swap { .. } => (*state, 0),
        };
        result.is_none_or(|result| *result == answer).then_some(next)
    }
}

/// A set of keys: values do not matter, and 1 answers that the key was there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set;

impl Specification for Set {
    type State = BTreeSet<u64>;
    type Op = Lookup;
    type Result = KeyedResult;

    fn initial(&self) -> Self::State {
        BTreeSet::new()
    }
    fn step(&self, state: &Self::State, op: &Lookup, result: Option<&KeyedResult>) -> Option<Self::State> {
        let mut next = state.clone();
        let was_there = match op {
            Lookup::Insert(key, _) => !next.insert(*key),
            Lookup::Remove(key) => next.remove(key),
            Lookup::Get(key) => next.contains(key),
        };
        answered(next, was_there.then_some(1), result)
    }
}
