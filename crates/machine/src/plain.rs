//! What may lie in a segment.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::OwnLine;
use crate::native::NativeKernelMutex;

/// A type that may lie in shared memory and be used there by several processes at once.
///
/// # Safety
///
/// * Its layout is fixed (`repr(C)` or `repr(transparent)`), with no pointers, references or `usize`, and no `Drop`.
/// * Every bit pattern is a valid value, since another process may write any; all-zero bytes are its initial state.
/// * It is `Sync`, and every access through a shared reference is atomic or volatile or made by the kernel or libc.
pub unsafe trait Plain: Sync + 'static {}

// SAFETY: atomics have a fixed layout, accept every bit pattern, and are accessed atomically.
unsafe impl Plain for AtomicU8 {}
// SAFETY: as above.
unsafe impl Plain for AtomicU16 {}
// SAFETY: as above.
unsafe impl Plain for AtomicU32 {}
// SAFETY: as above.
unsafe impl Plain for AtomicU64 {}
// SAFETY: `repr(C)` around one plain field; the padding is never read.
unsafe impl<T: Plain> Plain for OwnLine<T> {}
// SAFETY: an array of plain values.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: libc's own type for this purpose, accessed only by libc; Linux's all-zero pthread mutex is an unlocked one
// (and `mutex_init` prepares it before use all the same).
unsafe impl Plain for NativeKernelMutex {}
