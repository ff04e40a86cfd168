//! Random numbers that are the same in each run.

/// Xorshift (Marsaglia 2003), by its state, which must not be 0.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Any number but 0.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}
