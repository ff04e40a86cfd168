//! Load-linked and store-conditional on machines that have only compare-and-swap.

use core::ptr::from_ref;

use crate::{Ordering, Processor};

/// Word that a processor linked last, and the value that it held.
///
/// The reservation stands while the word holds that value: a word that was changed and changed back
/// counts as unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The word's address; 0: none is linked.
    word: usize,
    value: u64,
}

impl Link {
    /// Link of no word.
    pub const NONE: Link = Link { word: 0, value: 0 };

    /// Reads a word and links it.
    ///
    /// ```
    /// use towpath_machine::{Link, Native};
    ///
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// let link = Link::to(&cpu, &word);
    /// assert!(link.stands(&cpu, &word));
    /// assert!(!Link::NONE.stands(&cpu, &word));
    /// ```
    pub fn to<P: Processor>(cpu: &P, word: &P::Word) -> Link {
        // (L1) Acquire: what is read here may be all that the caller wants; pairs with (L2).
        Link { word: from_ref(word).addr(), value: cpu.load(word, Ordering::Acquire) }
    }

    /// The value that the word held.
    ///
    /// ```
    /// # use towpath_machine::{Link, Native};
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// assert_eq!(Link::to(&cpu, &word).value(), 4);
    /// ```
    pub fn value(self) -> u64 {
        self.value
    }

    /// Writes the word if the reservation stands, and returns whether it did.
    ///
    /// ```
    /// # use towpath_machine::{Link, Native};
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// let (first, second) = (Link::to(&cpu, &word), Link::to(&cpu, &word));
    /// assert!(first.store(&cpu, &word, 5));
    /// assert!(!second.store(&cpu, &word, 6));
    /// ```
    pub fn store<P: Processor>(self, cpu: &P, word: &P::Word, value: u64) -> bool {
        // (L2) AcqRel: pairs with (L1) and itself, since another processor may have written the
        // linked value again. Relaxed: a failure tells of no value.
        self.is_to::<P>(word)
            && cpu.compare_exchange(word, self.value, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the reservation stands.
    ///
    /// ```
    /// # use towpath_machine::{Link, Native, Ordering, Processor};
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// let link = Link::to(&cpu, &word);
    /// cpu.store(&word, 5, Ordering::Relaxed);
    /// assert!(!link.stands(&cpu, &word));
    /// cpu.store(&word, 4, Ordering::Relaxed);
    /// assert!(link.stands(&cpu, &word)); // changed back
    /// ```
    pub fn stands<P: Processor>(self, cpu: &P, word: &P::Word) -> bool {
        // Relaxed: (L1) has acquired what wrote this value, and the answer orders nothing else.
        self.is_to::<P>(word) && cpu.load(word, Ordering::Relaxed) == self.value
    }

    fn is_to<P: Processor>(self, word: &P::Word) -> bool {
        self.word == from_ref(word).addr()
    }
}
