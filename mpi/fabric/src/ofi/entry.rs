//! Tables of an endpoint's operations, and the entry points in them.
//!
//! libfabric has each operation in several forms: with one buffer, with an array of them, in a
//! structure, injected, with data. A table names the arguments of each form, in libfabric's order,
//! and what they mean; [`entries`] makes the functions.

use core::ffi::c_void;

/// A buffer to read from.
pub type In = *const c_void;
/// A buffer to write to.
pub type Out = *mut c_void;
/// A memory descriptor, which this provider does not need.
pub type Desc = *mut c_void;
/// An array of memory descriptors.
pub type Descs = *mut *mut c_void;
/// The user's context, which is in the completion again.
pub type Context = *mut c_void;

/// Makes a table of functions, and a second one for endpoints that are not enabled yet.
///
/// The body of an entry is an expression of type `isize`, in which `ep` is the endpoint and `?`
/// ends the call with a result. It is unsafe code: the operation's manual page (`ofi/mod.rs`) holds
/// for all arguments. Functions in brackets ask nothing of the endpoint: both tables have them.
macro_rules! entries {
    ($(#[$doc:meta])* $table:ident, $later:ident: $ops:ident $([$($other:ident)*])?;
     $($entry:ident |$ep:ident $(, $arg:ident: $of:ty)* $(,)?| $body:expr;)*) => {
        $(#[$doc])*
        pub static $table: $ops = $ops {
            size: size_of::<$ops>(),
            $($entry: {
                #[allow(clippy::too_many_arguments)]
                unsafe extern "C" fn entry($ep: *mut fid_ep $(, $arg: $of)*) -> isize {
                    // SAFETY: `fi_msg(3)`, `fi_tagged(3)`, `fi_rma(3)`, `fi_atomic(3)`: the caller
                    // passes an open endpoint, and arguments as this entry of the table has them.
                    let call = || Ok::<isize, isize>(unsafe { $body });
                    call().unwrap_or_else(|error| error)
                }
                Some(entry)
            },)*
            $($($other: Some($other),)*)?
        };

        /// Functions of an endpoint that is not enabled yet.
        pub static $later: $ops = $ops {
            size: size_of::<$ops>(),
            $($entry: $crate::ofi::no::later(),)*
            $($($other: Some($other),)*)?
        };
    };
}
pub(super) use entries;
