//! What a step touched: whether its order with another one matters.

use crate::machine::Object;

/// What a step did: whether it could have been exchanged with a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Footprint {
    /// Words and mutexes, and whether they were changed.
    pub touched: [Option<(Touched, bool)>; 2],
    /// Depends on everything.
    pub all: bool,
    /// It was a call's first step.
    pub begins: bool,
    /// It was a call's last step.
    pub ends: bool,
}

pub(crate) type Touched = (bool, usize);

impl Footprint {
    pub fn touch(&mut self, object: Object, changes: bool) {
        let touched = match object {
            Object::Nothing => return,
            Object::Word(n) => (false, n),
            // Mutexes get their numbers in the order of their first use, which depends on the
            // schedule: any two may be the same.
            Object::Mutex(_) => (true, 0),
        };
        match self.touched.iter_mut().find(|t| t.is_none_or(|(o, _)| o == touched)) {
            Some(place) => *place = Some((touched, changes || place.is_some_and(|(_, c)| c))),
            None => self.all = true,
        }
    }

    /// Whether the order of two steps of different threads may matter: to the memory, or
    /// to which call came before which.
    pub fn depends(&self, other: &Footprint) -> bool {
        let pairs =
            self.touched.iter().flatten().flat_map(|a| other.touched.iter().flatten().map(move |b| (a, b)));
        self.all || other.all || self.begins && other.ends || self.ends && other.begins || { pairs }
            .any(|((a, writes), (b, changes))| a == b && (*writes || *changes))
    }
}
