//! Traces: the steps of a run, for readers.

use std::fmt::Write;

use crate::footprint::TouchedObject;
use crate::machine::{CLOCKS, RunState, mix};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// The step.
    pub step: u64,
    /// Number of the thread that took it.
    pub thread: usize,
    /// Description of the step.
    pub what: String,
    /// Word, datum or mutex.
    pub object: String,
    /// Values and results.
    pub detail: String,
}

/// The lines as a table. Steps of the same thread form a block; its number stands where
/// it changes.
pub fn render(lines: &[TraceLine]) -> String {
    let wide = |of: fn(&TraceLine) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let (what, object) = (wide(|l| l.what.chars().count()).min(28), wide(|l| l.object.chars().count()));
    let mut text = String::from("  step  thread\n");
    let mut last = None;
    for line in lines {
        let thread = if last == Some(line.thread) { String::new() } else { line.thread.to_string() };
        last = Some(line.thread);
        let row = format!(
            "{:>6}  {thread:>6}  {:<what$}  {:<object$}  {}",
            line.step, line.what, line.object, line.detail
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

impl RunState {
    /// Returns one more line of the trace, if there is one.
    pub(crate) fn line(
        &mut self,
        thread: usize,
        what: &'static str,
        text: impl FnOnce() -> (String, String),
    ) {
        if self.is_heard(thread) {
            self.write_line(thread, what, text());
        }
    }

    /// Returns whether the trace, if there is one, takes a line of this thread's.
    fn is_heard(&self, thread: usize) -> bool {
        // A thread that looks again and again sees no change: twice is enough for the reader.
        let tired = || self.threads.get(thread).is_some_and(|t| t.futile > 2);
        self.trace.is_some() && thread < CLOCKS && !tired()
    }

    #[cold]
    fn write_line(&mut self, thread: usize, what: &'static str, (object, detail): (String, String)) {
        let step = self.steps;
        if let Some(trace) = &mut self.trace {
            trace.push(TraceLine { step, thread, what: what.into(), object, detail });
        }
    }

    /// Notes an access of a word in the run's digest, and in its trace.
    pub(crate) fn record(
        &mut self,
        thread: usize,
        what: &'static str,
        word: usize,
        is_stale: bool,
        (old, new): (Option<u64>, Option<u64>),
    ) {
        let was = old.unwrap_or_default();
        self.digest = mix(mix(self.digest, was), new.map_or(1, |new| new ^ 2));
        if self.trace.is_some() {
            let (name, latest) = (self.name_of(TouchedObject::Word(word)), self.words[word].value());
            self.line(thread, what, || {
                let detail = match (new, is_stale) {
                    (None, false) => show(was),
                    (None, true) => format!("{}, although {} is the latest", show(was), show(latest)),
                    (Some(new), false) => format!("{} -> {}", show(was), show(new)),
                    (Some(new), true) => format!("{}, overwritten by {}", show(new), show(latest)),
                };
                (name, detail)
            });
        }
    }
}

/// Small values in decimal, packed ones in hexadecimal.
pub(crate) fn show(value: u64) -> String {
    if value < 1 << 20 { value.to_string() } else { format!("{value:#x}") }
}
