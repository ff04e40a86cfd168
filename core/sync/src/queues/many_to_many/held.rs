//! Slots that an end of the queue has.

use super::identity;

/// A value that a receiver has, and that comes in again if it dies.
#[derive(Clone, Copy, Debug)]
pub struct Leased {
    pub(in crate::queues) slot: usize,
    pub(in crate::queues) word: u64,
}

/// A slot that a sender has, and has yet to send.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    pub(in crate::queues) slot: usize,
    pub(in crate::queues) word: u64,
    pub(in crate::queues) ticket: u64,
    pub(in crate::queues) entry: u64,
}

impl Reserved {
    /// Number of the slot.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// let reserved = queue.reserve(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert!(reserved.slot() < 4); // of four slots
    /// # queue.give_up(&cpu, &Spinning, reserved);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn slot(&self) -> usize {
        self.slot
    }
}

impl Leased {
    /// Number of the slot.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let lease = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert!(lease.slot() < 4); // of four slots
    /// # Ok(())
    /// # }
    /// ```
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// The lease as two words, for programs in other languages.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let lease = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert_eq!(lease.into_words()[0], lease.slot() as u64);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn into_words(self) -> [u64; 2] {
        [self.slot as u64, self.word]
    }

    /// The lease of two words. If they are none of a lease, its end has no effect.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// # use towpath_sync::queues::Leased;
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let words = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?.into_words();
    /// queue.give_back(&cpu, &Spinning, Leased::from_words([words[0], 0])); // none: no effect
    /// assert_eq!(queue.len(&cpu), 0);
    /// queue.give_back(&cpu, &Spinning, Leased::from_words(words));
    /// assert_eq!(queue.len(&cpu), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn from_words(words: [u64; 2]) -> Leased {
        Leased { slot: words[0] as usize, word: words[1] }
    }

    /// Returns whether this process has the lease. A forked child has not.
    pub(super) fn is_of(&self, me: u32) -> bool {
        identity(self.word) == me
    }
}
