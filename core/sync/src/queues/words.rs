//! Lines of words in which queues lie.
#![allow(unsafe_code)]

use towpath_machine::{Arena, Place, Processor};

/// Number of words of a line.
const WORDS: usize = 8;

/// Eight words, on a line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WordLine<P: Processor>(pub(super) [P::Word; WORDS]);

impl<P: Processor> WordLine<P> {
    /// Lines of zeros in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::queues::WordLine;
    ///
    /// let lines = WordLine::<Native>::row(&Heap, 3);
    /// assert_eq!((lines.len(), size_of_val(&*lines)), (3, 3 * 64));
    /// ```
    pub fn row(arena: &impl Arena<P>, lines: usize) -> Box<[Self]> {
        let line = |_| WordLine(core::array::from_fn(|i| arena.word(Place::in_row(i), 0)));
        (0..lines).map(line).collect()
    }

    /// The words.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native, Ordering, Processor};
    /// use towpath_sync::queues::WordLine;
    ///
    /// let (cpu, line) = (Native::current(), &WordLine::<Native>::row(&Heap, 1)[0]);
    /// assert!(line.words().iter().all(|word| cpu.load(word, Ordering::Relaxed) == 0));
    /// ```
    pub const fn words(&self) -> &[P::Word; WORDS] {
        &self.0
    }
}

/// The words of these lines.
#[inline(always)]
pub(super) const fn all_words<P: Processor>(lines: &[WordLine<P>]) -> &[P::Word] {
    const { assert!(size_of::<WordLine<P>>() == WORDS * size_of::<P::Word>(), "words follow each other") };
    // SAFETY: a line begins with its words (`repr(C)`) and ends with them, so those of a slice of
    // lines follow each other, and live as long.
    unsafe { core::slice::from_raw_parts(lines.as_ptr().cast(), WORDS * lines.len()) }
}

/// A word of these lines, by its place among all of them.
#[inline(always)]
pub(super) fn word_at<P: Processor>(lines: &[WordLine<P>], place: usize) -> &P::Word {
    &all_words(lines)[place]
}
