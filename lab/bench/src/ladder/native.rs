//! The ladder on this machine: pairs of processes that play ping-pong through a version
//! of the device.
//!
//! # Safety
//!
//! The one `unsafe` operation takes views of payload bytes in a world's area; see there.
//! `Concurrent` is implemented for structures of atomic words.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath::Policy;
use towpath_channel::doorbell::Doorbell;
use towpath_machine::{Native, NativeBytes};
use towpath_shm::{Area, World, WorldSpec};
use towpath_sync::locks::TestAndSet;
use towpath_sync::{Surroundings, Wait};

use super::ours::Opened;
use super::semaphore::Semaphores;
use super::{Anything, LadderEnd};
use crate::shared::{PingPong, RingPlace};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::{SharedRow, team};
use towpath_papers::ladder::LadderSlot;
use towpath_papers::ladder::PoolTable;
use towpath_papers::ladder::{
    ControlPackets, Device, LadderLock, LockedQueues, Pool, SHORT_BELOW, Slots, Version,
};
use towpath_papers::ladder::{PACKETS, Packet, QueueEnds};
use towpath_report::stats::median_of_batches;

/// The whole of the shared memory that the paper's versions use: as on its machine
/// (Section 5).
const MEMORY: usize = 8 << 20;

/// The exit code of a process whose part failed, with the reason on stderr.
const FAILED: i32 = 3;
/// Time beyond the measurement's own limit, to start and end when cores are few and other
/// programs busy.
const GRACE: Duration = Duration::from_secs(60);

/// The tag of an ordinary message, and of the last one.
const GO_ON: u64 = 0;
const LAST: u64 = 1;

/// Number of starts of the processes: their cores and the step into which they fall last
/// as long as they do, and a line takes 60 ns there and back, or 350.
const STARTS: u32 = 4;

/// Plays ping-pong with messages of so many bytes between process `r` and process `r +
/// procs / 2`, for all pairs at one time. Returns the first pair's time there and back in
/// nanoseconds: the mean over several starts of the median of batches.
///
/// # Errors
///
/// If there are not the resources, or a process fails.
pub fn measure(version: Version, procs: usize, bytes: usize, run: &Circumstances<'_>) -> Result<f64, Error> {
    // One that may take no longer than starting the processes has one start.
    let starts = if run.limit < Duration::from_millis(1) { 1 } else { STARTS };
    let run = Circumstances { limit: run.limit / starts, ..*run };
    let figures: Result<Vec<f64>, Error> =
        (0..starts).map(|_| one_start(version, procs, bytes, &run)).collect();
    Ok(figures?.iter().sum::<f64>() / f64::from(starts))
}

fn one_start(version: Version, procs: usize, bytes: usize, run: &Circumstances<'_>) -> Result<f64, Error> {
    let shared = SharedRow::<PingPong>::row(1)?;
    let shared = &shared[0];
    let cores: Vec<_> = (0..procs).map(|n| run.placement.core_for(n, procs)).collect();
    let limit = run.limit * 4 + GRACE;
    let exit = |rank: usize, result: Result<(), Box<dyn std::error::Error>>| match result {
        Ok(()) => 0,
        Err(error) => {
            towpath_report::console::remark(format_args!("process {rank}: {error}"));
            FAILED
        }
    };
    if version == Version::Towpath {
        // Its rings are its own; the world is for the barriers and the doorbells.
        let world = world_of(procs, procs * size_of::<Doorbell<Native>>())?;
        let places = SharedRow::<RingPlace>::row(procs)?;
        team(&cores, limit, |rank| {
            exit(
                rank,
                (|| {
                    world.enter(Some(rank as u32))?;
                    let part = Part { procs, rank, world: &world, bytes, shared, limit: run.limit };
                    let own = Opened::new(rank, &places)?;
                    world.barrier(Policy::Adaptive)?;
                    let area = world.area();
                    let doorbells = area.slice::<Doorbell<Native>>(0, procs as u64)?;
                    let ranks = (rank, (rank + procs / 2) % procs);
                    let link = own.meet(ranks, &places, doorbells, Wait::adaptive(world.surroundings()))?;
                    part.play_between_barriers(&link)
                })(),
            )
        })?;
    } else {
        let semaphores = match version {
            Version::SystemV | Version::SlotsSystemV => Some(Semaphores::new(procs + 1)?),
            _ => None,
        };
        let world = world_of(procs, MEMORY + (procs + 1) * size_of::<TestAndSet<Native>>())?;
        team(&cores, limit, |rank| {
            exit(
                rank,
                (|| {
                    world.enter(Some(rank as u32))?;
                    let area = world.area();
                    let memory = AttachedMemory::new(&area, procs)?;
                    let part = Part { procs, rank, world: &world, bytes, shared, limit: run.limit };
                    match (&semaphores, version) {
                        (Some(set), Version::SystemV) => {
                            memory.locked((0..=procs).map(|n| set.lock(n)).collect(), &part)
                        }
                        (Some(set), _) => memory.slotted(set.lock(procs), &part),
                        (None, Version::TestAndSet) => memory.locked(memory.locks.iter().collect(), &part),
                        (None, _) => memory.slotted(&memory.locks[procs], &part),
                    }
                })(),
            )
        })?;
    }
    Ok(shared.round_trip.get())
}

/// A world of so many processes with so much memory for them to use.
fn world_of(procs: usize, bytes: usize) -> Result<World, Error> {
    let spec = WorldSpec {
        name: None,
        processes: procs as u32,
        area_bytes: bytes.max(1).next_multiple_of(4096) as u64,
        object_bytes: 0,
        params: [0; 16],
    };
    World::create(&spec).map_err(|e| Error::Other(Box::new(e)))
}

/// The paper's shared memory, attached.
struct AttachedMemory<'a> {
    area: &'a Area,
    /// Lock of each process's queue, and of the pool.
    locks: &'a [TestAndSet<Native>],
    /// Begin of the control packets.
    start: u64,
}

impl<'a> AttachedMemory<'a> {
    fn new(area: &'a Area, procs: usize) -> Result<Self, Anything> {
        let locks = area.slice::<TestAndSet<Native>>(0, procs as u64 + 1)?;
        let start = (size_of_val(locks) as u64).next_multiple_of(4096);
        Ok(AttachedMemory { area, locks, start })
    }

    fn bytes(&self, at: u64, len: usize) -> Result<NativeBytes, Anything> {
        // SAFETY: the world outlives this attachment (its area holds it), and the places of
        // payloads and of the pool lie behind all structures to which references are made.
        Ok(unsafe { self.area.bytes(at, len as u64)? })
    }

    /// The pool in the rest of the memory from `at` on: its table, then its bytes.
    fn pool<X: LadderLock<Native>>(
        &self,
        at: u64,
        lock: X,
        use_pool: impl FnOnce(&Pool<'_, Native, X>) -> Result<(), Anything>,
        first: bool,
    ) -> Result<(), Anything> {
        let table = self.area.get::<PoolTable<Native>>(at)?;
        let bytes_at = (at + size_of::<PoolTable<Native>>() as u64).next_multiple_of(4096);
        let size = (self.area.len() - bytes_at) as usize / 4096 * 4096;
        let bytes = self.bytes(bytes_at, size)?;
        let pool = Pool { table, bytes: &bytes, size, lock };
        if first {
            pool.prepare(&Native::with_id(0));
        }
        use_pool(&pool)
    }

    fn locked<X: LadderLock<Native>>(&self, mut locks: Vec<X>, part: &Part<'_>) -> Result<(), Anything> {
        let procs = part.procs;
        let ends = self.area.slice::<QueueEnds<Native>>(self.start, procs as u64)?;
        let packets_at = self.start + size_of_val(ends) as u64;
        let packets = self.area.slice::<Packet<Native>>(packets_at, (procs * PACKETS) as u64)?;
        let payload_at = packets_at + size_of_val(packets) as u64;
        let payload_len = procs * PACKETS * SHORT_BELOW;
        let payload = self.bytes(payload_at, payload_len)?;
        let pool_lock = locks.pop().ok_or("no lock for the pool")?;
        let queues = LockedQueues { ends, packets, payload: &payload, locks };
        let pool_at = payload_at + payload_len as u64;
        self.pool(
            pool_at,
            pool_lock,
            |pool| part.take(&Device { packets: &queues, pool, me: part.rank }),
            part.rank == 0,
        )
    }

    fn slotted<X: LadderLock<Native>>(&self, pool_lock: X, part: &Part<'_>) -> Result<(), Anything> {
        let procs = part.procs;
        let slots = self.area.slice::<LadderSlot<Native>>(self.start, (procs * procs) as u64)?;
        let payload_at = self.start + size_of_val(slots) as u64;
        let payload_len = procs * procs * SHORT_BELOW;
        let payload = self.bytes(payload_at, payload_len)?;
        let slots = Slots { slots, payload: &payload, processes: procs };
        let pool_at = (payload_at + payload_len as u64).next_multiple_of(4096);
        self.pool(
            pool_at,
            pool_lock,
            |pool| part.take(&Device { packets: &slots, pool, me: part.rank }),
            part.rank == 0,
        )
    }
}

/// A version of the paper's as a link.
struct Theirs<'a, C, X> {
    device: &'a Device<'a, Native, C, X>,
    cpu: Native,
    wait: Wait<'a>,
}

/// A world that tells its waiters of no slow rounds, so that they stay awake.
///
/// The paper's versions wait for words that take no sleeper's mark.
struct WithoutSlowRounds<'a>(&'a dyn Surroundings);

impl Surroundings for WithoutSlowRounds<'_> {
    fn cores(&self) -> Option<u64> {
        self.0.cores()
    }
    fn oversubscribed(&self) -> bool {
        self.0.oversubscribed()
    }
    fn switch_cost(&self) -> u64 {
        self.0.switch_cost()
    }
    fn asleep(&self, asleep: bool) {
        self.0.asleep(asleep);
    }
}

/// A process's part in a measurement.
struct Part<'a> {
    procs: usize,
    rank: usize,
    world: &'a World,
    /// The length of a message.
    bytes: usize,
    shared: &'a PingPong,
    limit: Duration,
}

impl Part<'_> {
    /// Plays through one of the paper's versions.
    fn take<C: ControlPackets<Native>, X: LadderLock<Native>>(
        &self,
        device: &Device<'_, Native, C, X>,
    ) -> Result<(), Anything> {
        let world = self.world;
        let around = WithoutSlowRounds(world.surroundings());
        let wait = Wait::adaptive(&around);
        self.play_between_barriers(&Theirs { device, cpu: Native::with_id(device.me as u32), wait })
    }

    fn play_between_barriers(&self, link: &impl LadderEnd) -> Result<(), Anything> {
        self.world.barrier(Policy::Adaptive)?;
        self.play(link)?;
        self.world.barrier(Policy::Adaptive)?;
        Ok(())
    }

    /// The first half of the processes each send to one of the other half and wait for
    /// the answer.
    fn play(&self, link: &impl LadderEnd) -> Result<(), Anything> {
        let Part { procs, rank, bytes, shared, limit, .. } = *self;
        let half = procs / 2;
        let (message, mut buffer) = (vec![rank as u8 + 1; bytes], vec![0u8; bytes]);
        let check = |buffer: &[u8], from: usize, len: usize| {
            // The first and the last byte: enough to see that the message is the partner's, and all
            // of it there.
            let right = len == bytes
                && [buffer.first(), buffer.last()].into_iter().flatten().all(|b| *b == from as u8 + 1);
            right.then_some(()).ok_or_else(|| format!("a message of process {from} arrived damaged"))
        };
        if rank >= half {
            loop {
                let (tag, len) = link.receive(rank - half, &mut buffer)?;
                check(&buffer, rank - half, len)?;
                link.send(rank - half, tag, &message)?;
                if tag == LAST {
                    return Ok(());
                }
            }
        }
        let partner = rank + half;
        let mut round = |tag| {
            link.send(partner, tag, &message)?;
            let (_, len) = link.receive(partner, &mut buffer)?;
            check(&buffer, partner, len)?;
            Ok::<(), Anything>(())
        };
        if rank == 0 {
            let start = Instant::now();
            (0..16).try_for_each(|_| round(GO_ON))?;
            let size = (500_000 * 16 / start.elapsed().as_nanos().max(1) as u64).clamp(1, 500);
            let figure = median_of_batches(limit, size, |n| (0..n).try_for_each(|_| round(GO_ON)))?;
            shared.round_trip.put(figure);
            // Relaxed: nothing is read because of it.
            shared.over.store(1, Ordering::Relaxed);
        } else {
            // Relaxed: nothing is read because of it.
            while shared.over.load(Ordering::Relaxed) == 0 {
                round(GO_ON)?;
            }
        }
        round(LAST)
    }
}

impl<C: ControlPackets<Native>, X: LadderLock<Native>> LadderEnd for Theirs<'_, C, X> {
    fn send(&self, to: usize, tag: u64, data: &[u8]) -> Result<(), Anything> {
        self.device.send(&self.cpu, &self.wait, to, tag, data);
        Ok(())
    }
    fn receive(&self, from: usize, buffer: &mut [u8]) -> Result<(u64, usize), Anything> {
        Ok(self.device.receive(&self.cpu, &self.wait, from, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::quick;
    use crate::settings::BenchSettings;
    use towpath_host::topology::{Pin, Placement};

    fn played(version: Version, procs: usize, bytes: usize) -> f64 {
        let settings: BenchSettings = quick();
        let placement = Placement::detect(Pin::Auto);
        let limit = Duration::from_millis(5);
        let run = Circumstances { settings: &settings, placement: &placement, round: 0, seed: 1, limit };
        // One of a measurement's starts: they differ only in the cores' state.
        one_start(version, procs, bytes, &run).unwrap()
    }

    #[test]
    fn every_version_carries_short_eager_and_long_messages() {
        for version in Version::ALL {
            for bytes in [0, 8, 1023, 1024, 100_000, 128 << 10, 5 << 20] {
                assert!(played(version, 2, bytes) > 0.0, "{version:?} {bytes}");
            }
        }
    }

    #[test]
    fn pairs_oversubscribed_play_side_by_side() {
        for version in Version::ALL {
            assert!(played(version, 8, 8) > 0.0 && played(version, 6, 10_000) > 0.0, "{version:?}");
        }
    }
}
