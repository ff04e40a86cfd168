//! Copies between bytes and words: word by word, natively line by line.
//!
//! Any process may write to shared words at any time, whatever the algorithm says: so each word is
//! accessed as an atomic, also by copies of lines.
#![allow(unsafe_code)]

use crate::{Ordering, Processor};

/// Writes bytes to words, one after the other: [`Processor::store_bytes`].
#[inline]
#[track_caller]
pub(crate) fn store_each<P: Processor>(cpu: &P, to: &[P::Word], from: &[u8]) {
    let (chunks, rest) = from.as_chunks();
    let (whole, last) = (&to[..chunks.len()], &to[chunks.len()..]);
    // Relaxed, both: the caller orders them.
    for (word, chunk) in whole.iter().zip(chunks) {
        cpu.store(word, u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut filled = [0; 8];
        filled[..rest.len()].copy_from_slice(rest);
        cpu.store(&last[0], u64::from_ne_bytes(filled), Ordering::Relaxed);
    }
}

/// Reads bytes out of words, one after the other: [`Processor::load_bytes`].
#[inline]
#[track_caller]
pub(crate) fn load_each<P: Processor>(cpu: &P, from: &[P::Word], to: &mut [u8]) {
    // Relaxed: the caller orders them.
    let bytes_of = |word| cpu.load(word, Ordering::Relaxed).to_ne_bytes();
    let (chunks, rest) = to.as_chunks_mut();
    let (whole, last) = (&from[..chunks.len()], &from[chunks.len()..]);
    for (word, chunk) in whole.iter().zip(chunks) {
        *chunk = bytes_of(word);
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&bytes_of(&last[0])[..rest.len()]);
    }
}

pub(crate) use native::{load, store};

#[cfg(any(not(target_arch = "x86_64"), miri))]
mod native {
    pub(crate) use super::{load_each as load, store_each as store};
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod native {
    use core::sync::atomic::AtomicU64;

    use super::{load_each, store_each};
    use crate::streaming::copy_whole_lines;
    use crate::{LINE, Native};

    /// Shorter copies go word by word.
    const SHORT: usize = 4 * LINE;

    /// Parts of a long copy of so many bytes to or from words.
    ///
    /// The number of words before whole lines, which begin aligned to 16 bytes; the number of
    /// these; the number of words before the rest.
    #[inline]
    fn parts_of(words: &[AtomicU64], bytes: usize) -> (usize, usize, usize) {
        let head = words.as_ptr().align_offset(16);
        let lines = (bytes - 8 * head) / LINE;
        (head, lines, head + 8 * lines)
    }

    /// Writes bytes to words.
    #[inline(always)]
    pub(crate) fn store(cpu: &Native, to: &[AtomicU64], from: &[u8]) {
        if from.len() < SHORT { store_each(cpu, to, from) } else { store_lines(cpu, to, from) }
    }

    fn store_lines(cpu: &Native, to: &[AtomicU64], from: &[u8]) {
        let (head, lines, tail) = parts_of(to, from.len());
        store_each(cpu, &to[..head], &from[..8 * head]);
        let (words, bytes) = (&to[head..tail], &from[8 * head..8 * tail]);
        // SAFETY: both are so many lines long; the words are atomic, so that they may be written,
        // and aligned.
        unsafe { copy_whole_lines(bytes.as_ptr(), words.as_ptr().cast_mut().cast(), lines) };
        store_each(cpu, &to[tail..], &from[8 * tail..]);
    }

    /// Reads bytes out of words.
    #[inline(always)]
    pub(crate) fn load(cpu: &Native, from: &[AtomicU64], to: &mut [u8]) {
        if to.len() < SHORT { load_each(cpu, from, to) } else { load_lines(cpu, from, to) }
    }

    fn load_lines(cpu: &Native, from: &[AtomicU64], to: &mut [u8]) {
        let (head, lines, tail) = parts_of(from, to.len());
        load_each(cpu, &from[..head], &mut to[..8 * head]);
        let (words, bytes) = (&from[head..tail], &mut to[8 * head..8 * tail]);
        // SAFETY: both are so many lines long; the words are atomic and aligned, the bytes the
        // caller's own.
        unsafe { copy_whole_lines(words.as_ptr().cast(), bytes.as_mut_ptr(), lines) };
        load_each(cpu, &from[tail..], &mut to[8 * tail..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Heap, Native, Place};

    #[test]
    fn bytes_of_any_length_and_place_come_back_and_change_no_other() {
        let cpu = Native::with_id(0);
        let source: Vec<u8> = (0..1300u32).map(|i| (i * 7 + 1) as u8 | 1).collect();
        for (first, from) in [(0, 0), (1, 0), (2, 5), (3, 8)] {
            for len in (0..330).chain([511, 512, 519, 520, 1023, 1024, 1031, 1200]) {
                let words: Vec<_> = (0..160).map(|k| Heap.word(Place::in_row(k), u64::MAX)).collect();
                let (mut read, bytes) = (vec![0; len + 2], &source[from..from + len]);
                let behind = first + len.div_ceil(8);
                cpu.store_bytes(&words[first..behind], bytes);
                cpu.load_bytes(&words[first..], &mut read[1..=len]);
                assert_eq!(&read[1..=len], bytes, "{first} {from} {len}");
                assert_eq!((read[0], read[len + 1]), (0, 0), "{first} {from} {len}: beside");
                let beside = words[..first].iter().chain(&words[behind..]);
                assert!(beside.map(|word| cpu.load(word, Ordering::Relaxed)).all(|value| value == u64::MAX));
                if !len.is_multiple_of(8) {
                    let last = cpu.load(&words[behind - 1], Ordering::Relaxed).to_ne_bytes();
                    assert!(last[len % 8..].iter().all(|byte| *byte == 0), "filled up with zeros");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "range")]
    fn no_byte_is_written_behind_the_words() {
        let words: Vec<_> = (0..40).map(|k| Heap.word(Place::in_row(k), 0)).collect();
        Native::with_id(0).store_bytes(&words, &[1; 400]);
    }
}
