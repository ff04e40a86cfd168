//! The parts of a report.

use crate::table::{Kind, Table};

/// A table, and the plots that go before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The table.
    pub table: Table,
    /// SVG, each a whole.
    pub plots: Vec<String>,
}

impl Section {
    /// A table without plots.
    pub fn new(table: Table) -> Section {
        Section { table, plots: Vec::new() }
    }

    /// Adds plots.
    #[must_use]
    pub fn with(mut self, plots: impl IntoIterator<Item = String>) -> Section {
        self.plots.extend(plots);
        self
    }
}

/// A paper's claim, judged: one line that opens to the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimLine {
    /// Its number: `L3`.
    pub id: &'static str,
    /// The paper's claim.
    pub what: &'static str,
    /// The paper's value.
    pub paper: &'static str,
    /// The value here.
    pub here: String,
    /// The verdict in a word or two.
    pub verdict: &'static str,
    /// The verdict's kind: [`Kind::Good`], [`Kind::Bad`], [`Kind::Missing`], or
    /// [`Kind::Text`] if the claim does not count.
    pub kind: Kind,
    /// Everything else, by name: tolerance, reason, caveat.
    pub details: Vec<(&'static str, String)>,
}

/// Figure or table of a paper, redrawn, and the claims that are read from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exhibit {
    /// Its place and contents.
    pub title: String,
    /// Parts of the paper's own figures that are known.
    pub note: String,
    /// SVG, each a whole.
    pub plots: Vec<String>,
    /// Claims that are read from it.
    pub claims: Vec<ClaimLine>,
}

/// Figures and tables of one paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Exhibition {
    /// The paper's key, a letter.
    pub key: char,
    /// Authors, title, year, machine.
    pub title: String,
    /// Exhibits in the order of the paper.
    pub exhibits: Vec<Exhibit>,
}

/// An experiment's part of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Chapter {
    /// The experiment's name.
    pub name: &'static str,
    /// Its tables and plots.
    pub sections: Vec<Section>,
}

/// The parts of a report of a run on this machine, in this order.
///
/// A terminal shows the first parts on one screen; [`console::render`](crate::console::render)
/// shows all of it, and [`write()`](crate::files::write) makes the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The recommendation for this machine, with its reasons: one sentence.
    pub advice: String,
    /// Plots, at most four, each with a short table of its numbers.
    pub pictures: Vec<Section>,
    /// The papers' claims, judged by this run.
    pub claims: Vec<ClaimLine>,
    /// The experiments.
    pub chapters: Vec<Chapter>,
    /// Towpath's own targets, for its developers: shown only on request.
    pub targets: Option<Table>,
    /// Parts that the run was not asked for, and the commands that ask for them.
    pub hints: Vec<String>,
    /// Sources of the papers' figures.
    pub sources: Vec<String>,
}

impl Report {
    /// All tables of the chapters, in order.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.chapters.iter().flat_map(|c| &c.sections).map(|s| &s.table)
    }
}

/// Returns the results and the report of a made-up run, for tests.
#[cfg(test)]
pub(crate) fn made_up() -> (crate::Results, Report) {
    use crate::record::{RecordSubject, metrics::ROUND_TRIP};
    use crate::results::{Missing, Results};
    use crate::table::{Cell, header};

    let subject = |name| RecordSubject::new("logp", name, "adaptive", 2);
    let mut results = Results::from_figures(&[(subject("towpath"), ROUND_TRIP, vec![120.0])], 2);
    results.missing = vec![Missing { subject: subject("mpich"), reason: "mpich is not installed".into() }];
    let table = |title: &str| Table {
        experiment: "logp",
        title: title.into(),
        note: "A note.".into(),
        header: header(&["algorithm", "ns"]),
        rows: vec![vec![Cell::text("towpath"), Cell::figure(results.records.first())]],
    };
    let report = Report {
        advice: "Use towpath.".into(),
        pictures: vec![Section::new(table("Round trip")).with(["<svg></svg>".to_string()])],
        claims: vec![ClaimLine {
            id: "L3",
            what: "Nearly equal",
            paper: "× 1.19",
            here: "× 1.3".into(),
            verdict: "not reproduced",
            kind: Kind::Bad,
            details: vec![("tolerance", "at most 1.25".into())],
        }],
        chapters: vec![Chapter { name: "logp", sections: vec![Section::new(table("All parameters"))] }],
        targets: None,
        hints: vec!["Ask for --peers.".into()],
        sources: vec!["Paper L.".into()],
    };
    (results, report)
}
