//! Members of an endpoint: the senders that are entered in its segment.
//!
//! ```text
//! FREE     ── a sender takes the place ──────────────>  JOINING
//! JOINING  ── it has written its address ────────────>  JOINED
//! JOINED   ── it says good-bye, or is buried ────────>  FREE, with one use more
//! JOINING  ── it dies ───────────────────────────────>  FREE, with one use more
//! ```
//!
//! **Fields.** A member's state, address and intents: the sender, from the exchange that takes the
//! place until the owner frees it. `taken`: the owner.
//!
//! **A death** is seen by the sender's pid, or by its connection to the descriptor listener. Its
//! place is freed when all frames that it had published have been taken.

use core::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use towpath_channel::places::{free_place, place_state};
use towpath_channel::queue::{Census, read_intent};
use towpath_machine::Native;
use towpath_shm::Watch;

use crate::device::connect::address::Address;
use crate::device::connect::attach::EndpointSegment;
use crate::device::connect::fd_listener::FdListener;
use crate::device::connect::layout::{FREE, JOINED, JOINING, MEMBERS, PLACE_BITS, STATE, USES, VISITOR};

const CPU: Native = Native::with_id(0);

/// A sender's number at a receiver: its place among the members, and a count of the
/// place's uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberId {
    /// The place.
    pub place: u16,
    /// The count.
    pub uses: u8,
}

impl MemberId {
    /// Packs the number as packets carry it.
    pub fn code(self) -> u16 {
        self.place | u16::from(self.uses) << PLACE_BITS
    }

    /// Unpacks a packet's number.
    pub fn from_code(code: u16) -> MemberId {
        MemberId { place: code % MEMBERS as u16, uses: (code >> PLACE_BITS) as u8 }
    }
}

/// Members of one endpoint, as their owner sees them.
pub struct Members {
    segment: Arc<EndpointSegment>,
    /// Socket for senders that can't come through /proc.
    pub listener: Option<FdListener>,
    /// State that each place's watch is for, and the watch.
    watches: RefCell<Vec<Option<(u64, Watch)>>>,
}

impl Members {
    /// The members of a new endpoint: none.
    pub fn new(segment: Arc<EndpointSegment>, own: Address) -> Members {
        // Without a listener (forbidden, no descriptors) the way through /proc is still there.
        let listener = FdListener::open(own).ok();
        Members { segment, listener, watches: RefCell::new((0..MEMBERS).map(|_| None).collect()) }
    }

    /// The address of a member; `None` if there is no such member.
    pub fn address_of(&self, member: MemberId) -> Option<Address> {
        let entry = self.segment.members().get(usize::from(member.place))?;
        let state = place_state(&CPU, &entry.state);
        if state & STATE != JOINED || (state >> 8) as u8 != member.uses {
            return None;
        }
        // Relaxed: written before the state, never changed while it stays.
        Address::from_words(core::array::from_fn(|i| entry.address[i].load(Ordering::Relaxed)))
    }

    /// Adds to the bytes of a member's eager messages that have found their receives.
    #[inline]
    pub fn add_taken(&self, member: MemberId, bytes: u64) {
        if let Some(entry) = self.segment.members().get(usize::from(member.place)) {
            // Relaxed: a count; only its owner writes it, and the sender only compares.
            entry.taken.store(entry.taken.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        }
    }

    /// Frees the place of a member that has gone for good, and has nothing in the queue.
    pub fn free(&self, member: MemberId) {
        let Some(entry) = self.segment.members().get(usize::from(member.place)) else { return };
        let state = place_state(&CPU, &entry.state);
        if state & STATE != FREE && (state >> 8) as u8 == member.uses {
            // Relaxed, all three: published by the state.
            entry.taken.store(0, Ordering::Relaxed);
            entry.intents[0].store(0, Ordering::Relaxed);
            entry.intents[1].store(0, Ordering::Relaxed);
            self.watches.borrow_mut()[usize::from(member.place)] = None;
            let next = FREE | ((u64::from(member.uses) + 1) & USES) << 8;
            free_place(&CPU, &entry.state, next);
        }
    }

    /// Returns whether no sender has ever taken this place. (Or it was taken and left as
    /// often as is counted, which makes no difference to any but the next one.)
    pub fn is_unused(&self, place: usize) -> bool {
        // Relaxed: at worst the next look finds it.
        self.segment.members().get(place).is_none_or(|entry| entry.state.load(Ordering::Relaxed) == FREE)
    }

    /// The member of this place, if it has joined, or begun to, and is dead.
    pub fn dead_member(&self, place: usize) -> Option<MemberId> {
        let state = place_state(&CPU, &self.segment.members().get(place)?.state);
        let dead = match state & STATE {
            JOINED => self.is_dead(place, state),
            // It has sent nothing, and perhaps not written its address.
            JOINING => self.visitor_is_gone(state).unwrap_or_else(|| !exists((state >> 32) as i32)),
            _ => false,
        };
        dead.then_some(MemberId { place: place as u16, uses: (state >> 8) as u8 })
    }

    /// Returns whether a member that came to the descriptor listener is gone; `None` for
    /// others.
    fn visitor_is_gone(&self, state: u64) -> Option<bool> {
        let number = (state >> 32) as u32;
        let is_gone = |listener: &FdListener| !listener.is_here(number & !VISITOR);
        (number & VISITOR != 0).then(|| self.listener.as_ref().is_none_or(is_gone))
    }

    /// Returns whether the member of this place and state is dead.
    fn is_dead(&self, place: usize, state: u64) -> bool {
        if let Some(is_gone) = self.visitor_is_gone(state) {
            return is_gone;
        }
        let mut watches = self.watches.borrow_mut();
        let Some(watch) = watches.get_mut(place) else { return false };
        if watch.as_ref().is_none_or(|(of, _)| *of != state) {
            let entry = &self.segment.members()[place];
            // Relaxed: as in `address_of`.
            let words = core::array::from_fn(|i| entry.address[i].load(Ordering::Relaxed));
            // Half a member is not known yet: alive, until its address is there.
            let Some(address) = Address::from_words(words) else { return false };
            *watch = Some((state, address.process().watch()));
        }
        watch.as_ref().is_some_and(|(_, watch)| watch.is_dead())
    }
}

/// Returns whether there is a process of this number. (Another one may have it by now;
/// then its predecessor's place is not noticed.)
fn exists(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

impl Census for Members {
    fn endpoints(&self) -> usize {
        MEMBERS
    }

    fn load_intent(&self, endpoint: u16, word: usize) -> u64 {
        let Some(entry) = self.segment.members().get(usize::from(endpoint)) else { return 0 };
        read_intent(&CPU, &entry.intents[word])
    }

    fn generation(&self, endpoint: u16) -> Option<u16> {
        let entry = self.segment.members().get(usize::from(endpoint))?;
        // Relaxed: changes only when this process frees the place.
        Some((entry.state.load(Ordering::Relaxed) >> 8) as u16 & 0xff)
    }

    fn owner_lives(&self, endpoint: u16) -> bool {
        let place = usize::from(endpoint);
        let Some(entry) = self.segment.members().get(place) else { return false };
        let state = place_state(&CPU, &entry.state);
        state & STATE != FREE && !self.is_dead(place, state)
    }
}
