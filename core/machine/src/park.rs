//! Futexes of the native machine: sleep on a word in shared memory, or on several, until
//! woken.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;
use rustix::thread::{ClockId, Timespec, futex, sched_yield};

use crate::capabilities::Park;
use crate::native::Native;
use crate::processor::Processor;

/// Maximum sleep of [`Native::park_on_any`] where one word alone can wake it, in
/// nanoseconds.
pub const UNHEARD_NS: u64 = 50_000;

/// Maximum number of words of one `futex_waitv`.
const MOST: usize = 128;

/// Returns the half of a word that holds its low 32 bits, which a futex compares.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: aligned to 4, inside a word that lives as long as the reference, and used for the
    // addresses of system calls only: the program accesses the whole word.
    unsafe { AtomicU32::from_ptr(Native::futex_of(word)) }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

impl Native {
    /// Blocks while the low 32 bits of each word equal those beside it, until one is
    /// woken or for about `timeout_ns`: [`Park::park`] on several words, at most 128 of them (of
    /// more, the first ones). May return early for no reason. Where the system can't (Linux before
    /// 5.16, or it is forbidden) it waits on the first word, and for [`UNHEARD_NS`] at most, since
    /// no waker reaches it through the others.
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use towpath_machine::Native;
    ///
    /// let (one, other) = (AtomicU64::new(0), AtomicU64::new(1));
    /// // Returns at once: `other` is no longer what the caller has seen.
    /// Native::with_id(0).park_on_any(&[(&one, 0), (&other, 0)], 1_000_000_000);
    /// ```
    pub fn park_on_any(&self, words: &[(&AtomicU64, u64)], timeout_ns: u64) {
        let addresses = words.iter().map(|(word, expected)| (core::ptr::from_ref(*word), *expected as u32));
        let is_possible = self.park_on_addresses(addresses, timeout_ns);
        if let (false, Some((word, expected))) = (is_possible, words.first()) {
            self.park(word, *expected, timeout_ns.min(UNHEARD_NS));
        }
    }

    /// Blocks as [`Native::park_on_any`], on words that may be gone.
    ///
    /// The kernel alone reads them, and returns at once if it can't.
    /// Returns `false`, at once, where the system can't wait on several words.
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use towpath_machine::Native;
    ///
    /// let (word, gone) = (AtomicU64::new(0), core::ptr::without_provenance(4096));
    /// Native::with_id(0).park_on_addresses([(&raw const word, 0), (gone, 0)], 1_000_000_000);
    /// ```
    pub fn park_on_addresses(
        &self,
        words: impl IntoIterator<Item = (*const AtomicU64, u32)>,
        timeout_ns: u64,
    ) -> bool {
        let waiters: Vec<futex::Wait> = words
            .into_iter()
            .take(MOST)
            .map(|(word, expected)| {
                let mut waiter = futex::Wait::new();
                waiter.val = u64::from(expected);
                waiter.uaddr = futex::WaitPtr::new(Native::futex_of(word).cast());
                waiter.flags = futex::WaitFlags::SIZE_U32;
                waiter
            })
            .collect();
        let end = timespec(self.now().saturating_add(timeout_ns));
        let none = futex::WaitvFlags::empty();
        let outcome = futex::waitv(&waiters, none, Some(&end), ClockId::Monotonic);
        !matches!(outcome, Err(Errno::NOSYS | Errno::PERM))
    }

    /// Address of the half of a word that a futex compares.
    ///
    /// ```
    /// use towpath_machine::Native;
    ///
    /// let word = Native::word(7);
    /// // SAFETY: the address of half a word that lives on, and that no thread changes.
    /// assert_eq!(unsafe { Native::futex_of(&word).read() }, 7);
    /// ```
    pub const fn futex_of(word: *const AtomicU64) -> *mut u32 {
        let half = word.cast_mut().cast::<u32>();
        if cfg!(target_endian = "big") { half.wrapping_add(1) } else { half }
    }
}

impl Park for Native {
    fn park(&self, word: &AtomicU64, expected: u64, timeout_ns: u64) {
        // The shared (not private) kind, since the word may be mapped by other processes. Every
        // outcome (woken, value differs, timed out, interrupted) means for the caller: look again.
        let timeout = timespec(timeout_ns);
        let _ = futex::wait(low_half(word), futex::Flags::empty(), expected as u32, Some(&timeout));
    }

    fn wake(&self, word: &AtomicU64, count: u32) -> u32 {
        let most = count.min(i32::MAX as u32);
        futex::wake(low_half(word), futex::Flags::empty(), most).map_or(0, |woken| woken as u32)
    }

    fn yield_now(&self) {
        sched_yield();
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    use super::*;

    #[test]
    fn park_on_any_sleeps_until_its_second_word_changes() {
        let words = [const { AtomicU64::new(0) }; 2];
        let cpu = Native::with_id(0);
        let mut returns = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                words[1].store(1, SeqCst);
                Native::with_id(1).wake(&words[1], 1);
            });
            while words[1].load(SeqCst) == 0 {
                cpu.park_on_any(&[(&words[0], 0), (&words[1], 0)], 1_000_000_000);
                returns += 1;
            }
        });
        // It may return early, but does not turn round: a refused call would do so 50,000 times.
        assert!(returns < 5_000, "{returns} returns");
    }

    #[test]
    fn park_returns_where_the_low_half_differs() {
        let word = AtomicU64::new(1 << 32 | 7);
        // Of the high half it knows nothing: not woken, it sleeps until the time is over.
        let cpu = Native::with_id(0);
        let before = cpu.now();
        cpu.park(&word, 7, 2_000_000);
        assert!(cpu.now() - before >= 1_000_000);
        cpu.park(&word, 8, u64::MAX);
    }
}
