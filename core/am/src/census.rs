//! Census of a queue whose senders are the endpoints of a domain's directory.

use towpath_machine::{Ordering, Processor};
use towpath_shm::ParticipantId;

use crate::domain::{Entry, Hooks, Membership};
use crate::queue::{Census, read_intent};

/// Returns whether an entry's present owner lives.
pub(crate) fn owner_lives<D: Membership>(domain: &D, entry: &Entry<D::Cpu>) -> bool {
    owner_is(domain.cpu(), entry, |owner| domain.is_alive(owner))
}

/// Returns whether an entry has an owner, and the owner is alive.
pub(crate) fn owner_is<P: Processor>(
    cpu: &P,
    entry: &Entry<P>,
    alive: impl FnOnce(ParticipantId) -> bool,
) -> bool {
    // (E1) Acquire: pairs with the Release when an endpoint is taken (E2) or given up (E3).
    let owner = cpu.load(&entry.owner, Ordering::Acquire);
    owner != 0 && alive(ParticipantId::from_bits(owner))
}

/// Census of the endpoints of a directory: intents for requests and for replies.
pub(crate) struct DirectoryCensus<'a, D>(pub &'a D);

impl<D: Membership + Hooks> Census for DirectoryCensus<'_, D> {
    fn endpoints(&self) -> usize {
        self.0.config().endpoints as usize
    }

    fn kinds(&self) -> usize {
        2
    }

    fn load_intent(&self, endpoint: u16, word: usize) -> u64 {
        let Ok(entry) = self.0.entry(endpoint) else { return 0 };
        read_intent(self.0.cpu(), &entry.own.intents[word])
    }

    fn generation(&self, endpoint: u16) -> Option<u16> {
        let entry = self.0.entry(endpoint).ok()?;
        // (E1) Acquire: pairs with the Release (E4) of a new generation.
        Some(self.0.cpu().load(&entry.generation, Ordering::Acquire) as u16)
    }

    fn owner_lives(&self, endpoint: u16) -> bool {
        self.0.entry(endpoint).is_ok_and(|entry| owner_lives(self.0, &entry))
    }

    fn patience(&self) -> u64 {
        self.0.patience()
    }
}
