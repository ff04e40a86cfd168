//! A process's memory of the participants that it has asked after, with a pidfd for each.

use std::os::fd::OwnedFd;

/// Maximum number of participants of a world that a process remembers, with a pidfd each;
/// and of ranks in a world whose processes look after all others each.
pub(crate) const WATCHED: u32 = 64;

/// Memory between two questions about the same participant.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Its rank.
    pub index: u32,
    /// The entry's word at the time.
    pub word: u64,
    pub pidfd: Option<OwnedFd>,
}

/// The participants that a process has asked after: each rank has one place, which it may
/// share with others.
#[derive(Debug)]
pub(crate) struct Watchlist(Vec<Option<Watched>>);

impl Watchlist {
    pub fn new(processes: u32) -> Self {
        Watchlist((0..processes.min(WATCHED)).map(|_| None).collect())
    }

    /// The place of a rank.
    pub fn place(&mut self, index: u32) -> Option<&mut Option<Watched>> {
        let places = self.0.len().max(1);
        self.0.get_mut(index as usize % places)
    }

    /// Number of participants that are remembered.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }
}
