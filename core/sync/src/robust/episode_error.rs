//! `EpisodeError`: reasons for an episode of a barrier that did not succeed.

use towpath_derive::SentenceDebug;

/// Reason for an episode that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum EpisodeError {
    /// A participant died. All that are there get the same error, and the next episode
    /// is among the survivors.
    PeerDied {
        /// Rank of the dead, if it has one.
        rank: Option<u32>,
    },
    /// The caller's time was over. It has arrived, unless it waited for a place: when it
    /// comes again, it waits for the same episode.
    TimedOut,
    /// Full barrier: it has all participants that it is for, and one of them lives.
    Capacity,
    /// The barrier lies in a world that this process has not entered.
    NotEntered,
}

impl EpisodeError {
    const fn sentence(self) -> &'static str {
        match self {
            EpisodeError::PeerDied { .. } => {
                "a participant of the barrier died: go on without it, the next episode is among the survivors"
            }
            EpisodeError::TimedOut => {
                "not all participants had arrived before the time was over: come again, and wait longer"
            }
            EpisodeError::Capacity => {
                "the barrier has all its participants: make it for more, or let one leave first; one that has died keeps \
                 its place until the others were told"
            }
            EpisodeError::NotEntered => {
                "this process has not entered the world in which the barrier lies: call World::enter first (after a fork, in the child too)"
            }
        }
    }
}

impl core::fmt::Display for EpisodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.sentence())?;
        match self {
            EpisodeError::PeerDied { rank: Some(rank) } => write!(f, " (it was rank {rank})"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for EpisodeError {}
