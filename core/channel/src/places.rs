//! Place among a receiver's members: taken by a sender, and freed by the owner.
//!
//! One text for all machines: the provider has its states and its words (`device/members.rs`); the
//! laboratory explores it.
//!
//! **Source.** Our own.
//!
//! **Fields.** A place's state: from free by compare-and-swap, by any sender; then by this sender,
//! and back to free, with one use more, by the owner. Each of the two writes the place's other
//! words while it is theirs.
//!
//! **Progress.** Each of these is one step. A sender whose exchange fails looks at the next place.
//!
//! **Crashes.** The owner frees a dead sender's place, half taken or whole.
//!
//! **Memory.** The words of the place.

use towpath_machine::{Ordering, Processor};

/// State of a place, with the words that its owner, or its sender, has written before.
///
/// ```
/// use towpath_channel::places::{free_place, place_state};
/// use towpath_machine::Native;
///
/// let (cpu, state) = (Native::current(), Native::word(7));
/// free_place(&cpu, &state, 0);
/// assert_eq!(place_state(&cpu, &state), 0);
/// ```
#[inline]
pub fn place_state<P: Processor>(cpu: &P, state: &P::Word) -> u64 {
    // (E2) Acquire: the place is clean, or the sender's address is there; pairs with the Release
    // (E1), (E3).
    cpu.load(state, Ordering::Acquire)
}

/// Takes a free place. `false`: another sender has it.
///
/// `seen`: its state by [`place_state`].
///
/// ```
/// use towpath_channel::places::{place_state, take_place};
/// use towpath_machine::Native;
///
/// let (cpu, state) = (Native::current(), Native::word(0));
/// let seen = place_state(&cpu, &state);
/// assert!(take_place(&cpu, &state, seen, 1));
/// assert!(!take_place(&cpu, &state, seen, 2)); // another sender has it
/// ```
pub fn take_place<P: Processor>(cpu: &P, state: &P::Word, seen: u64, taken: u64) -> bool {
    // Relaxed, both: (E2) has acquired what the exchange replaces, and no state comes twice.
    cpu.compare_exchange(state, seen, taken, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Makes the sender that has taken a place its member.
///
/// ```
/// use towpath_channel::places::{join_place, place_state, take_place};
/// use towpath_machine::Native;
///
/// let (cpu, state) = (Native::current(), Native::word(0));
/// take_place(&cpu, &state, 0, 1);
/// join_place(&cpu, &state, 2); // its words are written
/// assert_eq!(place_state(&cpu, &state), 2);
/// ```
pub fn join_place<P: Processor>(cpu: &P, state: &P::Word, joined: u64) {
    // (E3) Release: publishes the address; pairs with the Acquire (E2).
    cpu.store(state, joined, Ordering::Release);
}

/// Frees a place whose words are clean.
///
/// ```
/// use towpath_channel::places::{free_place, take_place};
/// use towpath_machine::Native;
///
/// let (cpu, state) = (Native::current(), Native::word(2));
/// free_place(&cpu, &state, 0);
/// assert!(take_place(&cpu, &state, 0, 1)); // the next sender's
/// ```
pub fn free_place<P: Processor>(cpu: &P, state: &P::Word, free: u64) {
    // (E1) Release: the words are clean for the next sender; pairs with the Acquire (E2).
    cpu.store(state, free, Ordering::Release);
}
