//! Types that may lie in shared memory ([`Concurrent`], [`Plain`]) and types that may
//! have a name there ([`Object`]).
#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::OwnLine;
use crate::native::NativeKernelMutex;

/// A type that several processes may use at once in shared memory, through shared
/// references: atomic words, and structures of them.
///
/// # Safety
///
/// * Its layout is fixed (`repr(C)` or `repr(transparent)`), with no pointers, references or
///   `usize`, and no `Drop`.
/// * Every bit pattern is a valid value, since another process may write any; all-zero bytes are
///   its initial state.
/// * It is `Sync`, and every access through a shared reference is atomic or volatile or made by the
///   kernel or libc.
pub unsafe trait Concurrent: Sync + 'static {}

/// A type whose values may lie in shared memory, under a lock or in a channel: integers,
/// arrays and structures of them. `#[derive(Plain)]` of the crate `towpath` implements it for
/// structures.
///
/// # Safety
///
/// * Its layout is fixed (`repr(C)` or `repr(transparent)`), with no pointers, references or
///   `usize`, and no `Drop`.
/// * Every bit pattern is a valid value, since another process may write any.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may not lie in shared memory: it is not `Plain`",
    label = "another process may write any bits here, and pointers mean nothing to it",
    note = "plain are integers, floats, arrays of them, and #[repr(C)] structures with #[derive(towpath::Plain)]",
    note = "between threads of a process `owned` of towpath's `mpmc`, `mpsc`, `spsc` and `per_sender` makes a queue for any type"
)]
pub unsafe trait Plain: Object + Send {}

// SAFETY: atomics have a fixed layout, accept every bit pattern, and are accessed atomically.
unsafe impl Concurrent for AtomicU8 {}
// SAFETY: an atomic: fixed layout, every bit pattern, atomic accesses.
unsafe impl Concurrent for AtomicU16 {}
// SAFETY: an atomic: fixed layout, every bit pattern, atomic accesses.
unsafe impl Concurrent for AtomicU32 {}
// SAFETY: an atomic: fixed layout, every bit pattern, atomic accesses.
unsafe impl Concurrent for AtomicU64 {}
// SAFETY: `repr(C)` around one such field; the padding is never read.
unsafe impl<T: Concurrent> Concurrent for OwnLine<T> {}
// SAFETY: an array of such values.
unsafe impl<T: Concurrent, const N: usize> Concurrent for [T; N] {}
// SAFETY: libc's own type for this purpose, accessed only by libc; Linux's all-zero pthread mutex
// is an unlocked one (and `mutex_init` prepares it before use all the same).
unsafe impl Concurrent for NativeKernelMutex {}

macro_rules! plain_numbers {
    ($($number:ident)*) => {$(
        // SAFETY: a number: fixed layout, every bit pattern.
        unsafe impl Plain for $number {}
        // SAFETY: as for `Plain`; no other type writes this text.
        unsafe impl Object for $number {
            fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($number))
            }
        }
    )*};
}

plain_numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

// SAFETY: an atomic: fixed layout, every bit pattern.
unsafe impl Plain for AtomicU8 {}
// SAFETY: an atomic: fixed layout, every bit pattern.
unsafe impl Plain for AtomicU16 {}
// SAFETY: an atomic: fixed layout, every bit pattern.
unsafe impl Plain for AtomicU32 {}
// SAFETY: an atomic: fixed layout, every bit pattern.
unsafe impl Plain for AtomicU64 {}
// SAFETY: `repr(C)` around one plain field.
unsafe impl<T: Plain> Plain for OwnLine<T> {}
// SAFETY: an array of plain values.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

// SAFETY: no bytes.
unsafe impl Plain for () {}
// SAFETY: no bytes; no other type writes this text.
unsafe impl Object for () {
    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("()")
    }
}

// SAFETY: plain fields, of which the compiler keeps the order (`describe` is not compiled if it
// does not, and nothing is opened without it).
unsafe impl<A: Plain, B: Plain> Plain for (A, B) {}
// SAFETY: as for `Plain`; the text names both fields.
unsafe impl<A: Plain, B: Plain> Object for (A, B) {
    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const {
            assert!(
                offset_of!((A, B), 0) == 0 && offset_of!((A, B), 1) >= size_of::<A>(),
                "the compiler has changed the order of the tuple's fields: use a repr(C) structure"
            );
        }
        write!(f, "({}, {})", TypeText::<A>::default(), TypeText::<B>::default())
    }
}

/// A type of which a world may hold a named object, and its identity there.
///
/// A program that opens an object must name the type as which it was created: [`Object::describe`]
/// writes kind, layout version and parameters as text, which lies beside the object. Size and
/// alignment are compared as well.
///
/// A type that is also [`Concurrent`] can be used through a shared reference; one that is not only
/// through methods of its own handle (a mutex, which must know its holder).
///
/// ```
/// use std::sync::atomic::AtomicU64;
/// use towpath_machine::{Concurrent, Object, TypeText};
///
/// #[repr(C)]
/// struct Visits { today: AtomicU64, ever: AtomicU64 }
///
/// // SAFETY: `repr(C)`, made of atomics: every bit pattern is valid, zero is the initial state.
/// unsafe impl Concurrent for Visits {}
/// // SAFETY: concurrent, and no other type writes this text.
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
    ///
    /// Called through [`TypeText`]:
    ///
    /// ```
    /// use towpath_machine::TypeText;
    ///
    /// assert_eq!(TypeText::<[u32; 8]>::default().to_string(), "[u32; 8]");
    /// ```
    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// An object in its initial state, as zeroed memory is one. For constructors of statics.
///
/// ```
/// use std::sync::atomic::AtomicU64;
///
/// static VISITS: [AtomicU64; 4] = towpath_machine::zeroed();
/// assert_eq!(VISITS[3].load(std::sync::atomic::Ordering::Relaxed), 0);
/// ```
#[must_use]
pub const fn zeroed<T: Object>() -> T {
    // SAFETY: every bit pattern is a valid value of an `Object`, all zero its initial state.
    unsafe { core::mem::zeroed() }
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

/// Implements [`Object`] for types that are [`Concurrent`]: `[generics] type => "kind
/// v1", parameter, parameter;`. A parameter is anything that can be displayed.
#[macro_export]
macro_rules! plain_objects {
    ($([$($generics:tt)*] $type:ty $(where [$($bounds:tt)*])? => $kind:literal $(, $parameter:expr)*;)*) => {$(
        // SAFETY: `Concurrent` says the same of its layout and its values; kind, version and
        // parameters are in its text.
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
