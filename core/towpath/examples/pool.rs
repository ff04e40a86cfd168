//! Frames that pass three stages and are never copied. A process is killed.
//!
//! The frame that it has comes in again, and another process takes it. Without a launcher rank 0
//! starts the others itself.
//!
//! ```text
//! target/release/examples/pool
//! towpath run -n 4 --on-death=report target/release/examples/pool
//! ```

use std::io::Write;

use towpath::WorldConfig;

/// Number of frames.
const FRAMES: u64 = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = towpath::join_or_spawn(&WorldConfig::new(4))?;
    let frames = world.pool("frames", 8, 4096)?; // found by name, or made
    let (raw, ready) = (frames.stage("raw", 8)?, frames.stage("ready", 8)?);
    let all_are_there = || world.barrier(Default::default());
    match world.rank() {
        0 => {
            let raw = raw.sender()?;
            for number in 0..FRAMES {
                let mut frame = frames.take()?; // waits until one is free
                frame.values_mut::<u64>().fill(number);
                raw.send(frame)?;
                if number == 0 {
                    all_are_there()?;
                }
            }
            raw.close();
        }
        3 => {
            let ready = ready.receiver()?;
            all_are_there()?;
            let mut times = vec![0; FRAMES as usize];
            // Until the last sender has gone.
            while let Ok(frame) = ready.receive() {
                let &[number, square] = &frame.values::<u64>()[..2] else { unreachable!() };
                times[number as usize] += 1;
                if square != number * number {
                    return Err(format!("frame {number}: {square} is wrong").into());
                }
            } // the frame is free again
            let once = times.iter().filter(|&&times| times == 1).count();
            let dead = (0..world.size()).filter(|&rank| world.has_died(rank)).count();
            writeln!(std::io::stdout(), "{once} of {FRAMES} frames came once; {dead} process died")?;
        }
        rank => {
            let (raw, ready) = (raw.receiver()?, ready.sender()?);
            // Rank 1 takes the first frame, and dies.
            let first = if rank == 1 { Some(raw.receive()?) } else { None };
            all_are_there()?;
            if first.is_some() {
                std::process::abort(); // as a crash would: it has a frame in its hands
            }
            while let Ok(mut frame) = raw.receive() {
                // In place, and so that it may be done twice: a frame comes in again as the dead
                // left it.
                let values = frame.values_mut::<u64>();
                values[1] = values[0] * values[0];
                ready.send(frame)?;
            }
        }
    }
    Ok(())
}
