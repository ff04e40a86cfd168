//! Traces: the steps of a run, for readers.

use std::fmt::Write;

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
