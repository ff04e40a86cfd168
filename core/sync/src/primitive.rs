//! Operations of the hardware that an algorithm's atomic updates are made of: a type
//! parameter.
//!
//! **Source.** Nikolopoulos & Papatheodorou 1999 §2.2, §3: the same lock over load-linked and
//! store-conditional in the caches, or over fetch-and-op at memory. Processors with
//! compare-and-swap, exchange and fetch-and-add use [`Atomics`].

use core::fmt::Debug;

use towpath_machine::{FetchOp, LlSc, Ordering, Place, Processor};

/// The kinds of primitives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimitiveKind {
    /// [`Atomics`].
    Atomics,
    /// [`LoadLinked`].
    LoadLinked,
    /// [`AtMemory`].
    AtMemory,
}

impl PrimitiveKind {
    /// Picks the thing of this kind out of three, which are in the order of the variants.
    ///
    /// ```
    /// use towpath_sync::PrimitiveKind;
    ///
    /// assert_eq!(PrimitiveKind::LoadLinked.pick(["swap", "ll/sc", "fetch-op"]), "ll/sc");
    /// ```
    pub const fn pick<T: Copy>(self, of: [T; 3]) -> T {
        of[self as usize]
    }

    /// Returns whether the words lie in caches. At memory, nothing can be compared, so a
    /// word cannot be updated on a condition and carries no mark of sleepers.
    ///
    /// ```
    /// use towpath_sync::PrimitiveKind;
    ///
    /// assert!(!PrimitiveKind::AtMemory.in_cache());
    /// ```
    pub const fn in_cache(self) -> bool {
        !matches!(self, PrimitiveKind::AtMemory)
    }
}

/// A way to update a word atomically, and where words lie that are updated so.
pub trait Primitive<P: Processor>: Copy + Debug + Default + Send + Sync + 'static {
    /// The name by which users choose it.
    const NAME: &'static str;
    /// Kind of this primitive.
    const KIND: PrimitiveKind;
    /// Value of a lock's word while the lock is free. Zeroed memory is not a free lock if
    /// this is not 0.
    const FREE: u64;

    /// Returns the place of a word that is updated so, if others of its kind would lie at
    /// `place`.
    ///
    /// ```
    /// use towpath_machine::{Native, Place};
    /// use towpath_sync::{AtMemory, Atomics, Primitive};
    ///
    /// assert_eq!(<Atomics as Primitive<Native>>::place(Place::NewLine), Place::NewLine);
    /// assert_eq!(<AtMemory as Primitive<Native>>::place(Place::Home(3)), Place::AtMemory(3));
    /// ```
    fn place(place: Place) -> Place;

    /// Adds one and returns the previous value.
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering};
    /// use towpath_sync::{LoadLinked, Primitive};
    ///
    /// let (cpu, tickets) = (Native::current(), Native::word(4));
    /// assert_eq!(LoadLinked::fetch_increment(&cpu, &tickets, Ordering::Relaxed), 4);
    /// assert_eq!(tickets.into_inner(), 5);
    /// ```
    #[track_caller]
    fn fetch_increment(cpu: &P, word: &P::Word, order: Ordering) -> u64;

    /// Adds one if the word holds `old`, and returns whether it did. Never does at memory
    /// ([`PrimitiveKind::in_cache`]).
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering};
    /// use towpath_sync::{AtMemory, Atomics, Primitive};
    ///
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// assert!(!Atomics::increment_if(&cpu, &word, 3, Ordering::AcqRel));
    /// assert!(Atomics::increment_if(&cpu, &word, 4, Ordering::AcqRel));
    /// // memory does not compare
    /// assert!(!AtMemory::increment_if(&cpu, &word, 5, Ordering::AcqRel));
    /// ```
    #[track_caller]
    fn increment_if(cpu: &P, word: &P::Word, old: u64, order: Ordering) -> bool;

    /// Takes a lock's word: makes it "taken" whatever it was (unconditionally, even if it
    /// is taken), and returns whether it was [`Primitive::FREE`].
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering};
    /// use towpath_sync::{AtMemory, Primitive};
    ///
    /// let cpu = Native::current();
    /// let lock = Native::word(<AtMemory as Primitive<Native>>::FREE);
    /// assert!(AtMemory::test_and_set(&cpu, &lock, Ordering::Acquire));
    /// assert!(!AtMemory::test_and_set(&cpu, &lock, Ordering::Acquire)); // taken
    /// ```
    #[track_caller]
    fn test_and_set(cpu: &P, word: &P::Word, order: Ordering) -> bool;
}

/// A primitive that resolves any number of contenders without blocking.
pub trait Universal<P: Processor>: Primitive<P> {
    /// Writes `new` if the word holds `old`. Returns the word's previous value, as `Err`
    /// if it was another one. Never fails spuriously.
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering};
    /// use towpath_sync::{LoadLinked, Universal};
    ///
    /// let (cpu, word) = (Native::current(), Native::word(4));
    /// assert_eq!(LoadLinked::compare_exchange(&cpu, &word, 4, 9, Ordering::AcqRel), Ok(4));
    /// assert_eq!(LoadLinked::compare_exchange(&cpu, &word, 4, 7, Ordering::AcqRel), Err(9));
    /// ```
    #[track_caller]
    fn compare_exchange(cpu: &P, word: &P::Word, old: u64, new: u64, order: Ordering) -> Result<u64, u64>;

    /// Writes a word and returns its old value.
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering};
    /// use towpath_sync::{Atomics, Universal};
    ///
    /// let (cpu, last) = (Native::current(), Native::word(4));
    /// // the predecessor in a queue
    /// assert_eq!(Atomics::swap(&cpu, &last, 9, Ordering::AcqRel), 4);
    /// ```
    #[track_caller]
    fn swap(cpu: &P, word: &P::Word, value: u64, order: Ordering) -> u64;
}

/// The processor's own compare-and-swap, exchange and fetch-and-add, in its cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Atomics;

/// Loops of load-linked and store-conditional, in the cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadLinked;

/// Operations at memory: no caching, no coherence traffic, no compare-and-swap.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtMemory;

/// The order of the load in an exchange of that order that fails.
const fn failure(order: Ordering) -> Ordering {
    match order {
        // It acquires as (the exchange's caller) would have it; there is nothing to release.
        Ordering::AcqRel | Ordering::Acquire => Ordering::Acquire,
        Ordering::SeqCst => Ordering::SeqCst,
        _ => Ordering::Relaxed,
    }
}

impl<P: Processor> Primitive<P> for Atomics {
    const NAME: &'static str = "atomics";
    const KIND: PrimitiveKind = PrimitiveKind::Atomics;
    const FREE: u64 = 0;

    fn place(place: Place) -> Place {
        place
    }
    #[inline(always)]
    fn fetch_increment(cpu: &P, word: &P::Word, order: Ordering) -> u64 {
        cpu.fetch_add(word, 1, order)
    }
    #[inline(always)]
    fn increment_if(cpu: &P, word: &P::Word, old: u64, order: Ordering) -> bool {
        cpu.compare_exchange(word, old, old.wrapping_add(1), order, failure(order)).is_ok()
    }
    #[inline(always)]
    fn test_and_set(cpu: &P, word: &P::Word, order: Ordering) -> bool {
        cpu.swap(word, 1, order) == 0
    }
}

impl<P: Processor> Universal<P> for Atomics {
    #[inline(always)]
    fn compare_exchange(cpu: &P, word: &P::Word, old: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        cpu.compare_exchange(word, old, new, order, failure(order))
    }
    #[inline(always)]
    fn swap(cpu: &P, word: &P::Word, value: u64, order: Ordering) -> u64 {
        cpu.swap(word, value, order)
    }
}

/// Links, computes and stores until no other store came in between.
#[inline(always)]
fn update<P: LlSc>(cpu: &P, word: &P::Word, new: impl Fn(u64) -> u64) -> u64 {
    loop {
        let old = cpu.load_linked(word);
        if cpu.store_conditional(word, new(old)) {
            return old;
        }
    }
}

/// Load-linked acquires and store-conditional releases, on every machine.
impl<P: LlSc> Primitive<P> for LoadLinked {
    const NAME: &'static str = "ll-sc";
    const KIND: PrimitiveKind = PrimitiveKind::LoadLinked;
    const FREE: u64 = 0;

    fn place(place: Place) -> Place {
        place
    }
    #[inline(always)]
    fn fetch_increment(cpu: &P, word: &P::Word, _order: Ordering) -> u64 {
        update(cpu, word, |v| v.wrapping_add(1))
    }
    #[inline(always)]
    fn increment_if(cpu: &P, word: &P::Word, old: u64, order: Ordering) -> bool {
        Self::compare_exchange(cpu, word, old, old.wrapping_add(1), order).is_ok()
    }
    #[inline(always)]
    fn test_and_set(cpu: &P, word: &P::Word, _order: Ordering) -> bool {
        update(cpu, word, |_| 1) == 0
    }
}

impl<P: LlSc> Universal<P> for LoadLinked {
    #[inline(always)]
    fn compare_exchange(cpu: &P, word: &P::Word, old: u64, new: u64, _order: Ordering) -> Result<u64, u64> {
        loop {
            let seen = cpu.load_linked(word);
            if seen != old {
                return Err(seen);
            }
            if cpu.store_conditional(word, new) {
                return Ok(seen);
            }
        }
    }
    #[inline(always)]
    fn swap(cpu: &P, word: &P::Word, value: u64, _order: Ordering) -> u64 {
        update(cpu, word, |_| value)
    }
}

/// Operations at memory acquire and release, on every machine.
impl<P: FetchOp> Primitive<P> for AtMemory {
    const NAME: &'static str = "fetch-op";
    const KIND: PrimitiveKind = PrimitiveKind::AtMemory;
    /// The only exchange that memory can do is with zero.
    const FREE: u64 = 1;

    fn place(place: Place) -> Place {
        match place {
            Place::Home(node) | Place::AtMemory(node) => Place::AtMemory(node),
            Place::NewLine | Place::SameLine => Place::AtMemory(0),
        }
    }
    #[inline(always)]
    fn fetch_increment(cpu: &P, word: &P::Word, _order: Ordering) -> u64 {
        cpu.fetch_increment(word)
    }
    #[inline(always)]
    fn increment_if(_cpu: &P, _word: &P::Word, _old: u64, _order: Ordering) -> bool {
        false
    }
    #[inline(always)]
    fn test_and_set(cpu: &P, word: &P::Word, _order: Ordering) -> bool {
        cpu.fetch_clear(word) == <Self as Primitive<P>>::FREE
    }
}
