//! The papers' claims and their verdicts, by simulated and native evidence.
//!
//! One file for each group of claims; a claim is one entry of its file's list. Simulated evidence
//! comes from the machines that the papers measured, simulated: a claim is judged for each seed by
//! itself and for the medians over the seeds, and counts as reproduced only if it holds in all of
//! them. Native evidence ([`native`]) comes from the records of a run on the machine at hand; the
//! claims that have both kinds (L3, L5, L6, L17) have a file each. A claim by which a parameter was
//! chosen is an *input* and never counts. The verdicts of the simulated evidence are recorded in
//! `verdicts.txt` beside this file: a claim recorded as reproduced that no longer is fails
//! `towpath reproduce`. A reproduced claim is judged again without its effect (`sabotage.rs`).

mod bulk_peak;
mod context;
pub mod costs;
mod figures;
mod g_costs;
mod g_list;
mod g_model;
mod gap_is_stress;
mod k_kernels;
mod k_patterns;
mod k_programs;
mod k_table;
mod l_applications;
mod l_causes;
mod l_machine;
mod l_messages;
mod m_ladder;
mod m_slots;
mod n_applications;
mod n_barriers;
mod n_constants;
mod n_counter;
mod n_model;
mod n_multiprogrammed_barriers;
mod n_multiprogramming;
mod n_queues;
mod n_queues_at_memory;
mod n_release;
pub mod native;
mod nearly_equal;
mod robust;
mod runs;
mod sabotage;
mod sabotages;
pub mod show;
mod standing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use costs::CostMeter;

pub use context::{Context, Series};
pub use costs::ClaimCost;
pub use native::{Native, judge_native};
pub use sabotage::Trial;

use towpath_host::Error;

/// Part by which two values must differ not to be tied, where a claim is about an order.
pub const TIE: f64 = 0.03;

/// Returns whether `a` is larger than `b` by more than a tie. False if one is not a
/// number.
pub fn above(a: f64, b: f64) -> bool {
    a > b * (1.0 + TIE)
}

/// Returns whether `a` is at most `b`, or tied with it. False if one is not a number.
pub fn not_above(a: f64, b: f64) -> bool {
    a <= b * (1.0 + TIE)
}

/// Returns whether `a` is smaller than `b` by more than a tie. False if one is not a
/// number.
pub fn below(a: f64, b: f64) -> bool {
    a < b * (1.0 - TIE)
}

/// The evidence that a claim is judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Records of a run on the machine at hand.
    Native {
        /// The waiting policy of the records; empty if there are none.
        waiting: String,
    },
    /// Runs on the machine that the paper measured, simulated.
    Simulated,
}

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim holds for every seed (or enough rounds) and for the medians.
    Reproduced,
    /// The claim does not hold, for this reason.
    NotReproduced(String),
    /// The claim can't be checked, for this reason.
    NotCheckable(String),
}

impl Verdict {
    /// The verdict's words in `verdicts.txt` and in records.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::NotReproduced(_) => "not reproduced",
            Verdict::NotCheckable(_) => "not checkable",
        }
    }

    /// The reason; empty if the claim is reproduced.
    pub fn why(&self) -> &str {
        match self {
            Verdict::Reproduced => "",
            Verdict::NotReproduced(why) | Verdict::NotCheckable(why) => why,
        }
    }
}

/// The findings of an experiment on a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Our value: the median over the seeds, and from … to.
    pub ours: String,
    /// The verdict on our value.
    pub verdict: Verdict,
    /// A remark without which the verdict is misunderstood; may be empty.
    pub caveat: String,
    /// Sabotage of the claim's effect, each with the claim's answer.
    pub sabotage: Vec<Trial>,
    /// SVG, each a whole: our counterpart of the paper's figure, if this claim has one.
    pub plots: Vec<String>,
}

impl Finding {
    fn of(ours: String, verdict: Verdict) -> Finding {
        Finding { ours, verdict, caveat: String::new(), sabotage: Vec::new(), plots: Vec::new() }
    }

    /// Nothing that could be checked.
    pub fn not_checkable(why: &str) -> Finding {
        Finding::of(String::new(), Verdict::NotCheckable(why.into()))
    }

    /// Reproduced if nothing contradicts it.
    pub fn new(ours: String, against: Vec<String>) -> Finding {
        let verdict =
            if against.is_empty() { Verdict::Reproduced } else { Verdict::NotReproduced(against.join("; ")) };
        Finding::of(ours, verdict)
    }

    /// Adds plots.
    #[must_use]
    pub fn with(mut self, plots: impl IntoIterator<Item = String>) -> Finding {
        self.plots.extend(plots);
        self
    }

    /// Notes the contradictions of the claim in a model without its effect.
    ///
    /// A claim that has none there can't tell.
    #[must_use]
    pub fn sabotaged(mut self, without: &str, against: &[String]) -> Finding {
        let without = format!("{without} (in the model)");
        self.sabotage.push(Trial { without, against: against.first().cloned() });
        self
    }

    /// Counts as not reproduced if other values of a constant contradict the claim.
    ///
    /// The constant has no source, and the values are within its range.
    #[must_use]
    pub fn varied(mut self, constant: &str, against: Vec<String>) -> Finding {
        if !against.is_empty() && self.verdict == Verdict::Reproduced {
            let why = format!("depends on {constant}, which has no source: {}", against.join("; "));
            self.verdict = Verdict::NotReproduced(why);
        }
        self
    }

    /// Adds the cause, as an experiment has shown it, to a verdict against the claim.
    #[must_use]
    pub fn because(mut self, why: &str) -> Finding {
        if let Verdict::NotReproduced(text) = &mut self.verdict {
            text.push_str(": ");
            text.push_str(why);
        }
        self
    }
}

/// A claim.
#[derive(Clone, Copy)]
pub struct Claim {
    /// Its number: `N1`.
    pub id: &'static str,
    /// The paper's statement, in a sentence.
    pub what: &'static str,
    /// The paper's value.
    pub paper: &'static str,
    /// The tolerance within which ours counts as reproduced.
    pub tolerance: &'static str,
    /// True if a parameter of the model was chosen by it.
    pub input: bool,
    /// The simulated evidence.
    pub simulated: fn(&Context<'_>) -> Result<Finding, Error>,
    /// The native evidence, if a real machine can have any.
    pub native: Option<&'static dyn Native>,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id)
    }
}

/// A claim, judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The claim.
    pub claim: Claim,
    /// The evidence.
    pub evidence: Evidence,
    /// The findings.
    pub finding: Finding,
    /// Number of seeds of simulated evidence; 0 of other evidence.
    pub seeds: u32,
    /// Processor time of simulated evidence.
    pub cost: ClaimCost,
}

impl Judged {
    /// The waiting policy of the native evidence; empty of other evidence.
    pub fn waiting(&self) -> &str {
        match &self.evidence {
            Evidence::Native { waiting } => waiting,
            Evidence::Simulated => "",
        }
    }

    /// The words of the verdict in `verdicts.txt`: inputs are never "reproduced".
    pub fn word(&self) -> &'static str {
        if self.claim.input { "input" } else { self.finding.verdict.word() }
    }
}

/// All claims, in the order of their numbers.
pub fn claims() -> Vec<Claim> {
    let mut all: Vec<Claim> = [
        g_costs::CLAIMS,
        g_list::CLAIMS,
        g_model::CLAIMS,
        k_kernels::CLAIMS,
        k_patterns::CLAIMS,
        k_programs::CLAIMS,
        k_table::CLAIMS,
        l_applications::CLAIMS,
        l_machine::CLAIMS,
        l_messages::CLAIMS,
        m_ladder::CLAIMS,
        m_slots::CLAIMS,
        n_applications::CLAIMS,
        n_counter::CLAIMS,
        n_queues::CLAIMS,
        n_queues_at_memory::CLAIMS,
        n_barriers::CLAIMS,
        n_model::CLAIMS,
        n_multiprogramming::CLAIMS,
        n_multiprogrammed_barriers::CLAIMS,
        n_release::CLAIMS,
        &[nearly_equal::CLAIM, bulk_peak::CLAIM, gap_is_stress::CLAIM, robust::CLAIM],
    ]
    .concat();
    all.sort_by_key(|c| order(c.id));
    all
}

fn order(id: &str) -> (char, u32) {
    let (letter, number) = id.split_at(1);
    (letter.chars().next().unwrap_or(' '), number.parse().unwrap_or(0))
}

/// The claims that are meant: `N`, `L`, `N1`, `n1`; all if nothing is.
///
/// # Errors
///
/// Names what there is.
pub fn choose(wanted: &[String]) -> Result<Vec<Claim>, String> {
    let all = claims();
    if wanted.is_empty() {
        return Ok(all);
    }
    for word in wanted {
        let word = word.to_uppercase();
        if !all.iter().any(|c| c.id == word || c.id.starts_with(&word) && word.len() == 1) {
            let ids: Vec<&str> = all.iter().map(|c| c.id).collect();
            return Err(format!("no claim is called `{word}`; there are {}", ids.join(", ")));
        }
    }
    let wanted: Vec<String> = wanted.iter().map(|w| w.to_uppercase()).collect();
    Ok(all.into_iter().filter(|c| wanted.iter().any(|w| c.id == *w || *w == c.id[..1])).collect())
}

/// Takes the number of the next claim from an end of those that are left.
type TakeNext = fn(&mut VecDeque<usize>) -> Option<usize>;

/// Judges claims by simulated evidence. A claim whose experiment fails is not reproduced,
/// and says why.
///
/// On several threads two are judged at one time, one from either end of the list: what one of them
/// does on a single core leaves the others to the other one. `note` gets each as soon as it is
/// judged.
pub fn judge(claims: &[Claim], context: &Context<'_>, note: &(dyn Fn(&Judged) + Sync)) -> Vec<Judged> {
    let left = Mutex::new((0..claims.len()).collect::<VecDeque<_>>());
    let judged = Mutex::new(BTreeMap::new());
    let ends: [TakeNext; 2] = [VecDeque::pop_front, VecDeque::pop_back];
    let ends = if context.threads == 1 { &ends[..1] } else { &ends };
    std::thread::scope(|scope| {
        for next in ends {
            scope.spawn(|| {
                let take = || next(&mut left.lock().unwrap_or_else(|e| e.into_inner()));
                while let Some(n) = take() {
                    let one = judge_one(&claims[n], context);
                    note(&one);
                    judged.lock().unwrap_or_else(|e| e.into_inner()).insert(n, one);
                }
            });
        }
    });
    judged.into_inner().unwrap_or_else(|e| e.into_inner()).into_values().collect()
}

/// Judges a claim: by one seed, and if that does not decide it, by all.
///
/// It does if it contradicts the claim, and if nothing in the claim depends on seeds.
fn judge_one(claim: &Claim, context: &Context<'_>) -> Judged {
    let meter = CostMeter::start(context.watcher);
    let context = context.watched_by(&meter);
    let by = |context: &Context<'_>| {
        (claim.simulated)(context).unwrap_or_else(|error| {
            let why = format!("its experiment failed: {error}");
            Finding::of(String::new(), Verdict::NotReproduced(why))
        })
    };
    let one = context.with_seeds(1);
    let (mut finding, mut seeds) = (by(&one), 1);
    let first = meter.so_far();
    let is_lost = finding.verdict != Verdict::Reproduced && !claim.input;
    if !is_lost {
        seeds = context.seeds();
        if one.changes_with(seeds) {
            finding = by(&context);
        }
    }
    if finding.verdict == Verdict::Reproduced && !claim.input {
        finding.sabotage.extend(sabotages::of(claim.id).map(|sabotage| sabotage.of(claim, &context)));
    }
    Judged { claim: *claim, evidence: Evidence::Simulated, finding, seeds, cost: meter.cost(first) }
}

/// The recorded verdicts: a claim and its word on a line.
const RECORDED: &str = include_str!("verdicts.txt");

/// The recorded verdict of a claim.
pub fn recorded(id: &str) -> Option<&'static str> {
    RECORDED.lines().filter(|l| !l.starts_with('#')).find_map(|l| {
        let (name, word) = l.split_once(' ')?;
        (name == id).then_some(word.trim())
    })
}

/// The claims that were reproduced once and are not now.
pub fn lost(judged: &[Judged]) -> impl Iterator<Item = &Judged> {
    judged.iter().filter(|j| recorded(j.claim.id) == Some("reproduced") && j.word() != "reproduced")
}

/// The text of `verdicts.txt` for these verdicts.
pub fn to_record(judged: &[Judged]) -> String {
    let mut text = String::from(
        "# The verdicts of `towpath reproduce`, which fails if a claim that is recorded as reproduced no longer is.\n",
    );
    for claim in claims() {
        let word = judged.iter().find(|j| j.claim.id == claim.id).map(Judged::word).or(recorded(claim.id));
        if let Some(word) = word {
            text.push_str(&format!("{} {word}\n", claim.id));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::sim::Sweep;

    type Experiment = fn(&Context<'_>) -> Result<Finding, Error>;

    fn claim(id: &'static str, input: bool, simulated: Experiment) -> Claim {
        Claim { id, what: "", paper: "", tolerance: "", input, simulated, native: None }
    }

    #[test]
    fn claim_that_one_seed_contradicts_is_not_tried_with_others() {
        let fails: Experiment = |_| Ok(Finding::new(String::new(), vec!["it fails".into()]));
        let holds: Experiment = |_| Ok(Finding::new(String::new(), vec![]));
        let later: Experiment = |context| {
            let against = if context.seeds() > 1 { vec!["with seed 2".into()] } else { vec![] };
            Ok(Finding::new(String::new(), against))
        };
        let claims = [
            claim("N1", false, fails),
            claim("N2", true, fails),
            claim("N3", false, holds),
            claim("N4", false, later),
        ];
        let judged = judge(&claims, &Context::new(5, 2, &()), &|_| ());
        let all: Vec<_> = judged.iter().map(|j| (j.claim.id, j.word(), j.seeds)).collect();
        let [no, yes] = ["not reproduced", "reproduced"];
        assert_eq!(all, [("N1", no, 1), ("N2", "input", 5), ("N3", yes, 5), ("N4", no, 5)]);
    }

    #[test]
    fn only_what_depends_on_seeds_is_done_again() {
        static DONE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        fn finding(n: usize) -> Result<Finding, Error> {
            // Relaxed: read when the judges' threads have ended.
            DONE[n].fetch_add(1, Relaxed);
            Ok(Finding::new(String::new(), vec![]))
        }
        let without: Experiment = |context| {
            assert_eq!(context.seeds_or(3), 3, "as many with all three");
            context.ask_once(&Sweep::on("counter", "origin2000", &["ll-sc"], &[1]).operations(8))?;
            finding(0)
        };
        let with: Experiment = |context| {
            context.ask(&Sweep::on("counter", "origin2000", &["ll-sc"], &[1]).operations(9))?;
            finding(1)
        };
        let judged = judge(
            &[claim("N1", false, without), claim("N2", false, with)],
            &Context::new(3, 2, &()),
            &|_| (),
        );
        assert_eq!(DONE.each_ref().map(|n| n.load(Relaxed)), [1, 2]);
        assert_eq!(judged.iter().map(|j| j.cost.runs.len()).collect::<Vec<_>>(), [1, 3]);
        assert!(
            judged.iter().all(|j| j.cost.first > std::time::Duration::ZERO && j.cost.whole() >= j.cost.first)
        );
        let timings = costs::timings(&judged);
        assert_eq!((timings.lines().count(), timings.matches("seed 3").count()), (6, 1), "{timings}");
    }

    #[test]
    fn claims_have_numbers_of_their_own_and_a_recorded_verdict() {
        let all = claims();
        for (i, claim) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|c| c.id != claim.id), "{} twice", claim.id);
            let word = recorded(claim.id).unwrap_or_else(|| panic!("{} has no recorded verdict", claim.id));
            assert!(["reproduced", "not reproduced", "not checkable", "input"].contains(&word), "{word}");
            assert!(!(claim.input && word == "reproduced"), "{} is an input", claim.id);
        }
        let known = |l: &str| all.iter().any(|c| l.starts_with(&format!("{} ", c.id)));
        assert!(RECORDED.lines().filter(|l| !l.starts_with('#')).all(known), "a verdict without its claim");
    }

    #[test]
    fn claims_are_chosen_by_number_or_paper() {
        let ids = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
            choose(&words).map(|c| c.iter().map(|c| c.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(&["n4", "N1"]).unwrap(), ["N1", "N4"]);
        assert!(ids(&["N"]).unwrap().len() > 5);
        assert_eq!(ids(&[]).unwrap().len(), claims().len());
        assert!(ids(&["N999"]).unwrap_err().contains("N1, "));
    }

    #[test]
    fn inputs_never_count() {
        let claim = claim("N1", true, |_| Ok(Finding::not_checkable("")));
        let finding = Finding::new("1".into(), vec![]);
        let judged =
            Judged { claim, evidence: Evidence::Simulated, finding, seeds: 1, cost: ClaimCost::default() };
        assert_eq!(judged.word(), "input");
    }
}
