//! Stores: long transfers that the sender stores into the receiver's shared segment.
//!
//! It announces them when they are complete. The receiver has nothing to do meanwhile: it would
//! fall asleep in the course of a transfer of megabytes, and waking it takes half as long as
//! storing four of them. So the sender writes into the receiver's entry when it will have finished,
//! and a receiver that spins at all does not sleep until then.
//!
//! **A sender that dies** leaves bytes stored, and no message. Its receiver stays awake for
//! [`LONGEST`] at most.

use core::sync::atomic::Ordering;
use std::rc::Rc;

use towpath_machine::Processor;

use crate::domain::{Side, Stored};
use crate::error::Error;
use crate::outgoing::Outgoing;
use crate::packet::{Form, pack_range};
use crate::path::Failure;
use crate::queue::{announce, intent, write_intent};
use crate::state::{Core, Domain, PeerEndpoint};

/// Minimum number of bytes of a store that keeps its receiver awake.
///
/// A shorter one takes less time than a receiver polls before it sleeps.
const LONG: u64 = 1 << 18;
/// Number of bytes that a slow machine stores in a nanosecond.
const BYTES_EACH_NS: u64 = 16;
/// Maximum time for which a store keeps its receiver awake, in nanoseconds.
///
/// Beside a longer one the wake-up takes little time.
const LONGEST: u64 = 2_000_000;

impl<D: Domain> Core<D> {
    /// Stores into the destination's shared segment of `shared` bytes, then announces it.
    pub(crate) fn store_directly(
        &self,
        peer: &Rc<PeerEndpoint<D>>,
        out: &Outgoing<'_>,
        payload: &[u8],
        offset: u64,
        shared: u64,
    ) -> Result<(), Error> {
        let len = payload.len() as u64;
        if offset + len <= shared {
            let segment = self.domain.segment(peer.name.endpoint)?;
            if offset + len > segment.len() {
                return Err(Error::BadWorld("a segment's length does not fit its place".into()));
            }
            let link = peer.link(out.direction);
            let (q, intent) = (link.side.queue(), self.intent(out.direction));
            // Either a successor sees the intent and waits for this sender, or the sender sees that
            // the queue is closed and does not touch the segment, which may be the successor's.
            let storing = intent::encode(q.id, intent::CLAIMING, 0);
            let tail = announce(self.cpu(), intent, storing, &q.control.tail);
            let here = !link.sender.borrow().shut_out(tail);
            if here {
                self.announce_store(peer, len);
                segment.write(offset as usize, payload);
            }
            write_intent(self.cpu(), intent, 0);
            if !here {
                return self.outcome(Err(Failure::Gone), peer, out);
            }
        }
        // Otherwise the receiver finds the range wrong and sends it back.
        let content = self.content(out, Form::LongStored, pack_range(offset, len));
        if self.announce_in_line(peer, out, &content) {
            return Ok(());
        }
        self.outcome(self.packet(peer, out.direction, &content, None, out.on_full), peer, out)
    }

    /// Says how long a store will take, if that is long.
    #[inline]
    fn announce_store(&self, peer: &PeerEndpoint<D>, len: u64) {
        if len >= LONG {
            let until = self.cpu().now() + (len / BYTES_EACH_NS).min(LONGEST);
            // Relaxed: a hint. Of several senders the last one counts.
            self.cpu().store(&peer.entry.own.stored_until, until, Ordering::Relaxed);
        }
    }

    /// Returns whether a sender is storing a long transfer, which it will announce soon.
    pub(crate) fn is_stored_into(&self) -> bool {
        // Relaxed: a hint.
        let until = self.cpu().load(&self.entry.own.stored_until, Ordering::Relaxed);
        (1..=LONGEST).contains(&until.saturating_sub(self.cpu().now()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;
    use crate::{Endpoint, WorldConfig};

    #[test]
    fn long_store_keeps_its_receiver_awake_for_a_while() {
        let world = towpath_shm::World::create(&WorldConfig::new(1).spec(None)).unwrap();
        world.enter(None).unwrap();
        let endpoint = Endpoint::new(&world).unwrap();
        let core = &endpoint.core;
        let peer = core.peer(core.name).unwrap();
        assert!(!core.is_stored_into());
        let is_announced = |len| {
            core.announce_store(&peer, len);
            core.is_stored_into()
        };
        assert!(!is_announced(LONG - 1), "it will have come before the receiver sleeps");
        // This thread may lose its core in between.
        assert!((0..1000).any(|_| is_announced(LONG << 10)));
        sleep(Duration::from_nanos(LONGEST + 1));
        assert!(!core.is_stored_into(), "its sender may be dead");
        core.cpu().store(&core.entry.own.stored_until, u64::MAX, Ordering::Relaxed);
        assert!(!core.is_stored_into(), "no sender of this library says so");
    }
}
