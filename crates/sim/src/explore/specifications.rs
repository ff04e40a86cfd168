//! Sequential objects.

use super::history::Call;
use super::linearizability::{NoOrder, Specification, linearize};

/// What can be called on a queue or a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// Put a value in.
    Put(u64),
    /// Take one out.
    Take,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transferred {
    /// It is in.
    Done,
    /// There is no space.
    Full,
    /// This was taken.
    Value(u64),
    /// There is nothing.
    Empty,
}

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Fifo {
    /// It has room for so many values, at least: it must not be full before.
    pub room: usize,
}

/// Last in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Lifo {
    /// It has room for so many values, at least: it must not be full before.
    pub room: usize,
}

/// A step of either; `oldest`: which end is taken from. That it is full is no business of the state: see [`full_without_reason`].
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
            /// Whether the calls can be explained, and each `Full` has a reason.
            ///
            /// # Errors
            ///
            /// The calls, if not.
            pub fn judge(&self, calls: &[Call<Transfer, Transferred>]) -> Result<(), NoOrder> {
                if let Some(at) = full_without_reason(calls, self.room) {
                    let text = format!(
                        "call {at} found it full, though fewer than {} places can have been in use\n{}",
                        self.room,
                        super::history::render(calls)
                    );
                    return Err(NoOrder { explained: at, text });
                }
                linearize(self, calls).map(drop)
            }
        }
    };
}

container!(Fifo, true);
container!(Lifo, false);

/// The first call that found the object full although that cannot be.
///
/// A place that somebody takes or gives back at that time is in nobody's reach, so "full" is no statement about the values alone: it has a reason if values and calls
/// in progress together, at most, have taken all places.
pub fn full_without_reason(calls: &[Call<Transfer, Transferred>], room: usize) -> Option<usize> {
    let ended = |c: &Call<Transfer, Transferred>, wanted: fn(&Transferred) -> bool, before: u64| {
        c.responded.as_ref().is_some_and(|(at, r)| *at < before && wanted(r))
    };
    calls.iter().position(|call| {
        let Some((end, Transferred::Full)) = call.responded else { return false };
        let puts = calls.iter().filter(|c| ended(c, |r| *r == Transferred::Done, call.invoked)).count();
        let takes = |before| {
            calls.iter().filter(|c| ended(c, |r| matches!(r, Transferred::Value(_)), before)).count()
        };
        let overlapping = calls.iter().filter(|c| {
            c.invoked < end
                && (c.invoked, c.thread) != (call.invoked, call.thread)
                && c.responded.as_ref().is_none_or(|(at, _)| *at > call.invoked)
        });
        (puts + overlapping.count()).saturating_sub(takes(call.invoked)) < room
    })
}

/// A counter: each call adds one and returns what was there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter;

/// Adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Increment;

impl Specification for Counter {
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

/// A barrier: who leaves an episode finds that all have come. Returns the first call that leaves too early, and who had not come.
pub fn leaves_too_early<R>(calls: &[Call<u64, R>], threads: usize) -> Option<(usize, usize)> {
    calls.iter().enumerate().find_map(|(at, call)| {
        let end = call.responded.as_ref()?.0;
        let missing = (0..threads).find(|&thread| {
            !calls.iter().any(|c| c.thread == thread && c.op == call.op && c.invoked < end)
        })?;
        Some((at, missing))
    })
}

/// A lock: from when it is had until it is begun to be released (or for ever, if its holder died), nobody else has it. Returns two calls that overlap.
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
