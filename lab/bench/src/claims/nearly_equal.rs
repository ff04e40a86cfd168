//! L3: without contention the algorithms cost nearly the same, and slightly more the more
//! complex they are.
//!
//! "With the exception of the Posix mutex, the various algorithms are nearly equivalent, with send
//! overhead and gap rising slightly as the complexity of the algorithm increases. Interacting with
//! the operating system makes the Posix mutex performance significantly worse (more than 25%)"
//! (4.1). An order is stated where the figures of Table 1 differ. "Nearly equivalent" is what is
//! not "significantly worse": the paper draws that line at 25 %.

use super::{Claim, Figure, Finding, Line, Lines, beyond_tie, extremes, papers, record};
use crate::format::{digits, nanoseconds};
use crate::paper::{LogPColumn, logp_of};
use crate::results::Results;

/// The claim.
pub(super) struct NearlyEqual;

/// What the paper calls significantly worse.
const NEARLY: f64 = 1.25;

/// How to get a parameter's figure from the paper's table.
type OfPaper = fn(&LogPColumn) -> f64;

/// The parameters that the claim is about, in the order of a line's records.
const PARAMETERS: [(&str, &str, OfPaper); 2] =
    [("o_s", "send_overhead_ns", |c| c.send_overhead), ("g", "gap_ns", |c| c.gap)];

impl Claim for NearlyEqual {
    fn id(&self) -> &'static str {
        "L3"
    }
    fn sentence(&self) -> &'static str {
        "Without contention all but POSIX are nearly equal, o_s and g rising slightly with complexity"
    }
    fn tolerance(&self) -> &'static str {
        "the order of Table 1, within 3 % is a tie; largest ÷ smallest at most 1.25"
    }
    fn experiments(&self) -> &'static [&'static str] {
        &["logp"]
    }
    fn thoroughly(&self) -> &'static str {
        "towpath bench logp"
    }
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<Lines<'a>, String> {
        let mut judged = Vec::new();
        for algorithm in papers().filter(|name| *name != "posix") {
            let mut records = Vec::new();
            for (_, metric, _) in PARAMETERS {
                records.push(record(results, ("logp", metric), algorithm, waiting, &[])?);
            }
            judged.push(Line { algorithm, records });
        }
        Ok(Lines { judged, ..Lines::default() })
    }
    fn find(&self, lines: &Lines<'_>, figure: Figure<'_>) -> Finding {
        let mut finding = Finding::default();
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
            if papers[n].1 < papers[m].1 && beyond_tie(*value, *other) {
                wrong.push(format!("{first} above {second}"));
            }
        }
    }
    wrong
}

fn lock_free_above(lines: &[Line<'_>], figure: Figure<'_>) -> Option<f64> {
    let send = |name: &str| lines.iter().find(|l| l.algorithm == name).map(|l| figure(l.records[0]));
    Some(send("lock-free")? - send("test-and-set")?)
}
