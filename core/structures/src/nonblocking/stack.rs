//! A linked stack: one double compare-and-swap of its top and of its version.
//!
//! **Source.** Greenwald & Cheriton 1996, §5 (“dequeuing a descriptor from a TSM free list … DCAS
//! with a version number allows the version number to count”).
//!
//! **Progress.** As the DCAS: lock-free over one that is; an attempt fails only because another one
//! succeeded.
//!
//! **Fields.** `version` (how often it was changed), `top` (0: empty): by DCAS, any participant. An
//! item's `value`, `below`: the participant that holds it; read by late participants, whose DCAS
//! fails then. `below` has the number of the next item, and the low half of that one's state's
//! count, for the audit.
//!
//! **Crashes.** Dies before the DCAS: nothing has happened, the item is in its hands. After it: it
//! has happened; a popped item is in its hands, a pushed one in the stack and in its hands. The
//! audit tells which. In the DCAS: see there.
//!
//! **Signals.** May be used in handlers, over a DCAS that may. **Memory.** A line per item, one,
//! and what [`Pool`] and the DCAS need.
//!
//! **Don't use it** where 2³² changes are made while one participant is between two instructions.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::audit::acquired;
use super::pool::life;
use super::{
    ATTEMPTS, Audit, Inventory, Pool, Recover, StableError, next_version, number, recover_all, swap_both,
};
use crate::dcas::{Actor, DoubleCas, Words};
use crate::{Boxed, Node, Storage};
use towpath_sync::Waiting;

const VERSION: u32 = 0;
const TOP: u32 = 1;

/// A linked stack of 64-bit values.
#[repr(C)]
pub struct Stack<P: Processor, D, S: Storage = Boxed> {
    ends: OwnLine<StackTop<P>>,
    items: Pool<P, StackItem<P>, S>,
    dcas: D,
}

#[repr(C)]
struct StackTop<P: Processor> {
    version: P::Word,
    top: P::Word,
}

#[repr(C)]
pub(super) struct StackItem<P: Processor> {
    below: P::Word,
    value: P::Word,
}

impl<P: Processor> Node<P> for StackItem<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        StackItem { below: arena.word(Place::SameLine, 0), value: arena.word(Place::SameLine, 0) }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Words<P> for Stack<P, D, S> {
    #[inline(always)]
    fn word(&self, number: u32) -> Option<&P::Word> {
        match number {
            VERSION => Some(&self.ends.version),
            TOP => Some(&self.ends.top),
            _ => None,
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Stack<P, D, S> {
    /// An empty stack with room for `capacity` values, less those in the hands of
    /// participants.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, Stack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// // 100 values, 2 participants.
    /// let stack = Stack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// assert_eq!(stack.pop(&actor)?, None);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        Stack {
            ends: OwnLine(StackTop {
                version: arena.word(Place::NewLine, 0),
                top: arena.word(Place::SameLine, 0),
            }),
            items: Pool::new(arena, capacity, participants),
            dcas: D::new(arena, participants),
        }
    }

    /// Puts a value on top.
    ///
    /// # Errors
    ///
    /// [`StableError::Exhausted`] if there is no room; the others as they say.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, Stack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let stack = Stack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// stack.push(&actor, 7)?;
    /// assert_eq!(stack.pop(&actor)?, Some(7));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn push<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, value: u64) -> Result<(), StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let held = self.items.take(cpu, me)?;
        let done = self.push_item(actor, held.node(), value);
        self.items.put(cpu, me, held, done, |()| true)
    }

    fn push_item<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        node: u32,
        value: u64,
    ) -> Result<(), StableError> {
        let cpu = actor.cpu;
        let item = self.items.get(node)?;
        // Relaxed: published by the DCAS. A late reader of this fails at its own, since the version
        // had moved on before.
        cpu.store(&item.value, value, Ordering::Relaxed);
        let mut round = 0u32;
        loop {
            let version = self.dcas.read(actor, self, VERSION)?;
            let top = self.dcas.read(actor, self, TOP)?;
            // Relaxed: if the DCAS succeeds, it was on the stack all the time, in the same life.
            let state = cpu.load(&self.items.slot(number(top)?)?.state, Ordering::Relaxed);
            // (1) Release: a late walker of this sees that the item has a new life; pairs with the
            // Acquire (4) in `audit.rs`.
            cpu.store(&item.below, u64::from(life(state)) << 32 | top, Ordering::Release);
            let moved = (VERSION, version, next_version(version));
            if swap_both(&self.dcas, actor, self, moved, (TOP, top, u64::from(node)))? {
                return Ok(());
            }
            actor.back_off(&mut round);
        }
    }

    /// Takes the value from the top, if there is one.
    ///
    /// # Errors
    ///
    /// See [`StableError`]; never [`StableError::Exhausted`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, Stack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let stack = Stack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// stack.push(&actor, 1)?;
    /// stack.push(&actor, 2)?;
    /// assert_eq!(stack.pop(&actor)?, Some(2));
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn pop<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Option<u64>, StableError> {
        let (cpu, me) = (actor.cpu, actor.me);
        let mut round = 0u32;
        loop {
            let version = self.dcas.read(actor, self, VERSION)?;
            let top = self.dcas.read(actor, self, TOP)?;
            if top == 0 {
                return Ok(None);
            }
            let node = number(top)?;
            let item = self.items.get(node)?;
            // Relaxed, both: written before the DCAS that put the item there, which `read` has
            // acquired. If they belong to a later life, the version has moved on and the exchange
            // fails; nor can they be of one that it makes possible, since it releases.
            let below = cpu.load(&item.below, Ordering::Relaxed) & u64::from(u32::MAX);
            let value = cpu.load(&item.value, Ordering::Relaxed);
            let moved = (VERSION, version, next_version(version));
            let swap = || swap_both(&self.dcas, actor, self, moved, (TOP, top, below));
            if let Some(held) = self.items.take_out(cpu, me, node, swap)? {
                self.items.give(cpu, me, held)?;
                return Ok(Some(value));
            }
            actor.back_off(&mut round);
        }
    }

    /// Number of its changes (modulo 2³²).
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{StableError, Stack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// # let stack = Stack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// stack.push(&actor, 7)?;
    /// stack.pop(&actor)?;
    /// assert_eq!(stack.changes(&actor)?, 2);
    /// # Ok::<(), StableError>(())
    /// ```
    pub fn changes<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<u64, StableError> {
        Ok(self.dcas.read(actor, self, VERSION)?)
    }

    /// Returns whether an item that does not move is on the stack: as in the free lists,
    /// a step is believed if the item that it came from is still in the life in which it was on the
    /// stack.
    fn holds<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, node: u32) -> Result<Option<bool>, StableError> {
        let cpu = actor.cpu;
        'again: for _ in 0..ATTEMPTS {
            let version = self.dcas.read(actor, self, VERSION)?;
            let mut at = number(self.dcas.read(actor, self, TOP)?)?;
            let mut expected = life(acquired(cpu, &self.items.slot(at)?.state));
            if self.dcas.read(actor, self, VERSION)? != version {
                continue;
            }
            for _ in 0..=self.items.capacity() {
                if at == 0 || at == node {
                    return Ok(Some(at != 0));
                }
                let slot = self.items.slot(at)?;
                let below = acquired(cpu, &self.items.get(at)?.below);
                let life = life(acquired(cpu, &slot.state));
                if life != expected {
                    continue 'again;
                }
                (at, expected) = (below as u32, (below >> 32) as u32);
            }
        }
        Ok(None)
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for Stack<P, D, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        let dead = recover_all(&self.dcas, actor, self, is_dead)?;
        self.items.audit(actor.cpu, actor.me, |p| dead.has(p), |node| self.holds(actor, node))
    }

    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        let mut reachable = 0;
        let mut at = number(self.dcas.read(actor, self, TOP)?)?;
        while at != 0 && reachable <= self.items.capacity() {
            reachable += 1;
            // Relaxed: exact only if no participant acts, and then all that they did is known.
            at = actor.cpu.load(&self.items.get(at)?.below, Ordering::Relaxed) as u32;
        }
        self.items.inventory(actor.cpu, reachable)
    }
}
