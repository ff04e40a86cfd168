//! Types that may lie in shared memory ([`Plain`]) and types that may have a name there
//! ([`Object`]).
#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::OwnLine;
use crate::native::NativeKernelMutex;

/// A type that may lie in shared memory and be used there by several processes at once.
///
/// # Safety
///
/// * Its layout is fixed (`repr(C)` or `repr(transparent)`), with no pointers, references or
///   `usize`, and no `Drop`.
/// * Every bit pattern is a valid value, since another process may write any; all-zero bytes are
///   its initial state.
/// * It is `Sync`, and every access through a shared reference is atomic or volatile or made by the
///   kernel or libc.
pub unsafe trait Plain: Sync + 'static {}

// SAFETY: atomics have a fixed layout, accept every bit pattern, and are accessed atomically.
unsafe impl Plain for AtomicU8 {}
// SAFETY: an atomic: fixed layout, every bit pattern, atomic accesses.
unsafe impl Plain for AtomicU16 {}
// SAFETY: an atomic: fixed layout, every bit pattern, atomic accesses.
unsafe impl Plain for AtomicU32 {}
// SAFETY: an atomic: fixed layout, every bit pattern, atomic accesses.
unsafe impl Plain for AtomicU64 {}
// SAFETY: `repr(C)` around one plain field; the padding is never read.
unsafe impl<T: Plain> Plain for OwnLine<T> {}
// SAFETY: an array of plain values.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: libc's own type for this purpose, accessed only by libc; Linux's all-zero pthread mutex
// is an unlocked one (and `mutex_init` prepares it before use all the same).
unsafe impl Plain for NativeKernelMutex {}

/// A type of which a world may hold a named object, and its identity there.
///
/// A program that opens an object must name the type as which it was created: [`Object::describe`]
/// writes kind, layout version and parameters as text, which lies beside the object. Size and
/// alignment are compared as well.
///
/// A type that is also [`Plain`] can be used through a shared reference; one that is not only
/// through methods of its own handle (a mutex, which must know its holder).
///
/// ```
/// use std::sync::atomic::AtomicU64;
/// use towpath_machine::{Object, Plain, TypeText};
///
/// #[repr(C)]
/// struct Visits { today: AtomicU64, ever: AtomicU64 }
///
/// // SAFETY: `repr(C)`, made of atomics: every bit pattern is valid, zero is the initial state.
/// unsafe impl Plain for Visits {}
/// // SAFETY: plain, and no other type writes this text.
/// unsafe impl Object for Visits {
///     fn describe(f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         f.write_str("my-program/Visits v1")
///     }
/// }
/// assert_eq!(TypeText::<[Visits; 3]>::default().to_string(), "[my-program/Visits v1; 3]");
/// ```
///
/// # Safety
///
/// * Its layout is fixed (`repr(C)` or `repr(transparent)`), with no pointers, references or
///   `usize`, and no `Drop`.
/// * Every bit pattern is a valid value, since another process may write any; all-zero bytes are
///   its initial state.
/// * It is `Sync`, and every access through a safe method is atomic, or made by the holder of a
///   lock that lies in it.
/// * Two types with the same text have the same layout and give it the same meaning: the text names
///   everything on which either depends, and a version that changes with the layout.
pub unsafe trait Object: Sync + 'static {
    /// True if the object writes down which participants use it, so that a process which
    /// has it open must not leave its world.
    const NAMES_USERS: bool = false;

    /// Writes the type's identity: kind, layout version, parameters.
    ///
    /// # Errors
    ///
    /// The formatter's.
    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// An object's type as text: see [`Object::describe`].
#[derive(Debug)]
pub struct TypeText<T: ?Sized>(PhantomData<fn(&T)>);

impl<T: ?Sized> Default for TypeText<T> {
    fn default() -> Self {
        TypeText(PhantomData)
    }
}

impl<T: Object> fmt::Display for TypeText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::describe(f)
    }
}

// SAFETY: an array has no padding between its elements; its text names their type and number.
unsafe impl<T: Object, const N: usize> Object for [T; N] {
    const NAMES_USERS: bool = T::NAMES_USERS;

    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {N}]", TypeText::<T>::default())
    }
}

/// Implements [`Object`] for types that are [`Plain`]: `[generics] type => "kind v1",
/// parameter, parameter;`. A parameter is anything that can be displayed.
#[macro_export]
macro_rules! plain_objects {
    ($([$($generics:tt)*] $type:ty $(where [$($bounds:tt)*])? => $kind:literal $(, $parameter:expr)*;)*) => {$(
        // SAFETY: `Plain` says the same of its layout and its values; kind, version and parameters
        // are in its text.
        unsafe impl<$($generics)*> $crate::Object for $type
        $(where $($bounds)*)?
        {
            fn describe(f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let parameters: &[&dyn ::core::fmt::Display] = &[$(&$parameter),*];
                $crate::describe_type(f, $kind, parameters)
            }
        }
    )*};
}

/// Writes a kind and its parameters, for [`plain_objects!`].
#[doc(hidden)]
pub fn describe_type(
    f: &mut fmt::Formatter<'_>,
    kind: &str,
    parameters: &[&dyn fmt::Display],
) -> fmt::Result {
    f.write_str(kind)?;
    for (i, parameter) in parameters.iter().enumerate() {
        write!(f, "{}{parameter}", if i == 0 { "<" } else { ", " })?;
    }
    if parameters.is_empty() { Ok(()) } else { f.write_str(">") }
}

plain_objects! {
    [] AtomicU8 => "AtomicU8";
    [] AtomicU16 => "AtomicU16";
    [] AtomicU32 => "AtomicU32";
    [] AtomicU64 => "AtomicU64";
    [T: Object] OwnLine<T> => "OwnLine", TypeText::<T>::default();
    [] NativeKernelMutex => "pthread_mutex_t";
}
