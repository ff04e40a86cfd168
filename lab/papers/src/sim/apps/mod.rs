//! The papers' applications on simulated machines, from the room `apps`: each is solved
//! once, in one or several copies, and its result compared with the reference.
//!
//! * `teams.rs`: applications over shared memory, with locks, barriers and queues by name.
//! * `accounts.rs`: time by class, and states of locks, under paper K's locks.
//! * `messages.rs`: applications over messages.

mod accounts;
pub mod messages;
pub mod teams;

use towpath_apps::messages::{MessageApplication, MessageInput};
use towpath_apps::program::AnyApplication;
use towpath_apps::simulated;
use towpath_apps::{Application, ProblemChoice, ProblemInput, Size};

use super::messages::{Layer, MessageAlgorithm};
use super::run::figures;
use super::{Measured, Run};
use teams::NamedPart;
use towpath_host::Error;
use towpath_report::record::metrics;

/// Solves an application's problem over shared memory with that part. An operation of the
/// figures is the whole.
///
/// # Errors
///
/// If the threads get stuck, or the result differs from the reference.
pub fn solve(
    run: &Run,
    application: Application,
    input: ProblemInput,
    part: NamedPart,
) -> Result<Measured, Error> {
    let ProblemInput { size, pack } = input;
    let choice = ProblemChoice { application, size, seed: run.seed, procs: run.procs, pack };
    let (copies, patience) = (run.copies.max(1), run.patience());
    let mut notes = None;
    let solved = simulated::run(&run.machine, choice, copies, &mut |simulation, arena, needs| {
        let (parts, its_notes) = part.team(simulation, arena, &run.machine, needs, &patience);
        notes = its_notes;
        parts
    });
    let solved = solved.map_err(Error::NotAvailable)?;
    let mut values = figures(&solved.outcome, copies as f64);
    let ends: f64 = solved.ends.iter().map(|end| *end as f64).sum();
    let threads = (run.procs * copies) as f64;
    values.extend([
        (metrics::PROGRAM_TIME, ends / 1e3 / copies as f64),
        (metrics::SLICES, 1.0 + solved.outcome.counters.preemptions as f64 / threads),
    ]);
    values.extend(notes.iter().flat_map(|notes| notes.figures(run, &solved.outcome)));
    Ok(Measured { values, same: Vec::new() })
}

/// Solves an application's problem over messages under that claim algorithm. An operation
/// of the figures is the whole.
///
/// # Errors
///
/// As [`solve`].
pub fn solve_by_messages(
    run: &Run,
    application: MessageApplication,
    size: Size,
    algorithm: MessageAlgorithm,
) -> Result<Measured, Error> {
    let input = MessageInput { size, seed: run.seed };
    let solved = messages::run(&Layer::new(run.clone()), algorithm, application, input);
    let solved = solved.map_err(Error::NotAvailable)?;
    let mut values = figures(&solved.outcome, 1.0);
    // The ranks' own times, without start and end.
    values.retain(|(metric, _)| *metric != metrics::TIME_PER_OPERATION);
    let requests: u64 = solved.ranks.iter().map(|rank| rank.requests).sum();
    values.extend([
        (metrics::TIME_PER_OPERATION, solved.ns() as f64),
        (metrics::FAILED_EXCHANGES, solved.outcome.counters.failed_exchanges as f64 / requests.max(1) as f64),
    ]);
    Ok(Measured { values, same: Vec::new() })
}

/// Reads an application and its input: `lu`, `lu/tiny`, `spark98/sf10.1.pack` (a file).
///
/// # Errors
///
/// Names what there is.
pub fn pattern(text: &str) -> Result<(AnyApplication, ProblemInput), Error> {
    let (name, input) = text.split_once('/').unwrap_or((text, Size::default().name()));
    let application = AnyApplication::from_name(name);
    if let Some(application) = application.filter(|it| it.takes_packs()) {
        let input = ProblemInput::read(input, Size::default()).map_err(Error::NotAvailable)?;
        return Ok((application, input));
    }
    let size = Size::from_name(input).map(ProblemInput::from);
    application.zip(size).ok_or_else(|| {
        let names: Vec<&str> = AnyApplication::all().map(AnyApplication::name).collect();
        let sizes = Size::ALL.map(Size::name).join(", ");
        let names = names.join(", ");
        Error::NotAvailable(format!(
            "no application is called `{text}`; there are {names}, each with a size behind it if it is not `{}` ({sizes}): lu/tiny; spark98 takes a pack of Spark98's, too: spark98/sf10.1.pack",
            Size::default().name()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Work;
    use towpath_sim::machines;

    const PACK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../apps/tests/two.1.pack");
    const TINY: ProblemInput = ProblemInput { size: Size::Tiny, pack: None };

    fn run_on(machine: &str, procs: usize) -> Run {
        Run::new(machines::by_name(machine).unwrap(), procs, Work { ns: 0, spread: 0.0 }, 1)
    }

    fn value(measured: &Measured, metric: towpath_report::record::Metric) -> f64 {
        measured.values.iter().find(|(m, _)| *m == metric).unwrap().1
    }

    #[test]
    fn applications_run_with_parts_of_each_kind() {
        let with = |run: &Run, application, part: &str| {
            let part = NamedPart::find(&run.machine, part).unwrap();
            assert!(part.is_used_by(application) && part.lacks(&run.machine, run.copies).is_none());
            let solved = solve(run, application, TINY, part).unwrap();
            assert!(value(&solved, metrics::PROGRAM_TIME) > 0.0);
        };
        let origin = run_on("origin2000", 4);
        with(&origin, Application::Lu, "centralized/fetch-op");
        with(&origin, Application::Mp3d, "hybrid-queue");
        with(&origin, Application::Cholesky, "fetch-op-tickets");
        with(&Run { copies: 2, ..origin }, Application::Radiosity, "michael-scott/ll-sc");
        for lock in ["mp-reactive", "mp-distributed", "test-and-test-and-set"] {
            with(&run_on("avalanche", 4), Application::Raytrace, lock);
        }
    }

    #[test]
    fn states_of_locks_are_counted() {
        let run = run_on("avalanche", 4);
        let of = |lock: &str| {
            let part = NamedPart::find(&run.machine, lock).unwrap();
            solve(&run, Application::Mp3d, TINY, part).unwrap()
        };
        for lock in ["mp-distributed", "mcs"] {
            let solved = of(lock);
            // Two for each of 256 molecules in each of 4 steps.
            assert_eq!(value(&solved, metrics::ACQUISITIONS), 2048.0, "{lock}");
            let states = [metrics::LOCAL_IDLE, metrics::REMOTE_IDLE, metrics::REMOTE_BUSY];
            let all: f64 = states.map(|state| value(&solved, state)).iter().sum();
            assert!((all - 1.0).abs() < 1e-9, "{lock}: {all}");
            let kernel = value(&solved, metrics::KERNEL_TIME);
            assert_eq!(kernel > 0.0, lock != "mcs");
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let origin = run_on("origin2000", 4).machine;
        let part = NamedPart::find(&origin, "mp-central").unwrap();
        assert!(part.lacks(&origin, 1).is_some());
        let avalanche = run_on("avalanche", 4).machine;
        assert!(part.lacks(&avalanche, 2).unwrap().contains("--copies"));
        assert!(!part.is_used_by(Application::Lu));
        assert!(NamedPart::find(&origin, "turnstile").is_none());
        let (_, packed) = pattern(&format!("spark98/{PACK}")).unwrap();
        assert_eq!(packed.name(), "two.1.pack");
        assert!(pattern(&format!("lu/{PACK}")).is_err());
        let error = pattern("spark98/huge").unwrap_err().to_string();
        assert!(error.contains("tiny, small"), "{error}");
        let error = pattern("lu/huge").unwrap_err().to_string();
        assert!(error.contains("tiny") && error.contains("radiosity") && error.contains("fft"), "{error}");
    }

    #[test]
    fn applications_run_over_messages() {
        let run = run_on("enterprise5000", 4);
        for application in MessageApplication::ALL {
            let algorithm = MessageAlgorithm::Known(towpath_am::Algorithm::LockFree);
            let time = |seed| {
                let solved = solve_by_messages(&run.seed(seed), application, Size::Tiny, algorithm);
                value(&solved.unwrap(), metrics::TIME_PER_OPERATION)
            };
            assert!(time(1) > 0.0);
            assert_eq!(time(1), time(1), "{}", application.name());
            assert_ne!(time(1), time(2), "{}", application.name());
        }
    }
}
