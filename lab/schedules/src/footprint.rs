//! Footprints of steps: two steps' order matters only if their footprints meet.

/// Object that a step touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TouchedObject {
    Nothing,
    Word(usize),
    Mutex(usize),
    /// The order of sequentially consistent accesses and fences.
    Fence,
}

/// Footprint of a step, by which it can be exchanged with a neighbour or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Footprint {
    /// Objects, and whether they were changed.
    pub touched: [Option<(TouchedObject, bool)>; 2],
    /// Depends on everything.
    pub all: bool,
    /// True for a call's first step.
    pub begins: bool,
    /// True for a call's last step.
    pub ends: bool,
}

impl Footprint {
    pub fn touch(&mut self, object: TouchedObject, changes: bool) {
        let touched = match object {
            TouchedObject::Nothing => return,
            // Mutexes get their numbers in the order of their first use, which depends on the
            // schedule: any two may be the same.
            TouchedObject::Mutex(_) => TouchedObject::Mutex(0),
            object => object,
        };
        match self.touched.iter_mut().find(|t| t.is_none_or(|(o, _)| o == touched)) {
            Some(place) => *place = Some((touched, changes || place.is_some_and(|(_, c)| c))),
            None => self.all = true,
        }
    }

    /// Returns whether the order of two steps of different threads may matter: to the
    /// memory, or to the order of calls.
    pub fn depends(&self, other: &Footprint) -> bool {
        let pairs =
            self.touched.iter().flatten().flat_map(|a| other.touched.iter().flatten().map(move |b| (a, b)));
        self.all || other.all || self.begins && other.ends || self.ends && other.begins || { pairs }
            .any(|((a, writes), (b, changes))| a == b && (*writes || *changes))
    }
}
