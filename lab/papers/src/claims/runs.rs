//! Runs that claims have in common: each is made once, by whichever claim asks first.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::sim::{Figures, Point};
use towpath_host::Error;

/// Way to make runs: the figures of each point, in their order.
type Make<'a> = dyn Fn(&[Point]) -> Vec<Result<Figures, Error>> + 'a;

/// The figures of runs by key; `None` while a run is under way.
type Known = BTreeMap<String, Option<Arc<Figures>>>;

/// All runs of a judgement, with their figures.
#[derive(Default)]
pub(super) struct Runs {
    known: Mutex<Known>,
    /// Signalled when runs end, with or without figures.
    ended: Condvar,
}

/// Keys whose runs one claim makes.
///
/// Keys without figures in the end are forgotten, so that other claims that wait for them make the
/// runs themselves.
struct Undertaken<'a> {
    runs: &'a Runs,
    keys: Vec<&'a str>,
}

impl Drop for Undertaken<'_> {
    fn drop(&mut self) {
        let mut known = self.runs.lock();
        for key in &self.keys {
            if let Some(None) = known.get(*key) {
                known.remove(*key);
            }
        }
        drop(known);
        self.runs.ended.notify_all();
    }
}

impl Runs {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns the figures of these runs, in their order. Makes those that no claim has
    /// made or is making, then waits for the others.
    ///
    /// # Errors
    ///
    /// The first failure of a run.
    pub fn figures(&self, wanted: &[(String, Point)], make: &Make<'_>) -> Result<Vec<Arc<Figures>>, Error> {
        loop {
            self.make_missing(wanted, make)?;
            let under_way =
                |known: &mut Known| wanted.iter().any(|(key, _)| matches!(known.get(key), Some(None)));
            let known = self.ended.wait_while(self.lock(), under_way).unwrap_or_else(|e| e.into_inner());
            // Without figures: a run of another claim has failed, and is made again.
            if let Some(all) = wanted.iter().map(|(key, _)| known.get(key)?.clone()).collect() {
                return Ok(all);
            }
        }
    }

    fn make_missing(&self, wanted: &[(String, Point)], make: &Make<'_>) -> Result<(), Error> {
        let (mut undertaken, mut points) = (Undertaken { runs: self, keys: Vec::new() }, Vec::new());
        let mut known = self.lock();
        for (key, point) in wanted {
            if !known.contains_key(key) {
                known.insert(key.clone(), None);
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
        for (key, made) in undertaken.keys.iter().zip(made) {
            match made {
                Ok(figures) => _ = known.insert(key.to_string(), Some(Arc::new(figures))),
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

    fn wanted(keys: &[&str]) -> Vec<(String, Point)> {
        let sweep = Sweep::on("counter", "origin2000", &["ll-sc"], &[1]);
        let point = find("counter").unwrap().points(&sweep).unwrap().remove(0);
        keys.iter().map(|key| (key.to_string(), point.clone())).collect()
    }

    fn figures(points: &[Point]) -> Vec<Result<Figures, Error>> {
        points.iter().map(|_| Ok(Figures::from([(TIME_PER_OPERATION, vec![1.0])]))).collect()
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
}
