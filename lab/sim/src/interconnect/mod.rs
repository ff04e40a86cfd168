//! Interconnects: the ways of a request that a processor's cache cannot satisfy.
//!
//! One is chosen when the machine is made (`assemble` in `simulation.rs`), by the parameters
//! `fabric` and `bus.protocol`:
//!
//! | `fabric` | `bus.protocol` | interconnect | file |
//! | --- | --- | --- | --- |
//! | `directory` | | directories at the homes of lines, and the network between them | `directory.rs`, `network.rs` |
//! | `directory`, `directory.protocol` `blocking` | | directories whose homes block, controllers and switches | `blocking.rs`, `switches.rs` |
//! | `bus` | `moesi` | snooping bus with split transactions | `split_bus.rs` |
//! | `bus` | `write-once` | bus that is held for a transaction, write-once caches | `atomic_bus.rs`, `write_once.rs` |
//! | `none` | | memory without cache coherence | `uncached.rs` |

pub(crate) mod atomic_bus;
pub(crate) mod blocking;
pub(crate) mod directory;
mod fetch_cache;
mod network;
pub(crate) mod split_bus;
mod switches;
pub(crate) mod uncached;
mod write_once;

use crate::counters::Counters;
use crate::engine::Engine;
use crate::event_queue::{EventKind, KINDS, Time};
use crate::request::Op;

/// Effect of an interconnect's event on other parts of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Nothing,
    /// The request of this processor is complete.
    Complete(usize),
    /// The word that the operating system wanted to change for this processor is changed.
    Changed(usize),
}

/// Times by kind of event, in picoseconds; 0 unless set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlackTable([Time; KINDS.len()]);

impl SlackTable {
    /// Sets the time of some kinds.
    #[must_use]
    pub fn with(mut self, kinds: &[EventKind], time: Time) -> Self {
        kinds.iter().for_each(|&kind| self.0[kind as usize] = time);
        self
    }

    #[inline(always)]
    pub fn of(&self, kind: EventKind) -> Time {
        self.0[kind as usize]
    }
}

/// Carrier of the processors' requests, which keeps their caches coherent or not.
pub(crate) trait Interconnect: std::fmt::Debug {
    /// Sends the request of a processor (`Cpu::request`) on its way.
    fn issue(&mut self, e: &mut Engine, cpu: usize);

    /// Handles one of the interconnect's own events, by its kind and its numbers.
    ///
    /// They come in registers: the host's processor reads an event that goes through the stack
    /// back before it is written.
    fn on_event(&mut self, e: &mut Engine, kind: EventKind, a: usize, b: usize) -> Effect;

    /// Takes a line out of a cache that needs its place.
    fn evict(&mut self, e: &mut Engine, line: usize, cpu: usize);

    /// Changes a word in memory past all caches, on behalf of the operating system: done
    /// at [`Effect::Changed`].
    fn change(&mut self, _e: &mut Engine, _cpu: usize, word: u32, op: Op) {
        unreachable!("{op:?} of word {word} by the system: `Parameters::check` refuses that here");
    }

    /// Carries a processor's message from node to node. Returns when it arrives.
    fn carry(&mut self, _e: &Engine, _now: Time, from: usize, to: usize) -> Time {
        unreachable!("a message from {from} to {to}: `Parameters::check` refuses that here");
    }

    /// Returns the times from events until they can change a cache, at least: by kind.
    ///
    /// Of another processor than the one that the event concerns (`Machine::concerns`), whose
    /// thread is running, and waits for nothing.
    fn slacks(&self, _e: &Engine) -> SlackTable {
        SlackTable::default()
    }

    /// Goes on after the operating system has answered [`Effect::Changed`].
    fn resume(&mut self, _e: &mut Engine) {}

    /// Checks the interconnect's rules for a machine on which nothing is under way any
    /// more.
    fn check_at_rest(&self, e: &Engine) -> Result<(), String>;

    /// Adds the interconnect's own counts.
    fn count(&self, _counters: &mut Counters) {}
}
