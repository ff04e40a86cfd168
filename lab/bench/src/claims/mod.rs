//! Paper L's claims that a real machine can confirm or refute, judged from the records of
//! one run.
//!
//! One claim, one file. A claim is judged by the medians first, and then again by each round alone,
//! since a claim that holds by accident is not reproduced: it must hold in the medians and in at
//! least [`ROUNDS`] rounds. The tolerances were written down before anything was measured. What
//! cannot be reproduced is reported as not reproduced, with the figures that say so.
//!
//! Judgements are made of records and are no records themselves: they have no unit, no value and
//! belong to no one algorithm, and whoever has `results.jsonl` can judge anew.

mod bulk_peak;
mod gap_is_stress;
mod nearly_equal;
mod robust;

use crate::record::Record;
use crate::results::Results;
use crate::transport::ADAPTIVE;

/// In how many rounds a claim must hold by itself.
pub const ROUNDS: usize = 5;

/// Two values that differ by less than this part are tied, where a claim is about an
/// order.
pub const TIE: f64 = 0.03;

/// The waiting policies in the order in which a claim prefers them. The paper's
/// algorithms spin; `adaptive` is what a run measures that was not asked for anything else.
const PREFERRED: [&str; 5] = ["spin", "spin-then-yield", ADAPTIVE, "spin-then-park", "park"];

/// How a claim turned out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds here.
    Holds,
    /// It does not hold here, and what contradicts it.
    DoesNotHold(String),
    /// There is too little to judge it by, and what to do about it.
    NotMeasured(String),
}

/// One claim, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Its number in the list of what the papers claim: `L3`.
    pub id: &'static str,
    /// What the paper claims.
    pub sentence: &'static str,
    /// When it counts as reproduced.
    pub tolerance: &'static str,
    /// Under which waiting policy the figures were taken; empty if there are none.
    pub waiting: String,
    /// The figures.
    pub measured: String,
    /// What one must know to understand the judgement; may be empty.
    pub caveat: String,
    /// How it turned out.
    pub outcome: Outcome,
}

/// What is compared: one claim algorithm's records, in an order that the claim knows.
#[derive(Clone, Debug)]
struct Line<'a> {
    algorithm: &'static str,
    records: Vec<&'a Record>,
}

/// What a claim is judged by: the paper's algorithms, and others to be shown beside them.
#[derive(Clone, Debug, Default)]
struct Lines<'a> {
    judged: Vec<Line<'a>>,
    beside: Vec<Line<'a>>,
    /// What would have belonged here and is not there, in words.
    lacking: String,
}

/// What the figures say.
#[derive(Clone, Debug, Default, PartialEq)]
struct Finding {
    measured: String,
    /// What contradicts the claim; empty if nothing does.
    against: Vec<String>,
}

/// How to get a record's figure: its median, or what a certain round yielded.
type Figure<'f> = &'f dyn Fn(&Record) -> f64;

/// One claim.
trait Claim: Sync {
    fn id(&self) -> &'static str;
    fn sentence(&self) -> &'static str;
    fn tolerance(&self) -> &'static str;
    /// The experiments without which there is nothing to judge.
    fn experiments(&self) -> &'static [&'static str];
    /// The command that measures it in enough rounds.
    fn thoroughly(&self) -> &'static str;
    /// What one must know, given that the figures were taken under that policy.
    fn caveat(&self, _waiting: &str) -> String {
        String::new()
    }
    /// The records, or which of them are missing.
    fn lines<'a>(&self, results: &'a Results, waiting: &str) -> Result<Lines<'a>, String>;
    /// What they say.
    fn find(&self, lines: &Lines<'_>, figure: Figure<'_>) -> Finding;
}

/// The claims, in the order of the paper.
const CLAIMS: [&dyn Claim; 4] =
    [&nearly_equal::NearlyEqual, &bulk_peak::BulkPeak, &gap_is_stress::GapIsStress, &robust::Robust];

/// Judges the claims, of those experiments that were part of the run.
pub fn judge(results: &Results) -> Vec<Judgement> {
    CLAIMS
        .into_iter()
        .filter(|claim| claim.experiments().iter().any(|e| results.has(e)))
        .map(|claim| judge_one(claim, results))
        .collect()
}

fn judge_one(claim: &dyn Claim, results: &Results) -> Judgement {
    let mut why: Option<(usize, String)> = None;
    let mut found = None;
    for waiting in PREFERRED {
        match claim.lines(results, waiting) {
            Ok(lines) => {
                found = Some((waiting, lines));
                break;
            }
            // The policy that has the most figures says best what is missing.
            Err(reason) => {
                let count = records_under(claim, results, waiting);
                if why.as_ref().is_none_or(|(most, _)| count > *most) {
                    why = Some((count, reason));
                }
            }
        }
    }
    let mut judgement = Judgement {
        id: claim.id(),
        sentence: claim.sentence(),
        tolerance: claim.tolerance(),
        waiting: String::new(),
        measured: String::new(),
        caveat: String::new(),
        outcome: Outcome::NotMeasured(why.map_or_else(String::new, |(_, reason)| reason)),
    };
    if let Some((waiting, lines)) = found {
        let medians = claim.find(&lines, &|r| r.value);
        judgement.waiting = waiting.into();
        judgement.caveat = claim.caveat(waiting);
        judgement.outcome = outcome(claim, &lines, &medians);
        judgement.measured = medians.measured;
        if !lines.lacking.is_empty() {
            judgement.measured.push_str(&format!("; {}", lines.lacking));
        }
    }
    judgement
}

fn records_under(claim: &dyn Claim, results: &Results, waiting: &str) -> usize {
    let of_claim = |r: &&Record| claim.experiments().contains(&r.experiment.as_str()) && r.waiting == waiting;
    results.records.iter().filter(of_claim).count()
}

fn outcome(claim: &dyn Claim, lines: &Lines<'_>, medians: &Finding) -> Outcome {
    let records = || lines.judged.iter().flat_map(|l| l.records.iter());
    let runs = records().map(|r| r.runs as usize).min().unwrap_or(0);
    if runs < ROUNDS {
        let said = match medians.against.as_slice() {
            [] => "so far it holds".to_string(),
            against => format!("so far it does not hold: {}", against.join("; ")),
        };
        return Outcome::NotMeasured(format!(
            "{runs} {} only, a claim needs {ROUNDS} ({}); {said}",
            if runs == 1 { "round" } else { "rounds" },
            claim.thoroughly()
        ));
    }
    // What a long run or a failing one has not kept of each round can't be judged round by round.
    let rounds = records().map(|r| r.samples.len()).min().unwrap_or(0);
    let held = (0..rounds).filter(|&n| claim.find(lines, &|r| r.samples[n]).against.is_empty()).count();
    let mut against = medians.against.join("; ");
    if medians.against.is_empty() {
        if rounds < ROUNDS || held >= ROUNDS {
            return Outcome::Holds;
        }
        against = "it holds in the medians, but not reliably".into();
    }
    if rounds > 0 {
        against.push_str(&format!(" (held in {held} of {rounds} rounds)"));
    }
    Outcome::DoesNotHold(against)
}

/// A record of an algorithm, or why there is none.
fn record<'a>(
    results: &'a Results,
    (experiment, metric): (&str, &str),
    algorithm: &str,
    waiting: &str,
    extra: &[(&str, u64)],
) -> Result<&'a Record, String> {
    results.best(experiment, metric, algorithm, waiting, extra).ok_or_else(|| {
        let place: String = extra.iter().map(|(key, value)| format!(", {key} {value}")).collect();
        let otherwise = format!("{experiment} of {algorithm} ({waiting}{place}) was not part of this run");
        reason(results, experiment, algorithm, waiting, extra).unwrap_or(otherwise)
    })
}

/// What the run itself says of something that it was to measure.
fn reason(
    results: &Results,
    experiment: &str,
    algorithm: &str,
    waiting: &str,
    extra: &[(&str, u64)],
) -> Option<String> {
    let subject = results.missing.iter().find(|m| {
        let s = &m.subject;
        let there = |(key, value): &(&str, u64)| s.extra.get(*key).and_then(|v| v.as_u64()) == Some(*value);
        s.experiment == experiment
            && s.algorithm == algorithm
            && s.waiting == waiting
            && extra.iter().all(there)
    })?;
    Some(format!("{algorithm} ({waiting}) in {experiment}: {}", subject.reason))
}

/// The paper's six, in the order of its tables, which is that of growing complexity but
/// for POSIX.
fn papers() -> impl Iterator<Item = &'static str> {
    crate::paper::STRESS_TABLE.iter().map(|column| column.algorithm)
}

/// Whether `a` is larger than `b` by more than a tie.
fn beyond_tie(a: f64, b: f64) -> bool {
    a > b * (1.0 + TIE)
}

/// The names of the smallest and the largest, with their values.
fn extremes<'n>(values: &[(&'n str, f64)]) -> Option<[(&'n str, f64); 2]> {
    let by = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
    Some([*values.iter().min_by(by)?, *values.iter().max_by(by)?])
}

#[cfg(test)]
mod tests;
