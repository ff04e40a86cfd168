//! Longer time slices of the native machine: Linux's slice extension.
//!
//! **Source.** `Documentation/userspace-api/rseq.rst` of Linux 7.0.
//!
//! **How.** libc has registered an area of each thread with the kernel (`rseq`). In two bytes of it
//! a thread asks to run on for some microseconds if its slice ends now, and reads whether the
//! kernel has granted that. The thread enables it once, by `prctl`. One that was granted time gives
//! the core away as soon as it needs it no longer.
//!
//! **Fields.** `request`: the thread; cleared by the kernel that grants it. `granted`: the kernel.
//! Both act on one core, one after the other, so all accesses are Relaxed.
//!
//! **Crashes.** The area ends with its thread. A request that is never withdrawn is granted once,
//! for as long as the kernel has patience.
//!
//! **Where it is not there** (an older kernel, one built or started without it, a sandbox, a libc
//! that registers no area) nothing is asked: that costs time, not correctness.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ffi::c_long;
use core::sync::atomic::{AtomicU8, Ordering};

/// Calls and their arguments, as in Linux's `prctl.h` and its table of calls.
const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
const SET: libc::c_ulong = 2;
const ENABLE: libc::c_ulong = 1;
const NONE: libc::c_ulong = 0;
const SYS_RSEQ_SLICE_YIELD: c_long = 471;

/// Place of the two bytes in a thread's area.
const CONTROL: usize = 28;

/// The two bytes.
#[repr(C)]
#[derive(Debug, Default)]
struct SliceControl {
    request: AtomicU8,
    granted: AtomicU8,
}

impl SliceControl {
    fn ask(&self) {
        self.request.store(1, Ordering::Relaxed);
    }

    /// Withdraws the request. Gives the core away by `give_way` if it was granted.
    fn withdraw(&self, give_way: impl FnOnce()) {
        self.request.store(0, Ordering::Relaxed);
        // An interrupt may take the grant back between this look and the call, which then gives
        // nothing away.
        if self.granted.load(Ordering::Relaxed) != 0 {
            give_way();
        }
    }
}

/// A thread's knowledge of its own bytes.
#[derive(Clone, Copy)]
enum OwnControl {
    NotAsked,
    Absent,
    /// The bytes of this thread, which live as long as it does.
    There(&'static SliceControl),
}

thread_local! {
    static KNOWN: Cell<OwnControl> = const { Cell::new(OwnControl::NotAsked) };
}

/// Asks for a longer slice from now on, or withdraws that.
#[inline]
pub(crate) fn stay(on: bool) {
    let control = match KNOWN.get() {
        OwnControl::Absent => return,
        OwnControl::There(control) => control,
        OwnControl::NotAsked if on => match enable() {
            Some(control) => control,
            None => return,
        },
        OwnControl::NotAsked => return,
    };
    match on {
        true => control.ask(),
        false => control.withdraw(give_way),
    }
}

/// Returns whether the kernel grants the calling thread longer slices.
pub(crate) fn is_there() -> bool {
    match KNOWN.get() {
        OwnControl::NotAsked => enable().is_some(),
        OwnControl::Absent => false,
        OwnControl::There(_) => true,
    }
}

/// Enables the extension for the calling thread.
#[cold]
fn enable() -> Option<&'static SliceControl> {
    let control = own_control().filter(|_| {
        // SAFETY: a call with numbers, which reads and writes no memory of this process.
        unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, SET, ENABLE, NONE, NONE) == 0 }
    });
    KNOWN.set(control.map_or(OwnControl::Absent, OwnControl::There));
    control
}

/// Gives the core away that was granted for longer.
#[cold]
fn give_way() {
    // SAFETY: a call without arguments; it changes the thread's time only.
    unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
}

/// The bytes in the calling thread's area, if libc has registered a long one.
fn own_control() -> Option<&'static SliceControl> {
    // SAFETY: the names end with a 0; libc looks them up in the objects that are loaded.
    let [offset, size] = [c"__rseq_offset", c"__rseq_size"]
        .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc defines `const unsigned int __rseq_size` and writes it before `main` begins.
    let size = unsafe { *size.cast::<libc::c_uint>() } as usize;
    // SAFETY: glibc defines `const ptrdiff_t __rseq_offset` and writes it before `main` begins.
    let offset = unsafe { *offset.cast::<isize>() };
    if size < CONTROL + size_of::<SliceControl>() {
        return None;
    }
    let area = thread_pointer()?.checked_add_signed(offset)? as *const u8;
    // SAFETY: the thread's area begins at this distance from its thread pointer, has that size, and
    // lives as long as the thread, whose own this reference is: it is kept in a thread-local that
    // has no destructor. Others than the thread and the kernel do not write there, and both write
    // whole bytes.
    Some(unsafe { &*area.add(CONTROL).cast::<SliceControl>() })
}

/// The address from which libc counts a thread's own variables.
fn thread_pointer() -> Option<usize> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let address: usize;
        // SAFETY: the word at `fs:0` is the thread pointer itself, by the ABI of x86-64.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) address, options(nostack, preserves_flags, readonly));
        }
        Some(address)
    }
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    {
        let address: usize;
        // SAFETY: reads a register that user space may read.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) address, options(nostack, preserves_flags, nomem));
        }
        Some(address)
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
    None
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use towpath_testkit::refuse_call;

    use super::*;
    use crate::{Native, Scheduling};

    /// Number of times that the core was given away.
    fn withdrawn(control: &SliceControl) -> u32 {
        let mut times = 0;
        control.withdraw(|| times += 1);
        times
    }

    #[test]
    fn core_is_given_away_where_time_was_granted() {
        let control = SliceControl::default();
        control.ask();
        assert_eq!(control.request.load(Relaxed), 1);
        assert_eq!(withdrawn(&control), 0, "not granted");
        assert_eq!(control.request.load(Relaxed), 0);

        control.ask();
        // As the kernel grants it.
        control.request.store(0, Relaxed);
        control.granted.store(1, Relaxed);
        assert_eq!(withdrawn(&control), 1);

        control.ask();
        // The grant was taken back when the thread lost the core.
        control.request.store(0, Relaxed);
        control.granted.store(0, Relaxed);
        assert_eq!(withdrawn(&control), 0);
    }

    #[test]
    fn own_bytes_are_those_of_each_thread() {
        let place = || own_control().map(|control| control as *const SliceControl as usize);
        let Some(mine) = place() else {
            println!("libc registers no area");
            return;
        };
        assert_eq!(place(), Some(mine), "of one thread");
        let others = std::thread::spawn(place).join().unwrap();
        assert!(others.is_some_and(|other| other != mine));
        // The area's second word is the core's number: it is the kernel's area.
        let core = (mine - CONTROL + 4) as *const core::sync::atomic::AtomicU32;
        // SAFETY: the area's second word, which the kernel writes as a whole.
        let core = unsafe { &*core }.load(Relaxed);
        assert!((core as usize) < 1 << 16, "no core: {core:#x}");
    }

    #[test]
    fn thread_asks_and_withdraws_whether_it_is_there_or_not() {
        let cpu = Native::with_id(0);
        cpu.stay(false);
        for _ in 0..3 {
            cpu.stay(true);
            if let OwnControl::There(control) = KNOWN.get() {
                assert!(control.request.load(Relaxed) == 1 || control.granted.load(Relaxed) == 1);
            }
            cpu.stay(false);
        }
        assert_eq!(is_there(), matches!(KNOWN.get(), OwnControl::There(_)));
        assert!(!matches!(KNOWN.get(), OwnControl::NotAsked));
        println!("the kernel grants longer slices: {}", is_there());
    }

    #[test]
    fn thread_in_a_sandbox_asks_for_nothing() {
        let there = std::thread::spawn(|| {
            refuse_call(libc::SYS_prctl).ok()?;
            Native::with_id(0).stay(true);
            Some(is_there())
        });
        match there.join().unwrap() {
            Some(there) => assert!(!there),
            None => println!("the system has no filters of calls"),
        }
    }
}
