//! Text on a descriptor, without allocation.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int};
use core::fmt::{self, Write};

use crate::reporter;

/// Text on a descriptor, written when its buffer is full or flushed.
#[derive(Debug)]
pub struct TextWriter {
    descriptor: c_int,
    bytes: [u8; 4096],
    length: usize,
}

impl TextWriter {
    /// A writer to this descriptor, which remains open.
    pub fn new(descriptor: c_int) -> TextWriter {
        TextWriter { descriptor, bytes: [0; 4096], length: 0 }
    }

    /// Adds a text.
    pub fn put(&mut self, text: fmt::Arguments<'_>) {
        // It fails never.
        let _ = self.write_fmt(text);
    }

    /// Writes the buffer. Text that the system does not take is lost.
    pub fn flush(&mut self) {
        let mut begin = 0;
        while begin < self.length {
            let rest = &self.bytes[begin..self.length];
            // SAFETY: a text of this length.
            let written = unsafe { libc::write(self.descriptor, rest.as_ptr().cast(), rest.len()) };
            let Ok(written @ 1..) = usize::try_from(written) else { break };
            begin += written;
        }
        self.length = 0;
    }
}

impl Write for TextWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.length == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

/// Lines on a descriptor.
#[derive(Debug)]
pub struct ReportLines {
    /// Number of lines so far.
    pub lines: u32,
    writer: TextWriter,
}

impl ReportLines {
    pub fn new(descriptor: c_int) -> ReportLines {
        ReportLines { lines: 0, writer: TextWriter::new(descriptor) }
    }

    /// Writes a line.
    pub fn line(&mut self, text: fmt::Arguments<'_>) {
        self.writer.put(format_args!("towpath preload: process {}: {text}\n", process()));
        self.writer.flush();
        self.lines += 1;
    }
}

/// Number of this process; of the program's, in its reporter.
pub fn process() -> u64 {
    // SAFETY: no preconditions.
    reporter::writes_for().unwrap_or_else(|| unsafe { libc::getpid() as u64 })
}

/// Ends the process: this libc lacks something, and its objects would be misread.
#[cold]
pub fn give_up(missing: &CStr) -> ! {
    for part in
        [c"libtowpath-pthread: this libc has no ", missing, c": run the program without `towpath preload`\n"]
    {
        write(part.to_bytes());
    }
    // SAFETY: no preconditions.
    unsafe { libc::_exit(125) }
}

/// Writes to standard error, without a lock.
pub fn write(text: &[u8]) -> c_int {
    // SAFETY: a text of this length.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) as c_int }
}

/// Text in HTML and SVG.
#[derive(Debug)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|letter| match letter {
            '&' => self.0.write_str("&amp;"),
            '<' => self.0.write_str("&lt;"),
            '>' => self.0.write_str("&gt;"),
            '"' => self.0.write_str("&quot;"),
            letter => self.0.write_char(letter),
        })
    }
}

/// Time in nanoseconds, with a unit of its size.
#[derive(Clone, Copy, Debug)]
pub struct TimeText(pub u64);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1e3, "µs"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        let value = self.0 as f64 / unit;
        let digits = if value < 10.0 { 1 } else { 0 };
        write!(f, "{value:.digits$} {name}")
    }
}
