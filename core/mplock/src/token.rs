//! Fencing tokens.

use crate::numbers::Epoch;

/// Number of bits of a token that count grants within an epoch.
const COUNTER_BITS: u32 = 44;

/// Fencing token of a grant: an epoch and a counter, strictly increasing for each lock.
///
/// 2^20 epochs (deaths) and 2^44 grants in each: ten million grants a second for twenty days
/// without a death.
///
/// ```
/// use towpath::mplock::FencingToken;
///
/// let first = FencingToken::of_epoch(1).next().unwrap();
/// assert!(first < first.next().unwrap());
/// assert!(first.next().unwrap() < FencingToken::of_epoch(2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// No token: smaller than all.
    pub const NONE: FencingToken = FencingToken(0);

    /// Largest epoch that a token can carry.
    pub const MAX_EPOCH: Epoch = (1 << (64 - COUNTER_BITS)) - 1;

    /// Smallest token of an epoch; no grant has it.
    ///
    /// ```
    /// use towpath::mplock::FencingToken;
    ///
    /// assert!(FencingToken::of_epoch(2) < FencingToken::of_epoch(3));
    /// ```
    #[must_use]
    pub fn of_epoch(epoch: Epoch) -> FencingToken {
        FencingToken(u64::from(epoch.min(Self::MAX_EPOCH)) << COUNTER_BITS)
    }

    /// Returns the token after this one; `None` where its epoch has no more.
    ///
    /// ```
    /// use towpath::mplock::FencingToken;
    ///
    /// let first = FencingToken::of_epoch(1).next().expect("an epoch has more than one");
    /// assert!(first > FencingToken::of_epoch(1));
    /// ```
    #[inline]
    #[must_use]
    pub fn next(self) -> Option<FencingToken> {
        let next = self.0.wrapping_add(1);
        (next & ((1 << COUNTER_BITS) - 1) != 0).then_some(FencingToken(next))
    }

    /// Returns the number of tokens after it in its epoch, or a smaller one.
    pub(crate) fn left_in_epoch(self) -> u32 {
        let counters = (1 << COUNTER_BITS) - 1;
        (counters - (self.0 & counters)).min(u64::from(u32::MAX)) as u32
    }

    /// Returns its epoch.
    ///
    /// ```
    /// use towpath::mplock::FencingToken;
    ///
    /// assert_eq!(FencingToken::of_epoch(5).next().map(FencingToken::epoch), Some(5));
    /// ```
    #[must_use]
    pub fn epoch(self) -> Epoch {
        (self.0 >> COUNTER_BITS) as Epoch
    }

    /// Returns it as a number, to be passed on.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let manager = towpath::mplock::Manager::new(&world)?;
    /// let lock = manager.lock("table");
    /// let guard = lock.acquire()?;
    /// println!("for a command: TOWPATH_TOKEN={}", guard.token().get());
    /// # drop(guard);
    /// # Ok::<(), towpath::mplock::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// Makes a token of a number that [`FencingToken::get`] has returned.
    ///
    /// ```
    /// use towpath::mplock::FencingToken;
    ///
    /// let token = FencingToken::from_number("52776558133249".parse()?); // of TOWPATH_TOKEN
    /// assert_eq!(token.get(), 52776558133249);
    /// # Ok::<(), std::num::ParseIntError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn from_number(number: u64) -> FencingToken {
        FencingToken(number)
    }
}

impl core::fmt::Display for FencingToken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_that_is_used_up_does_not_reach_the_next_epoch() {
        let last = FencingToken(FencingToken::of_epoch(4).0 - 1);
        assert_eq!(last.epoch(), 3);
        assert_eq!(last.next(), None);
    }
}
