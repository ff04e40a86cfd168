//! A bulk transfer: rank 0 sends 64 MiB to rank 1, in one call for each megabyte, and
//! rank 1 checks them.
//!
//! ```text
//! towpath run -n 2 target/release/examples/bulk_transfer
//! towpath run -n 2 --size 32M target/release/examples/bulk_transfer   # shared segments: one copy
//! ```

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use towpath::{Endpoint, Payload, Segment, World};

const ARRIVED: u8 = 1;
const CHECKED: u8 = 2;

const PIECE: usize = 1 << 20;
const PIECES: u64 = 64;
/// Places for pieces in the segment.
const PLACES: u64 = 4;

/// Bytes of which each piece is a part.
fn pattern() -> Vec<u8> {
    (0..PIECE + PIECES as usize).map(|n| (n * 31 / 8) as u8).collect()
}

/// The part of the pattern that a piece is.
fn part(pattern: &[u8], piece: u64) -> &[u8] {
    &pattern[piece as usize..][..PIECE]
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let world = World::join()?;
    let len = PIECE * PLACES as usize;
    // In shared memory if the world was made large enough (--size), otherwise in our own.
    let endpoint = Endpoint::with_shared_segment(&world)
        .ok()
        .filter(|e| e.segment().len() >= len as u64)
        .map_or_else(|| Endpoint::with_private_segment(&world, len), Ok)?;
    let count = Arc::new(AtomicU64::new(0));
    let damaged = Arc::new(AtomicU64::new(0));
    let pattern = pattern();

    if world.rank() == 0 {
        let (checked, wrong) = (count.clone(), damaged.clone());
        endpoint.set_handler(CHECKED, move |reply| {
            if reply.args() != [1] {
                wrong.fetch_add(1, Relaxed);
            }
            checked.fetch_add(1, Relaxed);
        });
        endpoint.map_world()?;
        endpoint.barrier()?;
        let start = Instant::now();
        for piece in 0..PIECES {
            // A place may be used again when the piece before it was checked.
            endpoint.poll_until(|| count.load(Relaxed) + PLACES > piece);
            let (bytes, place) = (part(&pattern, piece), piece % PLACES * PIECE as u64);
            endpoint.request_long(1, ARRIVED, &[piece as u32], bytes, place)?;
        }
        endpoint.poll_until(|| count.load(Relaxed) >= PIECES);
        if damaged.load(Relaxed) > 0 {
            return Err(format!("{} pieces arrived damaged", damaged.load(Relaxed)).into());
        }
        writeln!(std::io::stdout(), "{PIECES} MiB sent and checked in {:.0?}", start.elapsed())?;
    } else {
        let arrived = count.clone();
        endpoint.set_handler(ARRIVED, move |message| {
            let (Payload::Long { offset, len }, &[piece]) = (message.payload(), message.args()) else {
                return;
            };
            let mut bytes = vec![0; len as usize];
            message.segment().read(offset, &mut bytes);
            let right = piece < PIECES as u32 && bytes == part(&pattern, piece.into());
            let _ = message.reply(CHECKED, &[right.into()]); // rank 0 waits for it, if it lives
            arrived.fetch_add(1, Relaxed);
        });
        let kind = if matches!(endpoint.segment(), Segment::Shared(_)) { "shared" } else { "private" };
        writeln!(std::io::stdout(), "rank {}: receiving into a {kind} segment", world.rank())?;
        endpoint.barrier()?;
        endpoint.poll_until(|| count.load(Relaxed) >= PIECES || world.rank() > 1);
    }
    Ok(())
}
