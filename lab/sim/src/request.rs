//! Requests of processors to the memory system.

use crate::memory::{AT_MEMORY, copy};

/// Number that stands for no line.
pub(crate) const NONE: u32 = u32::MAX;

/// Operation on a word. It returns the word's old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Load,
    Store(u64),
    Swap(u64),
    Exchange(u64, u64),
    Add(u64),
    Or(u64),
    And(u64),
}

impl Op {
    #[inline(always)]
    pub fn need(self) -> u8 {
        if matches!(self, Op::Load) { copy::SHARED } else { copy::MODIFIED }
    }

    #[inline(always)]
    pub fn apply(self, value: &mut u64) -> u64 {
        let old = *value;
        match self {
            Op::Load => {}
            Op::Store(new) | Op::Swap(new) => *value = new,
            Op::Exchange(expected, new) => {
                if old == expected {
                    *value = new;
                }
            }
            Op::Add(delta) => *value = old.wrapping_add(delta),
            Op::Or(bits) => *value = old | bits,
            Op::And(mask) => *value = old & mask,
        }
        old
    }
}

/// Subject of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Want {
    /// The line, to read.
    Read,
    /// The line, to write.
    Exclusive,
    /// The right to write a line that it has.
    Upgrade,
    /// The right to write a line that it has, if its reservation still stands.
    Conditional,
    /// The right to write two lines at once, if their reservations still stand
    /// (write-once).
    Both,
    /// A double compare-and-swap past the cache (write-once).
    Locked,
    /// An operation at memory.
    Fetch,
}

impl Want {
    /// Returns the request for an operation that a line's state in the cache does not
    /// allow.
    #[inline]
    pub fn of(op: Op, word: u32, have: u8) -> Self {
        match op {
            _ if word & AT_MEMORY != 0 => Want::Fetch,
            Op::Load => Want::Read,
            _ if have == copy::INVALID => Want::Exclusive,
            _ => Want::Upgrade,
        }
    }
}

/// A processor's request to the memory system. One at a time; it stays in its place
/// ([`Cpu::request`]), for it is larger than what any event needs of it.
#[derive(Debug)]
pub(crate) struct Request {
    pub active: bool,
    pub want: Want,
    /// The operation that needs it.
    pub op: Op,
    pub line: u32,
    /// The second of two lines.
    pub second: u32,
    pub word: u32,
    /// The home (or the bus) has put it into its order.
    pub served: bool,
    /// Number in the bus's order.
    pub order: u64,
    /// Acknowledgements still to come, less those that came early.
    pub acks: i32,
    /// The reply is there.
    pub replied: bool,
    /// The line comes with the right to write.
    pub exclusive: bool,
    /// An invalidation overtook the reply: the value may be used once, the line may not
    /// be kept.
    pub use_once: bool,
    /// The store-conditional failed.
    pub failed: bool,
    /// True if no thread waits for it.
    pub prefetch: bool,
    /// Result of an operation at memory.
    pub result: u64,
}

impl Request {
    #[inline(always)]
    pub fn new(want: Want, op: Op, line: usize, word: u32) -> Self {
        Request {
            active: true,
            want,
            op,
            line: line as u32,
            second: NONE,
            word,
            served: false,
            order: 0,
            acks: 0,
            replied: false,
            exclusive: false,
            use_once: false,
            failed: false,
            prefetch: false,
            result: 0,
        }
    }

    /// Returns whether it is for this line, and in the order already.
    pub fn is_ordered_on(&self, line: usize) -> bool {
        self.active && self.served && self.line as usize == line
    }
}
