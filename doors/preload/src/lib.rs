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
/// all others, to a function of ours; 0 on processors for which this is not written.
macro_rules! entries_with_site {
    ($($(#[$doc:meta])* $name:ident $(= $alias:literal)? ($($argument:ident: $type:ty),*) => $function:ident;)*) => {
        $($crate::entry_with_site! {
            [no_mangle] [$($alias)?] $(#[$doc])* $name($($argument: $type),*) => $function
        })*
    };
}

/// One such entry.
macro_rules! entry_with_site {
    ([$($export:tt)*] [$alias:literal] $(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) => $function:ident) => {
        $crate::entry_with_site! { [$($export)*] [] $(#[$doc])* $name($($argument: $type),*) => $function }
        const _: () = {
            $crate::entry_with_site! {
                [export_name = $alias] [] $(#[$doc])* alias($($argument: $type),*) => $function
            }
        };
    };
    ([$($export:tt)*] [] $(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) => $function:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As libc's function.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        // SAFETY: libc's name, signature and contract. The return address is where a call puts it,
        // and the register of the argument after the last one is free; the others stay.
        #[unsafe($($export)*)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> core::ffi::c_int {
            $crate::site_jump! { $function, $($argument)* }
        }

        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As libc's function.
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        // SAFETY: libc's name, signature and contract.
        #[unsafe($($export)*)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> core::ffi::c_int {
            // SAFETY: the caller's promises are those of the function that is called.
            unsafe { $function($($argument,)* 0) }
        }
    };
}

/// Jump to a function, with the address of the caller after so many arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! site_jump {
    ($function:ident, $a:ident) => {
        core::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym $function)
    };
    ($function:ident, $a:ident $b:ident) => {
        core::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym $function)
    };
    ($function:ident, $a:ident $b:ident $c:ident) => {
        core::arch::naked_asm!("mov rcx, [rsp]", "jmp {}", sym $function)
    };
    ($function:ident, $a:ident $b:ident $c:ident $d:ident) => {
        core::arch::naked_asm!("mov r8, [rsp]", "jmp {}", sym $function)
    };
}
/// Jump to a function, with the address of the caller after so many arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! site_jump {
    ($function:ident, $a:ident) => {
        core::arch::naked_asm!("mov x1, x30", "b {}", sym $function)
    };
    ($function:ident, $a:ident $b:ident) => {
        core::arch::naked_asm!("mov x2, x30", "b {}", sym $function)
    };
    ($function:ident, $a:ident $b:ident $c:ident) => {
        core::arch::naked_asm!("mov x3, x30", "b {}", sym $function)
    };
    ($function:ident, $a:ident $b:ident $c:ident $d:ident) => {
        core::arch::naked_asm!("mov x4, x30", "b {}", sym $function)
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use site_jump;
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
mod reporter;
mod rw_lock;
mod semaphore;
mod spin_lock;
mod start;
mod switches;
mod text;
mod time;
mod trace;
mod waiting;
