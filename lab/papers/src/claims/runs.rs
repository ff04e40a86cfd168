//! Runs that claims have in common: each is made once, by whichever claim asks first.
//!
//! Runs that differ in parameters only which have not mattered in one of them
//! ([`towpath_sim::SameRange`]) are one, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::sim::{Figures, Point, PointFigures};
use towpath_host::Error;
use towpath_sim::{Parameters, SameRange};

/// Way to make runs: the figures of each point, in their order.
type Make<'a> = dyn Fn(&[Point]) -> Vec<Result<PointFigures, Error>> + 'a;

/// Key of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunKey {
    /// All but the machine.
    pub setting: String,
    /// The machine's parameters.
    pub machine: String,
}

/// A run that was made.
struct Made {
    machine: Parameters,
    figures: Arc<Figures>,
    same: Vec<SameRange>,
}

/// The runs by key; `None` while a run is under way.
#[derive(Default)]
struct KnownRuns(BTreeMap<RunKey, Option<Made>>);

impl KnownRuns {
    /// Returns a run's figures.
    ///
    /// `None` if they are not known; the run may be under way.
    fn figures(&self, key: &RunKey) -> Option<Arc<Figures>> {
        Some(Arc::clone(&self.0.get(key)?.as_ref()?.figures))
    }

    /// Takes over the figures of a run with other parameters, if they are the same.
    fn take_over(&mut self, key: &RunKey, machine: &Parameters) -> bool {
        let first = RunKey { setting: key.setting.clone(), machine: String::new() };
        let alike = self.0.range(first..).take_while(|(other, _)| other.setting == key.setting);
        let found = alike
            .filter_map(|(_, made)| made.as_ref())
            .find(|made| machine.runs_as(&made.machine, &made.same));
        let Some(Made { figures, same, .. }) = found else { return false };
        let made = Made { machine: machine.clone(), figures: Arc::clone(figures), same: same.clone() };
        self.0.insert(key.clone(), Some(made));
        true
    }
}

/// All runs of a judgement, with their figures.
#[derive(Default)]
pub(super) struct Runs {
    known: Mutex<KnownRuns>,
    /// Signalled when runs end, with or without figures.
    ended: Condvar,
}

/// Keys whose runs one claim makes.
///
/// Keys without figures in the end are forgotten, so that other claims that wait for them make the
/// runs themselves.
struct Undertaken<'a> {
    runs: &'a Runs,
    keys: Vec<&'a RunKey>,
}

impl Drop for Undertaken<'_> {
    fn drop(&mut self) {
        let mut known = self.runs.lock();
        for key in &self.keys {
            if let Some(None) = known.0.get(*key) {
                known.0.remove(*key);
            }
        }
        drop(known);
        self.runs.ended.notify_all();
    }
}

impl Runs {
    fn lock(&self) -> MutexGuard<'_, KnownRuns> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns the figures of these runs, in their order. Makes those that no claim has
    /// made or is making, then waits for the others.
    ///
    /// # Errors
    ///
    /// The first failure of a run.
    pub fn figures(&self, wanted: &[(RunKey, Point)], make: &Make<'_>) -> Result<Vec<Arc<Figures>>, Error> {
        loop {
            self.make_missing(wanted, make)?;
            let under_way =
                |known: &mut KnownRuns| wanted.iter().any(|(key, _)| matches!(known.0.get(key), Some(None)));
            let known = self.ended.wait_while(self.lock(), under_way).unwrap_or_else(|e| e.into_inner());
            // Without figures: a run of another claim has failed, and is made again.
            if let Some(all) = wanted.iter().map(|(key, _)| known.figures(key)).collect() {
                return Ok(all);
            }
        }
    }

    fn make_missing(&self, wanted: &[(RunKey, Point)], make: &Make<'_>) -> Result<(), Error> {
        let (mut undertaken, mut points) = (Undertaken { runs: self, keys: Vec::new() }, Vec::new());
        let mut known = self.lock();
        for (key, point) in wanted {
            if !known.0.contains_key(key) && !known.take_over(key, &point.run.machine) {
                known.0.insert(key.clone(), None);
                undertaken.keys.push(key);
                points.push(point.clone());
            }
        }
        drop(known);
        if points.is_empty() {
            return Ok(());
        }
        let made = make(&points);
        let mut known = self.lock();
        let mut failed = None;
        for ((key, point), made) in undertaken.keys.iter().zip(&points).zip(made) {
            match made {
                Ok(PointFigures { figures, same }) => {
                    let machine = point.run.machine.clone();
                    let made = Made { machine, figures: Arc::new(figures), same };
                    known.0.insert((*key).clone(), Some(made));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        drop(known);
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::sim::{Sweep, find};
    use towpath_report::record::metrics::TIME_PER_OPERATION;

    fn key(setting: &str, machine: &str) -> RunKey {
        RunKey { setting: setting.into(), machine: machine.into() }
    }

    fn point(change: &str) -> Point {
        let sweep = Sweep::on("counter", "origin2000", &["ll-sc"], &[1]).set(change);
        find("counter").unwrap().points(&sweep).unwrap().remove(0)
    }

    fn wanted(settings: &[&str]) -> Vec<(RunKey, Point)> {
        settings.iter().map(|setting| (key(setting, ""), point("directory.retry=100ns"))).collect()
    }

    fn figures(points: &[Point]) -> Vec<Result<PointFigures, Error>> {
        let figures = Figures::from([(TIME_PER_OPERATION, vec![1.0])]);
        points.iter().map(|_| Ok(PointFigures { figures: figures.clone(), same: Vec::new() })).collect()
    }

    #[test]
    fn runs_are_made_once_for_claims_at_one_time() {
        let (runs, made) = (Runs::default(), AtomicUsize::new(0));
        let both_ask = Barrier::new(2);
        let ask = |keys: &[&str]| {
            both_ask.wait();
            let make = |points: &[Point]| {
                made.fetch_add(points.len(), Ordering::Relaxed);
                figures(points)
            };
            runs.figures(&wanted(keys), &make).unwrap().len()
        };
        let numbers = std::thread::scope(|scope| {
            let other = scope.spawn(|| ask(&["b", "c", "c", "a"]));
            [ask(&["a", "b"]), other.join().unwrap()]
        });
        assert_eq!((numbers, made.into_inner()), ([2, 4], 3));
    }

    #[test]
    fn run_that_failed_is_made_again() {
        let runs = Runs::default();
        let fail = |points: &[Point]| points.iter().map(|_| Err(Error::NotAvailable("no".into()))).collect();
        assert!(runs.figures(&wanted(&["a"]), &fail).is_err());
        assert_eq!(runs.figures(&wanted(&["a"]), &figures).unwrap().len(), 1);
    }

    #[test]
    fn run_with_other_values_that_do_not_matter_is_taken_over() {
        let (runs, made) = (Runs::default(), AtomicUsize::new(0));
        let retry = SameRange { parameter: "directory.retry", values: 50_000..=100_000 };
        let make = |points: &[Point]| {
            made.fetch_add(points.len(), Ordering::Relaxed);
            let same = || vec![retry.clone()];
            figures(points).into_iter().map(|it| it.map(|it| PointFigures { same: same(), ..it })).collect()
        };
        let ask = |setting: &str, change: &str| {
            runs.figures(&[(key(setting, change), point(change))], &make).unwrap();
            made.load(Ordering::Relaxed)
        };
        let first = ask("a", "directory.retry=100ns");
        assert_eq!((first, ask("a", "directory.retry=50ns")), (1, 1), "within the range");
        assert_eq!(ask("a", "directory.retry=50ns"), 1);
        assert_eq!(ask("a", "directory.retry=200ns"), 2, "outside");
        assert_eq!(ask("a", "network.hop=1ns"), 3, "another parameter");
        assert_eq!(ask("b", "directory.retry=50ns"), 4, "another run");
    }
}
