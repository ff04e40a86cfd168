//! Offer: the word by which a sender lets the receiver of a long transfer copy it out of
//! the sender's memory.
//!
//! **Source.** Ours; the copy is the kernel's (`process_vm_readv`) and the caller's business.
//!
//! ```text
//!                 receiver finds the packet            copied, and handled
//!   Open ───────────────────────────────▶ Taken ───────────────────────────▶ Done
//!    │                                      └──────────────────────────────▶ Refused
//!    └─────────▶ Withdrawn                     the system does not permit it
//!  sender: no receiver came in time
//! ```
//!
//! **How.** The sender opens the offer, and publishes a packet that names its number. The receiver
//! of the packet takes the offer, unless the sender has withdrawn it meanwhile: one exchange
//! decides. From then on the bytes are the receiver's, until it says that it is done.
//!
//! A number names its sender's incarnation ([`first_number`]), so that a packet of a dead sender
//! takes no offer of its successor. A pid that is found in memory may be another process's by now.
//! So the sender has a number in its memory that no other process has there, its proof, and the
//! receiver compares it in the same call that copies the bytes.
//!
//! **Progress.** Wait-free, but for the sender's wait.
//!
//! **Fields.** `state`: the sender, until the offer is taken; then its receiver, until it is done
//! or refused; a sender that waits leaves `PARKED`. `proof_at`, `proof`: the sender.
//!
//! **Crashes.** A sender that dies with an open offer: the receiver takes it, can't copy, and
//! refuses it. A receiver that dies with a taken offer leaves it taken: the sender learns of the
//! death as in front of a full queue. A sender's successor opens offers of other numbers; a late
//! end of the offer before it changes nothing.
//!
//! **Memory.** Three words for an endpoint, which has one offer at a time.
//!
//! **Don't use it** for transfers that are shorter than what the system copies in the time of a
//! call, some 16 KiB.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::{PARKED, WaitForSpace};

/// State of an offer, in the low bits of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum OfferState {
    /// The sender has taken it back.
    Withdrawn = 0,
    /// A receiver may take it.
    Open = 1,
    /// A receiver copies the bytes, or handles the message.
    Taken = 2,
    /// The message was handled.
    Done = 3,
    /// The receiver can't copy.
    Refused = 4,
}

impl OfferState {
    /// Returns the word of an offer in this state.
    const fn word(self, number: u64) -> u64 {
        number << 3 | self as u64
    }

    /// Returns the state of an offer by its word. One that makes no sense is in other
    /// hands.
    fn of(word: u64, number: u64) -> OfferState {
        use OfferState::{Done, Open, Refused, Taken, Withdrawn};
        let is = |state: &OfferState| state.word(number) == word & !PARKED;
        [Withdrawn, Open, Done, Refused].into_iter().find(is).unwrap_or(Taken)
    }
}

/// Look of a sender at its offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferLook {
    /// State that it has found.
    pub state: OfferState,
    word: u64,
}

/// Number that only the sender's process has at this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Address, in the sender's memory.
    pub at: u64,
    /// Number that lies there.
    pub number: u64,
}

/// Number before the first offer of an incarnation. No other incarnation has its numbers.
///
/// ```
/// use towpath_channel::offer::first_number;
///
/// assert!(first_number(2) > first_number(1) + 1_000_000); // room for as many offers
/// ```
pub const fn first_number(generation: u64) -> u64 {
    (generation & 0xff_ffff) << 32
}

/// Offer of an endpoint; the layout natively.
#[derive(Debug)]
#[repr(C)]
pub struct Offer<P: Processor> {
    /// Number of the last offer, and its [`OfferState`].
    state: P::Word,
    /// Address of the sender's proof.
    proof_at: P::Word,
    /// Number that lies there.
    proof: P::Word,
}

impl<P: Processor> Offer<P> {
    /// Makes one that was never opened.
    ///
    /// ```
    /// use towpath_channel::offer::{Offer, OfferState};
    /// use towpath_machine::{Heap, Native};
    ///
    /// let offer = Offer::<Native>::new(&Heap);
    /// assert_eq!(offer.look(&Native::current(), 0).state, OfferState::Withdrawn);
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let word = || arena.word(Place::SameLine, 0);
        Offer { state: word(), proof_at: word(), proof: word() }
    }

    /// Returns the word on which the sender sleeps.
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, Proof, first_number};
    /// # use towpath_machine::{Heap, Native, Ordering, Processor};
    /// let (cpu, offer) = (Native::current(), Offer::<Native>::new(&Heap));
    /// let before = cpu.load(offer.word(), Ordering::Relaxed);
    /// offer.open(&cpu, first_number(1) + 1, Proof { at: 0, number: 0 });
    /// assert_ne!(cpu.load(offer.word(), Ordering::Relaxed), before);
    /// ```
    pub fn word(&self) -> &P::Word {
        &self.state
    }

    // ---- the sender ----

    /// Opens an offer, before its packet is published.
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, OfferState, Proof, first_number};
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, offer, number) =
    ///     (Native::current(), Offer::<Native>::new(&Heap), first_number(1) + 1);
    /// let mine = 0x1234u64; // a number that no other process has at this address
    /// offer.open(&cpu, number, Proof { at: (&raw const mine).addr() as u64, number: mine });
    /// assert_eq!(offer.look(&cpu, number).state, OfferState::Open);
    /// ```
    pub fn open(&self, cpu: &P, number: u64, proof: Proof) {
        // Relaxed: a proof and the address of another incarnation's do not fit.
        cpu.store(&self.proof_at, proof.at, Ordering::Relaxed);
        // (P3) Release: the entry's generation is this incarnation's; pairs with the Acquire (P4)
        // in `take`.
        cpu.store(&self.proof, proof.number, Ordering::Release);
        // Relaxed: published with the packet.
        cpu.store(&self.state, OfferState::Open.word(number), Ordering::Relaxed);
    }

    /// Looks at the offer of that number. If it is done, its bytes may be used again.
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, OfferState, Proof, first_number};
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, offer, number) =
    ///     (Native::current(), Offer::<Native>::new(&Heap), first_number(1) + 1);
    /// offer.open(&cpu, number, Proof { at: 0, number: 0 });
    /// offer.take(&cpu, &Native::word(1), number).expect("it is open");
    /// offer.end(&cpu, number, OfferState::Done);
    /// assert_eq!(offer.look(&cpu, number).state, OfferState::Done); // its bytes may be used again
    /// ```
    pub fn look(&self, cpu: &P, number: u64) -> OfferLook {
        // (P2) Acquire: the receiver has copied the bytes; pairs with the Release (P1) in `end`.
        let word = cpu.load(&self.state, Ordering::Acquire);
        OfferLook { state: OfferState::of(word, number), word }
    }

    /// Takes the offer back, if it is as it was. Returns whether it was.
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, Proof, first_number};
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, offer, number) =
    ///     (Native::current(), Offer::<Native>::new(&Heap), first_number(1) + 1);
    /// offer.open(&cpu, number, Proof { at: 0, number: 0 });
    /// let seen = offer.look(&cpu, number);
    /// assert!(offer.withdraw(&cpu, seen, number)); // no receiver came in time
    /// assert!(offer.take(&cpu, &Native::word(1), number).is_none());
    /// ```
    pub fn withdraw(&self, cpu: &P, seen: OfferLook, number: u64) -> bool {
        let (withdrawn, relaxed) = (OfferState::Withdrawn.word(number), Ordering::Relaxed);
        // Relaxed: the exchange only decides whether the receiver takes the offer.
        cpu.compare_exchange(&self.state, seen.word, withdrawn, relaxed, relaxed).is_ok()
    }

    /// Spins until the offer has changed, at most `ns` nanoseconds.
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, OfferState, Proof, first_number};
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, offer, number) =
    ///     (Native::current(), Offer::<Native>::new(&Heap), first_number(1) + 1);
    /// offer.open(&cpu, number, Proof { at: 0, number: 0 });
    /// let seen = offer.look(&cpu, number);
    /// offer.spin(&cpu, seen, 1_000); // a microsecond
    /// assert_eq!(offer.look(&cpu, number).state, OfferState::Open);
    /// ```
    pub fn spin(&self, cpu: &P, seen: OfferLook, ns: u64) {
        // Relaxed: a hint; the sender looks again.
        let _ = cpu.spin_until(&self.state, Ordering::Relaxed, ns, |word| word != seen.word);
    }

    /// Waits until the offer has changed, but only for a short turn
    /// ([`WaitForSpace::wait_briefly`]).
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, OfferState, Proof, first_number};
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::Spinning;
    /// let (cpu, offer, number) =
    ///     (Native::current(), Offer::<Native>::new(&Heap), first_number(1) + 1);
    /// offer.open(&cpu, number, Proof { at: 0, number: 0 });
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| offer.take(&cpu, &Native::word(1), number));
    ///     let mut round = 0;
    ///     while offer.look(&cpu, number).state == OfferState::Open {
    ///         // and polls in between
    ///         offer.rest(&cpu, &Spinning, offer.look(&cpu, number), round);
    ///         round += 1;
    ///     }
    /// });
    /// ```
    pub fn rest(&self, cpu: &P, waiting: &impl WaitForSpace<P>, seen: OfferLook, round: u32) {
        waiting.wait_briefly(cpu, &self.state, seen.word & !PARKED, round);
    }

    // ---- the receiver ----

    /// Takes the offer that a packet names. Returns the sender's proof. `None`: it was
    /// withdrawn, or its sender is gone. `generation`: the sender's entry has its incarnation here.
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, Proof, first_number};
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, offer, number) =
    ///     (Native::current(), Offer::<Native>::new(&Heap), first_number(1) + 1);
    /// let proof = Proof { at: 64, number: 7 };
    /// offer.open(&cpu, number, proof);
    /// assert_eq!(offer.take(&cpu, &Native::word(2), number), None); // a successor is there
    /// assert_eq!(offer.take(&cpu, &Native::word(1), number), Some(proof));
    /// ```
    pub fn take(&self, cpu: &P, generation: &P::Word, number: u64) -> Option<Proof> {
        // (P4) Acquire: if a successor has written it, its generation is seen below; pairs with the
        // Release (P3) in `open`.
        let proof = cpu.load(&self.proof, Ordering::Acquire);
        // Relaxed: as in `open`.
        let at = cpu.load(&self.proof_at, Ordering::Relaxed);
        // Relaxed: ordered by (P4).
        let generation = cpu.load(generation, Ordering::Relaxed);
        if first_number(generation) != number >> 32 << 32 {
            return None;
        }
        let relaxed = Ordering::Relaxed;
        // Relaxed: the offer was written before its packet was published (Q2), and the sender only
        // looks whether it is taken.
        let mut seen = cpu.load(&self.state, relaxed);
        while seen & !PARKED == OfferState::Open.word(number) {
            let taken = OfferState::Taken.word(number) | seen & PARKED;
            match cpu.compare_exchange(&self.state, seen, taken, relaxed, relaxed) {
                Ok(_) => return Some(Proof { at, number: proof }),
                // The sender has begun to sleep on it, or has withdrawn it.
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Ends an offer that the receiver has taken: [`OfferState::Done`] or
    /// [`OfferState::Refused`]. Returns whether the sender sleeps on the word.
    ///
    /// ```
    /// # use towpath_channel::offer::{Offer, OfferState, Proof, first_number};
    /// # use towpath_machine::{Heap, Native};
    /// let (cpu, offer, number) =
    ///     (Native::current(), Offer::<Native>::new(&Heap), first_number(1) + 1);
    /// offer.open(&cpu, number, Proof { at: 0, number: 0 });
    /// offer.take(&cpu, &Native::word(1), number).expect("it is open");
    /// let must_wake = offer.end(&cpu, number, OfferState::Refused); // the system permits no copy
    /// assert!(!must_wake && offer.look(&cpu, number).state == OfferState::Refused);
    /// ```
    pub fn end(&self, cpu: &P, number: u64, end: OfferState) -> bool {
        loop {
            // Relaxed: a guess, confirmed by the exchange.
            let seen = cpu.load(&self.state, Ordering::Relaxed);
            // A successor of the sender's may use the word by now.
            if seen & !PARKED != OfferState::Taken.word(number) {
                return false;
            }
            let (end, relaxed) = (end.word(number), Ordering::Relaxed);
            // (P1) Release: the bytes were copied, and the handler has run; pairs with the Acquire
            // (P2) in `look`.
            if cpu.compare_exchange(&self.state, seen, end, Ordering::Release, relaxed).is_ok() {
                return seen & PARKED != 0;
            }
        }
    }
}
