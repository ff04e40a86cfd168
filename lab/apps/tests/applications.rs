//! Each application gives the reference's result: on threads under every lock, barrier,
//! queue and policy, and on simulated machines.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towpath::{Algorithm, WorldConfig};
use towpath_apps::messages::processes::run_processes;
use towpath_apps::messages::{MessageApplication, MessageInput};
use towpath_apps::native::{
    self, LOCKED, PartNames, TeamSurroundings, barrier_names, lock_names, queue_names,
};
use towpath_apps::parts::{all_locks, lock_row, locked_queues, one_barrier};
use towpath_apps::simulated::{SimParts, SimulatedRun, run};
use towpath_apps::spark98::pack::Pack;
use towpath_apps::{Application, LockSet, MeetingPoint, ParallelLoops, ProblemChoice, Size, Verified};
use towpath_machine::Native;
use towpath_sim::{Sim, machines};
use towpath_sync::barriers::Dissemination;
use towpath_sync::locks::Ticket;
use towpath_sync::{Policy, Spinning};

fn choice(application: Application, procs: usize, seed: u64) -> ProblemChoice {
    ProblemChoice { application, size: Size::Tiny, seed, procs, pack: None }
}

fn natively(choice: ProblemChoice, names: PartNames<'_>, policy: Policy) -> Result<Verified, String> {
    let problem = native::problem(choice);
    let around = TeamSurroundings::new(choice.procs, 2);
    let wait = native::waiting(policy, &around);
    let parts = native::parts(names, problem.needs(), choice.procs, wait)?;
    native::run(&*problem, choice.procs, &parts, &|_| ()).map(|run| run.verified)
}

fn simulated(machine: &str, choice: ProblemChoice, copies: usize) -> SimulatedRun {
    let machine = machines::by_name(machine).unwrap();
    let procs = choice.procs;
    let result = run(&machine, choice, copies, &mut |_, arena, needs| SimParts {
        locks: Box::new(lock_row::<Sim, Ticket<Sim>, _>(arena, all_locks(needs), Spinning)),
        barrier: Box::new(one_barrier::<Sim, Dissemination<Sim, 64>, _>(arena, procs, Spinning)),
        queues: locked_queues(arena, needs, Spinning),
    });
    result.unwrap_or_else(|error| panic!("{} on {}: {error}", choice.application.name(), machine.name))
}

#[test]
fn applications_agree_with_their_references_natively() {
    for application in Application::ALL {
        for procs in [1, 2, 3, 8] {
            for seed in 1..4 {
                let verified =
                    natively(choice(application, procs, seed), PartNames::default(), Policy::Adaptive);
                let verified = verified.unwrap_or_else(|e| panic!("{} on {procs}: {e}", application.name()));
                assert!(!verified.text.is_empty());
            }
        }
    }
}

#[test]
fn packs_are_multiplied_like_generated_meshes() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/two.1.pack"));
    let pack = Some(Pack::open(file).unwrap());
    for application in [Application::Spark98, Application::Spark98Reduced] {
        for procs in [1, 3] {
            let choice = ProblemChoice { pack, ..choice(application, procs, 1) };
            let verified = natively(choice, PartNames::default(), Policy::Adaptive).unwrap();
            assert!(verified.text.contains("5 rows"), "{}", verified.text);
            simulated("avalanche", choice, 1);
        }
    }
}

/// Parallel loops on one thread: from the last iteration to the first one, or forwards.
struct OneThread {
    backwards: bool,
}

impl ParallelLoops<Native> for OneThread {
    fn sum(&self, count: usize, body: &(dyn Fn(&Native, usize) -> u64 + Sync)) -> u64 {
        let at = |n| if self.backwards { count - 1 - n } else { n };
        (0..count).map(|n| body(&Native::with_id(0), at(n))).sum()
    }
}

#[test]
fn loops_in_either_order_agree_with_the_references() {
    for application in Application::ALL {
        for procs in [1, 3] {
            for backwards in [false, true] {
                let problem = native::problem(choice(application, procs, 1));
                problem.work_in_loops(&Native::with_id(0), &OneThread { backwards });
                let verified = problem.check(&|cell| cell.load(Ordering::Relaxed));
                assert_eq!(verified.is_ok(), application.has_loops(), "{}: {verified:?}", application.name());
            }
        }
    }
}

#[test]
fn applications_run_under_every_part_and_policy() {
    let with = |application: Application, names: PartNames<'_>, policy| {
        natively(choice(application, 3, 7), names, policy)
            .unwrap_or_else(|e| panic!("{} with {names:?}: {e}", application.name()));
    };
    // One that uses locks most, one that uses barriers most, and those with queues.
    for lock in lock_names() {
        with(Application::Mp3d, PartNames { lock, ..PartNames::default() }, Policy::Adaptive);
    }
    for barrier in barrier_names() {
        with(Application::Lu, PartNames { barrier, ..PartNames::default() }, Policy::Adaptive);
    }
    for queue in queue_names() {
        for application in [Application::Raytrace, Application::Cholesky] {
            with(application, PartNames { queue, ..PartNames::default() }, Policy::Adaptive);
        }
    }
    for (policy, _) in Policy::ALL {
        for application in Application::ALL {
            with(application, PartNames::default(), policy);
        }
    }
    let unknown = PartNames { queue: "heap", ..PartNames::default() };
    let error = natively(choice(Application::Spark98, 1, 1), unknown, Policy::Spin).unwrap_err();
    assert!(error.contains("`heap`") && error.contains(LOCKED) | error.contains("michael-scott"), "{error}");
}

#[test]
fn applications_agree_with_their_references_simulated() {
    for application in Application::ALL {
        for (machine, procs) in
            [("origin2000", 1), ("origin2000", 5), ("avalanche", 8), ("enterprise5000", 3)]
        {
            let run = simulated(machine, choice(application, procs, 1), 1);
            assert!(run.ends[0] > 0 && !run.verified.text.is_empty());
        }
        let run = simulated("origin2000", choice(application, 4, 2), 2);
        assert_eq!(run.ends.len(), 2);
    }
}

#[test]
fn simulated_runs_follow_from_their_seed() {
    for application in Application::ALL {
        let trace = |seed| simulated("origin2000", choice(application, 4, seed), 1).outcome.trace;
        assert_eq!(trace(5), trace(5), "{}", application.name());
        assert_ne!(trace(5), trace(6), "{}", application.name());
    }
}

/// A datum that is not as the kernel has left it, anywhere in the result.
#[test]
fn results_with_a_changed_datum_are_refused() {
    for application in Application::ALL {
        let problem = native::problem(choice(application, 2, 3));
        let around = TeamSurroundings::new(2, 2);
        let wait = native::waiting(Policy::Adaptive, &around);
        let parts = native::parts(PartNames::default(), problem.needs(), 2, wait).unwrap();
        native::run(&*problem, 2, &parts, &|_| ()).unwrap();
        let reads = Cell::new(0);
        let check = |changed: u32| {
            reads.set(0);
            problem.check(&|cell| {
                reads.set(reads.get() + 1);
                let flip = if reads.get() == changed { 1 << 62 } else { 0 };
                cell.load(Ordering::Relaxed) ^ flip
            })
        };
        check(0).unwrap();
        let all = reads.get();
        for part in 1..8 {
            let error = check(all * part / 7).err();
            assert!(error.is_some(), "{}: datum {part} of 7 of {all}", application.name());
        }
    }
}

/// Locks that do not lock, and a barrier at which no processor waits.
struct Nothing;

impl LockSet<Sim> for Nothing {
    fn hold(&self, _cpu: &Sim, _k: usize, section: &mut dyn FnMut()) {
        section();
    }
}

impl MeetingPoint<Sim> for Nothing {
    fn meet(&self, _cpu: &Sim, _me: usize) {}
}

/// A run with a real barrier or with none, without locks.
fn sabotaged(application: Application, has_barrier: bool) -> Result<SimulatedRun, String> {
    let machine = machines::by_name("origin2000").unwrap();
    run(&machine, choice(application, 8, 1), 1, &mut |_, arena, needs| SimParts {
        locks: match has_barrier {
            true => Box::new(Nothing),
            false => Box::new(lock_row::<Sim, Ticket<Sim>, _>(arena, all_locks(needs), Spinning)),
        },
        barrier: match has_barrier {
            true => Box::new(one_barrier::<Sim, Dissemination<Sim, 64>, _>(arena, 8, Spinning)),
            false => Box::new(Nothing),
        },
        queues: locked_queues(arena, needs, Spinning),
    })
}

#[test]
fn results_without_locks_or_barriers_are_refused() {
    let without_locks = [Application::Spark98, Application::Raytrace, Application::Mp3d, Application::Barnes];
    let without_barriers =
        [Application::Spark98, Application::Spark98Reduced, Application::Lu, Application::Mp3d];
    for (applications, has_barrier) in [(&without_locks[..], true), (&without_barriers[..], false)] {
        for &application in applications {
            let result = sabotaged(application, has_barrier);
            let name = application.name();
            assert!(
                result.is_err(),
                "{name} is right without {}",
                if has_barrier { "locks" } else { "barriers" }
            );
        }
    }
}

#[test]
fn message_applications_agree_with_their_references() {
    for application in MessageApplication::ALL {
        for (procs, algorithm) in [(1, Algorithm::Towpath), (2, Algorithm::LockFree), (4, Algorithm::Ticket)]
        {
            let config = WorldConfig { algorithm, ..WorldConfig::new(procs) };
            for seed in 1..3 {
                let input = MessageInput { size: Size::Tiny, seed };
                let limit = Duration::from_secs(60);
                let runs = run_processes(application, input, &config, &[], limit)
                    .unwrap_or_else(|e| panic!("{} on {procs}: {e}", application.name()));
                assert!(runs.len() == procs as usize && runs.iter().all(|r| r.ns > 0 && !r.text.is_empty()));
            }
        }
    }
}
