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
/// Entries that hand the address from which they were called on, as the argument after
/// `at`, to a function of ours; 0 on processors for which this is not written.
macro_rules! entries_with_site {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal, $alias:literal ($object:ident: $type:ty) => $function:ident;)*) => {$(
        $crate::entry_with_site! { $symbol, pub, $(#[$doc])* $name($object: $type) => $function }
        const _: () = {
            $crate::entry_with_site! { $alias, , $(#[$doc])* alias($object: $type) => $function }
        };
    )*};
}

/// One such entry.
macro_rules! entry_with_site {
    ($symbol:literal, $visible:vis, $(#[$doc:meta])* $name:ident($object:ident: $type:ty) => $function:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As libc's function.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        // SAFETY: libc's name, signature and contract. The return address is where a call puts it,
        // and the second argument's register is free; the first argument stays where it is.
        #[unsafe(export_name = $symbol)]
        #[unsafe(naked)]
        $visible unsafe extern "C-unwind" fn $name($object: $type) -> core::ffi::c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym $function);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("mov x1, x30", "b {}", sym $function);
        }

        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As libc's function.
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        // SAFETY: libc's name, signature and contract.
        #[unsafe(export_name = $symbol)]
        $visible unsafe extern "C-unwind" fn $name($object: $type) -> core::ffi::c_int {
            // SAFETY: the caller's promises are those of the function that is called.
            unsafe { $function($object, 0) }
        }
    };
}
pub(crate) use {entries, entries_with_site, entry, entry_with_site};

mod barrier;
mod cancellation;
mod chosen;
mod condition;
mod hot;
mod layout;
mod mutex;
mod named_place;
mod passed;
mod picture;
mod real;
mod report;
mod rw_lock;
mod semaphore;
mod spin_lock;
mod start;
mod switches;
mod text;
mod time;
mod trace;
mod waiting;
