//! Words and data in the memory of a run.

use towpath_machine::{Arena, LINE, Place};

use crate::machine::{Bytes, CLOCKS, Datum, DatumId, ExploredMemory, Word};
use crate::processor::Explorer;
use crate::words::WordState;

const NEW: Datum = Datum { value: 0, written: None, read: [0; CLOCKS] };

impl ExploredMemory {
    /// A processor that acts while nothing runs.
    pub fn at_rest(&self) -> Explorer {
        Explorer::at_rest(self.clone())
    }
}

impl Arena<Explorer> for ExploredMemory {
    fn word(&self, place: Place, value: u64) -> Word {
        let mut inner = self.0.inner.borrow_mut();
        inner.place(place);
        inner.words.push(WordState::new(value));
        Word(inner.words.len() - 1)
    }
    fn cell(&self, place: Place, value: u64) -> DatumId {
        let mut inner = self.0.inner.borrow_mut();
        inner.place(place);
        inner.data.push(Datum { value, ..NEW });
        DatumId(inner.data.len() - 1)
    }
    fn bytes(&self, len: usize) -> Bytes {
        let mut inner = self.0.inner.borrow_mut();
        (inner.lines, inner.left) = (inner.lines + len.div_ceil(LINE), 0);
        let start = inner.data.len();
        inner.data.resize(start + len, NEW);
        Bytes { start, len }
    }
}
