//! Tokens: answers to a handler about its message.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use towpath_am::Token;

use crate::call::{AmError, OfOneUse, answered, of, put, refused};
use crate::endpoint::{AmEndpoint, AmName};

/// Message in the hands of its handler in C, to which `void *token` points.
pub struct AmToken<'a> {
    pub(crate) token: &'a Token<'a>,
    pub(crate) endpoint: &'a AmEndpoint,
}

impl OfOneUse for AmToken<'_> {
    #[inline(always)]
    fn made_in(&self) -> u32 {
        self.endpoint.made_in()
    }
}

impl AmToken<'_> {
    /// The token as C gets it, while the handler runs.
    #[inline]
    pub(crate) fn lend(&self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// The endpoint that sent the message; of one that came back, the endpoint that it was
/// meant for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetSourceEndpoint(token: Option<&AmToken<'_>>, name: *mut AmName) -> c_int {
    // SAFETY: null, or a place for a name, says the header.
    answered("AM_GetSourceEndpoint", || unsafe { put(name, of(token)?.token.source().into()) })
}

/// The endpoint that the message has reached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetDestEndpoint(
    token: Option<&AmToken<'_>>,
    endpoint: *mut *const AmEndpoint,
) -> c_int {
    // SAFETY: null, or a place for a handle, says the header.
    answered("AM_GetDestEndpoint", || unsafe { put(endpoint, core::ptr::from_ref(of(token)?.endpoint)) })
}

/// The tag that the message shows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetMsgTag(token: Option<&AmToken<'_>>, tag: *mut u64) -> c_int {
    // SAFETY: null, or a place for a tag, says the header.
    answered("AM_GetMsgTag", || unsafe { put(tag, of(token)?.token.tag().0) })
}

/// The entry of the translation table that leads to the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_GetSourceId(token: Option<&AmToken<'_>>, entry: *mut c_int) -> c_int {
    answered("AMMPI_GetSourceId", || {
        let token = of(token)?;
        let found = token.endpoint.table.borrow().entry_of(token.token.source());
        let found =
            found.ok_or_else(|| refused(AmError::RESOURCE, "no entry leads to the message's sender"))?;
        // SAFETY: null, or a place for a number, says the header.
        unsafe { put(entry, found as c_int) }
    })
}

/// The arguments of a message, and the handler that one which came back was meant for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_GetReturned(
    token: Option<&AmToken<'_>>,
    handler: *mut u8,
    arguments: *mut i32,
    count: *mut c_int,
) -> c_int {
    answered("AM2_GetReturned", || {
        let token = of(token)?;
        let get = token.endpoint.gets.returned();
        let (meant_for, args) = match (&get, token.token.returned()) {
            (Some(get), _) => (get.handler, get.args()),
            (None, Some(returned)) => (returned.handler, token.token.args()),
            (None, None) => return Err(refused(AmError::BAD_ARG, "the message has not come back")),
        };
        // SAFETY: null, or places for the values, and 16 arguments, says the header.
        unsafe {
            put(handler, meant_for)?;
            put(count, args.len() as c_int)?;
            for (at, &argument) in args.iter().enumerate() {
                put(arguments.wrapping_add(at), argument.cast_signed())?;
            }
        }
        Ok(())
    })
}
