//! L6: the stress test with one writer shows the gap of LogP.
//!
//! "The test with a single writer is equivalent to the LogP gap measurement" (4.2).

use super::context::within;
use super::l_messages::{PAPER, ask, at, row};
use super::native::{AlgorithmRecords, Comparison, Figure, JudgedRecords, Native, papers, record};
use super::{Claim, Context, Finding};
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::metrics::{GAP, TIME_PER_OPERATION as TIME};
use towpath_report::results::Results;

/// Paper L's sixth claim.
pub(super) const CLAIM: Claim = Claim {
    id: "L6",
    what: "The stress test with one writer is equivalent to the LogP gap",
    paper: "equal",
    tolerance: "each algorithm's time per message within 5 % of its own g",
    input: false,
    simulated,
    native: Some(&GapIsStress),
};

/// The native evidence.
struct GapIsStress;

/// Maximum distance of a message of the stress test from the gap.
const WITHIN: f64 = 0.05;

impl Native for GapIsStress {
    fn experiments(&self) -> &'static [&'static str] {
        &["logp", "stress"]
    }
    fn caveat(&self, _waiting: &str) -> String {
        "g is that of a long one-way stream, as is the stress test with one writer: the two differ in when they were measured and for how \
         long, so this says how well the run repeats itself"
            .into()
    }
    fn thoroughly(&self) -> &'static str {
        "towpath bench --runs 5 --writers 1"
    }
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<JudgedRecords<'a>, String> {
        let mut judged = Vec::new();
        for algorithm in papers() {
            let gap = record(results, ("logp", "gap_ns"), algorithm, waiting, &[])?;
            let rate = record(results, ("stress", "messages_per_s"), algorithm, waiting, &[("writers", 1)])?;
            judged.push(AlgorithmRecords { algorithm, records: vec![gap, rate] });
        }
        Ok(JudgedRecords { judged, ..JudgedRecords::default() })
    }
    fn compare(&self, lines: &JudgedRecords<'_>, figure: Figure<'_>) -> Comparison {
        let mut finding = Comparison::default();
        let mut measured = Vec::new();
        let mut beyond = Vec::new();
        let mut overlap = 0;
        for line in &lines.judged {
            let (gap, rate) = (line.records[0], line.records[1]);
            let apart = (1e9 / figure(rate)) / figure(gap) - 1.0;
            let times = (nanoseconds(1e9 / figure(rate)), nanoseconds(figure(gap)));
            let sign = if apart < 0.0 { "" } else { "+" };
            let text = format!("{} {sign}{} %", line.algorithm, digits(apart * 100.0));
            measured.push(format!("{text} ({} for g {})", times.0, times.1));
            if !(-WITHIN..=WITHIN).contains(&apart) {
                beyond.push(text);
                let within = 1e9 / rate.max <= gap.max && 1e9 / rate.min >= gap.min;
                overlap += usize::from(within);
            }
        }
        finding.measured = measured.join(", ");
        if !beyond.is_empty() {
            finding.against.push(format!(
                "{} of {} are farther apart: {}; of {overlap} of them the rounds' ranges overlap, which is noise",
                beyond.len(),
                lines.judged.len(),
                beyond.join(", ")
            ));
        }
        finding
    }
}

/// Stress test and gap on the simulated Enterprise 5000.
fn simulated(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let cell = |name: &&str| within(name, f(at(name, 1), TIME), f(at(name, 1), GAP), WITHIN);
        PAPER.iter().flat_map(cell).collect()
    });
    let text = format!("{}; g: {}", row(&series, &PAPER, 1, TIME), row(&series, &PAPER, 1, GAP));
    Ok(Finding::new(text, against))
}
