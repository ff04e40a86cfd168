//! Run queue shared by processes: every rank puts jobs in and takes out the most urgent
//! one there is. Rank 1 dies in the middle of it, perhaps of an operation: the others don't wait
//! for it, and a survivor gets back the descriptors that it had in its hands. A job that it had
//! popped and not finished is lost with it: docs/crashes.md says how to prevent that.
//!
//! ```text
//! towpath run -n 4 --on-death=report target/release/examples/run_queue
//! ```

use std::io::Write;

use towpath::World;
use towpath::structures::nonblocking;

/// Queue of up to 200 jobs at a time, for up to 16 processes.
type Jobs = nonblocking::in_world::PriorityQueue<201, 16>;

/// Number of jobs that each of the other ranks brings.
const JOBS: u64 = 20_000;
/// Time after which rank 1 dies.
const FATAL: std::time::Duration = std::time::Duration::from_millis(3);

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let world = World::join()?;
    let jobs = nonblocking::open::<Jobs>(&world, "run-queue")?;
    world.barrier(Default::default())?;

    if world.rank() == 1 {
        std::thread::spawn(|| {
            std::thread::sleep(FATAL);
            std::process::abort(); // as a crash would, in the middle of anything: no farewell, nothing cleaned up
        });
    }
    let (mut done, mut next) = (0u64, None);
    let run = |(urgency, job): (u64, u64)| {
        if urgency >= 8 {
            return Err(format!("job {job} of urgency {urgency}: no process has brought that"));
        }
        std::hint::black_box((0..urgency * 10).sum::<u64>());
        Ok(())
    };
    // Rank 1 brings jobs until it dies, on a fast machine more than the others.
    let jobs_to_bring = if world.rank() == 1 { u64::from(u32::MAX) } else { JOBS };
    for number in 0..jobs_to_bring {
        // One that had no room is brought later; meanwhile there is work to do.
        let job = next.take().unwrap_or((number % 8, u64::from(world.rank()) << 32 | number));
        if jobs.insert(job.0, job.1).is_err() {
            next = Some(job);
        }
        // Whatever has happened to others, the queue is whole.
        if let Some(job) = jobs.pop()? {
            run(job)?;
            done += 1;
        }
    }
    let freed = jobs.recover()?.freed;
    while let Some(job) = jobs.pop()? {
        run(job)?;
        done += 1;
    }
    let rank = world.rank();
    writeln!(std::io::stdout(), "rank {rank}: ran {done} jobs, got {freed} descriptors back from the dead")?;
    Ok(())
}
