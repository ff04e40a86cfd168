//! Results on the console: tables as text for stdout, progress on stderr if that is a
//! terminal.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use comfy_table::{
    Cell as ConsoleCell, CellAlignment, ColumnConstraint, ContentArrangement, Table as ConsoleTable,
    TableComponent, presets,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Report;
use crate::results::Results;
use crate::table::{Kind, Table};

/// Writes a remark and the end of the line to standard error, if that is possible: a
/// measurement goes on without it.
#[allow(clippy::disallowed_methods)]
pub fn remark(text: impl fmt::Display) {
    // A remark has no other way out.
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Width of a console that does not tell it, in columns.
const WIDTH: u16 = 120;

/// The machine of a run in a line or two.
fn machine(results: &Results) -> String {
    let host = &results.host;
    let mut text = format!(
        "{}, {}, {}, {}; pinning: {}; commit {}; {}\n",
        host.cpu,
        host.cores_text(),
        host.virtualisation,
        host.kernel,
        host.pinning,
        host.commit,
        host.date
    );
    if !host.not_available.is_empty() {
        let _ = writeln!(text, "not available here: {}", host.not_available.join("; "));
    }
    text
}

/// Everything that a run has found, as text; the recommendation is the last line.
pub fn render(results: &Results, report: &Report) -> String {
    let mut text = machine(results);
    for table in report.tables().chain(&report.targets).filter(|t| !t.rows.is_empty()) {
        let _ = writeln!(text, "\n{}\n{}", table.title, render_table(table));
    }
    if !report.claims.is_empty() {
        let _ = writeln!(text, "\nThe papers' claims");
    }
    for claim in &report.claims {
        let _ = writeln!(text, "  {}: {}: {}. Here: {}", claim.id, claim.what, claim.verdict, claim.here);
        for (name, detail) in &claim.details {
            let _ = writeln!(text, "      {name}: {detail}");
        }
    }
    let missing = results.missing_summary();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot measured");
        for (experiments, contender, reason) in missing {
            let _ = writeln!(text, "  {contender} ({experiments}): {reason}");
        }
    }
    let _ = writeln!(text, "\n{}", report.advice);
    text
}

/// A table as text.
pub fn render_table(table: &Table) -> String {
    let mut console = ConsoleTable::new();
    console.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    console.remove_style(TableComponent::HorizontalLines).remove_style(TableComponent::MiddleIntersections);
    if console.width().is_none() {
        console.set_width(WIDTH);
    }
    console.set_header(table.header.clone());
    for row in &table.rows {
        console.add_row(row.iter().map(|cell| {
            let text = match cell.kind {
                Kind::Best => format!("*{}", cell.text),
                _ => cell.text.clone(),
            };
            let left = cell.kind == Kind::Text;
            let alignment = if left { CellAlignment::Left } else { CellAlignment::Right };
            ConsoleCell::new(text).set_alignment(alignment)
        }));
    }
    if table.experiment != "targets"
        && let Some(names) = console.column_mut(0)
    {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    let mut text = console.to_string();
    if table.rows.iter().flatten().any(|c| c.kind == Kind::Best) {
        text.push_str("\n* the best of its column");
    }
    text
}

/// The progress of a run: a bar on stderr if that is a terminal, and otherwise nothing.
pub struct ConsoleBar {
    bar: ProgressBar,
}

impl ConsoleBar {
    /// A bar, if `wanted` and if standard error is a terminal.
    pub fn new(wanted: bool) -> ConsoleBar {
        // No ticking thread: processes are forked while the bar is shown.
        #[allow(clippy::disallowed_methods)]
        let watched = io::stderr().is_terminal();
        let bar = if wanted && watched { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let style =
            ProgressStyle::with_template("{elapsed:>4} {bar:24} {pos:>4}/{len}, {eta} left {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        ConsoleBar { bar }
    }

    /// Announces that many steps more, or fewer if negative.
    pub fn expect(&self, steps: i64) {
        let length = self.bar.length().unwrap_or(0).saturating_add_signed(steps);
        self.bar.set_length(length);
    }

    /// The step before this one is done, and this one begins.
    pub fn step(&self, what: &str) {
        self.bar.set_message(what.to_string());
        self.bar.inc(1);
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn everything_is_rendered_and_the_advice_is_last() {
        let (results, report) = made_up();
        let text = render(&results, &report);
        for words in ["All parameters", "L3", "at most 1.25", "Not measured", "mpich is not installed"] {
            assert!(text.contains(words), "{words} is missing from\n{text}");
        }
        assert_eq!(text.lines().last(), Some("Use towpath."));
    }

    #[test]
    fn progress_counts_what_it_is_told() {
        let progress = ConsoleBar::new(false);
        progress.expect(10);
        progress.expect(-4);
        progress.step("a");
        assert_eq!((progress.bar.length(), progress.bar.position()), (Some(6), 1));
        progress.finish();
    }
}
