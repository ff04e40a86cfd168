//! Native evidence: paper L's claims judged from the records of one run on a real
//! machine.
//!
//! A claim is judged by the medians first, and then again by each round alone, since a claim that
//! holds by accident is not reproduced: it must hold in the medians and in at least [`ROUNDS`]
//! rounds. The tolerances were written down before anything was measured.
//!
//! Judgements are made of records and are no records themselves: they have no unit, no value and
//! belong to no one algorithm. `results.jsonl` suffices to judge anew.

use towpath_report::{ADAPTIVE, Record, Results};

use super::{Claim, ClaimCost, Evidence, Finding, Judged, Verdict, claims};

/// Number of rounds in which a claim must hold by itself.
pub const ROUNDS: usize = 5;

/// The waiting policies in the order in which a claim prefers them. The paper's
/// algorithms spin; `adaptive` is what a run measures that was not asked for anything else.
const PREFERRED: [&str; 5] = ["spin", "spin-then-yield", ADAPTIVE, "spin-then-park", "park"];

/// Records of one claim algorithm that are compared, in an order that the claim knows.
#[derive(Clone, Debug)]
pub struct AlgorithmRecords<'a> {
    /// The claim algorithm.
    pub algorithm: &'static str,
    /// Its records.
    pub records: Vec<&'a Record>,
}

/// Records by which a claim is judged: those of the paper's algorithms, and others beside
/// them.
#[derive(Clone, Debug, Default)]
pub struct JudgedRecords<'a> {
    /// The paper's algorithms.
    pub judged: Vec<AlgorithmRecords<'a>>,
    /// Others.
    pub beside: Vec<AlgorithmRecords<'a>>,
    /// Records that would have belonged here and do not exist, in words.
    pub lacking: String,
}

/// The figures in words, and their contradictions of the claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The figures.
    pub measured: String,
    /// The claim's contradictions; empty if there are none.
    pub against: Vec<String>,
}

/// A record's figure: its median, or the value of a certain round.
pub type Figure<'f> = &'f dyn Fn(&Record) -> f64;

/// The native evidence of a claim.
pub trait Native: Sync {
    /// The experiments without which there is nothing to judge.
    fn experiments(&self) -> &'static [&'static str];
    /// The command that measures it in enough rounds.
    fn thoroughly(&self) -> &'static str;
    /// A remark that the judgement needs if the figures were taken under that policy.
    fn caveat(&self, _waiting: &str) -> String {
        String::new()
    }
    /// The records.
    ///
    /// # Errors
    ///
    /// Names what is missing.
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<JudgedRecords<'a>, String>;
    /// Compares the records' figures.
    fn compare(&self, lines: &JudgedRecords<'_>, figure: Figure<'_>) -> Comparison;
}

/// Judges the claims with native evidence, of those experiments that were part of the
/// run.
pub fn judge_native(results: &Results) -> Vec<Judged> {
    claims()
        .into_iter()
        .filter_map(|claim| Some((claim, claim.native?)))
        .filter(|(_, native)| native.experiments().iter().any(|e| results.has(e)))
        .map(|(claim, native)| judge_one(claim, native, results))
        .collect()
}

fn judge_one(claim: Claim, native: &dyn Native, results: &Results) -> Judged {
    let mut why: Option<(usize, String)> = None;
    let mut found = None;
    for waiting in PREFERRED {
        match native.lines(results, waiting) {
            Ok(lines) => {
                found = Some((waiting, lines));
                break;
            }
            // The policy that has the most figures says best what is missing.
            Err(reason) => {
                let count = records_under(native, results, waiting);
                if why.as_ref().is_none_or(|(most, _)| count > *most) {
                    why = Some((count, reason));
                }
            }
        }
    }
    let mut finding = Finding::not_checkable(&why.map_or_else(String::new, |(_, reason)| reason));
    let mut policy = String::new();
    if let Some((waiting, lines)) = found {
        let medians = native.compare(&lines, &|r| r.value);
        policy = waiting.into();
        finding.caveat = native.caveat(waiting);
        finding.verdict = verdict(native, &lines, &medians);
        finding.ours = medians.measured;
        if !lines.lacking.is_empty() {
            finding.ours.push_str(&format!("; {}", lines.lacking));
        }
    }
    let evidence = Evidence::Native { waiting: policy };
    Judged { claim, evidence, finding, seeds: 0, cost: ClaimCost::default() }
}

fn records_under(native: &dyn Native, results: &Results, waiting: &str) -> usize {
    let of_claim =
        |r: &&Record| native.experiments().contains(&r.experiment.as_str()) && r.waiting == waiting;
    results.records.iter().filter(of_claim).count()
}

fn verdict(native: &dyn Native, lines: &JudgedRecords<'_>, medians: &Comparison) -> Verdict {
    let records = || lines.judged.iter().flat_map(|l| l.records.iter());
    let runs = records().map(|r| r.runs as usize).min().unwrap_or(0);
    if runs < ROUNDS {
        let said = match medians.against.as_slice() {
            [] => "so far it holds".to_string(),
            against => format!("so far it does not hold: {}", against.join("; ")),
        };
        return Verdict::NotCheckable(format!(
            "{runs} {} only, a claim needs {ROUNDS} ({}); {said}",
            if runs == 1 { "round" } else { "rounds" },
            native.thoroughly()
        ));
    }
    // A long run, or a failing one, that has not kept each round can't be judged round by round.
    let rounds = records().map(|r| r.samples.len()).min().unwrap_or(0);
    let held = (0..rounds).filter(|&n| native.compare(lines, &|r| r.samples[n]).against.is_empty()).count();
    let mut against = medians.against.join("; ");
    if medians.against.is_empty() {
        if rounds < ROUNDS || held >= ROUNDS {
            return Verdict::Reproduced;
        }
        against = "it holds in the medians, but not reliably".into();
    }
    if rounds > 0 {
        against.push_str(&format!(" (held in {held} of {rounds} rounds)"));
    }
    Verdict::NotReproduced(against)
}

/// A record of an algorithm, or why there is none.
pub(super) fn record<'a>(
    results: &'a Results,
    (experiment, metric): (&str, &str),
    algorithm: &str,
    waiting: &str,
    extra: &[(&str, u64)],
) -> Result<&'a Record, String> {
    results.best(experiment, metric, algorithm, waiting, extra).ok_or_else(|| {
        let place: String = extra.iter().map(|(key, value)| format!(", {key} {value}")).collect();
        let otherwise = format!("{experiment} of {algorithm} ({waiting}{place}) was not part of this run");
        missing(results, experiment, algorithm, waiting, extra).unwrap_or(otherwise)
    })
}

/// The run's own reason why something that it was to measure is missing.
pub(super) fn missing(
    results: &Results,
    experiment: &str,
    algorithm: &str,
    waiting: &str,
    extra: &[(&str, u64)],
) -> Option<String> {
    let reason = results.reason(experiment, algorithm, Some(waiting), extra)?;
    Some(format!("{algorithm} ({waiting}) in {experiment}: {reason}"))
}

/// The paper's six, in the order of its tables, which is that of growing complexity but
/// for POSIX.
pub(super) fn papers() -> impl Iterator<Item = &'static str> {
    crate::paper::STRESS_TABLE.iter().map(|column| column.algorithm)
}

/// The names of the smallest and the largest, with their values.
pub(super) fn extremes<'n>(values: &[(&'n str, f64)]) -> Option<[(&'n str, f64); 2]> {
    let by = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
    Some([*values.iter().min_by(by)?, *values.iter().max_by(by)?])
}

#[cfg(test)]
#[path = "native_tests.rs"]
mod tests;
