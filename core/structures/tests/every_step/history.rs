//! Is there an order of the calls, each between its beginning and its end, in which the
//! model gives these answers?
//!
//! Wing & Gong's search (1993), which is enough for a dozen calls of which few overlap.

use crate::acts::{Act, InSegment};
use crate::models::{Model, Out};

/// A call: when it began, and when and how it ended, if it did.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub act: Act,
    pub invoked: u64,
    pub responded: Option<(u64, Out)>,
}

/// Returns whether some order explains the calls. One that has not ended may have
/// happened, or not.
pub fn is_linearizable<T: InSegment>(begin: &T::Model, calls: &[Call]) -> bool {
    assert!(calls.len() <= 64);
    from::<T>(begin, calls, 0)
}

fn from<T: InSegment>(model: &T::Model, calls: &[Call], done: u64) -> bool {
    let open = |i: &usize| done >> i & 1 == 0;
    let ends = (0..calls.len()).filter(open).filter_map(|i| calls[i].responded.map(|(end, _)| end));
    let Some(first_end) = ends.min() else {
        return true; // All that have ended are explained.
    };
    (0..calls.len()).filter(open).filter(|i| calls[*i].invoked <= first_end).any(|i| {
        let mut after = model.clone();
        // One that found no room has changed nothing.
        let out = calls[i].responded.map(|(_, out)| out);
        let explained = out == Some(Out::Full) || {
            let answer = apply::<T>(&mut after, calls[i].act);
            out.is_none_or(|out| out == Out::Is(answer))
        };
        explained && from::<T>(&after, calls, done | 1 << i)
    })
}

fn apply<T: InSegment>(model: &mut T::Model, act: Act) -> Option<u64> {
    match act {
        Act::Op(op) => model.apply(op),
        Act::More(which) => T::model(model, which),
        Act::Recover => None,
    }
}
