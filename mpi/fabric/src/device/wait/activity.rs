//! What has happened at an endpoint: tells who waits there whether it is still the same
//! wait.

use crate::device::endpoint::Refusal;

/// What has happened at the endpoints so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Operations that the program started.
    pub calls: u64,
    /// Those of them that were neither receives nor tagged.
    pub untagged: u64,
    /// Operations that it could not start for want of room.
    pub refused: u64,
    /// Frames that came.
    pub frames: u64,
    /// Changes when another domain of the process gives the program something.
    pub elsewhere: u64,
}

impl Happened {
    /// The program has started an operation. `tagged`: a tagged one, or a receive.
    #[inline(always)]
    pub fn called(&mut self, tagged: bool) {
        self.calls += 1;
        self.untagged += u64::from(!tagged);
    }
    /// It has tried to.
    #[inline(always)]
    pub fn tried(&mut self, result: &Result<(), Refusal>) {
        self.refused += u64::from(*result == Err(Refusal::Again));
    }
    /// Together with another endpoint's.
    pub fn add(&mut self, other: &Happened) {
        self.calls += other.calls;
        self.untagged += other.untagged;
        self.refused += other.refused;
        self.frames += other.frames;
    }
}
