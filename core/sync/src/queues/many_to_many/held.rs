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
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::{BoundedQueue, ManyHead, ManyToMany};
    /// # use towpath_sync::queues::{QueueSide, TransferError, WordLine};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # let cpu = Native::current();
    /// # let geometry = ManyToMany::<Native>::geometry::<u64>(4);
    /// # let head = ManyHead::<Native>::in_arena(&Heap);
    /// # let ring = WordLine::row(&Heap, geometry.ring_lines());
    /// # let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// # let queue = ManyToMany::of(&head, &ring, &slots, geometry);
    /// # for side in [QueueSide::Sender, QueueSide::Receiver] {
    /// #     queue.join(&cpu, &Spinning, side)?;
    /// # }
    /// let reserved = queue.reserve(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert!(reserved.slot() < geometry.capacity());
    /// # queue.give_up(&cpu, &Spinning, reserved);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub const fn slot(&self) -> usize {
        self.slot
    }
}

impl Leased {
    /// Number of the slot.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::{BoundedQueue, ManyHead, ManyToMany};
    /// # use towpath_sync::queues::{QueueSide, TransferError, WordLine};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # let cpu = Native::current();
    /// # let geometry = ManyToMany::<Native>::geometry::<u64>(4);
    /// # let head = ManyHead::<Native>::in_arena(&Heap);
    /// # let ring = WordLine::row(&Heap, geometry.ring_lines());
    /// # let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// # let queue = ManyToMany::of(&head, &ring, &slots, geometry);
    /// # for side in [QueueSide::Sender, QueueSide::Receiver] {
    /// #     queue.join(&cpu, &Spinning, side)?;
    /// # }
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let lease = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert!(lease.slot() < geometry.capacity());
    /// # Ok::<(), TransferError>(())
    /// ```
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// The lease as two words, for programs in other languages.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::{BoundedQueue, ManyHead, ManyToMany};
    /// # use towpath_sync::queues::{QueueSide, TransferError, WordLine};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # let cpu = Native::current();
    /// # let geometry = ManyToMany::<Native>::geometry::<u64>(4);
    /// # let head = ManyHead::<Native>::in_arena(&Heap);
    /// # let ring = WordLine::row(&Heap, geometry.ring_lines());
    /// # let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// # let queue = ManyToMany::of(&head, &ring, &slots, geometry);
    /// # for side in [QueueSide::Sender, QueueSide::Receiver] {
    /// #     queue.join(&cpu, &Spinning, side)?;
    /// # }
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let lease = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert_eq!(lease.into_words()[0], lease.slot() as u64);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub const fn into_words(self) -> [u64; 2] {
        [self.slot as u64, self.word]
    }

    /// The lease of two words. If they are none of a lease, its end has no effect.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::{BoundedQueue, ManyHead, ManyToMany};
    /// # use towpath_sync::queues::{QueueSide, TransferError, WordLine};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # let cpu = Native::current();
    /// # let geometry = ManyToMany::<Native>::geometry::<u64>(4);
    /// # let head = ManyHead::<Native>::in_arena(&Heap);
    /// # let ring = WordLine::row(&Heap, geometry.ring_lines());
    /// # let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// # let queue = ManyToMany::of(&head, &ring, &slots, geometry);
    /// # for side in [QueueSide::Sender, QueueSide::Receiver] {
    /// #     queue.join(&cpu, &Spinning, side)?;
    /// # }
    /// # use towpath_sync::queues::Leased;
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let words = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?.into_words();
    /// queue.give_back(&cpu, &Spinning, Leased::from_words([words[0], 0])); // none: no effect
    /// assert_eq!(queue.len(&cpu), 0);
    /// queue.give_back(&cpu, &Spinning, Leased::from_words(words));
    /// assert_eq!(queue.len(&cpu), 1);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub const fn from_words(words: [u64; 2]) -> Leased {
        Leased { slot: words[0] as usize, word: words[1] }
    }

    /// Returns whether this process has the lease. A forked child has not.
    pub(super) fn is_of(&self, me: u32) -> bool {
        identity(self.word) == me
    }
}
