//! Broadcast rings under load: one writer, and readers of which each gets every message.
//!
//! Each measurement has two parts: the writer sends as fast as readers take, and then a message
//! each [`EVERY`], for which readers sleep.

use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use towpath::broadcast::{HoldsBack, Reader, WorldReader, WorldWriter, Writer, ring};
use towpath::{TransferError, World, WorldConfig};
use towpath_sync::Policy;
use towpath_sync::queues::{BroadcastReader, BroadcastVenue, BroadcastWriter};

use super::crew::LoadCrew;
use super::{Counted, MeasuredKind, describe_costs, enter, world_for};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember, MOST};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::record::metrics::{CPU_FRACTION, MESSAGES_PER_S, P50_US, P99_US};

/// Time between two messages of the second part.
pub const EVERY: Duration = Duration::from_millis(5);
/// Sizes of messages unless told otherwise, in bytes.
pub const BROADCAST_SIZES: [u64; 2] = [64, 64 << 10];
/// Size of a ring, in bytes.
const RING: usize = 1 << 20;
/// Minimum size of a message: time and number at its beginning, its number at its end.
pub const LEAST_BYTES: u64 = 24;

/// Ring to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingKind {
    /// `towpath::broadcast`, by name between processes.
    Ours,
    /// The ring of [`RingKind::Ours`], whose messages are written where they lie.
    OursInPlace,
    /// iceoryx2's publish-subscribe, which is one of the peers.
    Iceoryx2,
    /// iceoryx2's publish-subscribe, whose messages are written in samples that it lends.
    Iceoryx2InPlace,
}

impl RingKind {
    /// All of them.
    pub const ALL: [RingKind; 4] =
        [RingKind::Ours, RingKind::OursInPlace, RingKind::Iceoryx2, RingKind::Iceoryx2InPlace];

    /// Returns whether it is one of the peers.
    pub const fn is_peer(self) -> bool {
        matches!(self, RingKind::Iceoryx2 | RingKind::Iceoryx2InPlace)
    }

    const fn is_in_place(self) -> bool {
        matches!(self, RingKind::OursInPlace | RingKind::Iceoryx2InPlace)
    }
}

impl MeasuredKind for RingKind {
    fn name(self) -> &'static str {
        match self {
            RingKind::Ours => "broadcast",
            RingKind::OursInPlace => "broadcast-in-place",
            RingKind::Iceoryx2 => "iceoryx2",
            RingKind::Iceoryx2InPlace => "iceoryx2-in-place",
        }
    }

    fn has_policy(self) -> bool {
        false
    }

    /// Returns whether it is for so many participants, of which one writes.
    fn is_for(self, sharing: Sharing, procs: u32) -> bool {
        procs > 1 && (!self.is_peer() || sharing == Sharing::Processes)
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BroadcastLoad {
    /// The ring.
    pub ring: RingKind,
    /// The participants' kind.
    pub sharing: Sharing,
    /// Their number, with the one that writes.
    pub procs: u32,
    /// Size of a message.
    pub bytes: u64,
}

/// Ring as participants use it.
pub(crate) trait MeasuredRing: Sync {
    /// The writer's end.
    type Writer;
    /// A reader's end.
    type Reader;
    /// Makes the writer, before there are readers.
    fn writer(&self) -> Result<Self::Writer, String>;
    /// Makes a reader.
    fn reader(&self) -> Result<Self::Reader, String>;
    /// Sends a copy, and waits for readers where there is no room.
    fn send(writer: &mut Self::Writer, message: &[u8]) -> Result<(), String>;
    /// Sends so many bytes as [`MeasuredRing::send`], which are written where they lie.
    fn send_in_place(
        writer: &mut Self::Writer,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), String>;
    /// Lets readers know that no message follows.
    fn close(writer: &mut Self::Writer);
    /// Hands over the next message; returns `false` if none follows.
    ///
    /// `has_ended` says whether the writer has sent its last one.
    fn receive(
        reader: &mut Self::Reader,
        has_ended: impl Fn() -> bool,
        take: impl FnOnce(&[u8]),
    ) -> Result<bool, String>;
}

fn send_to<V: BroadcastVenue>(writer: &mut BroadcastWriter<V>, message: &[u8]) -> Result<(), String> {
    writer.send(message).map_err(|e| e.to_string())
}

fn send_in_place_to<V: BroadcastVenue<Mode = HoldsBack>>(
    writer: &mut BroadcastWriter<V>,
    bytes: usize,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), String> {
    let mut room = writer.reserve(bytes).map_err(|e| e.to_string())?;
    write(&mut room);
    room.commit(bytes).map_err(|e| e.to_string())
}

fn take_from<V: BroadcastVenue<Mode = HoldsBack>>(
    reader: &mut BroadcastReader<V>,
    take: impl FnOnce(&[u8]),
) -> Result<bool, String> {
    match reader.receive_in_place() {
        Ok(message) => {
            take(&message);
            Ok(true)
        }
        Err(TransferError::Closed | TransferError::Disconnected) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

macro_rules! measured_ring {
    ($ring:ty, $writer:ty, $reader:ty, |$it:ident| $make:expr, $join:expr) => {
        impl MeasuredRing for $ring {
            type Writer = $writer;
            type Reader = $reader;
            fn writer(&self) -> Result<$writer, String> {
                let $it = self;
                $make
            }
            fn reader(&self) -> Result<$reader, String> {
                let $it = self;
                $join
            }
            #[inline]
            fn send(writer: &mut $writer, message: &[u8]) -> Result<(), String> {
                send_to(writer, message)
            }
            #[inline]
            fn send_in_place(
                writer: &mut $writer,
                bytes: usize,
                write: impl FnOnce(&mut [u8]),
            ) -> Result<(), String> {
                send_in_place_to(writer, bytes, write)
            }
            fn close(writer: &mut $writer) {
                writer.close();
            }
            #[inline]
            fn receive(
                reader: &mut $reader,
                _: impl Fn() -> bool,
                take: impl FnOnce(&[u8]),
            ) -> Result<bool, String> {
                take_from(reader, take)
            }
        }
    };
}

/// Ends of a ring between threads, until participants take them.
struct RingEnds(Mutex<(Option<Writer>, Vec<Reader>)>);

impl RingEnds {
    fn new(readers: usize) -> Result<RingEnds, Error> {
        let (writer, first) = ring(RING);
        let others = (1..readers).map(|_| writer.reader());
        let all: Result<Vec<Reader>, TransferError> = std::iter::once(Ok(first)).chain(others).collect();
        let all = all.map_err(|e| Error::Other(Box::new(e)))?;
        Ok(RingEnds(Mutex::new((Some(writer), all))))
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, (Option<Writer>, Vec<Reader>)> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

const GONE: &str = "that end of the ring is taken";

measured_ring!(
    RingEnds,
    Writer,
    Reader,
    |it| it.ends().0.take().ok_or_else(|| GONE.to_owned()),
    it.ends().1.pop().ok_or_else(|| GONE.to_owned())
);

/// Ring by name, opened by each participant.
struct NamedRing<'a>(&'a World, PhantomData<HoldsBack>);

impl NamedRing<'_> {
    fn open<R>(
        &self,
        end: impl FnOnce(towpath::WorldBroadcast<HoldsBack>) -> Result<R, TransferError>,
    ) -> Result<R, String> {
        let ring = enter(self.0)?.broadcast("ring", RING).map_err(|e| e.to_string())?;
        end(ring).map_err(|e| e.to_string())
    }
}

measured_ring!(
    NamedRing<'_>,
    WorldWriter,
    WorldReader,
    |it| it.open(|ring| ring.writer()),
    it.open(|ring| ring.reader())
);

/// World with room for a ring.
pub(super) fn world_with_ring(procs: u32) -> Result<World, Error> {
    let mut config = WorldConfig::new(procs);
    config.object_bytes = 2 * RING as u64;
    world_for(&config)
}

/// Measures it: messages that a reader gets in a second; and at a message each [`EVERY`]
/// the time until a reader has it, and the reader's processor time.
///
/// # Errors
///
/// Those of the system; a message that was lost, came twice, or had other contents.
pub fn fan_out(load: &BroadcastLoad, run: &Circumstances<'_>) -> Result<Samples, Error> {
    if load.bytes < LEAST_BYTES {
        return Err(Error::NotAvailable(format!("messages have {LEAST_BYTES} bytes at least")));
    }
    let mut samples = Samples::default();
    for pace in [None, Some(EVERY)] {
        // Messages are few in the second part.
        let limit = if pace.is_some() { run.limit * 2 } else { run.limit };
        let run = &Circumstances { limit, ..*run };
        match (load.ring, load.sharing) {
            (RingKind::Ours | RingKind::OursInPlace, Sharing::Threads) => {
                measure(load, pace, run, &RingEnds::new(load.procs as usize - 1)?, &mut samples)?;
            }
            (RingKind::Ours | RingKind::OursInPlace, Sharing::Processes) => {
                let world = world_with_ring(load.procs)?;
                measure(load, pace, run, &NamedRing(&world, PhantomData), &mut samples)?;
            }
            (RingKind::Iceoryx2 | RingKind::Iceoryx2InPlace, _) => {
                #[cfg(feature = "iceoryx2")]
                {
                    let ring = crate::peers::IceoryxRing::new(load.bytes, load.procs)?;
                    measure(load, pace, run, &ring, &mut samples)?;
                }
                #[cfg(not(feature = "iceoryx2"))]
                return Err(Error::NotAvailable(crate::peers::WITHOUT_ICEORYX2.into()));
            }
        }
    }
    Ok(samples)
}

/// State of a participant's end, in [`Board::thread`].
const JOINED: u64 = 1;
const ENDED: u64 = 2;

/// Nanoseconds of the system's monotonic clock, which all processes share.
fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn word_at(message: &[u8], at: usize) -> u64 {
    let bytes = message.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(u64::MAX, u64::from_le_bytes)
}

fn measure<R: MeasuredRing>(
    load: &BroadcastLoad,
    pace: Option<Duration>,
    run: &Circumstances<'_>,
    ring: &R,
    samples: &mut Samples,
) -> Result<(), Error> {
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let (procs, bytes) = (load.procs as usize, load.bytes as usize);
    let crew = LoadCrew { sharing: load.sharing, procs, policy: Policy::Adaptive, board };
    // Relaxed, all others: counts and hints; the ring orders what it carries, which is checked.
    let reached = |me: usize, state| {
        // (BR1) Acquire: what a participant has sent before it ended; pairs with the Release (BR2).
        board.thread(me).load(Ordering::Acquire) >= state
    };
    let await_state = |of: std::ops::Range<usize>, state| {
        let failed = || (0..procs).any(|me| board.failed(me).load(Relaxed) != 0);
        while !of.clone().all(|me| reached(me, state)) && !failed() {
            std::thread::sleep(Duration::from_micros(100));
        }
    };
    let write = || {
        let mut writer = ring.writer()?;
        board.thread(0).store(JOINED, Relaxed);
        await_state(1..procs, JOINED);
        let (mut message, mut number) = (vec![0u8; bytes], 0u64);
        let mut next = Instant::now();
        let mark = |message: &mut [u8], number: u64| {
            if pace.is_some() {
                message[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
            }
            message[8..16].copy_from_slice(&number.to_le_bytes());
            message[bytes - 8..].copy_from_slice(&number.to_le_bytes());
        };
        let (end, done) = (board.end(), board.done(0));
        while end.load(Relaxed) == 0 {
            if let Some(pace) = pace {
                next += pace;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            if load.ring.is_in_place() {
                // The rest of a message is that of the one which lay there before.
                R::send_in_place(&mut writer, bytes, |message| mark(message, number))?;
            } else {
                mark(&mut message, number);
                R::send(&mut writer, &message)?;
            }
            number += 1;
            done.store(number, Relaxed);
        }
        R::close(&mut writer);
        // (BR2) Release: all messages come first; pairs with the Acquire (BR1) in `reached`.
        board.thread(0).store(ENDED, Ordering::Release);
        // Messages may lie in memory of the writer's.
        await_state(1..procs, ENDED);
        Ok(())
    };
    let read = |me: usize| {
        await_state(0..1, JOINED);
        let mut reader = ring.reader()?;
        board.thread(me).store(JOINED, Relaxed);
        let (mut number, mut is_other) = (0u64, false);
        let (mut begun, mut used) = (0, 0);
        let has_ended = || reached(0, ENDED);
        let done = board.done(me);
        while R::receive(&mut reader, has_ended, |message| {
            if pace.is_some() {
                let now = monotonic_ns();
                board.note(me, now.saturating_sub(word_at(message, 0)));
            }
            let numbers = [word_at(message, 8), word_at(message, message.len() - 8)];
            is_other |= numbers != [number; 2] || message.len() != bytes;
        })? {
            if number == 0 {
                (begun, used) = (monotonic_ns(), nanoseconds(ClockId::ThreadCPUTime));
            }
            number += 1;
            done.store(number, Relaxed);
            if is_other {
                return Err(format!("message {} is another one", number - 1));
            }
        }
        board.token(me).store(nanoseconds(ClockId::ThreadCPUTime) - used, Relaxed);
        board.token(MOST + me).store(monotonic_ns() - begun, Relaxed);
        board.thread(me).store(ENDED, Relaxed);
        Ok(())
    };
    let participate = |member: &BoardMember<'_>| match member.me {
        0 => write(),
        me => read(me),
    };
    let counted = crew.count(run, &participate)?;
    let sent = board.done(0).load(Relaxed);
    if let Some(me) = (1..procs).find(|&me| board.done(me).load(Relaxed) != sent) {
        let got = board.done(me).load(Relaxed);
        return Err(Error::Other(format!("reader {me} got {got} of {sent} messages").into()));
    }
    match pace {
        None => {
            samples.push(MESSAGES_PER_S, rate_of_readers(&counted));
            describe_costs(&board, procs, samples);
        }
        Some(_) => {
            for (metric, part) in [(P50_US, 0.5), (P99_US, 0.99)] {
                samples.values.extend(counted.latencies.percentile(part).map(|ns| (metric, ns / 1e3)));
            }
            let part = |me: usize| {
                let time = board.token(MOST + me).load(Relaxed).max(1);
                board.token(me).load(Relaxed) as f64 / time as f64
            };
            samples.push(CPU_FRACTION, (1..procs).map(part).sum::<f64>() / (procs - 1) as f64);
        }
    }
    Ok(())
}

/// Messages that a reader gets in a second: the mean of the readers.
fn rate_of_readers(counted: &Counted) -> f64 {
    let readers = counted.shares.len().saturating_sub(1).max(1);
    let received: f64 = counted.shares.iter().skip(1).sum();
    received / readers as f64 / counted.time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;

    #[test]
    fn every_reader_gets_every_message() {
        with_circumstances(Duration::from_millis(40), |run| {
            for sharing in Sharing::ALL {
                for bytes in [LEAST_BYTES, 64 << 10] {
                    let ring = if bytes == LEAST_BYTES { RingKind::Ours } else { RingKind::OursInPlace };
                    let load = BroadcastLoad { ring, sharing, procs: 3, bytes };
                    let samples = fan_out(&load, run).unwrap_or_else(|e| panic!("{load:?}: {e}"));
                    let of = |metric| samples.values.iter().find(|(m, _)| *m == metric).map(|(_, v)| *v);
                    // Each message that came was checked. On a busy machine it may be none.
                    assert!(of(MESSAGES_PER_S).is_some(), "{load:?}");
                    assert!(of(P50_US).is_some() && of(P50_US) <= of(P99_US), "{load:?}");
                    assert!(of(CPU_FRACTION).is_some_and(|part| part > 0.0), "{load:?}");
                }
            }
        });
    }

    #[test]
    fn message_without_room_for_its_number_is_refused() {
        with_circumstances(Duration::from_millis(5), |run| {
            let (ring, sharing) = (RingKind::Ours, Sharing::Threads);
            let refused = fan_out(&BroadcastLoad { ring, sharing, procs: 2, bytes: 8 }, run);
            assert!(refused.unwrap_err().to_string().contains("24"));
        });
    }
}
