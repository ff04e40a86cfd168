//! Memory of the program that uses the provider: where a message comes from or goes to.
//!
//! libfabric's caller promises that a buffer stays valid until the operation's completion; nothing
//! here outlives that, and everything here that touches such memory is in this file.
#![allow(unsafe_code)]

use towpath_machine::{copy_by_lines, copy_past_caches};

/// Maximum number of pieces of a buffer (`iov_limit`).
pub const MAX_PIECES: usize = 8;

/// A piece of the caller's memory: address and length.
pub type Span = (usize, usize);

/// A buffer of the caller's, scattered or not. Small, since it is handed on several times
/// for each message.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    first: Span,
    rest: Option<Box<[Span]>>,
    len: usize,
}

impl Buffer {
    /// One piece.
    ///
    /// # Safety
    ///
    /// The memory is readable (to be sent) or writable (to be received into) until the operation
    /// that gets the buffer is completed.
    #[inline(always)]
    pub unsafe fn one(at: usize, len: usize) -> Buffer {
        Buffer { first: (at, len), rest: None, len }
    }

    /// Several; `None` if there are too many.
    ///
    /// # Safety
    ///
    /// As [`Buffer::one`], for each.
    pub unsafe fn many(spans: impl IntoIterator<Item = Span>) -> Option<Buffer> {
        let mut spans = spans.into_iter().filter(|s| s.1 > 0);
        let first = spans.next().unwrap_or_default();
        let mut rest = Vec::new();
        let mut len = first.1;
        for span in spans {
            if rest.len() == MAX_PIECES - 1 {
                return None;
            }
            len = len.checked_add(span.1)?;
            rest.push(span);
        }
        let rest = (!rest.is_empty()).then(|| rest.into_boxed_slice());
        Some(Buffer { first, rest, len })
    }

    /// Bytes in all.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first piece's address.
    pub fn address(&self) -> usize {
        self.first.0
    }

    /// Returns whether the buffer is one piece.
    pub fn is_contiguous(&self) -> bool {
        self.rest.is_none()
    }

    fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        core::iter::once(self.first).chain(self.rest.iter().flatten().copied())
    }

    /// The parts of the range `at..at + len`, as far as it exists.
    pub fn range(&self, at: usize, len: usize) -> impl Iterator<Item = Span> + '_ {
        let mut skip = at;
        let mut left = len;
        self.spans().filter_map(move |(base, size)| {
            let skipped = skip.min(size);
            skip -= skipped;
            let n = (size - skipped).min(left);
            left -= n;
            (n > 0).then_some((base + skipped, n))
        })
    }

    /// The buffer without its first `bytes`.
    pub fn without_first(&self, bytes: usize) -> Buffer {
        // SAFETY: parts of memory for which the promise was made when this buffer was.
        unsafe { Buffer::many(self.range(bytes, usize::MAX)) }.unwrap_or_default()
    }

    /// Address of `len` bytes from offset `at` on, if they lie in one piece.
    #[inline(always)]
    pub fn in_one_piece(&self, at: usize, len: usize) -> Option<*const u8> {
        (at.checked_add(len)? <= self.first.1).then_some((self.first.0 + at) as *const u8)
    }

    /// Copies `len` bytes from offset `at` to shared or private memory.
    ///
    /// # Safety
    ///
    /// `to..to + len` is writable.
    #[inline]
    pub unsafe fn read(&self, at: usize, to: *mut u8, len: usize) {
        if at == 0 && len <= self.first.1 {
            // SAFETY: in bounds of the first piece; the caller vouches for `to`, which is memory of
            // ours and no caller's buffer.
            unsafe { copy_small(self.first.0 as *const u8, to, len) };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.gather(at, to, len, copy_by_lines) };
    }

    /// Copies `len` bytes from offset `at` to memory that another core will read, past
    /// the caches.
    ///
    /// # Safety
    ///
    /// `to..to + len` is writable, and no part of the buffer.
    pub unsafe fn read_past_caches(&self, at: usize, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.gather(at, to, len, copy_past_caches) };
    }

    /// # Safety
    ///
    /// As [`Buffer::read_past_caches`].
    #[inline(always)]
    unsafe fn gather(&self, at: usize, to: *mut u8, len: usize, copy: unsafe fn(*const u8, *mut u8, usize)) {
        let mut done = 0;
        for (from, n) in self.range(at, len) {
            // SAFETY: in bounds, piece by piece; `range` gives at most `len` bytes, and the caller
            // vouches for `to`.
            unsafe { copy(from as *const u8, to.add(done), n) };
            done += n;
        }
    }

    /// Copies `len` bytes to offset `at`; bytes beyond the end are dropped.
    ///
    /// # Safety
    ///
    /// `from..from + len` is readable.
    #[inline]
    pub unsafe fn write(&self, at: usize, from: *const u8, len: usize) {
        if at == 0 && len <= self.first.1 {
            // SAFETY: in bounds of the first piece, which is writable by the promise with which the
            // buffer was made; the caller vouches for `from`.
            unsafe { copy_small(from, self.first.0 as *mut u8, len) };
            return;
        }
        let mut done = 0;
        for (to, n) in self.range(at, len) {
            // SAFETY: in bounds, piece by piece; `range` gives at most `len` bytes, and the caller
            // vouches for `from`.
            unsafe { copy_by_lines(from.add(done), to as *mut u8, n) };
            done += n;
        }
    }

    /// A copy of the contents.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        // SAFETY: the vector has as many bytes.
        unsafe { self.read(0, copy.as_mut_ptr(), self.len) };
        copy
    }
}

/// A copy that needs no call where there are only a few bytes.
///
/// # Safety
///
/// As [`copy_by_lines`].
#[inline(always)]
unsafe fn copy_small(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: reads before it writes in the first case, within `len` bytes; the caller vouches for
    // both ranges.
    unsafe {
        if (8..=16).contains(&len) {
            // The first eight and the last eight, which may be in part the same.
            let first = from.cast::<u64>().read_unaligned();
            let last = from.add(len - 8).cast::<u64>().read_unaligned();
            to.cast::<u64>().write_unaligned(first);
            to.add(len - 8).cast::<u64>().write_unaligned(last);
        } else {
            copy_by_lines(from, to, len);
        }
    }
}

/// Bytes of a message that has arrived: in shared memory, or copied out of a packet.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedPayload {
    at: *const u8,
    len: usize,
}

impl ArrivedPayload {
    /// Nothing.
    pub const EMPTY: ArrivedPayload =
        ArrivedPayload { at: core::ptr::NonNull::<u8>::dangling().as_ptr(), len: 0 };

    /// Makes a payload of these bytes.
    ///
    /// # Safety
    ///
    /// They stay readable while the payload or a copy of it is used. Another process may change
    /// them meanwhile.
    #[inline(always)]
    pub unsafe fn new(at: *const u8, len: usize) -> ArrivedPayload {
        ArrivedPayload { at, len }
    }

    /// Private bytes.
    pub fn of(bytes: &[u8]) -> ArrivedPayload {
        ArrivedPayload { at: bytes.as_ptr(), len: bytes.len() }
    }

    /// Private words, as the bytes that they are in memory.
    pub fn of_cells(cells: &[u64]) -> ArrivedPayload {
        ArrivedPayload { at: cells.as_ptr().cast(), len: size_of_val(cells) }
    }

    /// A part of the payload, from `at` on; `None` if it does not have that many bytes.
    #[inline(always)]
    pub fn part(&self, at: usize, len: usize) -> Option<ArrivedPayload> {
        // SAFETY: within the payload.
        (at.checked_add(len)? <= self.len).then(|| ArrivedPayload { at: unsafe { self.at.add(at) }, len })
    }

    /// Number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the payload into a buffer from offset `at` on; bytes that do not fit are
    /// dropped.
    #[inline(always)]
    pub fn copy_to(&self, to: &Buffer, at: usize) {
        // SAFETY: readable (promised to `new`).
        unsafe { to.write(at, self.at, self.len) }
    }

    /// Copies them into private memory, which must have exactly as many bytes.
    #[inline(always)]
    pub fn copy_to_slice(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a payload is copied whole");
        // SAFETY: readable (promised to `new`), and of this length; private memory of ours can't
        // overlap it.
        unsafe { copy_small(self.at, to.as_mut_ptr(), self.len) }
    }

    /// A private copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        self.copy_to_slice(&mut copy);
        copy
    }

    /// The bytes from `at` on.
    pub fn skip(&self, at: usize) -> ArrivedPayload {
        let at = at.min(self.len);
        // SAFETY: within the payload.
        ArrivedPayload { at: unsafe { self.at.add(at) }, len: self.len - at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(parts: &mut [&mut [u8]]) -> Buffer {
        // SAFETY: the tests keep the parts while they use the buffer.
        unsafe { Buffer::many(parts.iter_mut().map(|p| (p.as_mut_ptr() as usize, p.len()))) }.unwrap()
    }

    #[test]
    fn scattered_bytes_are_found_and_the_rest_is_dropped() {
        let (mut a, mut b, mut c) = ([0u8; 3], [0u8; 0], [0u8; 5]);
        let to = buffer(&mut [&mut a, &mut b, &mut c]);
        assert_eq!(to.len(), 8);
        ArrivedPayload::of(&[1, 2, 3, 4]).copy_to(&to, 0);
        ArrivedPayload::of(&[5, 6, 7, 8, 9, 10]).copy_to(&to, 4);
        assert_eq!(to.to_vec(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(to.without_first(2).to_vec(), [3, 4, 5, 6, 7, 8]);
        assert_eq!(to.without_first(9).len(), 0);
        assert_eq!((a, c), ([1, 2, 3], [4, 5, 6, 7, 8]));
    }

    #[test]
    fn too_many_pieces_are_refused() {
        let byte = [0u8; 1];
        let spans = [(byte.as_ptr() as usize, 1); MAX_PIECES + 1];
        // SAFETY: never read.
        assert!(unsafe { Buffer::many(spans) }.is_none());
        // SAFETY: never read.
        assert_eq!(unsafe { Buffer::many(spans[1..].iter().copied()) }.unwrap().len(), MAX_PIECES);
    }
}
