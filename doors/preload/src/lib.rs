//! Preloaded library of `towpath preload`: pthread's locks, conditions, barriers and
//! semaphores, by Towpath.
//!
//! It stands before libc (`LD_PRELOAD`) in programs that were not compiled for it. An object lies
//! in the words of the program's own, so that static initialisers work and nothing is allocated.
//! The words in which libc keeps an object's attributes stay libc's (`layout.rs`): objects with
//! attributes that are not carried are passed to libc's functions, and counted. docs/preload.md
//! says which are carried.
//!
//! Each function of libc's that this library has a text for is an entry, and has libc's contract.
//! Nothing here allocates, nor calls a function that could call an entry again.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#![deny(unsafe_code)]

/// Functions with libc's names (and a second name, for some), which call one of ours.
macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident $(= $alias:literal)? ($($argument:ident: $type:ty),*) => $call:expr;)*) => {
        $($crate::entry! { [$($alias)?] $(#[$doc])* $name($($argument: $type),*) => $call })*
    };
}

/// One entry.
macro_rules! entry {
    ([$alias:literal] $(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) => $call:expr) => {
        $crate::entry! { [] $(#[$doc])* $name($($argument: $type),*) => $call }
        const _: () = {
            // SAFETY: libc's name, signature and contract.
            #[unsafe(export_name = $alias)]
            unsafe extern "C-unwind" fn alias($($argument: $type),*) -> core::ffi::c_int {
                // SAFETY: the caller's promises are those of the function that is called.
                unsafe { $call }
            }
        };
    };
    ([] $(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) => $call:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As libc's function.
        // SAFETY: libc's name, signature and contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> core::ffi::c_int {
            // SAFETY: the caller's promises are those of the function that is called.
            unsafe { $call }
        }
    };
}
pub(crate) use {entries, entry};

mod barrier;
mod cancellation;
mod condition;
mod hot;
mod layout;
mod mutex;
mod passed;
mod real;
mod rw_lock;
mod semaphore;
mod start;
mod time;
mod trace;
mod waiting;
