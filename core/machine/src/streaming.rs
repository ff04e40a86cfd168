//! Copies of bytes that go from core to core: line by line in vector registers, with
//! plain stores or past the caches (non-temporal stores), which Gropp & Lusk 1997, Section 5 get
//! from the vector unit of their SX-4.
//!
//! In parts of 32 bytes where the processor has AVX: a core whose execution units another hardware
//! thread uses, too, copies a fifth less in parts of 16.
//!
//! The C library's copy may be a single string instruction (`rep movsb`). If source and target are
//! not aligned to each other, it takes a tenth longer here, and up to twice as long for lines that
//! come from elsewhere.
//!
//! **Past the caches** is for bytes that another core will read: a plain store first has to fetch,
//! and to take away from that core, the line that it is going to overwrite, one after the other.
//! **Don't use it** for bytes that this core reads again, or whose reader shares a cache with it:
//! they come from memory.
#![allow(unsafe_code)]

/// Shorter copies are left to the C library.
const SHORT: usize = 8 << 10;

/// Copies `len` bytes that another core may have written, line by line from 8 KiB on: by
/// lines of the source. They are written before anything that this thread writes with
/// Release afterwards, as with any copy.
///
/// # Safety
///
/// As [`core::ptr::copy_nonoverlapping`]: `from` is readable and `to` writable for `len` bytes, and
/// they don't overlap.
///
/// ```
/// let (source, mut target) = ([7u8; 100], [0u8; 100]);
/// // SAFETY: two arrays of this length.
/// unsafe { towpath_machine::copy_by_lines(source.as_ptr(), target.as_mut_ptr(), 100) };
/// assert_eq!(target, source);
/// ```
#[inline]
pub unsafe fn copy_by_lines(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_by_lines_of(from, from, to, len) };
}

/// Copies `len` bytes that this core has, as [`copy_by_lines`] does: by lines of the
/// target.
///
/// # Safety
///
/// As [`copy_by_lines`].
#[inline]
pub(crate) unsafe fn store_by_lines(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_by_lines_of(to, from, to, len) };
}

/// Copies `len` bytes by lines of the memory at `whole`, which is source or target, or as
/// the C library does where they are few.
///
/// # Safety
///
/// As [`copy_by_lines`].
#[inline(always)]
unsafe fn copy_by_lines_of(whole: *const u8, from: *const u8, to: *mut u8, len: usize) {
    if len < SHORT {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy::<false>(from, to, len, whole.align_offset(crate::LINE)) };
    }
}

/// Copies `len` bytes, past the caches if the machine can. They are written before
/// anything that this thread writes afterwards.
///
/// # Safety
///
/// As [`copy_by_lines`].
///
/// ```
/// use towpath_machine::copy_past_caches;
///
/// let (source, mut target) = (vec![7u8; 1 << 16], vec![0u8; 1 << 16]);
/// // SAFETY: two vectors of this length; another core is to read the target.
/// unsafe { copy_past_caches(source.as_ptr(), target.as_mut_ptr(), source.len()) };
/// assert_eq!(target, source);
/// ```
pub unsafe fn copy_past_caches(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; such stores must be aligned.
    unsafe { copy::<true>(from, to, len, to.align_offset(crate::LINE)) };
}

/// # Safety
///
/// As [`copy_by_lines`].
#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn copy<const PAST: bool>(from: *const u8, to: *mut u8, len: usize, _head: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) }
}

/// Copies `head` bytes, then lines.
///
/// # Safety
///
/// As [`copy_by_lines`]; if `PAST`, `to` is aligned to a line behind the head.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy<const PAST: bool>(from: *const u8, to: *mut u8, len: usize, head: usize) {
    let head = head.min(len);
    let lines = (len - head) / crate::LINE;
    let whole = head + lines * crate::LINE;
    // SAFETY: all offsets are below `len`, for which both are valid; if `PAST`, `to` is aligned to
    // a line from `head` on.
    unsafe {
        core::ptr::copy_nonoverlapping(from, to, head);
        if PAST {
            stream_whole_lines(from.add(head), to.add(head), lines);
        } else {
            copy_lines(from.add(head), to.add(head), lines);
        }
        core::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), len - whole);
        if PAST {
            // Such stores are not ordered by a Release that follows.
            core::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies lines of bytes.
///
/// # Safety
///
/// As [`copy_by_lines`] for so many lines.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_lines(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: the caller's promises. The processor has AVX where it is asked for.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx") {
            copy_lines_by_halves(from, to, lines);
        } else {
            copy_whole_lines(from, to, lines);
        }
    }
}

/// Copies lines of bytes in parts of 32 bytes, two lines at a time.
///
/// In assembly, as [`copy_whole_lines`]. No processor says that it reads or writes such a part at
/// once, so it is not for words.
///
/// # Safety
///
/// As [`copy_by_lines`] for so many lines.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn copy_lines_by_halves(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: reads and writes `lines` lines (the caller's promise), and touches the registers that
    // it names: of all vector registers it zeroes the upper halves. The processor has AVX.
    unsafe {
        core::arch::asm!(
            "test {lines}, 1",
            "jz 2f",
            "vmovups ymm0, [{from}]",
            "vmovups ymm1, [{from} + 32]",
            "vmovups [{to}], ymm0",
            "vmovups [{to} + 32], ymm1",
            "add {from}, 64",
            "add {to}, 64",
            "2:",
            "shr {lines}",
            "jz 4f",
            "3:",
            "vmovups ymm0, [{from}]",
            "vmovups ymm1, [{from} + 32]",
            "vmovups ymm2, [{from} + 64]",
            "vmovups ymm3, [{from} + 96]",
            "vmovups [{to}], ymm0",
            "vmovups [{to} + 32], ymm1",
            "vmovups [{to} + 64], ymm2",
            "vmovups [{to} + 96], ymm3",
            "sub {from}, -128",
            "sub {to}, -128",
            "dec {lines}",
            "jnz 3b",
            "4:",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack),
        );
    }
}

/// Copies lines past the caches.
///
/// # Safety
///
/// As [`copy_by_lines`] for so many lines; `to` is aligned to one.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream_whole_lines(from: *const u8, to: *mut u8, lines: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for at in 0..lines {
        // SAFETY: the caller's promises. SSE2 is part of x86-64.
        unsafe {
            let source = from.add(at * crate::LINE).cast::<__m128i>();
            let target = to.add(at * crate::LINE).cast::<__m128i>();
            // All loads before the stores: the line leaves in one piece.
            let line: [_; 4] = core::array::from_fn(|part| _mm_loadu_si128(source.add(part)));
            for (part, bytes) in line.into_iter().enumerate() {
                _mm_stream_si128(target.add(part), bytes);
            }
        }
    }
}

/// Copies lines in parts of 16 bytes.
///
/// Where source or target are words, aligned to 16 bytes, each of them is read or written whole, as
/// [`AtomicU64`](core::sync::atomic::AtomicU64) with Relaxed does. In assembly: the compiler takes
/// a copy in Rust for one of bytes that no other thread touches.
///
/// # Safety
///
/// `from` is readable and `to` writable for so many lines. Other threads touch them only as words
/// that are aligned to 16 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) unsafe fn copy_whole_lines(from: *const u8, to: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: reads and writes `lines` lines (the caller's promise), and touches the registers
    // that it names. SSE2 is part of x86-64. A part that is aligned and within a line is accessed
    // at once by processors with AVX; others access its two words one after the other.
    unsafe {
        core::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Heap, Native, Processor};

    /// Checks that a zeroed target has these bytes from `to` on, and nothing beside them.
    fn check_copy(bytes: &[u8], target: &[u8], to: usize, what: &str) {
        let end = to + bytes.len();
        assert!(target[..to].iter().all(|b| *b == 0), "{what}: before");
        assert_eq!(target[to..end], *bytes, "{what}");
        assert!(target[end..].iter().all(|b| *b == 0), "{what}: behind");
    }

    #[test]
    fn copies_of_any_length_and_offset_change_nothing_beside() {
        let source: Vec<u8> = (0..9100u32).map(|i| (i * 7 + 1) as u8 | 1).collect();
        for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 61), (17, 63), (63, 64), (5, 16)] {
            for len in (0..260).chain([511, 512, 513, 2000, 8191, 8192, 8193, 9000]) {
                for copy in [copy_by_lines, store_by_lines, copy_past_caches] {
                    let mut target = vec![0u8; 9200];
                    // SAFETY: both have more bytes than the largest offset and length together.
                    unsafe { copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
                    check_copy(&source[from..from + len], &target, to, &format!("{from} {to} {len}"));
                }
            }
        }
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn lines_are_copied_alike_by_halves_and_by_quarters() {
        let mut ways: Vec<unsafe fn(*const u8, *mut u8, usize)> = vec![copy_whole_lines];
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the caller's promises, and the processor has AVX.
            ways.push(|from, to, lines| unsafe { copy_lines_by_halves(from, to, lines) });
        }
        let source: Vec<u8> = (0..40 * 64u32).map(|i| (i * 7 + 1) as u8 | 1).collect();
        for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 61), (16, 48)] {
            for lines in [0, 1, 2, 3, 16, 37] {
                for copy in &ways {
                    let (mut target, len) = (vec![0u8; 42 * 64], lines * 64);
                    // SAFETY: both have more bytes than the largest offset and length together.
                    unsafe { copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), lines) };
                    check_copy(&source[from..from + len], &target, to, &format!("{from} {to} {lines}"));
                }
            }
        }
    }

    #[test]
    fn bytes_for_another_processor_are_the_same_bytes() {
        let source: Vec<u8> = (0..9000u32).map(|i| (i * 7 + 1) as u8 | 1).collect();
        let cpu = Native::with_id(0);
        for (from, at) in [(0, 0), (1, 0), (3, 61)] {
            for len in [0, 1, 64, 8191, 8192, 8193, 8900] {
                let (shared, mut read) = (Heap.bytes(9000), vec![0; 9000]);
                cpu.copy_away(&shared, at, &source[from..from + len]);
                cpu.copy_out(&shared, 0, &mut read);
                assert!(read[..at].iter().all(|b| *b == 0), "{from} {at} {len}: before");
                assert!(read[at..at + len] == source[from..from + len], "{from} {at} {len}");
                assert!(read[at + len..].iter().all(|b| *b == 0), "{from} {at} {len}: behind");
            }
        }
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn no_byte_is_written_beyond_the_end_for_another_processor() {
        Native::with_id(0).copy_away(&Heap.bytes(16 << 10), 8193, &[1; 8192]);
    }

    #[test]
    fn what_is_published_afterwards_comes_after_the_bytes() {
        use std::sync::atomic::{AtomicU64, Ordering};
        const BYTES: usize = 8192;
        const ROUNDS: u64 = 2000;
        struct Shared(core::cell::UnsafeCell<[u64; BYTES / 8]>);
        // SAFETY: the numbers say whose the bytes are.
        unsafe impl Sync for Shared {}
        impl Shared {
            fn bytes(&self) -> *mut [u64; BYTES / 8] {
                self.0.get()
            }
        }
        let shared = Shared(core::cell::UnsafeCell::new([0; BYTES / 8]));
        let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let bytes = [round; BYTES / 8];
                    // SAFETY: the reader has taken the last ones, and waits; both are of this
                    // length.
                    unsafe { copy_past_caches(bytes.as_ptr().cast(), shared.bytes().cast(), BYTES) };
                    written.store(round, Ordering::Release);
                    while read.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=ROUNDS {
                while written.load(Ordering::Acquire) < round {
                    std::hint::spin_loop();
                }
                // SAFETY: the writer waits.
                let stale = unsafe { &*shared.bytes() }.iter().filter(|word| **word != round).count();
                assert_eq!(stale, 0, "round {round}");
                read.store(round, Ordering::Release);
            }
        });
    }
}
