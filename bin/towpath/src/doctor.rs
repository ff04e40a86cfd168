//! `towpath doctor`: a report on this machine, its worlds, and leftovers of dead ones.

mod probes;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_shm::{named_files, named_worlds_directory, shown, shown_size};

use crate::output::{self, say};
use crate::{CommandFailure, Outcome};

#[derive(Debug, Args)]
#[command(
    about = "Report on this machine, and on leftovers of dead worlds",
    long_about = "Tries each facility of the kernel and the machine that Towpath uses and reports whether it is there and what it is for. Then lists the named worlds, the files that dead worlds have left behind, and MPICH's own files in /dev/shm (in $TOWPATH_MPICH_DIR, if that is set) with the command that removes those that no process uses.",
    after_help = "Examples:
  towpath doctor                         a table
  towpath doctor --json | jq .works      true or false

`NO` marks a facility that Towpath can't do without; `no` one that it does without.

Exit codes: 0 Towpath works here; 1 a facility that it needs is missing."
)]
pub struct Arguments {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Result of one probe.
#[derive(Debug, Serialize)]
struct ProbeResult {
    /// Short and stable name, for programs.
    key: &'static str,
    /// Name in the table.
    name: &'static str,
    available: bool,
    /// True if Towpath does not work without it.
    needed: bool,
    value: String,
    meaning: String,
}

impl ProbeResult {
    fn new(key: &'static str, name: &'static str, available: bool, value: String, meaning: &str) -> Self {
        ProbeResult { key, name, available, needed: false, value, meaning: meaning.to_owned() }
    }

    fn needed(self) -> Self {
        ProbeResult { needed: true, ..self }
    }
}

#[derive(Debug, Serialize)]
struct WorldLine {
    /// Name of the world, escaped if Towpath would not give it.
    name: String,
    #[serde(flatten)]
    path: Path,
    bytes: u64,
    alive: bool,
}

/// File that has the name of a world and is none.
#[derive(Debug, Serialize)]
struct ForeignFile {
    #[serde(flatten)]
    path: Path,
    why: String,
}

/// A file of MPICH's own.
#[derive(Debug, Serialize)]
struct MpichLeftover {
    #[serde(flatten)]
    path: Path,
    bytes: u64,
    /// Null if the mappings of a process can't be read.
    mapped: Option<bool>,
    mapped_by: Vec<u32>,
    /// The processes that map it, in words.
    users: String,
    /// Command that removes the file, unless a process maps it.
    remedy: Option<String>,
}

impl MpichLeftover {
    fn new(file: crate::mpich::MpichFile) -> Self {
        MpichLeftover {
            path: Path::new(&file.path),
            bytes: file.bytes,
            mapped: file.mapped(),
            users: file.users(),
            remedy: file.remedy(),
            mapped_by: file.mapped_by,
        }
    }
}

/// A path in two forms: with replacement characters for non-UTF-8 bytes, and escaped.
#[derive(Debug, Serialize)]
struct Path {
    #[serde(rename = "path")]
    lossy: String,
    #[serde(rename = "shown")]
    text: String,
}

impl Path {
    fn new(path: &std::path::Path) -> Self {
        Path { lossy: path.to_string_lossy().into_owned(), text: shown(path) }
    }
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    version: &'static str,
    layout: u32,
    works: bool,
    findings: Vec<ProbeResult>,
    directory: String,
    worlds: Vec<WorldLine>,
    others: Vec<ForeignFile>,
    mpich: Vec<MpichLeftover>,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let findings = probes::all();
    let found = named_files().map_err(CommandFailure::new)?;
    let world = |w: towpath_shm::Leftover| WorldLine {
        name: w.name,
        path: Path::new(&w.path),
        bytes: w.bytes,
        alive: w.alive,
    };
    let other = |o: towpath_shm::OtherFile| ForeignFile { path: Path::new(&o.path), why: o.why };
    let report = DoctorReport {
        version: env!("CARGO_PKG_VERSION"),
        layout: towpath_shm::LAYOUT_VERSION,
        works: findings.iter().all(|f| f.available || !f.needed),
        findings,
        directory: shown(named_worlds_directory()),
        worlds: found.worlds.into_iter().map(world).collect(),
        others: found.others.into_iter().map(other).collect(),
        mpich: crate::mpich::files()?.into_iter().map(MpichLeftover::new).collect(),
    };
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&report).map_err(CommandFailure::new)?)?;
    } else {
        output::answer(&text(&report))?;
    }
    Ok(if report.works { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The report as a table and sentences.
fn text(report: &DoctorReport) -> String {
    let mut lines = Vec::new();
    for finding in &report.findings {
        let mark = match (finding.available, finding.needed) {
            (true, _) => "yes",
            (false, true) => "NO",
            (false, false) => "no",
        };
        lines.extend(row([finding.name, mark, &finding.value, &finding.meaning]));
    }
    lines.push(String::new());
    let (alive, dead): (Vec<&WorldLine>, Vec<&WorldLine>) = report.worlds.iter().partition(|w| w.alive);
    for world in &alive {
        lines.push(format!(
            "world {} is alive: {} in {}",
            world.name,
            shown_size(world.bytes),
            world.path.text
        ));
    }
    for world in &dead {
        lines.push(format!("left behind by a dead world: {} ({})", world.path.text, shown_size(world.bytes)));
    }
    for other in &report.others {
        lines.push(format!("named like a world, but none: {} ({})", other.path.text, other.why));
    }
    if dead.is_empty() {
        lines.push(format!("No dead world has left anything behind in {}.", report.directory));
    } else {
        let total: u64 = dead.iter().map(|w| w.bytes).sum();
        lines.push(format!("`towpath clean` frees {}.", shown_size(total)));
    }
    for file in &report.mpich {
        let (path, size, users) = (&file.path.text, shown_size(file.bytes), &file.users);
        lines.push(match (&file.remedy, file.mapped) {
            (Some(remedy), Some(_)) => format!("left behind by MPICH: {path} ({size}, {users}): {remedy}"),
            (Some(remedy), None) => {
                format!("MPICH's own: {path} ({size}, {users}); if no MPI program runs: {remedy}")
            }
            (None, _) => format!("MPICH's own: {path} ({size}, {users})"),
        });
    }
    if !report.works {
        lines.push("Towpath does not work here: what is marked NO is needed.".to_owned());
    }
    lines.join("\n") + "\n"
}

/// Width of each column of the findings, in characters.
const COLUMNS: [usize; 4] = [17, 3, 30, 44];

/// Lines of one row of the findings. Cells that are too long continue on the next line.
fn row(cells: [&str; COLUMNS.len()]) -> Vec<String> {
    let cells: Vec<Vec<String>> =
        cells.iter().zip(COLUMNS).map(|(text, width)| wrapped(text, width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |column: usize, line: usize| {
        let text = cells[column].get(line).map_or("", String::as_str);
        let width = COLUMNS[column];
        format!("{text:width$}")
    };
    let line = |n| (0..COLUMNS.len()).map(|column| cell(column, n)).collect::<Vec<_>>().join("  ");
    (0..height).map(|n| line(n).trim_end().to_owned()).collect()
}

/// Text in lines of at most this width, unless a word is longer.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_cells_continue_below_their_column() {
        let lines =
            row(["name", "NO", "a value", "words that go on for longer than the last column is wide"]);
        let column = COLUMNS[..3].iter().sum::<usize>() + 6;
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("name ") && lines[0].ends_with("than the last"), "{lines:?}");
        assert_eq!(lines[1], format!("{:column$}column is wide", ""));
    }

    #[test]
    fn every_finding_says_what_it_means() {
        let findings = probes::all();
        for finding in &findings {
            assert!(!finding.value.is_empty() && !finding.meaning.is_empty(), "{}", finding.key);
        }
        let mut keys: Vec<_> = findings.iter().map(|f| f.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), findings.len());
    }
}
