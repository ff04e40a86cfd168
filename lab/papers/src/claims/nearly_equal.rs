//! L3: without contention the algorithms cost nearly the same, and slightly more the more
//! complex they are.
//!
//! "With the exception of the Posix mutex, the various algorithms are nearly equivalent, with send
//! overhead and gap rising slightly as the complexity of the algorithm increases. Interacting with
//! the operating system makes the Posix mutex performance significantly worse (more than 25%)"
//! (4.1). An order is stated where the figures of Table 1 differ. "Nearly equivalent" is what is
//! not "significantly worse": the paper draws that line at 25 %.

use super::context::rising;
use super::l_messages::{LOCK_FREE, PAPER, ask, at, row};
use super::native::{AlgorithmRecords, Comparison, Figure, JudgedRecords, Native, extremes, papers, record};
use super::{Claim, Context, Finding, above};
use crate::paper::{LogPColumn, logp_of};
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::metrics::SEND_OVERHEAD;
use towpath_report::results::Results;

/// Paper L's third claim.
pub(super) const CLAIM: Claim = Claim {
    id: "L3",
    what: "Without contention all but Posix are nearly equal, o_s and g rising slightly with complexity; o_s of lock-free is 0.2 to 0.3 µs above test-and-set's",
    paper: "lock-free above ticket, Anderson above test-and-set",
    tolerance: "order, 3 % is a tie; natively o_s and g in the order of Table 1, and largest ÷ smallest at most 1.25",
    input: false,
    simulated,
    native: Some(&NearlyEqual),
};

/// The native evidence.
struct NearlyEqual;

/// The ratio from which the paper calls an algorithm significantly worse.
const NEARLY: f64 = 1.25;

/// A parameter's figure in the paper's table.
type OfPaper = fn(&LogPColumn) -> f64;

/// The parameters that the claim is about, in the order of a line's records.
const PARAMETERS: [(&str, &str, OfPaper); 2] =
    [("o_s", "send_overhead_ns", |c| c.send_overhead), ("g", "gap_ns", |c| c.gap)];

impl Native for NearlyEqual {
    fn experiments(&self) -> &'static [&'static str] {
        &["logp"]
    }
    fn thoroughly(&self) -> &'static str {
        "towpath bench logp"
    }
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<JudgedRecords<'a>, String> {
        let mut judged = Vec::new();
        for algorithm in papers().filter(|name| *name != "posix") {
            let mut records = Vec::new();
            for (_, metric, _) in PARAMETERS {
                records.push(record(results, ("logp", metric), algorithm, waiting, &[])?);
            }
            judged.push(AlgorithmRecords { algorithm, records });
        }
        Ok(JudgedRecords { judged, ..JudgedRecords::default() })
    }
    fn compare(&self, lines: &JudgedRecords<'_>, figure: Figure<'_>) -> Comparison {
        let mut finding = Comparison::default();
        let mut measured = Vec::new();
        for (n, (name, _, of_paper)) in PARAMETERS.into_iter().enumerate() {
            let values: Vec<(&str, f64)> =
                lines.judged.iter().map(|l| (l.algorithm, figure(l.records[n]))).collect();
            let papers: Vec<(&str, f64)> = values
                .iter()
                .filter_map(|(algorithm, _)| Some((*algorithm, of_paper(logp_of(algorithm)?))))
                .collect();
            let (Some([least, most]), Some([paper_least, paper_most])) =
                (extremes(&values), extremes(&papers))
            else {
                continue;
            };
            let (ratio, paper) = (most.1 / least.1, paper_most.1 / paper_least.1);
            measured.push(format!(
                "{name} {} ({}) to {} ({}), × {} (paper × {})",
                nanoseconds(least.1),
                least.0,
                nanoseconds(most.1),
                most.0,
                digits(ratio),
                digits(paper)
            ));
            if least.1 <= 0.0 || ratio > NEARLY {
                finding.against.push(format!("{name} of {} is not nearly that of {}", most.0, least.0));
            }
            let wrong = out_of_order(&values, &papers);
            if !wrong.is_empty() {
                finding.against.push(format!("{name} is not in the paper's order: {}", wrong.join(", ")));
            }
        }
        if let Some(above) = lock_free_above(&lines.judged, figure) {
            measured.push(format!(
                "o_s of lock-free {} {} test-and-set's (paper: 300 ns above)",
                nanoseconds(above.abs()),
                if above < 0.0 { "below" } else { "above" }
            ));
        }
        finding.measured = measured.join("; ");
        finding
    }
}

/// The pairs that the paper orders and that stand the other way here.
fn out_of_order(values: &[(&str, f64)], papers: &[(&str, f64)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (n, (first, value)) in values.iter().enumerate() {
        for (m, (second, other)) in values.iter().enumerate() {
            if papers[n].1 < papers[m].1 && above(*value, *other) {
                wrong.push(format!("{first} above {second}"));
            }
        }
    }
    wrong
}

fn lock_free_above(lines: &[AlgorithmRecords<'_>], figure: Figure<'_>) -> Option<f64> {
    let send = |name: &str| lines.iter().find(|l| l.algorithm == name).map(|l| figure(l.records[0]));
    Some(send("lock-free")? - send("test-and-set")?)
}

/// The order of o_s on the simulated Enterprise 5000.
fn simulated(context: &Context<'_>) -> Result<Finding, Error> {
    let series = ask(context, &PAPER)?;
    let against = series.judge(|f| {
        let send = |name: &'static str| (name, f(at(name, 1), SEND_OVERHEAD));
        let mut against = rising("o_s", &[send("test-and-set"), send("ticket"), send(LOCK_FREE)]);
        against.extend(rising("o_s", &[send("test-and-set"), send("anderson"), send(LOCK_FREE)]));
        against
    });
    Ok(Finding::new(row(&series, &PAPER, 1, SEND_OVERHEAD), against))
}
