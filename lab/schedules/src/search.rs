//! Searches schedules for one that fails.

use crate::dfs::Tree;
use crate::fault::LocatedFault;
use crate::machine::MAX_THREADS;
use crate::merging::SeenStates;
use crate::plan::{Liberties, Plan};
use crate::run::{Chooser, RunOutcome, Runner, Terms};
use crate::schedule::Schedule;
use crate::shrink::shrink;
use crate::strategy::{ByChance, ByPriority, Written};
use crate::subject::{Subject, SubjectExtras};
use crate::trace;
use crate::words::MemoryModel;

/// Number of vain looks: waiters ask only now and then whether a process is dead, every
/// 256 rounds of backing off, or every millisecond.
const PATIENCE: u32 = 1_000;

/// Number of runs that may be given up for each schedule. A tree can have any number.
const GIVEN_UP: u64 = 50;

/// Order in which schedules are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Schedules at random.
    Random,
    /// Schedules by random priorities that change at `depth` − 1 random steps (Burckhardt
    /// et al. 2010).
    Pct {
        /// Number of orderings of steps that a fault may need.
        depth: u32,
    },
    /// All states, each once.
    States,
    /// All of them.
    Dfs {
        /// Limit to schedules with at most so many preemptions.
        preemptions: Option<u32>,
    },
}

/// Settings of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    /// Extent of a run.
    pub plan: Plan,
    /// Memory model.
    pub memory: MemoryModel,
    /// Method of the search.
    pub method: Method,
    /// Maximum number of schedules. Fifty times as many may be given up besides.
    pub schedules: u64,
    /// Seed of the first schedule: the n-th has the seed `seed + n`.
    pub seed: u64,
    /// Liberties of the machine.
    pub liberties: Liberties,
    /// Number of steps of a run after which all threads take turns; after ten times as
    /// many the run counts as endless.
    pub bound: usize,
}

impl SearchSettings {
    /// Returns the settings of random schedules without deaths.
    pub fn new(plan: Plan, schedules: u64) -> SearchSettings {
        SearchSettings {
            plan,
            memory: MemoryModel::default(),
            method: Method::Random,
            schedules,
            seed: 0,
            liberties: Liberties::default(),
            bound: 2_000,
        }
    }

    fn terms(&self, subject: &dyn Subject) -> Result<Terms, Error> {
        if !(1..=MAX_THREADS).contains(&self.plan.threads) {
            return Err(Error::Threads { threads: self.plan.threads });
        }
        let naps = self.liberties.naps || subject.naps();
        let patience = if subject.endures_deaths() { PATIENCE } else { self.liberties.patience };
        let liberties = Liberties { naps, patience, ..self.liberties };
        let merges = self.method == Method::States;
        let liberties = match merges {
            true if liberties.kills > 0 => return Err(Error::Deaths),
            true if subject.extras() != SubjectExtras::default() => {
                let why = " (it has events or orders that other subjects have not)".into();
                return Err(Error::Unmergeable { subject: subject.name(), why });
            }
            true => Liberties { timeouts: 0, spurious: 0, ..liberties },
            false => liberties,
        };
        Ok(Terms { model: self.memory, plan: self.plan, liberties, bound: self.bound, merges })
    }
}

/// Reason why nothing could be explored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More threads than the machine has, or none.
    #[error("{threads} threads: the explorer has 1 to {MAX_THREADS}")]
    Threads {
        /// Number of threads that were asked for.
        threads: usize,
    },
    /// Deaths where states are merged.
    #[error("states are merged in runs without deaths only")]
    Deaths,
    /// States of the subject cannot be told apart.
    #[error("{subject}: its states cannot be merged{why}")]
    Unmergeable {
        /// Name of the subject.
        subject: String,
        /// The step that has no digest, if it is one.
        why: String,
    },
    /// The subject cannot be made for this plan.
    #[error("{subject}: {why}")]
    Plan {
        /// Name of the subject.
        subject: String,
        /// The subject's reason.
        why: String,
    },
    /// A schedule takes decisions that cannot be taken.
    #[error(
        "the schedule does not fit: {passed_over} of its decisions cannot be taken. Give the subject, --threads, --ops, --memory, --waiting and --kill with which it was found"
    )]
    Misfit {
        /// Number of decisions that were passed over.
        passed_over: usize,
    },
}

/// A fault, and how to see it again.
#[derive(Clone, Debug)]
pub struct FoundFault {
    /// The seed of the schedule that was found, if it came from one.
    pub seed: Option<u64>,
    /// The fault under the shortest schedule.
    pub failure: LocatedFault,
    /// The schedule that was found.
    pub original: Schedule,
    /// The shortest schedule with the same kind of fault that was found from there.
    pub shortest: Schedule,
    /// Part of it that has to be given to see it again: the rest follows.
    pub replay: Schedule,
    /// Steps of all threads under it.
    pub trace: String,
    /// A digest of that run.
    pub digest: u64,
}

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub struct SearchReport {
    /// Schedules that were run, not counting those that were given up or served to
    /// shorten another.
    pub schedules: u64,
    /// Runs that were given up, because earlier ones were like them.
    pub given_up: u64,
    /// States, where they are merged.
    pub states: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Runs in which the living waited for the dead, which the subject does not exclude.
    pub stranded: u64,
    /// Runs in which a step could take a value that it could not as the orderings are
    /// written: one is weakened ([`towpath_machine::weaken`]).
    pub breached: u64,
    /// True if there is no other schedule.
    pub exhausted: bool,
    /// The fault, if there is one.
    pub found: Option<FoundFault>,
}

/// Searches. `progress` learns how many schedules were run, after each.
///
/// # Errors
///
/// If the subject cannot be made for this plan.
pub fn search(
    subject: &dyn Subject,
    settings: &SearchSettings,
    progress: &mut dyn FnMut(u64),
) -> Result<SearchReport, Error> {
    let mut searcher = Searcher::new(subject, settings)?;
    let (mut report, failing) = searcher.seek(progress)?;
    if let Some((schedule, failure, seed)) = failing {
        report.found = Some(searcher.explain(&schedule, failure, seed)?);
    }
    Ok(report)
}

/// Searches as [`search`] does. Returns the first fault with its schedule.
///
/// The schedule is as it was met, not made shorter.
///
/// # Errors
///
/// As [`search`].
pub fn first_fault(
    subject: &dyn Subject,
    settings: &SearchSettings,
) -> Result<(SearchReport, Option<LocatedFault>), Error> {
    let (report, failing) = Searcher::new(subject, settings)?.seek(&mut |_| {})?;
    Ok((report, failing.map(|(_, failure, _)| failure)))
}

/// Runs the schedule of a seed again, as [`search`] ran it.
///
/// # Errors
///
/// As [`search`].
pub fn replay_seed(
    subject: &dyn Subject,
    settings: &SearchSettings,
    seed: u64,
) -> Result<SearchReport, Error> {
    search(subject, &SearchSettings { seed, schedules: 1, ..*settings }, &mut |_| {})
}

/// Runs a schedule again.
///
/// # Errors
///
/// As [`search`]; and if the schedule doesn't fit.
pub fn replay(
    subject: &dyn Subject,
    settings: &SearchSettings,
    schedule: &Schedule,
) -> Result<SearchReport, Error> {
    let mut searcher = Searcher::new(subject, settings)?;
    let mut written = Written::new(schedule);
    let outcome = searcher.run(&mut written, true)?;
    if written.passed_over > 0 {
        return Err(Error::Misfit { passed_over: written.passed_over });
    }
    let mut report = SearchReport {
        schedules: 1,
        steps: outcome.schedule.0.len() as u64,
        stranded: outcome.stranded.into(),
        ..SearchReport::default()
    };
    report.found = outcome.failure.map(|failure| FoundFault {
        seed: None,
        failure,
        original: schedule.clone(),
        shortest: outcome.schedule,
        replay: schedule.clone(),
        trace: trace::render(&outcome.trace),
        digest: outcome.digest,
    });
    Ok(report)
}

/// A failing schedule, its fault, and its seed if it came from one.
type Failing = (Schedule, LocatedFault, Option<u64>);

struct Searcher<'a> {
    subject: &'a dyn Subject,
    settings: &'a SearchSettings,
    terms: Terms,
    runner: Runner,
    /// Length of a run in which each thread goes on as long as it can, in steps.
    length: usize,
}

impl<'a> Searcher<'a> {
    fn new(subject: &'a dyn Subject, settings: &'a SearchSettings) -> Result<Searcher<'a>, Error> {
        let terms = settings.terms(subject)?;
        let mut searcher = Searcher { subject, settings, terms, runner: Runner::new(), length: 0 };
        let outcome = searcher.run(&mut Written::new(&Schedule::default()), false)?;
        searcher.length = outcome.schedule.0.len();
        Ok(searcher)
    }

    /// Runs schedules until one fails, none is left or there were enough.
    fn seek(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(SearchReport, Option<Failing>), Error> {
        let mut report = SearchReport::default();
        if self.settings.method == Method::States {
            return self.merge(report, progress);
        }
        let mut tree = match self.settings.method {
            Method::Dfs { preemptions } => Some(Tree::new(preemptions)),
            _ => None,
        };
        let most = self.settings.schedules.saturating_mul(GIVEN_UP);
        while report.schedules < self.settings.schedules && report.given_up < most {
            let seed = self.settings.seed.wrapping_add(report.schedules);
            let outcome = match &mut tree {
                Some(tree) => self.run(tree, false)?,
                None => self.seeded(seed)?,
            };
            report.steps += outcome.schedule.0.len() as u64;
            report.stranded += u64::from(outcome.stranded);
            report.breached += u64::from(outcome.breached);
            report.given_up += u64::from(outcome.given_up);
            report.schedules += u64::from(!outcome.given_up);
            if let Some(failure) = outcome.failure {
                let seed = tree.is_none().then_some(seed);
                return Ok((report, Some((outcome.schedule, failure, seed))));
            }
            progress(report.schedules);
            if tree.as_mut().is_some_and(|tree| !tree.advance()) {
                report.exhausted = true;
                break;
            }
        }
        Ok((report, None))
    }

    /// Goes to every state, until a run fails or there were enough runs.
    fn merge(
        &mut self,
        mut report: SearchReport,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(SearchReport, Option<Failing>), Error> {
        let mut states = SeenStates::default();
        let limit = self.settings.schedules;
        let visit = self.runner.visit(self.subject, &self.terms, &mut states, limit, progress);
        let visit = visit.map_err(|why| Error::Plan { subject: self.subject.name(), why })?;
        if states.is_refused {
            let why = visit
                .unmergeable
                .map(|what| format!(" (a thread makes a step `{what}`; try --waiting spin)"));
            return Err(Error::Unmergeable { subject: self.subject.name(), why: why.unwrap_or_default() });
        }
        report.schedules = visit.ways;
        report.given_up = visit.given_up;
        report.steps = visit.steps;
        report.states = states.count();
        report.exhausted = visit.is_exhausted;
        Ok((report, visit.found.map(|(failure, schedule)| (schedule, failure, None))))
    }

    fn run(&mut self, strategy: &mut dyn Chooser, traced: bool) -> Result<RunOutcome, Error> {
        let outcome = self.runner.run(self.subject, &self.terms, strategy, traced);
        outcome.map_err(|why| Error::Plan { subject: self.subject.name(), why })
    }

    fn seeded(&mut self, seed: u64) -> Result<RunOutcome, Error> {
        let (kills, length) = (self.terms.liberties.kills, self.length);
        match self.settings.method {
            Method::Pct { depth } => self.run(&mut ByPriority::new(seed, depth, kills, length), false),
            _ => self.run(&mut ByChance::new(seed, kills, length), false),
        }
    }

    /// The beginning of a schedule after which everything happens by itself.
    fn decisive(&mut self, schedule: &Schedule, digest: u64) -> Result<Schedule, Error> {
        let mut beginning = 0;
        for (_, count) in schedule.runs() {
            let start = Schedule(schedule.0[..beginning].to_vec());
            if self.run(&mut Written::new(&start), false)?.digest == digest {
                return Ok(start);
            }
            beginning += count;
        }
        Ok(schedule.clone())
    }

    /// Shortens a failing schedule, and describes its steps.
    fn explain(
        &mut self,
        failing: &Schedule,
        failure: LocatedFault,
        seed: Option<u64>,
    ) -> Result<FoundFault, Error> {
        let shortest = shrink(&mut self.runner, self.subject, &self.terms, failing, failure.fault);
        let outcome = self.run(&mut Written::new(&shortest), true)?;
        Ok(FoundFault {
            seed,
            failure: outcome.failure.unwrap_or(failure),
            original: failing.clone(),
            replay: self.decisive(&shortest, outcome.digest)?,
            shortest,
            trace: trace::render(&outcome.trace),
            digest: outcome.digest,
        })
    }
}
