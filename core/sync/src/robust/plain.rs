//! Primitives that may lie in a segment.
#![allow(unsafe_code)]

use core::fmt;

use towpath_machine::{Native, Object};

use super::{Barrier, Condvar, Event, Once, Semaphore};

// None of them is `Concurrent`: a shared reference alone, which does not know the caller's
// identity, must not give access to one in a world.
macro_rules! robust_objects {
    ($([$($generics:tt)*] $primitive:ty => $kind:literal $(, $parameter:ident)?; $names_users:literal;)*) => {$(
        // SAFETY: `repr(C)`, made of atomic words, so every bit pattern is valid and accesses are
        // atomic; all zero is one that was never used; no `Drop`; its text names its parameters.
        unsafe impl<$($generics)*> Object for $primitive {
            const NAMES_USERS: bool = $names_users;

            fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($kind)?;
                $(write!(f, "<{}>", $parameter)?;)?
                Ok(())
            }
        }
    )*};
}

robust_objects! {
    [] Event<Native> => "event v1"; false;
    [] Once<Native> => "once v1"; true;
    [const N: usize] Semaphore<Native, N> => "semaphore v2", N; true;
    [const N: usize] Barrier<Native, N> => "barrier v1", N; true;
    [const N: usize] Condvar<Native, N> => "condvar v1", N; true;
}
