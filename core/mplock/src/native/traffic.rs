//! Messages that a rank has sent to others about locks, by their purpose.

use std::cell::Cell;

use super::codec::LetterContent;
use crate::message::MessageBody;

/// Number of messages that a rank's manager has sent to other ranks.
///
/// With the number of acquisitions they say what a grant costs: `Central` takes a request, a grant
/// and a return, `Distributed` a request, a forward and a grant.
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// let manager = towpath::mplock::Manager::new(&world)?;
/// drop(manager.lock("table").acquire()?);
/// assert_eq!(manager.traffic().total(), 0, "no other rank was needed");
/// # Ok::<(), towpath::mplock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockTraffic {
    /// Requests of nodes to homes.
    pub requests: u64,
    /// Orders and questions of homes to nodes that have a lock.
    pub forwards: u64,
    /// Grants, from homes or from the holder before.
    pub grants: u64,
    /// Loans of locks that are kept to the nodes that wait next.
    pub loans: u64,
    /// Locks that went home.
    pub returns: u64,
    /// All others: refusals, data, inquiries after a death and their answers.
    pub others: u64,
}

impl LockTraffic {
    /// Returns the number of all messages.
    ///
    /// ```
    /// use towpath::mplock::LockTraffic;
    ///
    /// let counted = LockTraffic { requests: 3, grants: 3, ..LockTraffic::default() };
    /// assert_eq!(counted.total(), 6);
    /// ```
    #[must_use]
    pub fn total(self) -> u64 {
        self.requests + self.forwards + self.grants + self.loans + self.returns + self.others
    }

    /// Counts a message.
    pub(crate) fn note(counts: &Cell<LockTraffic>, content: &LetterContent) {
        let mut sum = counts.get();
        let count = match content {
            LetterContent::Lock { message, .. } => match message.body {
                MessageBody::Request { .. } => &mut sum.requests,
                MessageBody::Forward { .. } | MessageBody::Probe { .. } => &mut sum.forwards,
                MessageBody::Grant(_) => &mut sum.grants,
                MessageBody::Lend { .. } => &mut sum.loans,
                MessageBody::Return { .. } => &mut sum.returns,
                _ => &mut sum.others,
            },
            _ => &mut sum.others,
        };
        *count += 1;
        counts.set(sum);
    }
}
