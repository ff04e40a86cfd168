//! `sched_yield` for MPICH (`LD_PRELOAD`): does nothing right after a message has come.
//! `towpath mpirun` has MPICH load it first.
//!
//! MPICH calls `sched_yield` after every look at what has come, also when it has just found what it
//! waited for (5.0.2, `MPIR_Wait`): a call of the system on the way of every message, and where
//! cores are shared a turn of the processor too, which goes to a rank that waits. The provider
//! (`libtowpath-fi.so`, `mpi/fabric`) sets [`towpath_found`] when a read of a completion queue has
//! given the program something; the next yield then returns at once. Every other yield is the
//! system's.
//!
//! Without this library the provider works as well; without the provider this library does nothing.
#![deny(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// The next yield is not wanted: 1. It is the whole process's: if another thread takes
/// it, it goes without one yield, which nothing relies on.
#[allow(unsafe_code, non_upper_case_globals)]
// SAFETY: no other library has a symbol of this name.
#[unsafe(no_mangle)]
pub static towpath_found: AtomicU32 = AtomicU32::new(0);

/// Lets other threads run, unless the program has just been given something to do. Always
/// 0: success.
#[allow(unsafe_code)]
// SAFETY: the same signature and the same promise as the system's, which may be a yield that finds
// no other thread to run.
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> libc::c_int {
    // Relaxed, and in two steps: only one yield more or less depends on it.
    if towpath_found.load(Ordering::Relaxed) != 0 {
        towpath_found.store(0, Ordering::Relaxed);
        return 0;
    }
    // SAFETY: no arguments; it cannot fail on Linux.
    unsafe { libc::syscall(libc::SYS_sched_yield) as libc::c_int }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_yield_is_left_out_for_each_time_that_something_was_found() {
        towpath_found.store(1, Ordering::Relaxed);
        // In this program the standard library's yield is ours.
        std::thread::yield_now();
        assert_eq!(towpath_found.load(Ordering::Relaxed), 0);
        assert_eq!(sched_yield(), 0);
        assert_eq!(towpath_found.load(Ordering::Relaxed), 0);
    }
}
