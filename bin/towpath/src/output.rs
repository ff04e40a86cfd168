//! Output of the command: answers on standard output, remarks on standard error.
//!
//! Nothing else in this crate writes to either: lints refuse `println!`, `eprintln!`, `io::stdout`
//! and `io::stderr`. An answer that can't be written is a failure: quiet if the reader has closed
//! the pipe, an error otherwise. A remark that can't be written is dropped: a launcher goes on
//! without it.
#![allow(clippy::disallowed_methods)]

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::{CommandFailure, Outcome};

/// Exit code when the reader of the answer has gone: that of a death by SIGPIPE.
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
pub fn answer_line(text: fmt::Arguments<'_>) -> Result<(), CommandFailure> {
    answer(&format!("{text}\n"))
}

/// Writes text to standard output as it is.
pub fn answer(text: &str) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| unwritten(&e))
}

/// Failure to write to standard output.
pub fn unwritten(error: &io::Error) -> CommandFailure {
    match error.kind() {
        ErrorKind::BrokenPipe => CommandFailure { message: String::new(), code: READER_GONE },
        _ => CommandFailure::new(format!(
            "standard output can't be written: {error}; make room, or send it somewhere else"
        )),
    }
}

/// Writes a line to standard error, in one piece: see [`remark!`].
pub fn remark_line(text: fmt::Arguments<'_>) {
    remark_text(&format!("{text}\n"));
}

/// Writes text to standard error as it is, if that is possible.
pub fn remark_text(text: &str) {
    // A remark has no other way out.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Text with control characters escaped, except ends of lines and tabs.
///
/// Messages may quote names that other users have given.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => out.push(character),
            other if other.is_control() => out.extend(other.escape_default()),
            other => out.push(other),
        }
    }
    out
}

/// Returns whether standard error is a terminal, which shows a progress bar.
#[cfg(feature = "lab")]
pub fn is_watched() -> bool {
    io::IsTerminal::is_terminal(&io::stderr())
}

/// Writes clap's text: help and version as answers, errors as remarks.
pub fn of_arguments(said: &clap::Error) -> Outcome {
    if said.use_stderr() {
        let _ = said.print();
    } else {
        said.print().and_then(|()| io::stdout().flush()).map_err(|e| unwritten(&e))?;
    }
    Ok(ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(2)))
}
