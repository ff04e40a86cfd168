//! Context switches of the calling thread, counted without a system call for each look.
//!
//! libc registers an area of each thread's with the kernel (rseq(2)); a thread writes there which
//! restartable sequence of instructions it is in. If a thread has lost its core outside that
//! sequence, the kernel clears the word. This file names a sequence without instructions: while the
//! word is unchanged the thread has kept its core, and the counts that `getrusage` gave last hold.
//! Where libc has no such area, each look is a system call.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Numbers of context switches of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchCounts {
    /// Number of switches that the thread did not ask for.
    pub preempted: u64,
    /// Number of switches of a thread that sleeps.
    pub slept: u64,
}

/// Restartable sequence as the kernel reads it, with the signature that stands before the
/// place to go to.
#[repr(C, align(32))]
struct EmptySequence {
    version: AtomicU32,
    flags: AtomicU32,
    begin: AtomicUsize,
    length: AtomicUsize,
    goes_to: AtomicUsize,
    signature: AtomicU32,
    /// Place to which an interrupted thread goes; none is ever in the sequence.
    nowhere: AtomicU32,
}

static SEQUENCE: EmptySequence = EmptySequence {
    version: AtomicU32::new(0),
    flags: AtomicU32::new(0),
    begin: AtomicUsize::new(0),
    length: AtomicUsize::new(0),
    goes_to: AtomicUsize::new(0),
    signature: AtomicU32::new(SIGNATURE),
    nowhere: AtomicU32::new(0),
};

/// Signature with which libc registers the areas.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };
/// Place of the word in a thread's area: which sequence it is in.
const WORD: isize = 8;

/// Distance from the thread pointer to the word; 0: there is no area.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Counts of the last look.
    static LAST: Cell<Option<SwitchCounts>> = const { Cell::new(None) };
}

/// Looks for the threads' areas, before the program begins.
pub fn find_areas() {
    if cfg!(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))) {
        return;
    }
    // SAFETY: names that end with zero; libc's constants, of these types.
    let offset = unsafe {
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if size.is_null() || offset.is_null() || *size == 0 {
            return;
        }
        *offset
    };
    let begin = (&raw const SEQUENCE).addr();
    // Relaxed, all: before the program begins. The kernel wants the place to go to outside the
    // sequence: that has the first byte of these words alone, and no thread executes it.
    SEQUENCE.begin.store(begin, Ordering::Relaxed);
    SEQUENCE.length.store(1, Ordering::Relaxed);
    SEQUENCE.goes_to.store((&raw const SEQUENCE.nowhere).addr(), Ordering::Relaxed);
    OFFSET.store((offset + WORD).cast_unsigned(), Ordering::Relaxed);
}

/// The calling thread's word, if it has one.
fn word() -> Option<&'static AtomicU64> {
    // Relaxed: set before the program begins.
    let offset = OFFSET.load(Ordering::Relaxed);
    if offset == 0 {
        return None;
    }
    let pointer: usize;
    // SAFETY: reads the thread pointer, and nothing else.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: reads the thread pointer, and nothing else.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        pointer = 0;
    }
    // SAFETY: libc's area of this thread, which is aligned, and stays while the thread runs.
    Some(unsafe { &*core::ptr::with_exposed_provenance(pointer.wrapping_add(offset)) })
}

/// Numbers of the calling thread's switches until now.
pub fn counts() -> SwitchCounts {
    let (word, mine) = (word(), (&raw const SEQUENCE).addr() as u64);
    // It fails when the thread ends: it has no place any more.
    let last = LAST.try_with(Cell::get).ok().flatten();
    // Relaxed, both: this thread's and the kernel's word.
    if let (Some(word), Some(last)) = (word, last)
        && word.load(Ordering::Relaxed) == mine
    {
        return last;
    }
    // First the word: a switch between both calls has the next look ask again.
    if let Some(word) = word {
        word.store(mine, Ordering::Relaxed);
    }
    let counts = ask();
    let _ = LAST.try_with(|last| last.set(Some(counts)));
    counts
}

fn ask() -> SwitchCounts {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a place for the figures, which are plain data.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    SwitchCounts { preempted: usage.ru_nivcsw as u64, slept: usage.ru_nvcsw as u64 }
}
