//! Fan-out of an inference server: rank 0 sends each batch of inputs to all other ranks,
//! each of which runs its part of a model on it. Rank 2 dies in the middle of a batch: rank 0 drops
//! it and goes on with the others.
//!
//! ```text
//! towpath run -n 4 --on-death=report target/release/examples/broadcast
//! ```

use std::io::Write;

use towpath::{TransferError, World, WorldBroadcast};

/// Number of batches.
const BATCHES: u64 = 2_000;
/// Number of batches after which rank 2 dies.
const FATAL: u64 = 700;
/// Number of bytes of the ring: some are longer, and travel in pieces.
const RING: usize = 1 << 14;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Input of that number: its length and its bytes follow from that.
fn batch(number: u64) -> Vec<u8> {
    let longest = if number % 100 == 99 { 3 * RING } else { RING / 8 };
    vec![number as u8; (number * 7919) as usize % longest + 8]
}

fn main() -> Outcome {
    let world = World::join()?;
    let inputs = world.broadcast("inputs", RING)?;
    if world.rank() == 0 { serve(&world, &inputs) } else { infer(&world, &inputs) }
}

fn serve(world: &World, inputs: &WorldBroadcast<towpath::broadcast::HoldsBack>) -> Outcome {
    let mut writer = inputs.writer()?;
    world.barrier(Default::default())?; // all readers are there
    for number in 0..BATCHES {
        writer.send(&batch(number))?; // waits for the slowest reader, and not for a dead one
    }
    let deaths = std::iter::from_fn(|| writer.lost_reader());
    let lost: Vec<Option<u32>> = deaths
        .map(|death| match death {
            TransferError::PeerDied { rank } => rank,
            _ => None,
        })
        .collect();
    writer.close();
    writeln!(std::io::stdout(), "rank 0: sent {BATCHES} batches, lost {lost:?}")?;
    Ok(())
}

fn infer(world: &World, inputs: &WorldBroadcast<towpath::broadcast::HoldsBack>) -> Outcome {
    let mut reader = inputs.reader()?;
    world.barrier(Default::default())?;
    let rank = world.rank();
    for number in 0.. {
        // Read where it lies; its room is free again when it is dropped.
        let input = match reader.receive_in_place() {
            Ok(input) => input,
            Err(TransferError::Closed) => {
                writeln!(std::io::stdout(), "rank {rank}: ran {number} batches")?;
                break;
            }
            Err(end) => return Err(end.into()),
        };
        if *input != batch(number) {
            return Err(format!("rank {rank}: batch {number} is another one").into());
        }
        if rank == 2 && number == FATAL {
            std::process::abort(); // as a crash would: no farewell, nothing cleaned up
        }
    }
    Ok(())
}
