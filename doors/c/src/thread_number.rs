//! Number of the calling thread, found without a call.
//!
//! A variable of a thread in a shared library takes a call of the dynamic linker, which costs as
//! much as half of an uncontended lock. So the thread's number is also kept in a variable at a
//! place that the dynamic linker fixes when it loads the library (the initial-exec model), which
//! stable Rust can't name but in assembly.
//!
//! A thread whose destructors have run has given its number back: its number is not kept any more.
#![allow(unsafe_code)]

use towpath_machine::{Native, Processor};

/// Processor of the calling thread, as of a participant.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn processor(participant: u32) -> Native {
    Native::of_participant(participant)
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss.tp_thread_number,\"awT\",@nobits",
    ".balign 4",
    ".globl tp_thread_number",
    ".hidden tp_thread_number",
    ".type tp_thread_number,@object",
    ".size tp_thread_number,4",
    "tp_thread_number:",
    ".zero 4",
    ".popsection",
);

/// Processor of the calling thread, as of a participant.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn processor(participant: u32) -> Native {
    processor_at_once(before_first(participant))
        .unwrap_or_else(|| Native::with_id(participant * Native::threads_per_process() + ask()))
}

/// Number before the first processor of a participant, for [`processor_at_once`].
pub(crate) const fn before_first(participant: u32) -> u32 {
    (participant * Native::threads_per_process()).wrapping_sub(1)
}

/// Processor of the calling thread, if its number is kept: without a call.
#[inline(always)]
pub(crate) fn processor_at_once(before_first: u32) -> Option<Native> {
    #[cfg(target_arch = "x86_64")]
    return match kept() {
        0 => None,
        kept => Some(Native::with_id(before_first.wrapping_add(kept))),
    };
    #[cfg(not(target_arch = "x86_64"))]
    return Some(processor(before_first.wrapping_add(1) / Native::threads_per_process()));
}

/// The number that is kept, plus one; 0: none.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn kept() -> u32 {
    let kept: u32;
    // SAFETY: reads this thread's variable, which `.tbss` above gives to each thread.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + tp_thread_number@GOTTPOFF]",
            "mov {kept:e}, dword ptr fs:[{at}]",
            at = out(reg) _,
            kept = lateout(reg) kept,
            options(nostack, preserves_flags, readonly)
        );
    }
    kept
}

/// Asks for the thread's number, and keeps it plus one.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn ask() -> u32 {
    /// Destructor of a thread, which runs before that of the number, which is older.
    struct Forgotten;
    impl Drop for Forgotten {
        fn drop(&mut self) {
            keep(0);
        }
    }
    thread_local!(static FORGOTTEN: Forgotten = const { Forgotten });
    let number = Native::of_participant(0).id() as u32;
    if FORGOTTEN.try_with(|_| ()).is_ok() {
        keep(number + 1);
    }
    number
}

#[cfg(target_arch = "x86_64")]
fn keep(number: u32) {
    // SAFETY: writes this thread's variable, as in `processor`.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + tp_thread_number@GOTTPOFF]",
            "mov dword ptr fs:[{at}], {number:e}",
            at = out(reg) _,
            number = in(reg) number,
            options(nostack, preserves_flags)
        );
    }
}
