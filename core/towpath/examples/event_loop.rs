//! Event loop of rank 0: values of other ranks, and a clock, in one `poll`.
//!
//! Rank 1 is killed on the way; the loop goes on with the values of rank 2. Without a launcher rank
//! 0 starts the others itself.
//!
//! ```text
//! target/release/examples/event_loop
//! towpath run -n 3 --on-death=report target/release/examples/event_loop
//! ```

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath::WorldConfig;
use towpath::readiness::{Pollable, PollableError};

/// Number of values of each sender.
const VALUES: u64 = 200;
/// Interval of the clock.
const TICK: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = towpath::join_or_spawn(&WorldConfig::new(3))?;
    // A queue for each sender: its end is its sender's.
    let queue = |rank: u32| world.spsc::<u64>(&format!("values-{rank}"), 16);
    if world.rank() > 0 {
        let sender = queue(world.rank())?.sender()?;
        world.barrier(Default::default())?;
        for value in 0..VALUES {
            if (world.rank(), value) == (1, VALUES / 2) {
                std::process::abort(); // as a crash would
            }
            sender.send(value)?;
            std::thread::sleep(Duration::from_micros(500));
        }
        return Ok(());
    }

    let mut receivers =
        [Pollable::new(queue(1)?.receiver()?)?, Pollable::new(queue(2)?.receiver()?)?].map(Some);
    world.barrier(Default::default())?;
    let (mut counts, mut ticks, mut tick) = ([0u64; 2], 0u32, Instant::now() + TICK);
    let mut out = std::io::stdout();
    while receivers.iter().any(Option::is_some) {
        for (place, count) in receivers.iter_mut().zip(&mut counts) {
            // All that is there: only after a look in vain its descriptor becomes readable.
            while let Some(receiver) = place {
                match receiver.try_receive() {
                    Ok(Some(value)) if value == *count => *count += 1,
                    Ok(Some(value)) => return Err(format!("{value} after {count} values").into()),
                    Ok(None) => break,
                    Err(PollableError::Operation(end)) => {
                        writeln!(out, "{count} values, then: {end}")?;
                        *place = None;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let left = tick.saturating_duration_since(Instant::now());
        if left.is_zero() {
            (ticks, tick) = (ticks + 1, tick + TICK);
        }
        let left = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as _ };
        let mut descriptors: Vec<PollFd<'_>> =
            receivers.iter().flatten().map(|receiver| PollFd::new(receiver, PollFlags::IN)).collect();
        poll(&mut descriptors, Some(&left))?;
    }
    let has_ticked = if ticks > 0 { "ticked" } else { "stood still" };
    writeln!(out, "{} and {} values; meanwhile the clock {has_ticked}", counts[0], counts[1])?;
    let expected = [VALUES / 2, VALUES];
    if counts == expected { Ok(()) } else { Err(format!("not {expected:?}").into()) }
}
