//! The papers' claims, judged by experiments on the machines that the papers measured,
//! simulated.
//!
//! One file for each group of claims; a claim is one entry of its file's list. It is judged for
//! each seed by itself and for the medians over the seeds, and counts as reproduced only if it
//! holds in all of them. What was used to choose a parameter is an *input* and never counts. The
//! verdicts are recorded in `verdicts.txt` beside this file: a claim recorded as reproduced that no
//! longer is fails `towpath reproduce`.

mod context;
mod g_costs;
mod g_list;
mod g_model;
mod l_causes;
mod l_machine;
mod l_messages;
mod m_ladder;
mod m_slots;
mod n_barriers;
mod n_counter;
mod n_model;
mod n_multiprogrammed_barriers;
mod n_multiprogramming;
mod n_queues;
mod n_release;
pub mod show;

pub use context::{Context, Series};

use crate::error::Error;

/// How a claim turned out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds for every seed and for the medians.
    Reproduced,
    /// It does not, and why.
    NotReproduced(String),
    /// It can't be checked, and why.
    NotCheckable(String),
}

impl Verdict {
    /// As in `verdicts.txt` and in records.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::NotReproduced(_) => "not reproduced",
            Verdict::NotCheckable(_) => "not checkable",
        }
    }

    /// Why not.
    pub fn why(&self) -> &str {
        match self {
            Verdict::Reproduced => "",
            Verdict::NotReproduced(why) | Verdict::NotCheckable(why) => why,
        }
    }
}

/// What an experiment says of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Our value: the median over the seeds, and from … to.
    pub ours: String,
    /// Whether that is what the paper says.
    pub verdict: Verdict,
    /// SVG, each a whole: our counterpart of the paper's figure, if this claim has one.
    pub plots: Vec<String>,
}

impl Finding {
    /// Nothing that could be checked.
    pub fn not_checkable(why: &str) -> Finding {
        Finding { ours: String::new(), verdict: Verdict::NotCheckable(why.into()), plots: Vec::new() }
    }

    /// Reproduced if nothing contradicts it.
    pub fn new(ours: String, against: Vec<String>) -> Finding {
        let verdict =
            if against.is_empty() { Verdict::Reproduced } else { Verdict::NotReproduced(against.join("; ")) };
        Finding { ours, verdict, plots: Vec::new() }
    }

    /// With plots.
    #[must_use]
    pub fn with(mut self, plots: impl IntoIterator<Item = String>) -> Finding {
        self.plots.extend(plots);
        self
    }

    /// With a word that explains a verdict against the claim: what an experiment has
    /// shown of its cause.
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
    /// What the paper says, in a sentence.
    pub what: &'static str,
    /// The paper's value.
    pub paper: &'static str,
    /// When ours counts as the same.
    pub tolerance: &'static str,
    /// Whether a parameter of the model was chosen by it.
    pub input: bool,
    /// The experiment.
    pub judge: fn(&Context<'_>) -> Result<Finding, Error>,
}

/// A claim, judged.
pub struct Judged {
    /// The claim.
    pub claim: Claim,
    /// What was found.
    pub finding: Finding,
}

impl Judged {
    /// As in `verdicts.txt`: inputs are never "reproduced".
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
        l_machine::CLAIMS,
        l_messages::CLAIMS,
        m_ladder::CLAIMS,
        m_slots::CLAIMS,
        n_counter::CLAIMS,
        n_queues::CLAIMS,
        n_barriers::CLAIMS,
        n_model::CLAIMS,
        n_multiprogramming::CLAIMS,
        n_multiprogrammed_barriers::CLAIMS,
        n_release::CLAIMS,
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

/// Judges claims. One whose experiment fails is not reproduced, and says why.
pub fn judge(claims: &[Claim], context: &Context<'_>) -> Vec<Judged> {
    claims
        .iter()
        .map(|claim| {
            let finding = (claim.judge)(context).unwrap_or_else(|error| Finding {
                ours: String::new(),
                verdict: Verdict::NotReproduced(format!("its experiment failed: {error}")),
                plots: Vec::new(),
            });
            Judged { claim: *claim, finding }
        })
        .collect()
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

/// What `verdicts.txt` should say of these.
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
    use super::*;

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
        let claim = Claim {
            id: "N1",
            what: "",
            paper: "",
            tolerance: "",
            input: true,
            judge: |_| Ok(Finding::not_checkable("")),
        };
        let judged = Judged { claim, finding: Finding::new("1".into(), vec![]) };
        assert_eq!(judged.word(), "input");
    }
}
