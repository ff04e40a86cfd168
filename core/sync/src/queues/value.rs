//! Values as words: how they lie in the slots of a queue.
#![allow(unsafe_code)]

use core::mem::{MaybeUninit, align_of, size_of};

use towpath_machine::Plain;

/// Number of words of a value.
pub(super) const fn words<T>() -> usize {
    size_of::<T>().div_ceil(8)
}

/// Maximum number of words of a value that is not large: with its slot's word it fills a
/// line.
pub(super) const SMALL: usize = 7;

/// Returns whether a value is worth being written, and read, where it lies.
pub(super) const fn is_large<T>() -> bool {
    words::<T>() > SMALL
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
}
