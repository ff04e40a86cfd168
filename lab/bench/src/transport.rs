//! The contender: one trait for our claim algorithms and for the peers.

use std::time::Duration;

use crate::settings::BenchSettings;
use towpath_host::Error;
use towpath_host::topology::Placement;
use towpath_papers::paper::LogP;

/// The side of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContenderSide {
    /// A claim algorithm of Towpath's.
    Ours,
    /// A user's alternative.
    Peer,
}

/// The circumstances of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The settings.
    pub settings: &'a BenchSettings,
    /// The cores of the processes: process 0 receives (or answers), the others send.
    pub placement: &'a Placement,
    /// Number of this round of the comparison, from 0.
    pub round: u32,
    /// Seed of this measurement's pseudo-random choices.
    pub seed: u64,
    /// Approximate duration of the measurement. Measure less rather than longer, and
    /// report what was really done; never less than a figure needs to mean something.
    pub limit: Duration,
}

/// Figures of one short message and its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShortMessage {
    /// The LogP parameters.
    pub logp: LogP,
    /// Round trip by that of two cache lines, measured in turn by the same processes;
    /// `None` where the contender or the machine has no such floor.
    pub round_trip_over_floor: Option<f64>,
}

/// Figures of one stress test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stress {
    /// Number of messages that arrived (fewer than asked for if the time ran out).
    pub messages: u64,
    /// Time from the first writer's start to the last arrival.
    pub seconds: f64,
    /// Number of each writer's messages that had arrived when the first writer's last one
    /// arrived, or when the time ran out. Empty if the contender can't tell.
    pub shares: Vec<f64>,
    /// Processor time that all processes used together meanwhile, if the contender can
    /// tell.
    pub cpu_seconds: Option<f64>,
}

/// Damage in a world whose senders were killed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Crash {
    /// Number of processes killed.
    pub kills: u64,
    /// Number of published messages that never arrived.
    pub lost: u64,
    /// Messages that arrived twice.
    pub duplicated: u64,
    /// Slots that stayed unusable after recovery.
    pub leaked_slots: u64,
    /// Time after each kill until the receiver next got a message of a survivor, in
    /// microseconds.
    pub recovery_us: Vec<f64>,
}

/// One thing to be measured: an algorithm of ours with a waiting policy, or a peer. Each
/// method starts the processes that it needs, measures, ends them all, and leaves nothing behind,
/// also when it fails. An operation that it does not offer is [`Error::NotSupported`].
pub trait Contender {
    /// Its name, as in the records' `algorithm`.
    fn name(&self) -> &str;

    /// Its waiting policy, as in the records' `waiting`.
    fn waiting(&self) -> &str {
        "own"
    }

    /// Its side.
    fn side(&self) -> ContenderSide {
        ContenderSide::Peer
    }

    /// Returns whether it can be measured here.
    ///
    /// # Errors
    ///
    /// Why not, as a clause that follows "not measured:" and says what to install or change.
    fn available(&self) -> Result<(), String> {
        Ok(())
    }

    /// Its version or variant, for the report: `5.0.11`, `threads, spinning`.
    fn variant(&self) -> Option<String> {
        None
    }

    /// The LogP parameters. Two processes. A peer that only knows the round trip offers
    /// [`Contender::round_trip`] instead.
    ///
    /// # Errors
    ///
    /// Why it could not be measured.
    fn logp(&mut self, run: &Circumstances<'_>) -> Result<ShortMessage, Error> {
        let _ = run;
        Err(Error::NotSupported)
    }

    /// An 8-byte message there and one back, in nanoseconds: the mean of many. Two
    /// processes.
    ///
    /// # Errors
    ///
    /// Why it could not be measured.
    fn round_trip(&mut self, run: &Circumstances<'_>) -> Result<f64, Error> {
        self.logp(run).map(|figures| figures.logp.round_trip)
    }

    /// Measures the stress test: process 0 reads from `writers` others that write at full
    /// speed, `messages` one-way messages of 8 bytes in all, as evenly divided as they go. With one
    /// writer this is the one-way stream.
    ///
    /// # Errors
    ///
    /// Why it could not be measured.
    fn stress(&mut self, writers: u32, messages: u64, run: &Circumstances<'_>) -> Result<Stress, Error> {
        let _ = (writers, messages, run);
        Err(Error::NotSupported)
    }

    /// The ways in which it moves bulk data, each measured by itself: the records'
    /// `path`. An empty name stands for the only way.
    fn bulk_paths(&self) -> &'static [&'static str] {
        &[""]
    }

    /// Payload bandwidth in bytes per second of one-way transfers of `bytes` each, one
    /// after the other, from process 1 to process 0, where the data ends up in memory that the
    /// receiver may go on using. Two processes.
    ///
    /// # Errors
    ///
    /// Why it could not be measured.
    fn bulk(&mut self, bytes: u64, path: &str, run: &Circumstances<'_>) -> Result<f64, Error> {
        let _ = (bytes, path, run);
        Err(Error::NotSupported)
    }

    /// Kills senders at random instants, `kills` times in all, and counts the damage.
    ///
    /// # Errors
    ///
    /// Why it could not be measured.
    fn crash(&mut self, kills: u32, run: &Circumstances<'_>) -> Result<Crash, Error> {
        let _ = (kills, run);
        Err(Error::NotSupported)
    }

    /// The part of a core that a process uses while it waits and nothing comes.
    ///
    /// # Errors
    ///
    /// Why it could not be measured.
    fn idle(&mut self, run: &Circumstances<'_>) -> Result<f64, Error> {
        let _ = run;
        Err(Error::NotSupported)
    }
}

/// The names of the waiting policies.
pub fn waiting_policies() -> Vec<&'static str> {
    towpath_sync::Policy::ALL.iter().map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::{ADAPTIVE, CLAIM_ALGORITHMS, OURS};

    #[test]
    fn claim_algorithms_and_policies_have_the_default_once() {
        assert_eq!(CLAIM_ALGORITHMS.iter().filter(|a| a.name == OURS).count(), 1);
        assert!(waiting_policies().contains(&ADAPTIVE));
    }
}
