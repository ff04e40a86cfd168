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
    pub fn row(arena: &impl Arena<P>, lines: usize) -> Box<[Self]> {
        let line = |_| WordLine(core::array::from_fn(|i| arena.word(Place::in_row(i), 0)));
        (0..lines).map(line).collect()
    }

    /// The words.
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
