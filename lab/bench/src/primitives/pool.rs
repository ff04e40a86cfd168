//! Buffers through three stages, of which the first fills and the others read all.
//!
//! Ours move between processes by a pool. Beside it, threads pass boxes through crossbeam's
//! channels and back, so that both use the same few buffers again and again.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_channel::{Receiver, Sender};
use towpath::pool::{Buffer, Pool, Receiver as PoolReceiver, Sender as PoolSender};
use towpath::{TransferError, World, WorldConfig};
use towpath_sync::Policy;

use super::crew::LoadCrew;
use super::{MeasuredKind, describe_costs, enter, world_for};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::record::metrics::BYTES_PER_S;

/// Number of stages, and of participants.
pub const STAGES: u32 = 3;
/// Size of a buffer unless told otherwise, in bytes.
pub const POOL_SIZES: [u64; 1] = [1 << 20];
/// Number of buffers.
const BUFFERS: usize = 6;
/// Number of places between two stages.
const PLACES: usize = 8;

/// Way of buffers to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BufferKind {
    /// `World::pool`.
    Pool,
    /// Boxes through crossbeam's channels.
    Crossbeam,
}

impl BufferKind {
    /// All of them.
    pub const ALL: [BufferKind; 2] = [BufferKind::Pool, BufferKind::Crossbeam];
}

impl MeasuredKind for BufferKind {
    fn name(self) -> &'static str {
        match self {
            BufferKind::Pool => "pool",
            BufferKind::Crossbeam => "crossbeam",
        }
    }

    fn has_policy(self) -> bool {
        false
    }

    fn is_for(self, sharing: Sharing, procs: u32) -> bool {
        let its_own = match self {
            BufferKind::Pool => Sharing::Processes,
            BufferKind::Crossbeam => Sharing::Threads,
        };
        sharing == its_own && procs == STAGES
    }
}

/// Participant's ends: where its buffers come from, and go to.
trait BufferEnds {
    type Buffer;
    /// Next buffer; `None` if none follows.
    fn next(&self) -> Result<Option<Self::Buffer>, String>;
    fn words(buffer: &mut Self::Buffer) -> &mut [u64];
    fn pass(&self, buffer: Self::Buffer) -> Result<(), String>;
}

struct PoolEnds {
    pool: Pool,
    from: Option<PoolReceiver>,
    to: Option<PoolSender>,
}

impl PoolEnds {
    fn of(world: &World, bytes: usize, me: usize) -> Result<PoolEnds, String> {
        let pool = enter(world)?.pool("buffers", BUFFERS, bytes).map_err(|e| e.to_string())?;
        let stage = |n: usize| pool.stage(["first", "second"][n], PLACES).map_err(|e| e.to_string());
        let from = match me.checked_sub(1) {
            Some(n) => Some(stage(n)?.receiver().map_err(|e| e.to_string())?),
            None => None,
        };
        let to = match me {
            0 | 1 => Some(stage(me)?.sender().map_err(|e| e.to_string())?),
            _ => None,
        };
        Ok(PoolEnds { pool, from, to })
    }
}

impl BufferEnds for PoolEnds {
    type Buffer = Buffer;

    fn next(&self) -> Result<Option<Buffer>, String> {
        match self.from.as_ref().map_or_else(|| self.pool.take(), PoolReceiver::receive) {
            Ok(buffer) => Ok(Some(buffer)),
            Err(TransferError::Closed | TransferError::Disconnected) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn words(buffer: &mut Buffer) -> &mut [u64] {
        buffer.values_mut()
    }

    fn pass(&self, buffer: Buffer) -> Result<(), String> {
        match &self.to {
            Some(to) => to.send(buffer).map_err(|unsent| unsent.to_string()),
            // It is free again when it is dropped.
            None => Ok(()),
        }
    }
}

type Boxed = Box<[u64]>;
type BoxedEnds = (Receiver<Boxed>, Sender<Boxed>);

impl BufferEnds for BoxedEnds {
    type Buffer = Boxed;

    fn next(&self) -> Result<Option<Boxed>, String> {
        Ok(self.0.recv().ok())
    }

    fn words(buffer: &mut Boxed) -> &mut [u64] {
        buffer
    }

    fn pass(&self, buffer: Boxed) -> Result<(), String> {
        // If the first stage has ended, no buffer is needed there.
        let _ = self.1.send(buffer);
        Ok(())
    }
}

/// Channels in a ring: to the second stage, the third, and back to the first.
fn boxed_ends(bytes: usize) -> Vec<BoxedEnds> {
    let (to_second, second) = crossbeam_channel::bounded(PLACES);
    let (to_third, third) = crossbeam_channel::bounded(PLACES);
    let (back, first) = crossbeam_channel::bounded(PLACES);
    for _ in 0..BUFFERS {
        // There are more places than buffers.
        let _ = back.try_send(vec![0; bytes / 8].into_boxed_slice());
    }
    vec![(first, to_second), (second, to_third), (third, back)]
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolLoad {
    /// The way.
    pub way: BufferKind,
    /// The participants' kind.
    pub sharing: Sharing,
    /// Size of a buffer.
    pub bytes: u64,
}

/// Measures it: bytes that arrive at the last stage in a second, costs.
///
/// # Errors
///
/// Those of the system; a buffer that was lost, came twice, or had other contents.
pub fn pass_through(load: &PoolLoad, run: &Circumstances<'_>) -> Result<Samples, Error> {
    let bytes = load.bytes.next_multiple_of(64) as usize;
    match load.way {
        BufferKind::Pool => {
            let mut config = WorldConfig::new(STAGES);
            config.object_bytes = (BUFFERS * bytes + (1 << 20)) as u64;
            let world = world_for(&config)?;
            measure(load, run, |me| PoolEnds::of(&world, bytes, me))
        }
        BufferKind::Crossbeam => {
            let ends = Mutex::new(boxed_ends(bytes).into_iter().map(Some).collect::<Vec<_>>());
            measure(load, run, |me| {
                let mut ends = ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                ends.get_mut(me).and_then(Option::take).ok_or_else(|| "a stage was taken twice".to_owned())
            })
        }
    }
}

fn contents(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn measure<E: BufferEnds>(
    load: &PoolLoad,
    run: &Circumstances<'_>,
    ends: impl Fn(usize) -> Result<E, String> + Sync,
) -> Result<Samples, Error> {
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let procs = STAGES as usize;
    let crew = LoadCrew { sharing: load.sharing, procs, policy: Policy::Adaptive, board };
    // Relaxed, all: counts and hints; the stages order what they carry, which is checked.
    let participate = |member: &BoardMember<'_>| {
        let (me, mut number) = (member.me, 0u64);
        let ends = ends(me)?;
        while me > 0 || board.end().load(Relaxed) == 0 {
            let Some(mut buffer) = ends.next()? else { break };
            let words = E::words(&mut buffer);
            if me == 0 {
                words.fill(contents(number));
                black_box(words);
            } else {
                let sum = black_box(&*words).iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
                if sum != contents(number).wrapping_mul(words.len() as u64) {
                    return Err(format!("stage {me}: buffer {number} is another one"));
                }
            }
            ends.pass(buffer)?;
            number += 1;
            board.done(me).store(number, Relaxed);
        }
        Ok(())
    };
    let counted = crew.count(run, &participate)?;
    let done = |me: usize| board.done(me).load(Relaxed);
    if (1..procs).any(|me| done(me) != done(0)) {
        let all: Vec<u64> = (0..procs).map(done).collect();
        return Err(Error::Other(format!("the stages passed {all:?} buffers").into()));
    }
    let arrived = counted.shares.last().copied().unwrap_or(0.0) * load.bytes as f64;
    let mut samples = Samples::one(BYTES_PER_S, arrived / counted.time.as_secs_f64().max(1e-9));
    describe_costs(&board, procs, &mut samples);
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;
    use std::time::Duration;

    #[test]
    fn buffers_pass_all_stages() {
        for way in BufferKind::ALL {
            let sharing = Sharing::ALL.into_iter().find(|&sharing| way.is_for(sharing, STAGES)).unwrap();
            let load = PoolLoad { way, sharing, bytes: 64 << 10 };
            let mut passed = 0.0;
            // On busy cores no buffer may come through all stages in a short time.
            for ms in [20, 400, 8_000] {
                if passed > 0.0 {
                    break;
                }
                with_circumstances(Duration::from_millis(ms), |run| {
                    let samples = pass_through(&load, run).unwrap_or_else(|e| panic!("{load:?}: {e}"));
                    let rate = samples.values.iter().find(|(metric, _)| *metric == BYTES_PER_S);
                    passed = rate.map_or(0.0, |(_, rate)| *rate);
                });
            }
            assert!(passed > 0.0, "{load:?}");
        }
    }
}
