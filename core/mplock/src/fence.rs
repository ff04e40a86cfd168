//! Fence: a check of tokens that refuses former holders of a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_derive::SentenceDebug;

use crate::token::FencingToken;

/// Check of fencing tokens before a resource, which refuses former holders of a lock.
///
/// It remembers the largest token that it has seen, and refuses smaller ones. A holder that was
/// paused, or cut off, may go on after its lock was given to another one. Its token is smaller than
/// that of the new holder, from whose first use on it is refused. The holder's own token is
/// accepted as often as it comes. Where readers share a lock their tokens have no order: check
/// those of writers only.
///
/// ```
/// use towpath::mplock::{Fence, FencingToken};
///
/// let fence = Fence::new(FencingToken::NONE);
/// // Tokens as they come with requests: of a command, from TOWPATH_TOKEN.
/// let [old, new] = ["52776558133249", "70368744177665"].map(|text| text.parse().unwrap());
/// let [old, new] = [old, new].map(FencingToken::from_number);
/// assert!(fence.check(old).is_ok());
/// assert!(fence.check(new).is_ok());
/// let refused = fence.check(old).unwrap_err();
/// assert_eq!((refused.token, refused.largest), (old, new));
/// // To be written down with what the resource keeps, and given to `Fence::new` after a restart.
/// assert_eq!(fence.largest(), new);
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    largest: AtomicU64,
}

/// Refusal of a token by a [`Fence`].
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error, SentenceDebug)]
#[error(
    "token {token} is older than {largest}: the lock was given to another holder since; acquire it anew and repeat the work"
)]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that was refused.
    pub token: FencingToken,
    /// The largest token that was seen.
    pub largest: FencingToken,
}

impl Fence {
    /// Makes a fence that has seen this token; [`FencingToken::NONE`] for a new resource.
    ///
    /// ```
    /// use towpath::mplock::{Fence, FencingToken};
    ///
    /// let fence = Fence::new(FencingToken::NONE);
    /// assert_eq!(fence.largest(), FencingToken::NONE);
    /// ```
    #[must_use]
    pub fn new(largest: FencingToken) -> Fence {
        Fence { largest: AtomicU64::new(largest.get()) }
    }

    /// Accepts a token, or refuses it because a larger one was seen.
    ///
    /// A resource whose check and work are two steps makes them one for other requests, by a mutex
    /// or a transaction.
    ///
    /// # Errors
    ///
    /// [`StaleToken`].
    ///
    /// ```
    /// use towpath::mplock::{Fence, FencingToken};
    ///
    /// let fence = Fence::new(FencingToken::of_epoch(2));
    /// assert!(fence.check(FencingToken::of_epoch(3)).is_ok());
    /// assert!(fence.check(FencingToken::of_epoch(2)).is_err());
    /// ```
    pub fn check(&self, token: FencingToken) -> Result<(), StaleToken> {
        // Relaxed: updates of one word are in one order, and order nothing else.
        let before = FencingToken::from_number(self.largest.fetch_max(token.get(), Ordering::Relaxed));
        if before > token { Err(StaleToken { token, largest: before }) } else { Ok(()) }
    }

    /// Returns the largest token that was seen.
    ///
    /// ```
    /// use towpath::mplock::{Fence, FencingToken};
    ///
    /// let fence = Fence::default();
    /// fence.check(FencingToken::of_epoch(3))?;
    /// assert_eq!(fence.largest(), FencingToken::of_epoch(3)); // to be kept with the resource
    /// # Ok::<(), towpath::mplock::StaleToken>(())
    /// ```
    #[must_use]
    pub fn largest(&self) -> FencingToken {
        FencingToken::from_number(self.largest.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_see_tokens_only_increase() {
        let fence = Fence::new(FencingToken::from_number(10));
        assert!(fence.check(FencingToken::from_number(9)).is_err());
        std::thread::scope(|scope| {
            for first in 0..4 {
                let fence = &fence;
                scope.spawn(move || {
                    for n in 0..1000 {
                        let token = FencingToken::from_number(10 + 4 * n + first);
                        if fence.check(token).is_ok() {
                            assert!(fence.largest() >= token);
                        }
                    }
                });
            }
        });
        assert_eq!(fence.largest().get(), 10 + 4 * 999 + 3);
    }
}
