//! The offer under the model checker: bytes that are copied and used again, withdrawals,
//! successors; and the proof that each of its orderings is needed: without it, loom finds the
//! fault.
//!
//! The sender's bytes are not atomic here: a sender that uses them again while they are copied
//! fails the model. Sleepers never time out: a lost wake-up is a deadlock.

use std::sync::Arc;

use loom::thread;

use towpath_channel::offer::{Offer, OfferState, Proof, first_number};
use towpath_machine::{Arena, LoomArena, LoomBytes, Ordering, Park, Place, Processor};
use towpath_sync::{Alone, Policy, Wait};
use towpath_testkit::model;

use crate::weakened::{Missing, SOUND, Weakened, Word, fails};

const NUMBER: u64 = first_number(1) + 1;
const PROOF: Proof = Proof { at: 0x1000, number: 11 };
const SUCCESSORS_NUMBER: u64 = first_number(2) + 1;
const SUCCESSORS_PROOF: Proof = Proof { at: 0x2000, number: 22 };

/// An offer, its sender's generation and bytes, and the packet that names it.
struct Shared {
    offer: Offer<Weakened>,
    generation: Word,
    packet: Word,
    bytes: Arc<LoomBytes>,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let (plain, parking) = (LoomArena::default(), LoomArena { parking: true });
        let word = |arena: &LoomArena, value| Arena::<Weakened>::word(arena, Place::NewLine, value);
        Arc::new(Shared {
            offer: Offer::new(&parking),
            generation: word(&plain, 1),
            packet: word(&plain, 0),
            bytes: Arc::new(Arena::<Weakened>::bytes(&plain, 2)),
        })
    }

    /// Publishes the packet of the open offer.
    fn send(&self, cpu: &Weakened) {
        cpu.copy_in(&self.bytes, 0, &[1, 1]);
        self.offer.open(cpu, NUMBER, PROOF);
        sound(cpu).store(&self.packet, 1, Ordering::Release);
    }

    /// Waits for the end of the offer, and uses the bytes again. `patience`: number of
    /// looks before it withdraws the offer. Returns the state at the end.
    fn await_end(&self, cpu: &Weakened, patience: usize) -> OfferState {
        let wait = Wait { policy: Policy::Park, around: &Alone, budget: 0 };
        let mut looks = 0;
        let end = loop {
            let seen = self.offer.look(cpu, NUMBER);
            looks += 1;
            match seen.state {
                OfferState::Done | OfferState::Refused => break seen.state,
                OfferState::Open if looks > patience => {
                    if self.offer.withdraw(cpu, seen, NUMBER) {
                        break OfferState::Withdrawn;
                    }
                }
                OfferState::Open if patience < usize::MAX => {}
                _ => self.offer.rest(cpu, &wait, seen, 0),
            }
        };
        cpu.copy_in(&self.bytes, 0, &[2, 2]);
        end
    }

    /// Takes the offer and copies the bytes, if it finds the packet. Returns whether it
    /// did.
    fn receive(&self, cpu: &Weakened, end: OfferState) -> bool {
        // The packet is the queue's business.
        let is_here = sound(cpu).load(&self.packet, Ordering::Acquire) == 1;
        let Some(proof) = is_here.then(|| self.offer.take(cpu, &self.generation, NUMBER)).flatten() else {
            return false;
        };
        assert_eq!(proof, PROOF);
        let mut copy = [0; 2];
        cpu.copy_out(&self.bytes, 0, &mut copy);
        assert_eq!(copy, [1, 1]);
        if self.offer.end(cpu, NUMBER, end) {
            cpu.wake(self.offer.word(), u32::MAX);
        }
        true
    }
}

fn sound(cpu: &Weakened) -> Weakened {
    Weakened { missing: SOUND, ..*cpu }
}

/// A sender that waits until its offer is taken, and a receiver.
fn hand_over(sender: Missing, receiver: Missing, end: OfferState) {
    model(3, move || {
        let shared = Shared::new();
        shared.send(&Weakened::new(0, SOUND));
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || assert!(theirs.receive(&Weakened::new(1, receiver), end)));
        assert_eq!(shared.await_end(&Weakened::new(0, sender), usize::MAX), end);
        thread.join().unwrap();
    });
}

/// A sender that withdraws its offer after so many looks, and a receiver that comes at
/// any time.
fn withdraw(patience: usize) {
    model(3, move || {
        let shared = Shared::new();
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || theirs.receive(&Weakened::new(1, SOUND), OfferState::Done));
        let cpu = Weakened::new(0, SOUND);
        shared.send(&cpu);
        let end = shared.await_end(&cpu, patience);
        assert_eq!(thread.join().unwrap(), end == OfferState::Done, "{end:?}");
    });
}

/// A receiver that comes to a dead sender's offer while a successor opens one of its own.
///
/// (loom does not know the word's value in the end: for it an exchange may be both before and after
/// a store.)
fn succeed(successor: Missing, receiver: Missing) {
    model(3, move || {
        let shared = Shared::new();
        shared.send(&Weakened::new(0, SOUND));
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let cpu = Weakened::new(1, successor);
            // Release: as `open_entry`.
            sound(&cpu).store(&theirs.generation, 2, Ordering::Release);
            theirs.offer.open(&cpu, SUCCESSORS_NUMBER, SUCCESSORS_PROOF);
        });
        let cpu = Weakened::new(2, receiver);
        if let Some(proof) = shared.offer.take(&cpu, &shared.generation, NUMBER) {
            assert_eq!(proof.number, PROOF.number, "bytes of another process");
            shared.offer.end(&cpu, NUMBER, OfferState::Refused);
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_sleeping_sender_is_woken_when_its_offer_ends() {
    for end in [OfferState::Done, OfferState::Refused] {
        hand_over(SOUND, SOUND, end);
    }
    assert!(fails(|| hand_over(SOUND, Missing::Wake, OfferState::Done)));
}

#[test]
fn bytes_are_not_used_again_while_they_are_copied() {
    assert!(fails(|| hand_over(SOUND, Missing::UpdateOrder, OfferState::Done)), "(P1)");
    assert!(fails(|| hand_over(Missing::Acquire, SOUND, OfferState::Done)), "(P2)");
}

#[test]
fn an_offer_is_either_withdrawn_or_taken() {
    for patience in [0, 1] {
        withdraw(patience);
    }
}

#[test]
fn a_late_receiver_takes_no_offer_of_a_successor() {
    succeed(SOUND, SOUND);
    assert!(fails(|| succeed(Missing::Release, SOUND)), "(P3)");
    assert!(fails(|| succeed(SOUND, Missing::Acquire)), "(P4)");
}

#[test]
fn a_late_end_leaves_the_offer_of_a_successor() {
    model(0, || {
        let (shared, cpu) = (Shared::new(), Weakened::new(0, SOUND));
        shared.send(&cpu);
        assert!(shared.offer.take(&cpu, &shared.generation, NUMBER).is_some());
        shared.offer.open(&cpu, SUCCESSORS_NUMBER, SUCCESSORS_PROOF);
        assert!(!shared.offer.end(&cpu, NUMBER, OfferState::Done));
        assert_eq!(shared.offer.look(&cpu, SUCCESSORS_NUMBER).state, OfferState::Open);
        assert!(shared.offer.take(&cpu, &shared.generation, NUMBER).is_none(), "it is another one");
    });
}
