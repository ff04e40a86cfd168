//! Activity of endpoints: tells a waiter whether it is still in the same wait.

use crate::device::operation::Refusal;

/// Counts of events at some endpoints so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Number of operations that the program started.
    pub calls: u64,
    /// Number of those that were neither receives nor tagged.
    pub untagged: u64,
    /// Number of operations that were refused for want of space.
    pub refused: u64,
    /// Number of frames that came.
    pub frames: u64,
    /// Changes when another domain of the process gives the program a completion.
    pub elsewhere: u64,
}

impl Activity {
    /// Counts an operation that the program has started. `tagged`: a tagged one, or a
    /// receive.
    #[inline(always)]
    pub fn called(&mut self, tagged: bool) {
        self.calls += 1;
        self.untagged += u64::from(!tagged);
    }
    /// Counts an operation's refusal, if it is one.
    #[inline(always)]
    pub fn tried(&mut self, result: &Result<(), Refusal>) {
        self.refused += u64::from(*result == Err(Refusal::Again));
    }
    /// Adds another endpoint's counts.
    pub fn add(&mut self, other: &Activity) {
        self.calls += other.calls;
        self.untagged += other.untagged;
        self.refused += other.refused;
        self.frames += other.frames;
    }
}
