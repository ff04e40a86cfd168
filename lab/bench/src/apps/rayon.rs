//! Applications whose kernels are written as loops, on rayon's threads.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rayon::ThreadPoolBuilder;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use towpath_apps::native::NativeRun;
use towpath_apps::{ParallelLoops, Problem};
use towpath_machine::Native;

use super::pin;

/// Parallel iterators of the pool that the calling thread belongs to.
struct Iterators;

impl ParallelLoops<Native> for Iterators {
    fn sum(&self, count: usize, body: &(dyn Fn(&Native, usize) -> u64 + Sync)) -> u64 {
        let cpu = || Native::with_id(rayon::current_thread_index().unwrap_or(0) as u32);
        (0..count).into_par_iter().map(|n| body(&cpu(), n)).sum()
    }
}

/// Solves a problem with a pool of a thread for each core that is given.
///
/// # Errors
///
/// If there is no room for so many threads, or the result differs from the reference.
pub fn run(problem: &dyn Problem<Native>, cores: &[Option<usize>]) -> Result<NativeRun, String> {
    let own = cores.to_vec();
    let pool = ThreadPoolBuilder::new().num_threads(cores.len()).start_handler(move |me| pin(&own, me));
    let pool = pool.build().map_err(|e| e.to_string())?;
    // All threads have started.
    pool.broadcast(|_| ());
    let start = Instant::now();
    pool.install(|| problem.work_in_loops(&Native::with_id(0), &Iterators));
    let time = start.elapsed();
    // Relaxed: the loops have ended.
    let verified = problem.check(&|cell| cell.load(Ordering::Relaxed))?;
    Ok(NativeRun { time, verified })
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_apps::{Application, ProblemChoice, Size, native};

    #[test]
    fn loops_on_rayon_agree_with_the_references() {
        for application in Application::ALL.into_iter().filter(|a| a.has_loops()) {
            for procs in [1, 4] {
                let choice = ProblemChoice { application, size: Size::Tiny, seed: 2, procs, pack: None };
                let run = run(&*native::problem(choice), &vec![None; procs]);
                let run = run.unwrap_or_else(|e| panic!("{} on {procs}: {e}", application.name()));
                assert!(!run.time.is_zero());
            }
        }
    }
}
