//! Structures in the memory that a measurement's processes share.
//!
//! # Safety
//!
//! `Concurrent` is implemented for `repr(C)` structures of atomic words: every bit pattern is a
//! value, accesses are atomic, and nothing is dropped.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::Concurrent;
use towpath_report::stats::percentile;

/// A figure that one process leaves and its parent reads after the process has ended.
#[repr(transparent)]
#[derive(Default)]
pub struct Left(AtomicU64);

impl Left {
    /// Leaves a figure.
    pub fn put(&self, value: f64) {
        // Relaxed: read after the process has ended.
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// The figure that was left; 0 if none was.
    pub fn get(&self) -> f64 {
        // Relaxed: written by a process that has ended.
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

// SAFETY: see the module.
unsafe impl Concurrent for Left {}

/// Number of samples that are kept.
pub const SAMPLES: usize = 512;

/// Samples of a process, which its parent reads after the process has ended. On lines of
/// its own.
#[repr(C, align(128))]
pub struct LeftSamples {
    count: AtomicU64,
    samples: [Left; SAMPLES],
}

// SAFETY: see the module; nothing reads the padding.
unsafe impl Concurrent for LeftSamples {}

impl LeftSamples {
    /// Number of samples so far.
    pub fn len(&self) -> usize {
        // Relaxed, here and below: one process writes it; its parent reads when it has ended.
        (self.count.load(Ordering::Relaxed) as usize).min(SAMPLES)
    }

    /// Returns whether there is no room for another sample.
    pub fn is_full(&self) -> bool {
        self.len() == SAMPLES
    }

    /// Keeps a sample, if there is room.
    pub fn keep(&self, sample: f64) {
        let count = self.len();
        if let Some(place) = self.samples.get(count) {
            place.put(sample);
            self.count.store(count as u64 + 1, Ordering::Relaxed);
        }
    }

    /// The median; `None` if there are no samples.
    pub fn median(&self) -> Option<f64> {
        let samples: Vec<f64> = self.samples[..self.len()].iter().map(Left::get).collect();
        percentile(&samples, 50.0)
    }
}

/// LogP figures of a client, in nanoseconds.
#[repr(C)]
pub struct LogPFigures {
    /// Round trip.
    pub round_trip: Left,
    /// Round trip by that of two cache lines between the same processes: a ratio; 0 if
    /// there are not two cores.
    pub over_floor: Left,
    /// Overhead of a send.
    pub send: Left,
    /// Overhead of a receive.
    pub receive: Left,
}

// SAFETY: see the module.
unsafe impl Concurrent for LogPFigures {}

/// A writer's part of the stress test, on lines of its own.
#[repr(C, align(128))]
pub struct StressWriter {
    /// Number of messages that it has sent, plus one; 0 while it sends.
    pub finished: AtomicU64,
    /// Its processor time, in seconds.
    pub cpu: Left,
    /// Number of its messages that had arrived when the first writer had finished.
    pub share: Left,
}

// SAFETY: see the module; nothing reads the padding.
unsafe impl Concurrent for StressWriter {}

/// The reader's part of the stress test.
#[repr(C, align(128))]
pub struct StressReader {
    /// 1 when the time is over: writers stop. On lines of its own, since they read it all
    /// the time.
    pub over: AtomicU64,
    /// The figures.
    pub figures: ReaderFigures,
}

// SAFETY: see the module; nothing reads the padding.
unsafe impl Concurrent for StressReader {}

/// The reader's figures of the stress test.
#[repr(C, align(128))]
pub struct ReaderFigures {
    /// Duration, in seconds.
    pub seconds: Left,
    /// Number of messages that arrived.
    pub messages: Left,
    /// Its processor time, in seconds.
    pub cpu: Left,
}

// SAFETY: see the module; nothing reads the padding.
unsafe impl Concurrent for ReaderFigures {}

/// Place of a process's ring, for its partner.
#[repr(C)]
pub struct RingPlace {
    /// The process.
    pub pid: AtomicU64,
    /// The ring's descriptor there.
    pub descriptor: AtomicU64,
    /// The ring's number, by which the partner knows that it is the right one.
    pub nonce: AtomicU64,
}

// SAFETY: see the module.
unsafe impl Concurrent for RingPlace {}

/// The words that the processes of a ping-pong share.
#[repr(C, align(128))]
pub struct PingPong {
    /// 1 when the first pair has finished.
    pub over: AtomicU64,
    /// The first pair's round trip, in nanoseconds.
    pub round_trip: Left,
}

// SAFETY: see the module; nothing reads the padding.
unsafe impl Concurrent for PingPong {}

/// Number of members of the crash test's world.
pub const MEMBERS: usize = 8;

/// The messages from one sender to one receiver in the crash test. On lines of its own.
#[repr(C, align(128))]
pub struct CrashLink {
    /// Number of messages that the sender certainly published.
    pub sent: AtomicU64,
    /// Name of the incarnation to which it published them.
    pub sent_to: AtomicU64,
    /// Number of messages that have arrived.
    pub arrived: AtomicU64,
    /// Name of the incarnation from which they came.
    pub arrived_from: AtomicU64,
}

/// A member of the crash test, on lines of its own.
#[repr(C, align(128))]
pub struct CrashMember {
    /// The name of its present incarnation; 0 while there is none.
    pub name: AtomicU64,
    /// The newest epoch of which a survivor's message has arrived.
    pub seen: AtomicU64,
    /// 1: sends no more; 2: has audited.
    pub finished: AtomicU64,
    /// Number of places that stayed unusable.
    pub leaked: AtomicU64,
    /// Its links, by receiver.
    pub links: [CrashLink; MEMBERS],
}

/// The memory that members and supervisor of the crash test share.
#[repr(C, align(128))]
pub struct CrashBoard {
    /// Number of kills.
    pub epoch: AtomicU64,
    /// 1: send no more; 2: audit and leave.
    pub stop: AtomicU64,
    /// Number of messages that never arrived.
    pub lost: AtomicU64,
    /// Number of messages that arrived twice.
    pub duplicated: AtomicU64,
    /// Number of messages that came back from a living destination: its queue was closed.
    pub closed: AtomicU64,
    /// Number of messages with other contents.
    pub damaged: AtomicU64,
    /// The members.
    pub members: [CrashMember; MEMBERS],
}

// SAFETY: see the module; nothing reads the padding.
unsafe impl Concurrent for CrashBoard {}

impl CrashBoard {
    /// The link from one member to another.
    pub fn link(&self, from: usize, to: usize) -> &CrashLink {
        &self.members[from].links[to]
    }
}
