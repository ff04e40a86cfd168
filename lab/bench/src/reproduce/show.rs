//! What `towpath reproduce` shows: one table of all claims, and our counterparts of the
//! papers' figures.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::{Judged, Verdict, lost, recorded};
use crate::console::render_table;
use crate::error::Error;
use crate::report::{Section, plain_page, write_files};
use crate::tables::{Cell, Kind, Table};

/// All claims as one table.
pub fn table(judged: &[Judged]) -> Table {
    let names = ["", "the paper says", "paper's value", "ours: median (from … to)", "tolerance", "verdict"];
    let rows = judged
        .iter()
        .map(|j| {
            let kind = match j.finding.verdict {
                _ if j.claim.input => Kind::Text,
                Verdict::Reproduced => Kind::Good,
                Verdict::NotReproduced(_) => Kind::Bad,
                Verdict::NotCheckable(_) => Kind::Missing,
            };
            let why = j.finding.verdict.why();
            let verdict = match (j.claim.input, why.is_empty()) {
                (false, true) => j.word().to_string(),
                (false, false) => format!("{}: {why}", j.word()),
                (true, true) => "input: a parameter was chosen by it, so it does not count (it fits)".into(),
                (true, false) => format!(
                    "input: a parameter was chosen by it, so it does not count (it does not fit: {why})"
                ),
            };
            vec![
                Cell::new(j.claim.id, Kind::Text),
                Cell::new(j.claim.what, Kind::Text),
                Cell::new(j.claim.paper, Kind::Paper),
                Cell::new(j.finding.ours.clone(), Kind::Text),
                Cell::new(j.claim.tolerance, Kind::Text),
                Cell::new(verdict, kind),
            ]
        })
        .collect();
    Table {
        experiment: "claims",
        title: "The papers' claims on their machines, simulated".into(),
        note: "A claim is reproduced if it holds for the medians and for every seed alone. Inputs, by which a parameter was chosen, never count.".into(),
        header: names.map(str::to_string).to_vec(),
        rows,
    }
}

/// How many are what.
pub fn summary(judged: &[Judged]) -> String {
    let count = |word: &str| judged.iter().filter(|j| j.word() == word).count();
    let mut text = format!(
        "{} of {} claims reproduced; {} not reproduced, {} not checkable, {} inputs that do not count",
        count("reproduced"),
        judged.len(),
        count("not reproduced"),
        count("not checkable"),
        count("input"),
    );
    for j in lost(judged) {
        let _ = write!(text, "\nLOST: {} was reproduced before: {}", j.claim.id, j.finding.verdict.why());
    }
    for j in judged.iter().filter(|j| j.word() == "reproduced" && recorded(j.claim.id) != Some("reproduced"))
    {
        let _ = write!(text, "\nnew: {} is reproduced now (record it with --record)", j.claim.id);
    }
    text
}

/// Everything as text.
pub fn render(judged: &[Judged]) -> String {
    let table = table(judged);
    format!("{}\n{}\n\n{}\n", table.title, render_table(&table), summary(judged))
}

/// One JSON object for each claim.
pub fn to_json_lines(judged: &[Judged], seeds: u32) -> String {
    let line = |j: &Judged| {
        json!({
            "experiment": "reproduce", "claim": j.claim.id, "what": j.claim.what, "paper": j.claim.paper, "ours": j.finding.ours,
            "tolerance": j.claim.tolerance, "verdict": j.word(), "why": j.finding.verdict.why(), "input": j.claim.input, "seeds": seeds,
        })
        .to_string()
            + "\n"
    };
    judged.iter().map(line).collect()
}

/// Writes `results.jsonl` and `index.html` into a folder, which is made if need be.
///
/// # Errors
///
/// The system's, with the folder's name.
pub fn write(folder: &Path, judged: &[Judged], seeds: u32) -> Result<(), Error> {
    let plots = judged.iter().flat_map(|j| j.finding.plots.clone()).collect();
    let section = Section { table: table(judged), plots };
    let page =
        plain_page("What the papers found, on their machines, simulated", &summary(judged), &[section], &[]);
    write_files(folder, &to_json_lines(judged, seeds), &page)
}
