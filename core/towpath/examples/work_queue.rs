//! Work queue shared by processes, one of which is killed: its job comes in again.
//!
//! Another worker does it. Rank 0 hands jobs out and collects the answers. Without a launcher it
//! starts the others itself.
//!
//! ```text
//! target/release/examples/work_queue
//! towpath run -n 8 --on-death=report target/release/examples/work_queue
//! ```

use std::io::Write;

use towpath::{Plain, WorldConfig};

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Job {
    id: u64,
    len: u64,
    bytes: [u8; 256],
}

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Done {
    id: u64,
    sum: u64,
}

/// Number of jobs.
const JOBS: u64 = 2_000;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let world = towpath::join_or_spawn(&WorldConfig::new(4))?;
    let jobs = world.mpmc::<Job>("jobs", 64)?; // found by name, or made
    let done = world.mpsc::<Done>("done", 64)?;
    if world.rank() > 0 {
        let (jobs, done) = (jobs.receiver()?, done.sender()?);
        // Rank 1 takes the first job, and dies.
        let first = if world.rank() == 1 { Some(jobs.receive_leased()?) } else { None };
        world.barrier(Default::default())?;
        if first.is_some() {
            // Later than the others are done with all that is left.
            std::thread::sleep(std::time::Duration::from_millis(50));
            std::process::abort(); // as a crash would: it has a job in its hands
        }
        // Until the queue is closed and no other worker has a job that may come in again.
        while let Ok(job) = jobs.receive_leased() {
            let sum = job.bytes[..job.len as usize].iter().map(|&byte| u64::from(byte)).sum();
            let answer = Done { id: job.id, sum };
            job.complete_into(&done, answer)?; // both, or (if this process is killed) neither
        }
        return Ok(());
    }

    let (jobs, done) = (jobs.sender()?, done.receiver()?);
    let job = |id| Job { id, len: id % 256, bytes: [id as u8; 256] };
    jobs.send(job(0))?;
    world.barrier(Default::default())?;
    let send = std::thread::spawn(move || {
        for id in 1..JOBS {
            jobs.send(job(id))?; // waits for room
        }
        jobs.close();
        Ok::<(), towpath::TransferError>(())
    });
    let mut times = vec![0u32; JOBS as usize];
    for Done { id, sum } in done.iter() {
        if sum != (id % 256) * (id % 256) {
            return Err(format!("job {id}: {sum} is wrong").into());
        }
        times[id as usize] += 1;
    }
    send.join().map_err(|_| "the sender failed")??;
    let missing = times.iter().filter(|&&times| times == 0).count();
    let twice = times.iter().filter(|&&times| times > 1).count();
    let dead = (0..world.size()).filter(|&rank| world.has_died(rank)).count();
    writeln!(
        std::io::stdout(),
        "{JOBS} jobs: {missing} are missing, {twice} were answered twice; {dead} of the workers died"
    )?;
    if missing + twice == 0 { Ok(()) } else { Err("not each job was answered once".into()) }
}
