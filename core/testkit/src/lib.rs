//! Parts of tests: processes that are stepped, killed and watched.
//!
//! A test that kills a process after every instruction forks a [`Victim`] again and again, lets it
//! run for k instructions, kills it, and looks how the others get on. It is the only thread of its
//! process (`harness = false`), since it forks and goes on using what it forked with.
#![allow(unsafe_code)]

mod addresses;
mod child;
mod choice;
mod known_path;
#[cfg(feature = "loom")]
mod model;
mod refusal;
mod share;
#[cfg(all(feature = "loom", target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod stacks;
mod victim;
pub mod watchdog;

pub use addresses::free_addresses;
pub use child::Child;
pub use choice::Choice;
pub use known_path::KnownPath;
#[cfg(feature = "loom")]
pub use model::{is_long, model, preemptions};
pub use refusal::refuse_call;
pub use share::{Share, share_cases, share_cases_among};
pub use victim::{Victim, mark};

use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::nice;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// New words, all zero, that this process shares with the children that it forks from now
/// on. They begin on a page, and stay for good.
pub fn shared_words(count: usize) -> &'static [AtomicU64] {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists; it is
    // zeroed, aligned to a page, long enough, and never unmapped.
    unsafe {
        let page = mmap_anonymous(std::ptr::null_mut(), count * 8, access, MapFlags::SHARED).unwrap();
        std::slice::from_raw_parts(page.cast(), count)
    }
}

/// The core on which this process runs, and another one on which it may (the same if
/// there is none).
pub fn two_cores() -> [usize; 2] {
    let (allowed, here) = (sched_getaffinity(None).unwrap_or_default(), sched_getcpu());
    let there = (0..CpuSet::MAX_CPU).find(|&core| core != here && allowed.is_set(core));
    [here, there.unwrap_or(here)]
}

/// Lets the other processes on this core go first: for one that spins where another is
/// stepped.
pub fn give_way() {
    // Where it is not permitted the test is slower.
    let _ = nice(19);
}

/// Keeps this process, and the children that it forks from now on, on one core. Tracer
/// and victim on one core: a step then costs two switches, and not the waking of another core.
pub fn pin(core: usize) {
    pin_to(&[core]);
}

/// Keeps this process, and the children that it forks from now on, on these cores.
pub fn pin_to(cores: &[usize]) {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    // Where it is not possible the test is slower.
    let _ = sched_setaffinity(None, &set);
}
