//! Sabotage of a claim: its effect is taken away, and the claim is judged again.
//!
//! A claim that is reproduced all the same can't tell whether the effect is there. A change of the
//! *model* makes other runs: the machine, the algorithm or the program without the effect. A change
//! of the *figures* costs no run: the claim reads those that were measured, altered. `sabotages.rs`
//! lists the sabotage of each claim. It is tried by one seed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Claim, Context, Verdict};
use crate::sim::Figures;
use towpath_report::record::{Metric, RecordSubject};

/// Field in which the points of a series differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesField {
    /// The algorithm.
    Algorithms,
    /// The number of processors.
    Participants,
    /// The length of messages.
    Lengths,
    /// The waiting policy.
    Disciplines,
    /// The algorithm and its waiting policy together.
    Ways,
}

impl SeriesField {
    /// Returns a subject's value of the field.
    fn value(self, subject: &RecordSubject) -> String {
        match self {
            SeriesField::Algorithms | SeriesField::Ways => subject.algorithm.clone(),
            SeriesField::Participants => subject.procs.to_string(),
            SeriesField::Lengths => subject.extra.get("bytes").map_or_else(String::new, ToString::to_string),
            SeriesField::Disciplines => subject.waiting.clone(),
        }
    }

    /// Returns all other fields of a subject as text.
    fn others(self, subject: &RecordSubject) -> String {
        let mut subject = subject.clone();
        match self {
            SeriesField::Algorithms => subject.algorithm.clear(),
            SeriesField::Participants => subject.procs = 0,
            SeriesField::Lengths => _ = subject.extra.remove("bytes"),
            SeriesField::Disciplines => subject.waiting.clear(),
            SeriesField::Ways => (subject.algorithm, subject.waiting) = Default::default(),
        }
        format!("{subject:?}")
    }
}

/// Change that takes away a claim's effect.
#[derive(Clone, Copy, Debug)]
pub(super) enum SabotageChange {
    /// The mean over a field's values in the place of each figure.
    Alike(SeriesField),
    /// Turned order over a field's values: the least figure becomes the largest.
    Turned(SeriesField),
    /// Figures of the second value of a field in the place of the first one's.
    Instead(SeriesField, &'static str, &'static str),
    /// Figures of two algorithms exchanged.
    Exchanged(&'static str, &'static str),
    /// A figure times a factor.
    Times(Metric, f64),
    /// Change of the model by the claim's own experiment; with its number there.
    Model(u8),
    /// Change of counts by the claim's own experiment; with its number there.
    Counts(u8),
    /// A part of the claim, which is reproduced only if it notices the change.
    Included,
}

impl SabotageChange {
    /// Alters the points of a series.
    pub fn apply(self, points: &mut [(RecordSubject, Figures)]) {
        match self {
            SabotageChange::Alike(field) => along(field, points, |values| {
                let known = values.iter().copied().filter(|value| value.is_finite());
                let mean = known.clone().sum::<f64>() / known.count() as f64;
                values.fill(mean);
            }),
            SabotageChange::Turned(field) => along(field, points, |values| {
                let mut order: Vec<usize> = (0..values.len()).collect();
                order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
                let sorted: Vec<f64> = order.iter().map(|&place| values[place]).collect();
                for (place, value) in order.into_iter().zip(sorted.into_iter().rev()) {
                    values[place] = value;
                }
            }),
            SabotageChange::Instead(field, first, second) => {
                let of = |value| move |point: &&(RecordSubject, Figures)| field.value(&point.0) == value;
                let known: BTreeMap<String, Figures> =
                    points.iter().filter(of(second)).map(|(s, f)| (field.others(s), f.clone())).collect();
                for (subject, figures) in points.iter_mut().filter(|point| field.value(&point.0) == first) {
                    if let Some(other) = known.get(&field.others(subject)) {
                        figures.clone_from(other);
                    }
                }
            }
            SabotageChange::Exchanged(one, other) => {
                for (subject, _) in points.iter_mut() {
                    if subject.algorithm == one {
                        subject.algorithm = other.into();
                    } else if subject.algorithm == other {
                        subject.algorithm = one.into();
                    }
                }
            }
            SabotageChange::Times(metric, factor) => {
                let all = points.iter_mut().filter_map(|(_, figures)| figures.get_mut(&metric)).flatten();
                all.for_each(|value| *value *= factor);
            }
            SabotageChange::Model(_) | SabotageChange::Counts(_) | SabotageChange::Included => {}
        }
    }
}

/// Alters figures that differ in one field only: each metric's, of each seed.
fn along(field: SeriesField, points: &mut [(RecordSubject, Figures)], change: fn(&mut [f64])) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, (subject, _)) in points.iter().enumerate() {
        groups.entry(field.others(subject)).or_default().push(place);
    }
    for members in groups.values() {
        let metrics: BTreeSet<Metric> =
            members.iter().flat_map(|&place| points[place].1.keys().copied()).collect();
        for metric in metrics {
            let having: Vec<usize> =
                members.iter().copied().filter(|&place| points[place].1.contains_key(&metric)).collect();
            let seeds = having.iter().map(|&place| points[place].1[&metric].len()).min().unwrap_or(0);
            for seed in 0..seeds {
                let mut values: Vec<f64> =
                    having.iter().map(|&place| points[place].1[&metric][seed]).collect();
                change(&mut values);
                for (&place, value) in having.iter().zip(values) {
                    points[place].1.entry(metric).and_modify(|all| all[seed] = value);
                }
            }
        }
    }
}

/// Sabotage of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sabotage {
    /// The change.
    pub change: SabotageChange,
    /// The change in words.
    pub words: &'static str,
}

impl Sabotage {
    /// Judges a reproduced claim without its effect.
    pub fn of(self, claim: &Claim, context: &Context<'_>) -> Trial {
        let place = match self.change {
            SabotageChange::Model(_) => "in the model",
            SabotageChange::Included => "in the claim itself",
            _ => "in the figures",
        };
        let without = format!("{} ({place})", self.words);
        if matches!(self.change, SabotageChange::Included) {
            return Trial { without, against: Some(String::new()) };
        }
        let against = match (claim.simulated)(&context.with_seeds(1).without(self.change)) {
            Ok(finding) if finding.verdict == Verdict::Reproduced => None,
            Ok(finding) => Some(first(finding.verdict.why())),
            // An experiment that fails says nothing of the claim.
            Err(error) => {
                return Trial { without: format!("{without}, which failed: {error}"), against: None };
            }
        };
        Trial { without, against }
    }
}

/// The first of several contradictions.
fn first(why: &str) -> String {
    why.split("; ").next().unwrap_or(why).to_string()
}

/// Outcome of a sabotage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The change, in words.
    pub without: String,
    /// The claim's first contradiction then; `None` if it has noticed nothing.
    ///
    /// Empty where the change is a part of the claim.
    pub against: Option<String>,
}

impl std::fmt::Display for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let without = &self.without;
        match self.against.as_deref() {
            None => write!(f, "{without}: not noticed, so that the claim can't tell"),
            Some("") => write!(f, "{without}: noticed"),
            Some(first) => write!(f, "{without}: noticed ({first})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Finding;
    use crate::claims::context::At;
    use crate::sim::Sweep;
    use towpath_host::Error;
    use towpath_report::record::metrics::{FETCH_OPS, TIME_PER_OPERATION as TIME};

    const BOTH: [&str; 2] = ["ll-sc", "fetch-op"];

    /// Times of both algorithms on 1, 2 and 4 processors, as a claim reads them.
    fn read(context: &Context<'_>) -> [[f64; 3]; 2] {
        let sweep = Sweep::on("counter", "origin2000", &BOTH, &[1, 2, 4]).operations(40);
        let series = context.ask(&sweep).unwrap();
        let all = BOTH.map(|a| [1, 2, 4].map(|n| series.median(At::new(a, n), TIME)));
        // However a claim asks, it reads the same figures.
        let together = context.ask_all_once(&[sweep]).unwrap();
        assert_eq!(all, BOTH.map(|a| [1, 2, 4].map(|n| together.with_seed(At::new(a, n), TIME, 0))));
        assert!(
            series
                .judge(|f| if f(At::new(BOTH[0], 4), TIME) == all[0][2] {
                    vec![]
                } else {
                    vec![String::new()]
                })
                .is_empty()
        );
        all
    }

    #[test]
    fn each_change_of_figures_alters_what_a_claim_reads() {
        let context = Context::new(1, 1, &());
        let [ll_sc, fetch_op] = read(&context);
        let with = |change| read(&context.with_seeds(1).without(change));
        let mean = [0, 1, 2].map(|n| (ll_sc[n] + fetch_op[n]) / 2.0);
        assert_eq!(with(SabotageChange::Alike(SeriesField::Algorithms)), [mean, mean]);
        assert_eq!(with(SabotageChange::Turned(SeriesField::Algorithms)), [fetch_op, ll_sc]);
        assert_eq!(with(SabotageChange::Exchanged("ll-sc", "fetch-op")), [fetch_op, ll_sc]);
        let flat = [ll_sc, fetch_op].map(|times| [times.iter().sum::<f64>() / 3.0; 3]);
        assert_eq!(with(SabotageChange::Alike(SeriesField::Participants)), flat);
        let mut sorted = ll_sc;
        sorted.sort_by(f64::total_cmp);
        let turned = with(SabotageChange::Turned(SeriesField::Participants))[0];
        assert!((0..3).all(|n| turned[n] == sorted[2 - sorted.iter().position(|t| *t == ll_sc[n]).unwrap()]));
        assert_eq!(
            with(SabotageChange::Instead(SeriesField::Algorithms, "ll-sc", "fetch-op")),
            [fetch_op, fetch_op]
        );
        assert_eq!(
            with(SabotageChange::Instead(SeriesField::Participants, "4", "1"))[0],
            [ll_sc[0], ll_sc[1], ll_sc[0]]
        );
        assert_eq!(
            with(SabotageChange::Times(TIME, 2.0)),
            [ll_sc, fetch_op].map(|times| times.map(|t| 2.0 * t))
        );
        assert_eq!(with(SabotageChange::Times(FETCH_OPS, 2.0)), [ll_sc, fetch_op]);
        assert_eq!(read(&context), [ll_sc, fetch_op], "the runs themselves stay");
    }

    #[test]
    fn claim_that_notices_nothing_says_that_it_cant_tell() {
        type Experiment = fn(&Context<'_>) -> Result<Finding, Error>;
        let claim = |simulated: Experiment| Claim {
            id: "N1",
            what: "",
            paper: "",
            tolerance: "",
            input: false,
            simulated,
            native: None,
        };
        let sabotage = Sabotage { change: SabotageChange::Model(1), words: "without" };
        let trial = |simulated| sabotage.of(&claim(simulated), &Context::new(5, 1, &())).to_string();
        assert_eq!(
            trial(|context| {
                assert_eq!((context.seeds(), context.own_sabotage()), (1, 1));
                Ok(Finding::new(String::new(), vec!["it is flat".into(), "it is low".into()]))
            }),
            "without (in the model): noticed (it is flat)"
        );
        assert!(trial(|_| Ok(Finding::new(String::new(), vec![]))).ends_with("so that the claim can't tell"));
        let included = Sabotage { change: SabotageChange::Included, words: "without" };
        let never: Experiment = |_| panic!("it was judged already");
        assert_eq!(
            included.of(&claim(never), &Context::new(5, 1, &())).to_string(),
            "without (in the claim itself): noticed"
        );
    }
}
