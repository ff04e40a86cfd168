//! Constants of `origin2000` without a source, of which the reproduced claims of paper N
//! try half and double.

use super::n_queues::Look;
use super::{Context, Finding, Verdict};
use crate::sim::Sweep;
use towpath_host::Error;

/// The constants, each with half and double its value.
///
/// How many of the instructions under way the processor executes in a cycle has no source.
const CONSTANTS: [(&str, [&str; 2]); 2] = [
    (
        "the time of the instructions under way",
        ["processor.store_window=82ns", "processor.store_window=328ns"],
    ),
    ("the time until a refused request is sent again", ["directory.retry=50ns", "directory.retry=200ns"]),
];

/// Counts a claim as not reproduced if it is contradicted where a constant has another
/// value.
///
/// `against` gets a parameter with that value, and returns what contradicts the claim with it.
///
/// # Errors
///
/// If an experiment fails.
pub(super) fn vary(
    mut finding: Finding,
    against: &dyn Fn(&str) -> Result<Vec<String>, Error>,
) -> Result<Finding, Error> {
    for (constant, values) in CONSTANTS {
        if finding.verdict != Verdict::Reproduced {
            break;
        }
        let mut all = Vec::new();
        for value in values {
            all.extend(against(value)?.into_iter().map(|text| format!("with {value} {text}")));
        }
        finding = finding.varied(constant, all);
    }
    Ok(finding)
}

/// [`vary`], of a claim on the figures of some runs.
///
/// By one seed, as paper K's values are tried.
///
/// # Errors
///
/// If an experiment fails.
pub(super) fn vary_runs(
    context: &Context<'_>,
    finding: Finding,
    asked: &[Sweep],
    claim: &dyn Fn(Look<'_>) -> Vec<String>,
) -> Result<Finding, Error> {
    vary(finding, &|change| {
        let changed: Vec<Sweep> = asked.iter().map(|sweep| sweep.clone().set(change)).collect();
        Ok(context.ask_all_once(&changed)?.judge(claim))
    })
}
