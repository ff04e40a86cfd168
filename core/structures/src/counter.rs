//! A shared counter.
//!
//! **Source.** Nikolopoulos & Papatheodorou 1999 §4.1: the microbenchmark that shows what a
//! primitive costs when all participants update one word.
//!
//! **Progress.** That of the primitive: wait-free over [`Atomics`] and at memory, lock-free over
//! load-linked and store-conditional.
//!
//! **Fields.** `count`: every participant, by the primitive.
//!
//! **Crashes.** An increment happened or did not; nothing is left to repair.
//!
//! **Memory.** One line.
//!
//! **Don't use it** to order anything else: its accesses may be relaxed.

use core::marker::PhantomData;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::Node;
use towpath_sync::{Atomics, Primitive};

/// A counter over the primitive `M`. All-zero memory is a counter at zero.
#[derive(Debug)]
#[repr(C)]
pub struct Counter<P: Processor, M = Atomics> {
    count: OwnLine<P::Word>,
    primitive: PhantomData<fn() -> M>,
}

impl<P: Processor, M: Primitive<P>> Counter<P, M> {
    /// The name by which users choose it: that of its primitive.
    pub const NAME: &'static str = M::NAME;

    /// A counter at zero.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # let cpu = Native::with_id(0);
    /// let counter = Counter::<Native>::new(&Heap);
    /// assert_eq!(counter.value(&cpu), 0);
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        Counter { count: OwnLine(arena.word(M::place(Place::NewLine), 0)), primitive: PhantomData }
    }

    /// Adds one and returns the previous count.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # let cpu = Native::with_id(0);
    /// # let counter = Counter::<Native>::new(&Heap);
    /// assert_eq!([counter.increment(&cpu), counter.increment(&cpu)], [0, 1]);
    /// ```
    #[inline(always)]
    pub fn increment(&self, cpu: &P) -> u64 {
        // Relaxed: the count orders nothing else.
        M::fetch_increment(cpu, &self.count, Ordering::Relaxed)
    }

    /// The count.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # let cpu = Native::with_id(0);
    /// # let counter = Counter::<Native>::new(&Heap);
    /// counter.increment(&cpu);
    /// assert_eq!(counter.value(&cpu), 1);
    /// ```
    #[inline(always)]
    pub fn value(&self, cpu: &P) -> u64 {
        // Relaxed: as in `increment`.
        cpu.load(&self.count, Ordering::Relaxed)
    }
}

/// A pool may be one of counters.
impl<P: Processor, M: Primitive<P> + 'static> Node<P> for Counter<P, M> {
    fn new(arena: &impl Arena<P>) -> Self {
        Counter::new(arena)
    }
}
