//! Functions that do nothing but say so: for every entry of a table that is not offered.
//! libfabric's inline functions call entries without looking.

use super::sys::fi_ops;

/// An object's table without functions: offered ones replace an entry.
pub const NOTHING: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: no(),
    bind: no(),
    control: no(),
    ops_open: no(),
    tostr: no(),
    ops_set: no(),
};

/// Return value of a function that is not offered, and one that is not offered yet.
pub trait NotOffered {
    /// Answer of a function that is not offered.
    const ANSWER: Self;
    /// Answer of a function that is not offered before the endpoint is enabled.
    const LATER: Self;
}

impl NotOffered for i32 {
    const ANSWER: i32 = -(super::sys::FI_ENOSYS as i32);
    const LATER: i32 = -(super::sys::FI_EOPBADSTATE as i32);
}
impl NotOffered for isize {
    const ANSWER: isize = -(super::sys::FI_ENOSYS as isize);
    const LATER: isize = -(super::sys::FI_EOPBADSTATE as isize);
}
impl NotOffered for u64 {
    const ANSWER: u64 = 0;
    const LATER: u64 = 0;
}
impl<T> NotOffered for *const T {
    const ANSWER: *const T = core::ptr::null();
    const LATER: *const T = core::ptr::null();
}

/// A type of functions.
pub trait Function: Sized {
    /// Operation that is not offered.
    const NO: Option<Self>;
    /// Operation that is not offered before the endpoint is enabled.
    const LATER: Option<Self>;
}

macro_rules! functions {
    ($(($($a:ident)*))*) => {$(
        impl<R: NotOffered, $($a),*> Function for unsafe extern "C" fn($($a),*) -> R {
            const NO: Option<Self> = {
                unsafe extern "C" fn no<R: NotOffered, $($a),*>($(_: $a),*) -> R {
                    R::ANSWER
                }
                Some(no::<R, $($a),*>)
            };
            const LATER: Option<Self> = {
                unsafe extern "C" fn later<R: NotOffered, $($a),*>($(_: $a),*) -> R {
                    R::LATER
                }
                Some(later::<R, $($a),*>)
            };
        }
    )*};
}

functions! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L) (A B C D E F G H I J K L M)
    (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O) (A B C D E F G H I J K L M N O P)
}

/// The entry for a function that is not offered.
#[allow(non_snake_case, clippy::upper_case_acronyms)]
pub const fn no<F: Function>() -> Option<F> {
    F::NO
}

/// The entry for a function that is offered once the endpoint is enabled.
pub const fn later<F: Function>() -> Option<F> {
    F::LATER
}
