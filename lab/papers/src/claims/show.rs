//! The view of `towpath reproduce`: all claims, and our counterparts of the papers'
//! figures.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::figures::exhibitions;
use super::standing::depends_on;
use super::{Evidence, Judged, Verdict, lost, recorded};
use towpath_host::Error;
use towpath_report::ClaimLine;
use towpath_report::console::render_table;
use towpath_report::files::write_files;
use towpath_report::page::exhibition_page;
use towpath_report::table::{Cell, Kind, Table};

/// Claims as lines that open to the rest.
pub fn lines(judged: &[Judged]) -> Vec<ClaimLine> {
    judged.iter().map(line).collect()
}

/// A claim as a line that opens to the rest.
pub(super) fn line(judged: &Judged) -> ClaimLine {
    let Judged { claim, finding, .. } = judged;
    let kind = match finding.verdict {
        _ if claim.input => Kind::Text,
        Verdict::Reproduced => Kind::Good,
        Verdict::NotReproduced(_) => Kind::Bad,
        Verdict::NotCheckable(_) => Kind::Missing,
    };
    let mut details = vec![("tolerance", claim.tolerance.to_string())];
    if !judged.waiting().is_empty() {
        details.push(("waiting", judged.waiting().to_string()));
    }
    let why = finding.verdict.why();
    if claim.input {
        let fits = if why.is_empty() { "it fits".into() } else { format!("it does not fit: {why}") };
        details.push(("why", format!("a parameter was chosen by it, so it does not count ({fits})")));
    } else if !why.is_empty() {
        details.push(("why", why.to_string()));
    }
    if !finding.caveat.is_empty() {
        details.push(("note", finding.caveat.clone()));
    }
    if judged.evidence == Evidence::Simulated {
        let seeds =
            if judged.seeds == 1 { "by one seed".into() } else { format!("by {} seeds", judged.seeds) };
        details.push(("judged", seeds));
        details.push(("depends on", depends_on(claim.id).to_string()));
    }
    if !finding.sabotage.is_empty() {
        details.push(("sabotage", trials(judged)));
    }
    ClaimLine {
        id: claim.id,
        what: claim.what,
        paper: claim.paper,
        here: finding.ours.clone(),
        verdict: judged.word(),
        kind,
        details,
    }
}

/// The sabotage of a claim, and whether it was noticed.
fn trials(judged: &Judged) -> String {
    judged.finding.sabotage.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// All claims as one table, for a terminal.
pub fn table(judged: &[Judged]) -> Table {
    let names = [
        "",
        "the paper says",
        "paper's value",
        "ours: median (from … to)",
        "tolerance",
        "verdict",
        "depends on; sabotage; seeds",
    ];
    let row = |j: &Judged| {
        let line = line(j);
        let why = line.details.iter().find(|(name, _)| *name == "why");
        let verdict = why.map_or(line.verdict.to_string(), |(_, why)| format!("{}: {why}", line.verdict));
        let of = |wanted: &str| line.details.iter().find(|(name, _)| *name == wanted);
        let standing = ["depends on", "sabotage", "judged"].into_iter().filter_map(of);
        let standing: Vec<&str> = standing.map(|(_, text)| text.as_str()).collect();
        vec![
            Cell::new(line.id, Kind::Text),
            Cell::new(line.what, Kind::Text),
            Cell::new(line.paper, Kind::Paper),
            Cell::new(line.here, Kind::Text),
            Cell::new(j.claim.tolerance, Kind::Text),
            Cell::new(verdict, line.kind),
            Cell::new(standing.join("; "), Kind::Text),
        ]
    };
    Table {
        experiment: "claims",
        title: "The papers' claims on their machines, simulated".into(),
        note: "A claim is reproduced if it holds for the medians and for every seed alone; one that the first seed contradicts is tried with no other. Inputs, by which a parameter was chosen, never count.".into(),
        header: names.map(str::to_string).to_vec(),
        rows: judged.iter().map(row).collect(),
    }
}

/// Number of claims of each verdict, and the changes since the verdicts were recorded.
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
    let cant_tell = |j: &&Judged| {
        let trials = &j.finding.sabotage;
        !trials.is_empty() && trials.iter().all(|trial| trial.against.is_none())
    };
    let reproduced = judged.iter().filter(|j| j.word() == "reproduced");
    let cant_tell: Vec<&str> = reproduced.filter(cant_tell).map(|j| j.claim.id).collect();
    if !cant_tell.is_empty() {
        let _ = write!(text, "\nheld without the effect, too, and so can't tell: {}", cant_tell.join(", "));
    }
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
pub fn to_json_lines(judged: &[Judged]) -> String {
    let line = |j: &Judged| {
        json!({
            "experiment": "reproduce", "claim": j.claim.id, "what": j.claim.what, "paper": j.claim.paper, "ours": j.finding.ours,
            "tolerance": j.claim.tolerance, "verdict": j.word(), "why": j.finding.verdict.why(), "input": j.claim.input, "seeds": j.seeds,
            "depends_on": depends_on(j.claim.id), "sabotage": trials(j),
        })
        .to_string()
            + "\n"
    };
    judged.iter().map(line).collect()
}

/// The report of a run that has not ended: a line in `results.jsonl` for each claim that
/// was judged. A run that is cut off keeps them.
#[derive(Debug)]
pub struct GrowingReport(Mutex<File>);

impl GrowingReport {
    /// Makes the folder if need be, and replaces the report that is there.
    ///
    /// # Errors
    ///
    /// The system's, with the folder's name.
    pub fn begin(folder: &Path) -> Result<GrowingReport, Error> {
        let note =
            "This run has not ended, or was cut off: results.jsonl has the claims that were judged so far.";
        write_files(folder, "", &exhibition_page(TITLE, note, &[]))?;
        let path = folder.join("results.jsonl");
        let file = File::options().append(true).open(&path);
        Ok(GrowingReport(Mutex::new(
            file.map_err(|source| Error::system(format!("opening {}", towpath_shm::shown(&path)), source))?,
        )))
    }

    /// Adds a claim. One that can't be written is left to [`write()`], which says why.
    pub fn add(&self, judged: &Judged) {
        let line = to_json_lines(std::slice::from_ref(judged));
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

const TITLE: &str = "What the papers found, on their machines, simulated";

/// Writes `results.jsonl` and `index.html` into a folder, which is made if need be: the
/// papers' figures, redrawn, each claim at the figure that it is read from.
///
/// # Errors
///
/// The system's, with the folder's name.
pub fn write(folder: &Path, judged: &[Judged]) -> Result<(), Error> {
    let note = "A claim is reproduced if it holds for the medians and for every seed alone; one that the first seed contradicts is tried with no other. Inputs, by which a parameter was chosen, never count. A line opens to the tolerance, which was fixed beforehand, the reasons, what the verdict depends on, and whether the claim notices that its effect is taken away. What stands in a plot as the paper's is from its tables and its text; nothing was read off its images.";
    let page = exhibition_page(TITLE, &format!("{}. {note}", summary(judged)), &exhibitions(judged));
    write_files(folder, &to_json_lines(judged), &page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Claim, Context, Finding, judge};

    #[test]
    fn report_has_each_claim_as_soon_as_it_is_judged() {
        let folder = std::env::temp_dir().join(format!("towpath-growing-{}", std::process::id()));
        let lines = || std::fs::read_to_string(folder.join("results.jsonl")).unwrap().lines().count();
        let page = || std::fs::read_to_string(folder.join("index.html")).unwrap();
        let claim = |id| Claim {
            id,
            what: "",
            paper: "",
            tolerance: "",
            input: false,
            simulated: |_| Ok(Finding::new(String::new(), vec![])),
            native: None,
        };
        let report = GrowingReport::begin(&folder).unwrap();
        let judged = judge(&[claim("N1"), claim("N2")], &Context::new(1, 1, &()), &|one| {
            report.add(one);
            assert_eq!(lines(), one.claim.id[1..].parse::<usize>().unwrap());
        });
        assert!(page().contains("cut off"));
        write(&folder, &judged).unwrap();
        assert_eq!(lines(), 2);
        assert!(!page().contains("cut off"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
