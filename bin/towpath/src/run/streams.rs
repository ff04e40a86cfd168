//! Output of the launcher and, with labels, of the ranks, line by line.
//!
//! The ranks' pipes are read only as fast as the launcher's own output is read: then the ranks
//! wait, as they would without a launcher between, and the launcher does not.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::writer::{self, OutputStream, Writer};

/// Maximum length of a line, in bytes. Longer lines are broken.
const LONGEST_LINE: usize = 1 << 20;

#[derive(Debug)]
struct Stream {
    source: OwnedFd,
    target: OutputStream,
    label: String,
    /// The beginning of a line.
    rest: Vec<u8>,
}

/// Pipes from the ranks (none without labels) and the writers of the launcher's output.
#[derive(Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    width: Option<usize>,
    event: OwnedFd,
    out: Writer,
    err: Writer,
}

impl Streams {
    /// Makes streams with labels as wide as the highest of this many ranks.
    pub fn new(label: bool, processes: u32) -> io::Result<Self> {
        let event = writer::event()?;
        let mut streams = Streams {
            streams: Vec::new(),
            width: label.then(|| processes.saturating_sub(1).to_string().len()),
            out: Writer::new(OutputStream::Out, event.try_clone()?),
            err: Writer::new(OutputStream::Err, event.try_clone()?),
            event,
        };
        if label {
            streams.out.start()?;
            streams.err.start()?;
        }
        Ok(streams)
    }

    /// Takes over the output of a new process.
    pub fn add(&mut self, rank: u32, child: &mut Child) {
        let Some(width) = self.width else { return };
        self.add_as(format!("[{rank:>width$}] "), child);
    }

    fn add_as(&mut self, label: String, child: &mut Child) {
        let sources = [
            (child.stdout.take().map(OwnedFd::from), OutputStream::Out),
            (child.stderr.take().map(OwnedFd::from), OutputStream::Err),
        ];
        for (source, target) in sources {
            if let Some(source) = source {
                self.streams.push(Stream { source, target, label: label.clone(), rest: Vec::new() });
            }
        }
    }

    /// Takes over the output of a process that labels its lines itself.
    pub fn add_labelled(&mut self, child: &mut Child) {
        if self.width.is_some() {
            self.add_as(String::new(), child);
        }
    }

    /// Queues a line for standard error.
    pub fn remark(&mut self, text: fmt::Arguments<'_>) {
        self.err.push(format!("{text}\n").into_bytes());
    }

    /// Descriptors to poll: the writers' event, then the streams whose bytes can be
    /// passed on now.
    pub fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        let open = [OutputStream::Out, OutputStream::Err].map(|target| !self.writer(target).is_full());
        let streams = self.streams.iter().map(move |s| {
            let flags = if open[s.target as usize] { PollFlags::IN } else { PollFlags::empty() };
            (s, flags)
        });
        // A hang-up is reported in any case: a stream that may not be read is left out by an
        // impossible descriptor.
        std::iter::once(PollFd::new(&self.event, PollFlags::IN)).chain(streams.map(|(s, flags)| {
            if flags.is_empty() {
                PollFd::new(&self.event, flags)
            } else {
                PollFd::from_borrowed_fd(s.source.as_fd(), flags)
            }
        }))
    }

    /// Passes on the bytes of those [sources](Self::sources) that are ready.
    pub fn read(&mut self, ready: &[bool]) {
        if ready.first() == Some(&true) {
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        }
        let mut ready = ready.iter().skip(1);
        let mut streams = std::mem::take(&mut self.streams);
        streams.retain_mut(|stream| {
            let writer = match stream.target {
                OutputStream::Out => &mut self.out,
                OutputStream::Err => &mut self.err,
            };
            let is_ready = ready.next().copied().unwrap_or(false);
            // As without labels: a rank whose output leads nowhere learns of it when it writes.
            writer.failure().is_none() && (!is_ready || stream.read(writer))
        });
        self.streams = streams;
    }

    /// Passes on the bytes that are left in the pipes after all ranks have ended.
    ///
    /// Does not wait for more. Returns whether all is written; if not, a poll of the
    /// [sources](Self::sources) says when to call it again.
    pub fn finish(&mut self) -> bool {
        loop {
            let mut sources: Vec<PollFd<'_>> = self.sources().collect();
            match poll(&mut sources, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return true,
            }
            let ready: Vec<bool> = sources.iter().map(|s| !s.revents().is_empty()).collect();
            drop(sources);
            self.read(&ready);
            let full = [OutputStream::Out, OutputStream::Err].map(|target| self.writer(target).is_full());
            if !ready.iter().skip(1).any(|&ready| ready) {
                // Nothing more comes from those that may be read.
                let (over, waiting) =
                    std::mem::take(&mut self.streams).into_iter().partition(|s| !full[s.target as usize]);
                self.streams = waiting;
                for mut stream in over as Vec<Stream> {
                    stream.end(self.writer_mut(stream.target));
                }
                return self.streams.is_empty() && self.out.is_idle() && self.err.is_idle();
            }
        }
    }

    /// Stream and error by which output of the ranks was lost. Remarks don't count.
    pub fn failure(&self) -> Option<(OutputStream, Errno)> {
        self.width?;
        [&self.out, &self.err].into_iter().find_map(|w| w.failure().map(|e| (w.target(), e)))
    }

    fn writer(&self, target: OutputStream) -> &Writer {
        match target {
            OutputStream::Out => &self.out,
            OutputStream::Err => &self.err,
        }
    }

    fn writer_mut(&mut self, target: OutputStream) -> &mut Writer {
        match target {
            OutputStream::Out => &mut self.out,
            OutputStream::Err => &mut self.err,
        }
    }
}

impl Stream {
    /// Reads once. Returns false at the end of the stream.
    fn read(&mut self, writer: &mut Writer) -> bool {
        let mut buffer = [0u8; 1 << 16];
        match rustix::io::read(&self.source, &mut buffer) {
            Ok(0) => {
                self.end(writer);
                false
            }
            Ok(n) => {
                writer.push(labelled(&self.label, &mut self.rest, &buffer[..n]));
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => {
                self.end(writer);
                false
            }
        }
    }

    /// Writes the last line, with an end if it has none.
    fn end(&mut self, writer: &mut Writer) {
        if !self.rest.is_empty() {
            writer.push(labelled(&self.label, &mut self.rest, b"\n"));
        }
    }
}

/// Complete lines with their label. `rest` keeps the beginning of a line for later.
fn labelled(label: &str, rest: &mut Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rest.len() + bytes.len() + bytes.len() / 16 + label.len());
    for piece in bytes.split_inclusive(|&b| b == b'\n') {
        let whole = piece.ends_with(b"\n");
        if !whole && rest.len() + piece.len() <= LONGEST_LINE {
            rest.extend_from_slice(piece);
            continue;
        }
        out.extend_from_slice(label.as_bytes());
        out.append(rest);
        out.extend_from_slice(piece);
        if !whole {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines() {
        let mut rest = Vec::new();
        assert_eq!(labelled("[0] ", &mut rest, b"ab"), b"");
        assert_eq!(labelled("[0] ", &mut rest, b"c\n\nd\ne"), b"[0] abc\n[0] \n[0] d\n");
        assert_eq!(rest, b"e");
        assert_eq!(labelled("[0] ", &mut rest, b"\n"), b"[0] e\n");
        assert_eq!(rest, b"");
    }

    #[test]
    fn endless_lines_are_broken_and_nothing_is_lost() {
        let (mut rest, mut out) = (Vec::new(), Vec::new());
        let piece = [b'x'; 1 << 16];
        for _ in 0..40 {
            out.extend(labelled("[0] ", &mut rest, &piece));
            assert!(rest.len() <= LONGEST_LINE);
        }
        out.extend(labelled("[0] ", &mut rest, b"\n"));
        let lines: Vec<&[u8]> = out.split(|&b| b == b'\n').filter(|l| !l.is_empty()).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|l| l.starts_with(b"[0] ")));
        assert_eq!(out.iter().filter(|&&b| b == b'x').count(), 40 << 16);
    }
}
