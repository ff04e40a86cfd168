//! The ranks' output, line by line, with the rank before each line.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A line longer than this is broken: somebody writes without end.
const LONGEST_LINE: usize = 16 << 20;

#[derive(Clone, Copy, Debug)]
enum Target {
    Out,
    Err,
}

#[derive(Debug)]
struct Stream {
    source: OwnedFd,
    target: Target,
    label: String,
    /// The beginning of a line.
    rest: Vec<u8>,
}

/// All pipes from the ranks; none without labels.
#[derive(Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    width: Option<usize>,
}

impl Streams {
    /// Labels as wide as the highest rank of so many.
    pub fn new(label: bool, processes: u32) -> Self {
        Streams { streams: Vec::new(), width: label.then(|| processes.saturating_sub(1).to_string().len()) }
    }

    /// Takes a new process's output.
    pub fn add(&mut self, rank: u32, child: &mut Child) {
        let Some(width) = self.width else { return };
        let label = format!("[{rank:>width$}] ");
        let sources = [
            (child.stdout.take().map(OwnedFd::from), Target::Out),
            (child.stderr.take().map(OwnedFd::from), Target::Err),
        ];
        for (source, target) in sources {
            if let Some(source) = source {
                self.streams.push(Stream { source, target, label: label.clone(), rest: Vec::new() });
            }
        }
    }

    /// What to poll.
    pub fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.streams.iter().map(|s| PollFd::from_borrowed_fd(s.source.as_fd(), PollFlags::IN))
    }

    /// Passes on what has come, from the streams of which this says that they are ready.
    pub fn read(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        self.streams.retain_mut(|stream| !ready.next().copied().unwrap_or(false) || stream.read());
    }

    /// After all have ended: passes on what is still in the pipes, without waiting for more.
    pub fn finish(&mut self) {
        while !self.streams.is_empty() {
            let mut sources: Vec<PollFd<'_>> = self.sources().collect();
            match poll(&mut sources, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let ready: Vec<bool> = sources.iter().map(|s| !s.revents().is_empty()).collect();
            drop(sources);
            self.read(&ready);
        }
        for mut stream in self.streams.drain(..) {
            stream.end();
        }
    }
}

impl Stream {
    /// Reads once. Returns whether to go on.
    fn read(&mut self) -> bool {
        let mut buffer = [0u8; 1 << 16];
        match rustix::io::read(&self.source, &mut buffer) {
            Ok(0) => {
                self.end();
                false
            }
            Ok(n) => self.take(&buffer[..n]).is_ok(),
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => {
                self.end();
                false
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.rest.extend_from_slice(bytes);
        let (lines, rest) = labelled(&self.label, &self.rest);
        let rest = self.rest.split_off(rest);
        self.rest = rest;
        self.write(&lines)?;
        if self.rest.len() > LONGEST_LINE {
            self.end();
        }
        Ok(())
    }

    /// A last line without an end gets one.
    fn end(&mut self) {
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
            let (lines, _) = labelled(&self.label, &self.rest);
            self.rest.clear();
            let _ = self.write(&lines);
        }
    }

    /// Nobody else of this process writes: whole lines stay whole.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self.target {
            Target::Out => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            Target::Err => io::stderr().lock().write_all(bytes),
        }
    }
}

/// The whole lines with their label, and where the rest begins.
fn labelled(label: &str, bytes: &[u8]) -> (Vec<u8>, usize) {
    let end = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let mut out = Vec::with_capacity(end + end / 16 + label.len());
    for line in bytes[..end].split_inclusive(|&b| b == b'\n') {
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(line);
    }
    (out, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines() {
        assert_eq!(labelled("[0] ", b"ab"), (vec![], 0));
        assert_eq!(labelled("[0] ", b"a\n\nb\nc"), (b"[0] a\n[0] \n[0] b\n".to_vec(), 5));
    }
}
