//! Functions that do nothing but say so: for every entry of a table that is not offered. libfabric's inline functions call entries without looking.

use super::sys::fi_ops;

/// An object's table with nothing in it: what is offered replaces an entry.
pub const NOTHING: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: no(),
    bind: no(),
    control: no(),
    ops_open: no(),
    tostr: no(),
    ops_set: no(),
};

/// What a function that is not offered returns.
pub trait Answer {
    /// It.
    const ANSWER: Self;
}

impl Answer for i32 {
    const ANSWER: i32 = -(super::sys::FI_ENOSYS as i32);
}
impl Answer for isize {
    const ANSWER: isize = -(super::sys::FI_ENOSYS as isize);
}
impl Answer for u64 {
    const ANSWER: u64 = 0;
}
impl<T> Answer for *const T {
    const ANSWER: *const T = core::ptr::null();
}

/// A type of functions.
pub trait Function: Sized {
    /// One of them.
    const NO: Option<Self>;
}

macro_rules! functions {
    ($(($($a:ident)*))*) => {$(
        impl<R: Answer, $($a),*> Function for unsafe extern "C" fn($($a),*) -> R {
            const NO: Option<Self> = {
                unsafe extern "C" fn no<R: Answer, $($a),*>($(_: $a),*) -> R {
                    R::ANSWER
                }
                Some(no::<R, $($a),*>)
            };
        }
    )*};
}

functions! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L) (A B C D E F G H I J K L M)
    (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O)
}

/// The entry for a function that is not offered.
#[allow(non_snake_case, clippy::upper_case_acronyms)]
pub const fn no<F: Function>() -> Option<F> {
    F::NO
}
