//! Notes between the launchers of a world that spans hosts.
//!
//! ```text
//! joiner                                    hub
//!   Hello ───────────────────────────────────▶   (link)
//!   ◀──────────────────────────── Welcome, Refused
//!   Ready, Failed ───────────────────────────▶   (the link moves to libfabric, if it is to)
//!   ◀─────────────────────────────────────── Start   (gateways from here on)
//!   Ended, for each rank ────────────────────▶
//!   ◀─────────────────────────────── Signal, Stop
//!   ◀──────────────────────────────────────── Over
//! ```

use serde::{Deserialize, Serialize};
use towpath::WorldConfig;
use towpath_shm::LAYOUT_VERSION;

use crate::output::printable;

/// Versions that must be equal on all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    towpath: String,
    segment: u32,
    messages: u64,
}

impl Versions {
    pub fn own() -> Versions {
        Versions {
            towpath: env!("CARGO_PKG_VERSION").into(),
            segment: LAYOUT_VERSION,
            messages: WorldConfig::new(1).params()[0],
        }
    }
}

/// End of a rank's process, as its launcher saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEnd {
    pub rank: u32,
    pub program: String,
    pub pid: u32,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub core_dumped: bool,
    /// Addition to a sentence about its exit code.
    pub circumstances: String,
}

/// Arguments of the hub that hold for all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTerms {
    /// Number of ranks of each host, the hub's first.
    pub ranks: Vec<u32>,
    /// Names of the hosts.
    pub names: Vec<String>,
    /// Parameters of the world.
    pub params: [u64; 16],
    /// True if a rank's failure ends the others.
    pub stops_on_failure: bool,
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub grace: u64,
    /// Provider of libfabric to which links move when a host is ready.
    pub provider: Option<String>,
}

/// Note from one launcher to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchNote {
    /// The first of a joiner. `place`: its place among the hosts, if the hub started it.
    Hello { versions: Versions, ranks: u32, place: Option<usize>, name: String },
    /// The hub's answer to a host that it can't take.
    Refused(String),
    /// The hub's answer when all hosts have come. `place`: the joiner's.
    Welcome { terms: JobTerms, place: usize },
    /// The joiner's segment is there.
    Ready,
    /// The joiner can't take part.
    Failed(String),
    /// All hosts are ready: the ranks may be started.
    Start,
    /// A rank of the joiner has ended.
    Ended(RankEnd),
    /// The ranks are to get a signal.
    Signal(i32),
    /// The ranks are to be ended, since one has failed.
    Stop,
    /// All ranks have ended; the exit code of the job.
    Over(u8),
}

impl LaunchNote {
    pub fn to_bytes(&self) -> Vec<u8> {
        // No map with other keys than strings, no number that JSON lacks.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a note. Its texts will be printed, and hold nothing that a terminal would
    /// obey.
    pub fn from_bytes(bytes: &[u8]) -> Option<LaunchNote> {
        let mut note = serde_json::from_slice(bytes).ok()?;
        match &mut note {
            LaunchNote::Hello { name: text, .. } | LaunchNote::Refused(text) | LaunchNote::Failed(text) => {
                *text = printable(text);
            }
            LaunchNote::Welcome { terms, .. } => {
                terms.names.iter_mut().for_each(|name| *name = printable(name));
            }
            LaunchNote::Ended(RankEnd { program, circumstances, .. }) => {
                *program = printable(program);
                *circumstances = printable(circumstances);
            }
            _ => {}
        }
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_the_journey_and_nonsense_is_none() {
        let terms = JobTerms {
            ranks: vec![1, 2],
            names: vec!["a".into(), "b".into()],
            params: [u64::MAX; 16],
            stops_on_failure: true,
            grace: 2000,
            provider: Some("tcp".into()),
        };
        let end = RankEnd {
            rank: 3,
            program: "p".into(),
            pid: 4,
            code: None,
            signal: Some(9),
            core_dumped: false,
            circumstances: String::new(),
        };
        let hello = LaunchNote::Hello { versions: Versions::own(), ranks: 2, place: None, name: "b".into() };
        for note in
            [hello, LaunchNote::Welcome { terms, place: 1 }, LaunchNote::Ended(end), LaunchNote::Over(7)]
        {
            assert_eq!(LaunchNote::from_bytes(&note.to_bytes()), Some(note));
        }
        let hostile = LaunchNote::Failed("\u{1b}[2J".into()).to_bytes();
        assert_eq!(LaunchNote::from_bytes(&hostile), Some(LaunchNote::Failed("\\u{1b}[2J".into())));
        for bytes in [&b""[..], b"{}", b"\"Nothing\"", b"{\"Over\":256}"] {
            assert_eq!(LaunchNote::from_bytes(bytes), None);
        }
    }
}
