//! Audit of type-stable memory: finds the descriptors that dead participants held and
//! frees them, while the others go on.
//!
//! **Source.** Greenwald & Cheriton 1996, §2 and §5 (“we rely on a TSM-based audit to reclaim the
//! partially initialized descriptor”); how, and why it is right, is ours.
//!
//! **Why it is right.** A descriptor is in a place (a free list, or the structure, or never used)
//! or in a participant's hands. A participant that moves it from one place to another writes it
//! into its hands before it takes it from the first (1), changes its state after that (2), and
//! strikes it out after it has put it into the second. The auditor of a descriptor reads its state,
//! looks into the hands of the living, into the places, into the hands of the living again, and
//! reads the state again. If it found it nowhere and the state is the same, then no living
//! participant had it, or has moved it: a move that took it from a place before we looked there and
//! has not changed the state by now is in the mover's hands at the second look; one that had
//! changed the state before the first reading and has not struck it out at the first look is in the
//! mover's hands; one that has, had put it into a place. So it has been left behind, and stays so.
//! One auditor wins the compare-and-swap of its state, and frees it.
//!
//! **Where it looks.** The state is the same all the time, so it says where the descriptor can be
//! at all: `FREE` from before it is pushed on a free list until after it is popped, `TAKEN` from
//! before it is put into the structure until after it is taken out, `UNLINKED` in neither.
//!
//! **Progress.** Each look is bounded; what moves too fast to be looked at is [`Audit::pending`],
//! and a later audit finds it. **Fields.** The hands of the dead: by compare-and-swap. **Crashes.**
//! An auditor that dies has what it was about to free in its own hands. **Signals.** As [`Pool`].

use towpath_machine::{Ordering, Processor};

use super::pool::{FREE, HANDS, KIND, PoolMember, TAKEN, UNLINKED, is_free, life, state};
use super::{Inventory, Pool, StableError};
use crate::{Node, Storage, VersionedIndex};

/// Maximum number of looks at a list that begin again because it changes.
const ATTEMPTS: u32 = 1_000;

/// Result of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Descriptors that the dead had in their hands.
    pub suspects: usize,
    /// Number of nodes that had been left behind, and are free now.
    pub freed: usize,
    /// Number of nodes that the living move: nothing is known of them, audit again.
    pub pending: usize,
}

/// Place of a suspect.
enum SuspectPlace {
    /// Free, or in the structure: the dead one had not got it, or had put it there.
    There,
    /// Unknown as yet.
    Moving,
    /// Nowhere, with this state.
    Nowhere(u64),
}

/// Reads a list's top, a link or a state, of which other words are read afterwards.
#[inline]
pub(super) fn acquired<P: Processor>(cpu: &P, word: &P::Word) -> u64 {
    // (4) Acquire: each link and state was written before its node was pushed, and whatever belongs
    // to a later life after the state that shows it; pairs with the Release (2), (3), (7) in
    // `Pool`, and with that of links in structures.
    cpu.load(word, Ordering::Acquire)
}

impl<P: Processor, T: Node<P>, S: Storage, const OWN: u64> Pool<P, T, S, OWN> {
    /// Frees the descriptors that dead participants have left behind. `is_dead` by
    /// participant; what they had begun must have been ended before
    /// ([`crate::dcas::DoubleCas::recover`]). `reachable` says whether a descriptor is in the
    /// structure: it must not say `false` of one that is there all the time that it looks; `None`
    /// if it cannot tell now.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// let held = pool.take(&cpu, 1)?; // and participant 1 dies
    /// let audit = pool.audit(&cpu, me, |participant| participant == 1, |_| Ok(Some(false)))?;
    /// assert_eq!((audit.suspects, audit.freed), (1, 1));
    /// assert_eq!(pool.free(&cpu)?, 3);
    /// # let _ = held;
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn audit(
        &self,
        cpu: &P,
        me: usize,
        is_dead: impl Fn(usize) -> bool,
        mut reachable: impl FnMut(u32) -> Result<Option<bool>, StableError>,
    ) -> Result<Audit, StableError> {
        let mut audit = Audit::default();
        for (_, member) in self.members.as_ref().iter().enumerate().filter(|(p, _)| is_dead(*p)) {
            for hand in 0..HANDS {
                // Relaxed: the dead one's, or struck out meanwhile: any descriptor may be looked
                // for.
                let suspect = cpu.load(&member.hands[hand], Ordering::Relaxed);
                if suspect == 0 {
                    continue;
                }
                audit.suspects += 1;
                let node = u32::try_from(suspect).map_err(|_| StableError::Corrupt)?;
                match self.find(cpu, node, &is_dead, &mut reachable)? {
                    SuspectPlace::There => {}
                    SuspectPlace::Moving => {
                        audit.pending += 1;
                        continue;
                    }
                    SuspectPlace::Nowhere(before) => {
                        let held = self.aim(cpu, me, node)?;
                        // Counts as an allocation, so that the state is a new one.
                        let mine = state(before, me, UNLINKED, 1);
                        let word = &self.slot(node)?.state;
                        // (2d) Release: of several auditors one; another that sees this state
                        // sees the descriptor in our hands; pairs with the Acquire (2) in `find`.
                        // Relaxed if it fails: nothing is read.
                        let won =
                            cpu.compare_exchange(word, before, mine, Ordering::Release, Ordering::Relaxed);
                        if won.is_err() {
                            self.leave(cpu, me, held)?;
                            audit.pending += 1;
                            continue;
                        }
                        self.give(cpu, me, held)?;
                        audit.freed += 1;
                    }
                }
                // Relaxed: an auditor that frees a descriptor has it in its own hands as well,
                // until it is there. Fails only if another auditor has struck it out.
                let _ = cpu.compare_exchange(
                    &member.hands[hand],
                    suspect,
                    0,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
        }
        Ok(audit)
    }

    fn find(
        &self,
        cpu: &P,
        node: u32,
        is_dead: &impl Fn(usize) -> bool,
        reachable: &mut impl FnMut(u32) -> Result<Option<bool>, StableError>,
    ) -> Result<SuspectPlace, StableError> {
        let slot = self.slot(node)?;
        // (2) Acquire: pairs with the Release of the same name in `Pool`.
        let before = cpu.load(&slot.state, Ordering::Acquire);
        if self.in_living_hands(cpu, node, is_dead) {
            return Ok(SuspectPlace::Moving);
        }
        let there = match before & KIND {
            FREE => self.is_free(cpu, node)?,
            TAKEN => reachable(node)?,
            _ => Some(false),
        };
        match there {
            Some(true) => return Ok(SuspectPlace::There),
            Some(false) => {}
            None => return Ok(SuspectPlace::Moving),
        }
        let moving = self.in_living_hands(cpu, node, is_dead);
        // Relaxed: a guess, which the exchange (2d) confirms: it comes after the hands, which
        // acquire.
        let same = cpu.load(&slot.state, Ordering::Relaxed) == before;
        Ok(if moving || !same { SuspectPlace::Moving } else { SuspectPlace::Nowhere(before) })
    }

    /// Returns whether a node that does not move is in a free list, or was never used.
    /// `None` if a list changes too much to tell.
    fn is_free(&self, cpu: &P, node: u32) -> Result<Option<bool>, StableError> {
        // (5) Acquire: pairs with the exchange (5) in `Pool::take_elsewhere`.
        if u64::from(node) > cpu.load(&self.fresh, Ordering::Acquire) {
            return Ok(Some(true));
        }
        // Those of the participants first: they are short, and what one has had last is there.
        for list in self.members.as_ref().iter().map(|m| &m.list).chain(core::iter::once(&*self.shared)) {
            match self.in_list(cpu, list, node)? {
                Some(false) => {}
                there => return Ok(there),
            }
        }
        Ok(Some(false))
    }

    fn in_living_hands(&self, cpu: &P, node: u32, is_dead: &impl Fn(usize) -> bool) -> bool {
        let has = |member: &PoolMember<P>| {
            // (1) Acquire: pairs with the Release (1) in `Pool`.
            member.hands.iter().any(|hand| cpu.load(hand, Ordering::Acquire) == u64::from(node))
        };
        self.members.as_ref().iter().enumerate().any(|(p, member)| !is_dead(p) && has(member))
    }

    /// Returns whether a node that does not move is in a free list. Each step is believed
    /// if the node that it came from is still in the life in which it was in the list: what was
    /// below it then, is below it still.
    fn in_list(&self, cpu: &P, list: &P::Word, node: u32) -> Result<Option<bool>, StableError> {
        for _ in 0..ATTEMPTS {
            let top = VersionedIndex(acquired(cpu, list));
            if top.index() == 0 {
                return Ok(Some(false));
            }
            let first = life(acquired(cpu, &self.slot(top.index())?.state));
            // Relaxed: not before the state; and what came with this version is known.
            let now = cpu.load(list, Ordering::Relaxed);
            if now != top.0 {
                continue;
            }
            if let Some(found) = self.walk(cpu, top.index(), first, node)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn walk(&self, cpu: &P, first: u32, first_life: u32, node: u32) -> Result<Option<bool>, StableError> {
        let (mut at, mut expected) = (first, first_life);
        for _ in 0..self.capacity() {
            if at == node {
                return Ok(Some(true));
            }
            let slot = self.slot(at)?;
            let link = acquired(cpu, &slot.link);
            // Relaxed: not before the link; nothing is read behind it.
            let state = cpu.load(&slot.state, Ordering::Relaxed);
            if !is_free(state, expected) {
                return Ok(None);
            }
            (at, expected) = (link as u32, (link >> 32) as u32);
            if at == 0 {
                return Ok(Some(false));
            }
        }
        Ok(None)
    }

    /// The inventory of a structure in which so many descriptors are.
    pub(super) fn inventory(&self, cpu: &P, reachable: usize) -> Result<Inventory, StableError> {
        Ok(Inventory { free: self.free(cpu)?, reachable, all: self.capacity() })
    }

    /// Number of free descriptors. Exact if no participant acts meanwhile.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::Counter;
    /// # use towpath_structures::nonblocking::{Pool, StableError};
    /// # let (cpu, me) = (Native::with_id(0), 0);
    /// # let pool = Pool::<Native, Counter<Native>>::new(&Heap, 3, 2);
    /// assert_eq!(pool.free(&cpu)?, 3);
    /// let held = pool.take(&cpu, me)?;
    /// assert_eq!(pool.free(&cpu)?, 2);
    /// # pool.give(&cpu, me, held)?;
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn free(&self, cpu: &P) -> Result<usize, StableError> {
        // Relaxed, here and below: exact only if no participant acts, and then all that they did
        // is known.
        let used = cpu.load(&self.fresh, Ordering::Relaxed) as usize;
        let mut free = self.capacity().checked_sub(used).ok_or(StableError::Corrupt)?;
        for list in core::iter::once(&*self.shared).chain(self.members.as_ref().iter().map(|m| &m.list)) {
            let mut at = VersionedIndex(cpu.load(list, Ordering::Relaxed)).index();
            while at != 0 {
                free += 1;
                if free > self.capacity() {
                    return Err(StableError::Corrupt);
                }
                at = cpu.load(&self.slot(at)?.link, Ordering::Relaxed) as u32;
            }
        }
        Ok(free)
    }
}
