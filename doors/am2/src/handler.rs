//! Handlers: functions in C that get a token, the payload's address and length, and the
//! arguments.
//!
//! Handler 0 is told of messages that came back; gets use it, too (`get.rs`). The layer sets one
//! that ends the program.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use towpath_am::{Operation, Payload, Returned, Status, Token};

use crate::call::{AmError, answered, fatal, null, of, refused};
use crate::endpoint::{AmEndpoint, answered_in_turn};
use crate::get;
use crate::statistics::Category;
use crate::token::AmToken;

/// Number of arguments that a handler gets in registers, beside its token.
const IN_REGISTERS: usize = 5;

/// Number of handlers of an endpoint.
pub(crate) const HANDLERS: usize = 256;

/// Function of C, of whichever parameters.
pub type HandlerFunction = Option<unsafe extern "C" fn()>;
/// Function that is called before a handler.
pub type BeforeHandler =
    Option<unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut c_void, usize, c_int, *mut u32)>;
/// Function that is called after a handler.
pub type AfterHandler = Option<unsafe extern "C" fn(c_int, c_int)>;

/// Functions that are called before and after each handler.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub before: Cell<BeforeHandler>,
    pub after: Cell<AfterHandler>,
}

impl Callbacks {
    #[inline(always)]
    fn are_set(&self) -> bool {
        self.before.get().is_some() || self.after.get().is_some()
    }
}

/// Function, number and endpoint of a handler: the captures of its closure.
pub(crate) struct Called {
    pub function: unsafe extern "C" fn(),
    pub number: u8,
    pub endpoint: *const AmEndpoint,
}

/// Message as a handler in C is given it.
pub(crate) struct HandlerInput<'a> {
    pub category: Category,
    pub address: *mut c_void,
    pub bytes: usize,
    pub args: &'a [u32],
}

// SAFETY: the endpoint's handlers run in turns of its bundle only, by one thread at a time.
unsafe impl Send for Called {}
// SAFETY: the endpoint's handlers run in turns of its bundle only, by one thread at a time.
unsafe impl Sync for Called {}

/// Type of an argument in C, whatever its number.
macro_rules! argument {
    ($n:literal) => {
        c_int
    };
}

/// Calls a macro with its own arguments, and the numbers of arguments that there can be.
macro_rules! by_count {
    ($macro:ident $($rest:tt)*) => {
        $macro!(($($rest)*)
            [0] [1 0] [2 0 1] [3 0 1 2] [4 0 1 2 3] [5 0 1 2 3 4] [6 0 1 2 3 4 5] [7 0 1 2 3 4 5 6]
            [8 0 1 2 3 4 5 6 7] [9 0 1 2 3 4 5 6 7 8] [10 0 1 2 3 4 5 6 7 8 9]
            [11 0 1 2 3 4 5 6 7 8 9 10] [12 0 1 2 3 4 5 6 7 8 9 10 11]
            [13 0 1 2 3 4 5 6 7 8 9 10 11 12] [14 0 1 2 3 4 5 6 7 8 9 10 11 12 13]
            [15 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14] [16 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15])
    };
}

/// Calls a handler of short messages.
macro_rules! call_short {
    (($function:expr, $args:expr, $token:expr) $([$count:literal $($n:literal)*])*) => {
        match $args.len() {
            $($count => {
                type Short = unsafe extern "C" fn(*mut c_void $(, argument!($n))*);
                // SAFETY: the program has set the handler for messages of this form; the calling
                // convention permits fewer parameters than arguments.
                let function = unsafe { core::mem::transmute::<unsafe extern "C" fn(), Short>($function) };
                // SAFETY: the program's handler of short messages; the token lives while it runs.
                unsafe { function($token $(, $args[$n].cast_signed())*) }
            })*
            // A token has 16 arguments at most.
            _ => {}
        }
    };
}

/// Calls a handler of messages with a payload.
macro_rules! call_with_payload {
    (($function:expr, $args:expr, $token:expr, $address:expr, $bytes:expr) $([$count:literal $($n:literal)*])*) => {
        match $args.len() {
            $($count => {
                type Long = unsafe extern "C" fn(*mut c_void, *mut c_void, usize $(, argument!($n))*);
                // SAFETY: the program has set the handler for messages of this form; the calling
                // convention permits fewer parameters than arguments.
                let function = unsafe { core::mem::transmute::<unsafe extern "C" fn(), Long>($function) };
                // SAFETY: the program's handler of messages with a payload; payload and token live
                // while it runs.
                unsafe { function($token, $address, $bytes $(, $args[$n].cast_signed())*) }
            })*
            // A token has 16 arguments at most.
            _ => {}
        }
    };
}

impl Called {
    #[inline(always)]
    pub fn endpoint(&self) -> &AmEndpoint {
        // SAFETY: an endpoint outlives its handlers.
        unsafe { &*self.endpoint }
    }

    /// Calls the handler of a message.
    ///
    /// Of a short one with few arguments at once: what comes most often saves no registers.
    #[inline]
    fn run(&self, token: &Token<'_>) {
        let endpoint = self.endpoint();
        let args = token.args();
        if token.payload() != Payload::None || args.len() > IN_REGISTERS || endpoint.callbacks.are_set() {
            return self.run_slowly(token);
        }
        endpoint.counters.received(token.is_request(), Category::Short);
        let lent = AmToken { token, endpoint };
        // The compiler leaves out the larger numbers.
        by_count!(call_short self.function, args, lent.lend());
    }

    /// Calls the handler of a message with a payload, many arguments or callbacks.
    #[inline(never)]
    fn run_slowly(&self, token: &Token<'_>) {
        let endpoint = self.endpoint();
        let (category, address, bytes) = match token.payload() {
            Payload::None => (Category::Short, core::ptr::null_mut(), 0),
            // The layer's own copy: the handler may do with it what it wants.
            Payload::Medium(bytes) => (Category::Medium, bytes.as_ptr().cast_mut().cast(), bytes.len()),
            Payload::Long { offset, len } => (Category::Long, endpoint.address(offset), len as usize),
        };
        endpoint.counters.received(token.is_request(), category);
        self.run_with(token, &HandlerInput { category, address, bytes, args: token.args() });
    }

    /// Calls the handler, with the callbacks before and after it.
    pub fn run_with(&self, token: &Token<'_>, arrived: &HandlerInput<'_>) {
        let (endpoint, &HandlerInput { category, address, bytes, args }) = (self.endpoint(), arrived);
        let lent = AmToken { token, endpoint };
        let lent = lent.lend();
        let is_request = c_int::from(token.is_request());
        if let Some(before) = endpoint.callbacks.before.get() {
            let (number, count) = (c_int::from(self.number), args.len() as c_int);
            let mut copy = [0; towpath_am::MAX_ARGS];
            copy[..args.len()].copy_from_slice(args);
            // SAFETY: the program's function, which takes these, says the header.
            unsafe {
                before(category as c_int, is_request, number, lent, address, bytes, count, copy.as_mut_ptr());
            }
        }
        match category {
            Category::Short => by_count!(call_short self.function, args, lent),
            _ => by_count!(call_with_payload self.function, args, lent, address, bytes),
        }
        if let Some(after) = endpoint.callbacks.after.get() {
            // SAFETY: the program's function, which takes these, says the header.
            unsafe { after(category as c_int, is_request) };
        }
    }

    /// Handles a message that came back.
    #[cold]
    fn run_returned(&self, token: &Token<'_>, returned: Returned) {
        match returned.handler {
            0 => get::came_back(self, token, returned),
            _ => self.tell(token, returned.status, opcode(returned.operation)),
        }
    }

    /// Tells the program of a message that came back, as its handler 0.
    pub fn tell(&self, token: &Token<'_>, status: Status, opcode: c_int) {
        let endpoint = self.endpoint();
        endpoint.counters.returned();
        let lent = AmToken { token, endpoint };
        // SAFETY: handler 0 takes a status, an operation and a token, says the header.
        let function = unsafe {
            core::mem::transmute::<unsafe extern "C" fn(), unsafe extern "C" fn(c_int, c_int, *mut c_void)>(
                self.function,
            )
        };
        // SAFETY: the program's handler 0, which takes these; the token lives while it runs.
        unsafe { function(status as c_int, opcode, lent.lend()) };
    }
}

/// Number of an operation: `AM_REQUEST_M` and the others.
pub(crate) const fn opcode(operation: Operation) -> c_int {
    match operation {
        Operation::RequestShort => 1,
        Operation::RequestMedium => 2,
        Operation::RequestLong => 3,
        Operation::ReplyShort => 4,
        Operation::ReplyMedium => 5,
        Operation::ReplyLong => 6,
    }
}

/// Sets a handler.
fn set(endpoint: &AmEndpoint, number: u8, function: unsafe extern "C" fn()) {
    let called = Called { function, number, endpoint };
    if number == 0 {
        endpoint.endpoint.set_handler(0, move |token| {
            let called = &called;
            match token.returned() {
                Some(returned) => called.run_returned(token, returned),
                None => get::handle(called, token),
            }
        });
    } else {
        endpoint.endpoint.set_handler(number, move |token| {
            let called = &called;
            called.run(token);
        });
    }
    endpoint.functions.borrow_mut()[usize::from(number)] = Some(function);
}

/// Sets the handler 0 that a new endpoint has: it ends the program.
pub(crate) fn set_default(endpoint: &AmEndpoint) {
    let default: unsafe extern "C" fn(c_int, c_int, *mut c_void) = end_of_the_program;
    // SAFETY: `Called::run_returned` calls it as what it is.
    let function = unsafe {
        core::mem::transmute::<unsafe extern "C" fn(c_int, c_int, *mut c_void), unsafe extern "C" fn()>(
            default,
        )
    };
    set(endpoint, 0, function);
}

/// Names of the operations, by their numbers.
const OPERATIONS: [&str; 8] = [
    "no operation",
    "AM_REQUEST_M",
    "AM_REQUEST_IM",
    "AM_REQUEST_XFER_M",
    "AM_REPLY_M",
    "AM_REPLY_IM",
    "AM_REPLY_XFER_M",
    "AM_GET_XFER_M",
];

/// Name of a status.
pub(crate) const fn word_of(status: Status) -> &'static str {
    match status {
        Status::BadArguments => "EBADARGS",
        Status::BadEntry => "EBADENTRY",
        Status::BadTag => "EBADTAG",
        Status::BadHandler => "EBADHANDLER",
        Status::BadSegmentOffset => "EBADSEGOFF",
        Status::BadLength => "EBADLENGTH",
        Status::BadEndpoint => "EBADENDPOINT",
        Status::QueueAbandoned => "ECONGESTION",
        Status::Unreachable => "EUNREACHABLE",
        Status::ReplyRejected => "EREPLYREJECTED",
        _ => "an unknown reason",
    }
}

extern "C" fn end_of_the_program(status: c_int, opcode: c_int, _token: *mut c_void) {
    let why = match u64::try_from(status).ok().and_then(Status::from_bits) {
        Some(status) => word_of(status),
        None => "an unknown reason",
    };
    let operation = match usize::try_from(opcode).ok().and_then(|number| OPERATIONS.get(number)) {
        Some(&word) => word,
        None => "an unknown operation",
    };
    fatal(&format!("a message came back: {why} ({operation}); set handler 0 to be told of it and go on"));
}

/// Sets a handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetHandler(
    endpoint: Option<&AmEndpoint>,
    handler: u8,
    function: HandlerFunction,
) -> c_int {
    answered("AM_SetHandler", || {
        let endpoint = of(endpoint)?;
        let function = function.ok_or_else(null)?;
        let _turn = endpoint.turn();
        endpoint.check_idle()?;
        set(endpoint, handler, function);
        Ok(())
    })
}

/// Sets a handler of a number that is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetHandlerAny(
    endpoint: Option<&AmEndpoint>,
    handler: *mut u8,
    function: HandlerFunction,
) -> c_int {
    answered("AM_SetHandlerAny", || {
        let endpoint = of(endpoint)?;
        let function = function.ok_or_else(null)?;
        let _turn = endpoint.turn();
        endpoint.check_idle()?;
        let free = endpoint.functions.borrow().iter().position(Option::is_none);
        let free = free.ok_or_else(|| refused(AmError::RESOURCE, "all handlers are set"))? as u8;
        // SAFETY: null, or a place for a number, says the header.
        unsafe { crate::call::put(handler, free) }?;
        set(endpoint, free, function);
        Ok(())
    })
}

/// Maximum number of handlers.
#[unsafe(no_mangle)]
pub extern "C" fn AM_MaxNumHandlers() -> c_int {
    HANDLERS as c_int
}

/// Number of handlers of the endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetNumHandlers(endpoint: Option<&AmEndpoint>, handlers: *mut c_int) -> c_int {
    answered("AM_GetNumHandlers", || {
        of(endpoint)?;
        // SAFETY: null, or a place for a number, says the header.
        unsafe { crate::call::put(handlers, HANDLERS as c_int) }
    })
}

/// Sets the number of handlers of the endpoint: it has the maximum always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetNumHandlers(endpoint: Option<&AmEndpoint>, handlers: c_int) -> c_int {
    answered("AM_SetNumHandlers", || {
        let endpoint = of(endpoint)?;
        let handlers = usize::try_from(handlers).map_err(|_| {
            refused(AmError::BAD_ARG, &format!("an endpoint has no {handlers} handlers: 0 to {HANDLERS}"))
        })?;
        let set = endpoint.functions.borrow().iter().rposition(Option::is_some);
        if handlers > HANDLERS || set.is_some_and(|last| last >= handlers) {
            return Err(refused(AmError::RESOURCE, "so many handlers are too many, or more are set"));
        }
        Ok(())
    })
}

/// Sets functions that are called before and after each handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_SetHandlerCallbacks(
    endpoint: Option<&AmEndpoint>,
    before: BeforeHandler,
    after: AfterHandler,
) -> c_int {
    answered_in_turn("AMMPI_SetHandlerCallbacks", endpoint, |endpoint| {
        endpoint.callbacks.before.set(before);
        endpoint.callbacks.after.set(after);
        Ok(())
    })
}
