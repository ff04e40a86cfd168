//! For the tests: processes that are stepped, killed and watched.
//!
//! A test that kills a process after every instruction forks a [`Victim`] again and again, lets it
//! run for k instructions, kills it, and looks how the others get on. It is the only thread of its
//! process (`harness = false`), since it forks and goes on using what it forked with.
#![allow(unsafe_code)]

mod child;
mod choice;
mod known_path;
#[cfg(feature = "loom")]
mod model;
mod share;
#[cfg(all(feature = "loom", target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod stacks;
mod victim;
pub mod watchdog;

pub use child::Child;
pub use choice::Choice;
pub use known_path::KnownPath;
#[cfg(feature = "loom")]
pub use model::model;
pub use share::{Share, share_cases, share_cases_among};
pub use victim::{Victim, mark};

use std::sync::atomic::AtomicU64;

/// New words, all zero, that this process shares with the children that it forks from now
/// on. They begin on a page, and stay for good.
pub fn shared_words(count: usize) -> &'static [AtomicU64] {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists; it is
    // zeroed, aligned to a page, long enough, and never unmapped.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), count * 8, access, kind, -1, 0);
        assert_ne!(page, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        std::slice::from_raw_parts(page.cast(), count)
    }
}

/// The core on which this process runs, and another one on which it may (the same if
/// there is none).
pub fn two_cores() -> [usize; 2] {
    // SAFETY: a set of processors is plain data, which the call fills in.
    let allowed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    };
    // SAFETY: no preconditions.
    let here = unsafe { libc::sched_getcpu() }.max(0) as usize;
    // SAFETY: reads a bit of the set; the number is below its size.
    let there =
        (0..libc::CPU_SETSIZE as usize).find(|&c| c != here && unsafe { libc::CPU_ISSET(c, &allowed) });
    [here, there.unwrap_or(here)]
}

/// Lets the other processes on this core go first: for one that spins where another is
/// stepped.
pub fn give_way() {
    // SAFETY: takes a number; any process may lower its own priority.
    unsafe { libc::nice(19) };
}

/// Keeps this process, and the children that it forks from now on, on one core. Tracer
/// and victim on one core: a step then costs two switches, and not the waking of another core.
pub fn pin(core: usize) {
    pin_to(&[core]);
}

/// Keeps this process, and the children that it forks from now on, on these cores.
pub fn pin_to(cores: &[usize]) {
    // SAFETY: a set of processors is plain data; the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &core in cores {
            libc::CPU_SET(core, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
