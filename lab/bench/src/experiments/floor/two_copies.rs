//! The floor of transfers through blocks: one core copies into a bare ring of blocks
//! while another copies out of it. No claim, no packet, no handler.
//!
//! The ring is as large as the blocks of a world of few processes, two transfers are under way, as
//! in the experiment, and the better of plain stores and stores past the caches counts: what this
//! does not reach, no protocol with two copies reaches on this machine at this time.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use towpath_host::Error;
use towpath_host::topology::{Placement, pinned};
use towpath_machine::{Arena, Heap, Native, OwnLine, Processor};

/// Number of bytes of a block.
const BLOCK: usize = 32 << 10;
/// Number of blocks.
const BLOCKS: u64 = 64;
/// Number of transfers under way.
const WINDOW: u64 = 2;
/// Minimum time of one measurement.
const TIME: Duration = Duration::from_millis(4);
/// Number of blocks by which the sender says that it has finished.
const FINISHED: u64 = u64::MAX;

/// The ring, and the buffers at its ends.
pub struct TwoCopies {
    ring: <Native as Processor>::Bytes,
    from: Vec<u8>,
    to: Vec<u8>,
}

/// Numbers of blocks that were written, and that were read.
#[derive(Default)]
struct BlockCounts {
    written: OwnLine<AtomicU64>,
    read: OwnLine<AtomicU64>,
}

impl TwoCopies {
    /// Buffers for transfers of up to `largest` bytes. The ring stays until the process
    /// ends.
    pub fn new(largest: usize) -> TwoCopies {
        TwoCopies {
            ring: Heap.bytes(BLOCK * BLOCKS as usize),
            from: (0..largest).map(|n| n as u8).collect(),
            to: vec![0; largest],
        }
    }

    /// Bytes per second of transfers of `bytes`, from the placement's first core to its
    /// second one.
    ///
    /// # Errors
    ///
    /// Without two cores there is nothing to measure.
    pub fn measure(&mut self, bytes: usize, placement: &Placement) -> Result<f64, Error> {
        if placement.core(1).is_none() {
            return Err(Error::NotAvailable("it needs two cores, and this process may use only one".into()));
        }
        let bytes = bytes.clamp(1, self.from.len().max(1));
        let ways = [false, true].map(|past_caches| self.by(past_caches, bytes, placement));
        Ok(ways[0].max(ways[1]))
    }

    fn by(&mut self, past_caches: bool, bytes: usize, placement: &Placement) -> f64 {
        let TwoCopies { ring, from, to } = self;
        let (from, to, progress) = (&from[..bytes], &mut to[..bytes], BlockCounts::default());
        thread::scope(|scope| {
            scope.spawn(|| pinned(placement.core(1), || receive(ring, to, &progress)));
            pinned(placement.core(0), || send(ring, from, past_caches, &progress))
        })
    }
}

/// Sends transfers until the time is over. Returns the bytes per second, from the second
/// time on that all blocks have been used.
fn send(ring: &<Native as Processor>::Bytes, from: &[u8], past_caches: bool, progress: &BlockCounts) -> f64 {
    let (cpu, each) = (Native::with_id(0), from.len().div_ceil(BLOCK) as u64);
    let (mut block, mut begun) = (0u64, None);
    let rate = loop {
        for piece in from.chunks(BLOCK) {
            wait_for(&progress.read, (block + 1).saturating_sub(BLOCKS));
            let at = (block % BLOCKS) as usize * BLOCK;
            if past_caches {
                cpu.copy_away(ring, at, piece)
            } else {
                cpu.copy_in(ring, at, piece)
            }
            block += 1;
            // (T1) Release, pairs with the Acquire (T2) in `wait_for`: the block is written.
            progress.written.store(block, Ordering::Release);
        }
        wait_for(&progress.read, block.saturating_sub((WINDOW - 1) * each));
        match begun {
            None if block >= BLOCKS.max(WINDOW * each) => begun = Some((Instant::now(), block)),
            Some((begun, first)) if begun.elapsed() >= TIME => {
                wait_for(&progress.read, block);
                let transfers = (block - first) / each;
                break (transfers * from.len() as u64) as f64 / begun.elapsed().as_secs_f64();
            }
            _ => {}
        }
    };
    // (T3) Release, pairs with the Acquire (T2) in `wait_for`.
    progress.written.store(FINISHED, Ordering::Release);
    rate
}

/// Takes transfers until the sender has finished.
fn receive(ring: &<Native as Processor>::Bytes, to: &mut [u8], progress: &BlockCounts) {
    let cpu = Native::with_id(1);
    let mut block = 0;
    loop {
        for piece in to.chunks_mut(BLOCK) {
            if wait_for(&progress.written, block + 1) == FINISHED {
                return;
            }
            cpu.copy_out(ring, (block % BLOCKS) as usize * BLOCK, piece);
            block += 1;
            // (T4) Release, pairs with the Acquire (T2) in `wait_for`: the block may be written
            // again.
            progress.read.store(block, Ordering::Release);
        }
        black_box(&mut *to);
    }
}

/// Waits until a word has reached a number. Returns its value.
fn wait_for(word: &AtomicU64, number: u64) -> u64 {
    loop {
        // (T2) Acquire, pairs with the Releases (T1), (T3) and (T4).
        let now = word.load(Ordering::Acquire);
        if now >= number {
            return now;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_host::topology::Pin;

    #[test]
    fn transfers_arrive_whole_both_ways() {
        let mut copies = TwoCopies::new(100_000);
        for past_caches in [false, true] {
            copies.to.fill(0);
            let rate = copies.by(past_caches, 100_000, &Placement::detect(Pin::No));
            assert!(rate.is_finite() && rate > 0.0);
            assert!(copies.to == copies.from);
        }
    }
}
