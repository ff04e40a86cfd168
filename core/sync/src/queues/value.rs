//! Values as words: how they lie in the slots of a queue.
//!
//! A value is of a type, or bytes whose number is known when the program runs. Both lie as words;
//! the last one is filled up with zeros.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::{MaybeUninit, align_of, size_of};

use towpath_machine::Plain;

/// Number of words of a value.
pub(super) const fn words<T>() -> usize {
    size_of::<T>().div_ceil(8)
}

/// A value that is sent: its words.
pub trait SentWords {
    /// Number of words.
    ///
    /// ```
    /// use towpath_sync::queues::{BytesAt, SentWords};
    ///
    /// assert_eq!((SentWords::words(&[1u32; 3]), BytesAt(b"a").words()), (2, 1));
    /// ```
    fn words(&self) -> usize;

    /// Word `k`.
    ///
    /// ```
    /// use towpath_sync::queues::{BytesAt, SentWords};
    ///
    /// assert_eq!(BytesAt(b"ab").word(0).to_ne_bytes(), *b"ab\0\0\0\0\0\0"); // filled up
    /// ```
    fn word(&self, k: usize) -> u64;
}

impl<T: Plain> SentWords for T {
    #[inline(always)]
    fn words(&self) -> usize {
        words::<T>()
    }

    #[inline(always)]
    fn word(&self, k: usize) -> u64 {
        word(self, k)
    }
}

/// Shape of a value that is received.
pub trait ReceivedShape {
    /// The value.
    type Value;

    /// Number of words.
    ///
    /// ```
    /// use towpath_sync::queues::{BytesInto, ReceivedShape};
    ///
    /// let mut bytes = [0; 9];
    /// // SAFETY: an array of nine bytes, which no other thread has.
    /// let into = unsafe { BytesInto::new(bytes.as_mut_ptr(), 9) };
    /// assert_eq!(into.words(), 2);
    /// ```
    fn words(&self) -> usize;

    /// The value of these words.
    ///
    /// A shape that takes the first word only:
    ///
    /// ```
    /// use towpath_sync::queues::ReceivedShape;
    ///
    /// struct Tag;
    /// impl ReceivedShape for Tag {
    ///     type Value = u64;
    ///     fn words(&self) -> usize { 4 }
    ///     fn value(&self, word: impl Fn(usize) -> u64) -> u64 { word(0) }
    /// }
    /// assert_eq!(Tag.value(|k| 10 + k as u64), 10);
    /// ```
    fn value(&self, word: impl Fn(usize) -> u64) -> Self::Value;
}

/// Shape of the values of a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfType<T>(PhantomData<fn() -> T>);

impl<T> OfType<T> {
    pub(super) const fn new() -> Self {
        OfType(PhantomData)
    }
}

impl<T: Plain> ReceivedShape for OfType<T> {
    type Value = T;

    #[inline(always)]
    fn words(&self) -> usize {
        words::<T>()
    }

    #[inline(always)]
    fn value(&self, word: impl Fn(usize) -> u64) -> T {
        from_words(word)
    }
}

/// `N` words anywhere in memory, as a value that is sent.
#[derive(Clone, Copy, Debug)]
pub struct WordsAt<'a, const N: usize>(pub &'a [[u8; 8]; N]);

impl<const N: usize> SentWords for WordsAt<'_, N> {
    #[inline(always)]
    fn words(&self) -> usize {
        N
    }

    #[inline(always)]
    fn word(&self, k: usize) -> u64 {
        u64::from_ne_bytes(self.0[k])
    }
}

/// Bytes as a value that is sent.
#[derive(Clone, Copy, Debug)]
pub struct BytesAt<'a>(pub &'a [u8]);

impl SentWords for BytesAt<'_> {
    #[inline(always)]
    fn words(&self) -> usize {
        self.0.len().div_ceil(8)
    }

    #[inline(always)]
    fn word(&self, k: usize) -> u64 {
        let rest = &self.0[8 * k..];
        if let Some(word) = rest.first_chunk() {
            return u64::from_ne_bytes(*word);
        }
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_ne_bytes(word)
    }
}

/// Memory for `N` words, anywhere, into which a value is received.
///
/// An attempt that fails may write to it, too.
#[derive(Clone, Copy, Debug)]
pub struct WordsInto<const N: usize>(*mut u8);

impl<const N: usize> WordsInto<N> {
    /// Memory of `8 * N` bytes.
    ///
    /// # Safety
    ///
    /// * As many bytes may be written there while this is used.
    /// * No other thread accesses them meanwhile.
    ///
    /// ```
    /// use towpath_sync::queues::{ReceivedShape, WordsInto};
    ///
    /// let mut words = [0u64; 2];
    /// // SAFETY: two words, which no other thread has.
    /// unsafe { WordsInto::<2>::new(words.as_mut_ptr().cast()) }.value(|k| 7 + k as u64);
    /// assert_eq!(words, [7, 8]);
    /// ```
    #[inline(always)]
    pub const unsafe fn new(at: *mut u8) -> Self {
        WordsInto(at)
    }
}

impl<const N: usize> ReceivedShape for WordsInto<N> {
    type Value = ();

    #[inline(always)]
    fn words(&self) -> usize {
        N
    }

    #[inline(always)]
    fn value(&self, word: impl Fn(usize) -> u64) {
        for k in 0..N {
            // SAFETY: within the memory that the maker of this has promised.
            unsafe { self.0.add(8 * k).cast::<u64>().write_unaligned(word(k)) };
        }
    }
}

/// Memory into which a value is received.
///
/// An attempt that fails may write to it, too.
#[derive(Clone, Copy, Debug)]
pub struct BytesInto {
    at: *mut u8,
    bytes: usize,
}

impl BytesInto {
    /// Memory of so many bytes.
    ///
    /// # Safety
    ///
    /// * As many bytes may be written there while this is used.
    /// * No other thread accesses them meanwhile.
    ///
    /// ```
    /// use towpath_sync::queues::{BytesInto, ReceivedShape};
    ///
    /// let mut bytes = [0; 3];
    /// // SAFETY: three bytes, which no other thread has.
    /// let into = unsafe { BytesInto::new(bytes.as_mut_ptr(), 3) };
    /// into.value(|_| u64::from_ne_bytes(*b"abcdefgh"));
    /// assert_eq!(&bytes, b"abc"); // no more than there is room for
    /// ```
    #[inline(always)]
    pub const unsafe fn new(at: *mut u8, bytes: usize) -> Self {
        BytesInto { at, bytes }
    }
}

impl ReceivedShape for BytesInto {
    type Value = ();

    #[inline(always)]
    fn words(&self) -> usize {
        self.bytes.div_ceil(8)
    }

    #[inline(always)]
    fn value(&self, word: impl Fn(usize) -> u64) {
        for k in 0..self.words() {
            let bytes = word(k).to_ne_bytes();
            // SAFETY: within the memory that the maker of this has promised; from an array on the
            // stack.
            unsafe {
                let to = self.at.add(8 * k);
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, (self.bytes - 8 * k).min(8));
            }
        }
    }
}

/// Maximum number of words of a value that is not large: with its slot's word it fills a
/// line.
pub(super) const SMALL: usize = 7;

/// Returns whether a value is worth being written, and read, where it lies.
#[inline(always)]
pub(super) const fn is_large(words: usize) -> bool {
    words > SMALL
}

/// Number of bytes of a value in its word `k`.
const fn bytes_in<T>(k: usize) -> usize {
    let left = size_of::<T>() - 8 * k;
    if left < 8 { left } else { 8 }
}

/// Word `k` of a value.
#[inline(always)]
pub(super) fn word<T: Plain>(value: &T, k: usize) -> u64 {
    assert!(k < words::<T>());
    let first = (&raw const *value).cast::<u8>();
    // A value that is `Plain` is bytes. Between the fields of a pair may lie bytes that were never
    // written, whose present content a volatile read returns.
    if align_of::<T>() >= 8 {
        // SAFETY: within the value, whose size is a multiple of its alignment, and aligned.
        return unsafe { first.cast::<u64>().add(k).read_volatile() };
    }
    let mut word = [0u8; 8];
    for (i, byte) in word.iter_mut().enumerate().take(bytes_in::<T>(k)) {
        // SAFETY: within the value.
        *byte = unsafe { first.add(8 * k + i).read_volatile() };
    }
    u64::from_ne_bytes(word)
}

/// The value of these words.
#[inline(always)]
pub(super) fn from_words<T: Plain>(mut word: impl FnMut(usize) -> u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    for k in 0..words::<T>() {
        let bytes = word(k).to_ne_bytes();
        // SAFETY: `bytes_in` bytes within the value, from as many of an array on the stack.
        unsafe {
            let to = value.as_mut_ptr().cast::<u8>().add(8 * k);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes_in::<T>(k));
        }
    }
    // SAFETY: all its bytes were written, and any bits are a value that is `Plain`.
    unsafe { value.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_from_their_words() {
        fn there_and_back<T: Plain + Copy + PartialEq + core::fmt::Debug>(value: T) {
            let there: Vec<u64> = (0..words::<T>()).map(|k| word(&value, k)).collect();
            assert_eq!(from_words::<T>(|k| there[k]), value);
        }
        there_and_back(());
        there_and_back(7u8);
        there_and_back(-7i64);
        there_and_back([1u8, 2, 3, 4, 5, 6, 7, 8, 9]);
        there_and_back([u32::MAX, 1, 2]);
        there_and_back((7u8, u64::MAX));
    }

    #[test]
    fn bytes_lie_as_values_of_a_type_do() {
        let bytes = core::array::from_fn::<u8, 19, _>(|i| i as u8 + 1);
        let source = BytesAt(&bytes);
        let there: Vec<u64> = (0..source.words()).map(|k| source.word(k)).collect();
        assert_eq!(there, (0..3).map(|k| word(&bytes, k)).collect::<Vec<_>>());
        let mut back = [0u8; 19];
        // SAFETY: as many bytes, of this test alone.
        unsafe { BytesInto::new(back.as_mut_ptr(), 19) }.value(|k| there[k]);
        assert_eq!(back, bytes);
        let words = [[1u8; 8], [2; 8]];
        let mut into = [[0u8; 8]; 2];
        // SAFETY: as many bytes, of this test alone.
        unsafe { WordsInto::<2>::new(into.as_mut_ptr().cast()) }.value(|k| WordsAt(&words).word(k));
        assert_eq!(into, words);
    }
}
