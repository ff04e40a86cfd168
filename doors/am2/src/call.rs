//! Frame of every call: null pointers, errors as numbers, panics.
#![allow(unsafe_code)]

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use towpath_am::Error;

/// The call was successful.
pub const AM_OK: c_int = 0;

/// Number that a failed call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmError(pub c_int);

impl AmError {
    /// `AM_Init` was not called.
    pub const NOT_INIT: AmError = AmError(1);
    /// An argument makes no sense.
    pub const BAD_ARG: AmError = AmError(2);
    /// Something limited has run out, or is not there.
    pub const RESOURCE: AmError = AmError(3);
    /// The message can't go out at once.
    pub const NOT_SENT: AmError = AmError(4);
    /// A handler runs, which may reply only; or the resource is in use.
    pub const IN_USE: AmError = AmError(5);

    fn name(self) -> &'static str {
        match self {
            AmError::NOT_INIT => "AM_ERR_NOT_INIT",
            AmError::BAD_ARG => "AM_ERR_BAD_ARG",
            AmError::RESOURCE => "AM_ERR_RESOURCE",
            AmError::NOT_SENT => "AM_ERR_NOT_SENT",
            _ => "AM_ERR_IN_USE",
        }
    }
}

/// Switch: if it is not 0, failed calls write the reason to standard error.
#[unsafe(no_mangle)]
pub static AMMPI_VerboseErrors: AtomicI32 = AtomicI32::new(0);

/// Switch without an effect: the library writes nothing but errors.
#[unsafe(no_mangle)]
pub static AMMPI_SilentMode: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// Reason of the refusal with which the present call will end.
    static WHY: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns whether the program wants to be told why calls fail.
fn is_verbose() -> bool {
    // Relaxed: a number of the program's, by itself.
    AMMPI_VerboseErrors.load(Relaxed) != 0
}

/// A refusal, and why. [`told`] writes the reason.
#[cold]
pub(crate) fn refused(refusal: AmError, why: &str) -> AmError {
    if is_verbose() {
        // Not where the thread is at its end.
        let _ = WHY.try_with(|reason| why.clone_into(&mut reason.borrow_mut()));
    }
    refusal
}

/// The number that a failed call returns. Writes why it failed, if the program wants to
/// be told: a line by one call of the system.
#[cold]
pub(crate) fn told(call: &str, refusal: AmError) -> c_int {
    if is_verbose() {
        let why = WHY.try_with(RefCell::take).unwrap_or_default();
        if !why.is_empty() && refusal != AmError::NOT_SENT {
            let line = format!("{call}: {}: {why}\n", refusal.name());
            // Nothing can be done about a stream that is closed.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
    refusal.0
}

impl From<Error> for AmError {
    #[cold]
    fn from(error: Error) -> AmError {
        let refusal = match error {
            // Not that `AM_Init` was not called: a table's entry, or a handler, is missing.
            Error::NotInitialised(_) | Error::BadArgument(_) => AmError::BAD_ARG,
            Error::NotSent => AmError::NOT_SENT,
            Error::InUse(_) => AmError::IN_USE,
            Error::Resource(_) | Error::BadWorld(_) | Error::World(_) => AmError::RESOURCE,
        };
        match error {
            // Without the layer's own word for the kind: the call's number says that.
            Error::NotInitialised(why)
            | Error::BadArgument(why)
            | Error::Resource(why)
            | Error::InUse(why) => refused(refusal, &why),
            error => refused(refusal, &error.to_string()),
        }
    }
}

impl From<towpath_shm::Error> for AmError {
    #[cold]
    fn from(error: towpath_shm::Error) -> AmError {
        Error::from(error).into()
    }
}

/// Number of calls of `AM_Init` without their `AM_Terminate`. A fork clears it.
pub(crate) static USES: AtomicU32 = AtomicU32::new(0);

/// Number of the present use of the layer, from the first `AM_Init` to the last
/// `AM_Terminate`; 0: none. A fork clears it.
pub(crate) static USE: AtomicU32 = AtomicU32::new(0);

/// Object behind a handle, which belongs to one use of the layer.
pub(crate) trait OfOneUse {
    /// Returns the number of the use in which it was made.
    fn made_in(&self) -> u32;
}

#[cold]
fn not_initialised() -> AmError {
    refused(AmError::NOT_INIT, "call AM_Init first (after a fork, in the child too)")
}

#[cold]
fn of_another_use() -> AmError {
    refused(AmError::BAD_ARG, "the handle is of the process that has forked this one: make another one")
}

/// Checks that the layer is initialised.
#[inline]
pub(crate) fn check() -> Result<(), AmError> {
    // Relaxed: what the initialisation has made is reached through handles, which its thread passes
    // on by means of the program's own.
    if USE.load(Relaxed) != 0 { Ok(()) } else { Err(not_initialised()) }
}

/// Runs a call. Nothing unwinds into C.
#[inline]
pub(crate) fn answered(call: &str, act: impl FnOnce() -> Result<(), AmError>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => AM_OK,
        Ok(Err(refusal)) => told(call, refusal),
        Err(panic) => {
            // The panic's hook has said where. Its drop might panic, too.
            core::mem::forget(panic);
            AmError::RESOURCE.0
        }
    }
}

/// Runs a call that each message takes.
///
/// As [`answered`], but a panic, which is a fault in the layer, ends the program: catching it would
/// take as long as the rest.
#[inline(always)]
pub(crate) fn answered_at_once(call: &str, act: impl FnOnce() -> Result<(), AmError>) -> c_int {
    match act() {
        Ok(()) => AM_OK,
        Err(refusal) => told(call, refusal),
    }
}

/// The handle of an initialised layer, unless it is null, or of the process that has
/// forked this one.
#[inline(always)]
pub(crate) fn of<T: OfOneUse>(handle: Option<&T>) -> Result<&T, AmError> {
    // Relaxed: see `check`.
    let present = USE.load(Relaxed);
    if present == 0 {
        return Err(not_initialised());
    }
    match handle {
        Some(handle) if handle.made_in() == present => Ok(handle),
        Some(_) => Err(of_another_use()),
        None => Err(null()),
    }
}

/// Writes through the caller's pointer, unless it is null.
///
/// # Safety
///
/// Null, or valid for a write.
#[inline]
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), AmError> {
    if place.is_null() {
        return Err(null());
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Bytes that the caller lends for a call.
///
/// # Safety
///
/// Null with no bytes, or valid for reads of so many.
#[inline]
pub(crate) unsafe fn bytes<'a>(at: *const u8, count: usize) -> Result<&'a [u8], AmError> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || count > isize::MAX as usize {
        return Err(null());
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(at, count) })
}

#[cold]
pub(crate) fn null() -> AmError {
    refused(AmError::BAD_ARG, "a pointer is null, or a length is impossible")
}

/// Ends the program with a sentence: no handler and no caller can go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_Fatal(sentence: *const c_char) {
    let text = match sentence.is_null() {
        true => "".into(),
        // SAFETY: a text that ends with a zero, says the header.
        false => unsafe { CStr::from_ptr(sentence) }.to_string_lossy(),
    };
    fatal(&text);
}

/// Ends the program with a sentence.
pub(crate) fn fatal(sentence: &str) -> ! {
    let line = format!("fatal error of Active Messages: {sentence}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    std::process::abort()
}
