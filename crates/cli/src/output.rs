//! Output of the command: answers on standard output, remarks on standard error.
//!
//! Nothing else in this crate writes to either (a lint refuses `println!` and `eprintln!`). An answer that can't be
//! written is a failure: quiet if the reader has closed the pipe, an error otherwise. A remark that can't be written is
//! dropped: a launcher goes on without it.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use crate::Failure;

/// Exit code when the reader of standard output has gone: what a shell shows for a program that SIGPIPE has ended.
const READER_GONE: u8 = 141;

/// Writes a line of the answer to standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::answer_line(format_args!($($text)*)) };
}
/// Writes a line to standard error, if that is possible.
macro_rules! remark {
    ($($text:tt)*) => { $crate::output::remark_line(format_args!($($text)*)) };
}
pub(crate) use {remark, say};

/// Writes a line to standard output: see [`say!`].
pub fn answer_line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    answer(format_args!("{text}\n"))
}

/// Writes text to standard output as it is.
pub fn answer(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_fmt(text).and_then(|()| out.flush()).map_err(|e| unwritten(&e))
}

/// Failure to write to standard output.
pub fn unwritten(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure { message: String::new(), code: READER_GONE },
        _ => Failure::new(format!("writing to standard output: {error}")),
    }
}

/// Writes a line to standard error, in one piece: see [`remark!`].
pub fn remark_line(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
