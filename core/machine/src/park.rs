//! The native machine's futexes: blocking on a word in shared memory, or on several,
//! until somebody wakes whoever does.
#![allow(unsafe_code)]

use core::sync::atomic::AtomicU64;

use crate::native::Native;
use crate::processor::{Park, Processor};

/// How long [`Native::park_on_any`] waits at most where it hears only one of its words,
/// in nanoseconds.
pub const UNHEARD_NS: u64 = 50_000;

/// The address of the half of a word that holds its low 32 bits: what a futex compares.
fn low_half(word: &AtomicU64) -> *mut u32 {
    let half = word.as_ptr().cast::<u32>();
    if cfg!(target_endian = "big") { half.wrapping_add(1) } else { half }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

impl Native {
    /// Blocks while the low 32 bits of each word equal those beside it, until one is
    /// woken or for about `timeout_ns`: [`Park::park`] on several words, at most 128 of them (of
    /// more, the first ones). May return early for no reason. Where the system can't (Linux before
    /// 5.16, or it is forbidden) it waits on the first word, and for [`UNHEARD_NS`] at most, since
    /// nobody can wake it through the others.
    pub fn park_on_any(&self, words: &[(&AtomicU64, u64)], timeout_ns: u64) {
        /// The kernel's `futex_waitv`.
        #[repr(C)]
        struct Waiter {
            value: u64,
            address: u64,
            flags: u32,
            reserved: u32,
        }
        const FUTEX2_SIZE_U32: u32 = 2;
        const MOST: usize = 128;
        let waiters: Vec<Waiter> = words
            .iter()
            .take(MOST)
            .map(|(word, expected)| Waiter {
                value: u64::from(*expected as u32),
                address: low_half(word) as u64,
                flags: FUTEX2_SIZE_U32,
                reserved: 0,
            })
            .collect();
        let end = self.now().saturating_add(timeout_ns);
        let end = timespec(end);
        // SAFETY: the addresses are those of live words, aligned to 4; the kernel only reads them;
        // list and time outlive the call.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_futex_waitv,
                waiters.as_ptr(),
                waiters.len(),
                0,
                &raw const end,
                libc::CLOCK_MONOTONIC,
            )
        };
        if outcome < 0
            && matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
            && let Some((word, expected)) = words.first()
        {
            self.park(word, *expected, timeout_ns.min(UNHEARD_NS));
        }
    }
}

impl Park for Native {
    fn park(&self, word: &AtomicU64, expected: u64, timeout_ns: u64) {
        let timeout = timespec(timeout_ns);
        // The shared (not private) kind, since the word may be mapped by other processes. Every
        // outcome (woken, value differs, timed out, interrupted) means the same to the caller: look
        // again. SAFETY: the address is that of a live word, aligned to 4; the kernel only reads
        // it; `timeout` outlives the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                low_half(word),
                libc::FUTEX_WAIT,
                expected as u32,
                &timeout as *const libc::timespec,
            );
        }
    }

    fn wake(&self, word: &AtomicU64, count: u32) -> u32 {
        // SAFETY: the address is that of a live word, aligned to 4; the kernel does not touch its
        // contents.
        let woken = unsafe {
            libc::syscall(
                libc::SYS_futex,
                low_half(word),
                libc::FUTEX_WAKE,
                count.min(i32::MAX as u32) as i32,
            )
        };
        woken.max(0) as u32
    }

    fn yield_now(&self) {
        // SAFETY: sched_yield has no preconditions.
        unsafe { libc::sched_yield() };
    }
}
