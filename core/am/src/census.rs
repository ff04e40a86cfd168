//! Census of a queue whose senders are the endpoints of a domain's directory.

use towpath_machine::{Ordering, OwnLine, Processor};
use towpath_shm::ParticipantId;

use crate::domain::{Entry, Hooks, Membership};
use crate::queue::Census;

/// Returns whether an entry's present owner lives.
pub(crate) fn owner_lives<D: Membership>(domain: &D, entry: &Entry<D::Cpu>) -> bool {
    // (E1) Acquire: pairs with the Release when an endpoint is taken (E2) or given up (E3).
    let owner = domain.cpu().load(&entry.owner, Ordering::Acquire);
    owner != 0 && domain.is_alive(ParticipantId::from_bits(owner))
}

/// Census of the endpoints of a directory: two members for each, for its requests and
/// replies.
pub(crate) struct Members<'a, D>(pub &'a D);

impl<D: Membership + Hooks> Census for Members<'_, D> {
    fn members(&self) -> usize {
        self.0.config().endpoints as usize * 2
    }

    fn intent(&self, member: usize) -> u64 {
        let Ok(entry) = self.0.entry((member / 2) as u16) else { return 0 };
        let OwnLine(intents) = &entry.intents;
        // (E5) Acquire: pairs with the Release with which claimers change their intent (C1).
        let intent = self.0.cpu().load(&intents[member % 2], Ordering::Acquire);
        // The intent first, then the question: what the dead intended will not happen any more.
        if intent != 0 && !owner_lives(self.0, &entry) { 0 } else { intent }
    }

    fn alive(&self, endpoint: u16, generation: u16) -> bool {
        let Ok(entry) = self.0.entry(endpoint) else { return false };
        // (E1) Acquire: pairs with the Release (E4) of a new generation.
        self.0.cpu().load(&entry.generation, Ordering::Acquire) as u16 == generation
            && owner_lives(self.0, &entry)
    }

    fn holds_block(&self, endpoint: u16, queue: u32) -> bool {
        let Ok(entry) = self.0.entry(endpoint) else { return false };
        let OwnLine(intents) = &entry.intents;
        // (E5) Acquire: pairs with the Release after the publication, in `SendPath::send`.
        intents[2..].iter().any(|word| self.0.cpu().load(word, Ordering::Acquire) == u64::from(queue) + 1)
    }

    fn patience(&self) -> u64 {
        self.0.patience()
    }
}
