//! Data that a lock protects and that travel with it.
//!
//! A holder publishes new data when it releases the lock; each grant carries the last data that
//! were published. Their *version* is the token of the holder that published them.
//!
//! A node keeps its copy when it passes the lock on. Before it forgets the lock, it deposits the
//! data with the home, and waits until the home says that it has them; a home that leaves does so
//! with the lock's next home. So a holder that
//! dies takes nothing with it: the home asks the nodes of the queue, and the largest version is
//! that of the last release. Only if the node that released the lock last is gone, too, before the
//! next one has the grant, or if a home is gone that had the only copy, an older version is the
//! last one; the next holder is told of a death then.

use std::fmt;
use std::sync::Arc;

use crate::token::FencingToken;

/// Bytes that a lock protects, as one holder has left them.
///
/// ```
/// use towpath_mplock::{LockData, FencingToken};
///
/// let data = LockData::new(FencingToken::of_epoch(1), b"seven").unwrap();
/// assert_eq!(data.bytes(), b"seven");
/// assert!(LockData::new(FencingToken::of_epoch(1), &[0; LockData::MAX + 1]).is_none());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockData {
    version: FencingToken,
    bytes: Arc<[u8]>,
}

impl LockData {
    /// Maximum number of bytes.
    pub const MAX: usize = 4096;

    /// Makes the data of the holder with that token; `None` if there are too many bytes.
    ///
    /// ```
    /// use towpath::mplock::{FencingToken, LockData};
    ///
    /// let token = FencingToken::of_epoch(1);
    /// assert!(LockData::new(token, &[0; LockData::MAX]).is_some());
    /// assert!(LockData::new(token, &[0; LockData::MAX + 1]).is_none());
    /// ```
    #[must_use]
    pub fn new(version: FencingToken, bytes: &[u8]) -> Option<LockData> {
        (bytes.len() <= LockData::MAX).then(|| LockData { version, bytes: bytes.into() })
    }

    /// Returns the token of the holder that left them.
    ///
    /// ```
    /// use towpath::mplock::{FencingToken, LockData};
    ///
    /// let token = FencingToken::of_epoch(1);
    /// assert_eq!(LockData::new(token, b"seven").unwrap().version(), token);
    /// ```
    #[must_use]
    pub fn version(&self) -> FencingToken {
        self.version
    }

    /// Returns the bytes.
    ///
    /// ```
    /// use towpath::mplock::{FencingToken, LockData};
    ///
    /// let data = LockData::new(FencingToken::of_epoch(1), b"seven").unwrap();
    /// assert_eq!(data.bytes().len(), 5);
    /// ```
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for LockData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes.len(), self.version)
    }
}
