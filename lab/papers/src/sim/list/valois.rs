//! An ordered singly linked list with compare-and-swap alone (Valois, PODC 1995), the
//! paper's third algorithm.
//!
//! Between any two cells there is an auxiliary node, so that an insertion before a cell and the
//! deletion of that cell change different links. A deletion leaves two auxiliary nodes in a row,
//! and the process that deletes or comes by takes the extra ones out. A deleted cell has a link
//! back to the one before it, for others that were there. Nodes count the references to them, those
//! of links and those of processes, and are free when there is none left; the count is as corrected
//! by Michael & Scott (1995): a node is reclaimed in the step that releases its last reference.
//!
//! **Progress.** Lock-free. **Fields.** `next`, `back`, `references`: every process, by
//! compare-and-swap, of nodes to which they have a reference; `key`, and `next` of a node that is
//! not in the list: its owner. **Crashes.** What a dead process refers to is never free again, nor
//! is what can be reached from there. **Memory.** Two nodes for each element, and all that were
//! deleted since a process that has a reference to one of them was last seen: no bound.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_structures::{Node, Pool};

use super::{List, ListError, ListPlan};

/// The node is not free.
const IN_USE: u64 = 1;
/// One reference.
const ONE: u64 = 2;
/// No node, in a link. Node 0 is the first cell, to which no `next` points.
const NONE: u32 = 0;
/// The first cell.
const FIRST: u32 = 0;
/// The key of auxiliary nodes, and that of the last cell.
const AUXILIARY: u64 = 0;
const LAST: u64 = u64::MAX;

struct CountedElement<P: Processor> {
    next: P::Word,
    key: P::Word,
    references: P::Word,
    /// Number of the cell before a deleted one, and 1; 0: it is not deleted.
    back: P::Word,
}

impl<P: Processor> CountedElement<P> {
    fn new(arena: &impl Arena<P>, [next, key, references]: [u64; 3]) -> Self {
        CountedElement {
            next: arena.word(Place::NewLine, next),
            key: arena.word(Place::SameLine, key),
            references: arena.word(Place::SameLine, references),
            back: arena.word(Place::SameLine, 0),
        }
    }
}

/// Content of the pool: numbers; the nodes lie beside it.
struct NodeNumber;

impl<P: Processor> Node<P> for NodeNumber {
    fn new(_arena: &impl Arena<P>) -> Self {
        NodeNumber
    }
}

/// The list.
pub struct Valois<P: Processor> {
    nodes: Box<[CountedElement<P>]>,
    free: Pool<P, NodeNumber>,
}

/// The place of a process: at a cell, with the auxiliary node and the cell before it. It
/// has references to all three.
#[derive(Clone, Copy, Debug)]
struct ListPosition {
    cell: u32,
    auxiliary: u32,
    target: u32,
}

// begin: insertion and deletion
impl<P: Processor> Valois<P> {
    fn node(&self, index: u32) -> Result<&CountedElement<P>, ListError> {
        self.nodes.get(index as usize).ok_or(ListError::Corrupt)
    }

    /// Changes a node's count. Returns the old and the new one.
    fn count(&self, cpu: &P, index: u32, change: impl Fn(u64) -> u64) -> Result<[u64; 2], ListError> {
        let word = &self.node(index)?.references;
        // Relaxed: only a number to begin with.
        let mut old = cpu.load(word, Ordering::Relaxed);
        loop {
            // (V1) AcqRel: the node's uses come before its next life; pairs with itself.
            match cpu.compare_exchange(word, old, change(old), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok([old, change(old)]),
                Err(now) => old = now,
            }
        }
    }

    fn refer(&self, cpu: &P, index: u32) -> Result<u32, ListError> {
        self.count(cpu, index, |n| n + ONE)?;
        Ok(index)
    }

    /// The node that a link points to, with a reference to it; `plus` is the constant
    /// that links of that kind add to an index.
    fn safe_read(&self, cpu: &P, me: usize, link: &P::Word, plus: u64) -> Result<u32, ListError> {
        loop {
            // (V2) Acquire: the node; pairs with the exchange (V3) that linked it.
            let seen = cpu.load(link, Ordering::Acquire);
            let index = seen.wrapping_sub(plus) as u32;
            self.refer(cpu, index)?;
            // Acquire: not before the count.
            if cpu.load(link, Ordering::Acquire) == seen {
                return Ok(index);
            }
            self.release(cpu, me, index)?;
        }
    }

    /// Gives a reference up, and with the last one the node and its own references.
    fn release(&self, cpu: &P, me: usize, index: u32) -> Result<(), ListError> {
        let mut left = vec![index];
        while let Some(index) = left.pop() {
            let [old, new] = self.count(cpu, index, |n| if n == IN_USE + ONE { 0 } else { n - ONE })?;
            if (old ^ new) & IN_USE == 0 {
                continue;
            }
            let node = self.node(index)?;
            // Relaxed: no other process refers to it any more.
            let (next, back) =
                (cpu.load(&node.next, Ordering::Relaxed), cpu.load(&node.back, Ordering::Relaxed));
            left.extend((next as u32 != NONE).then_some(next as u32));
            left.extend(back.checked_sub(1).map(|cell| cell as u32));
            // The first auxiliary node is not the pool's: it is not used again.
            if (index as usize) < self.free.nodes() {
                self.free.give(cpu, me, index)?;
            }
        }
        Ok(())
    }

    /// A node with one reference.
    fn make(&self, cpu: &P, me: usize, key: u64) -> Result<u32, ListError> {
        let index = self.free.take(cpu, me)?;
        let node = self.node(index)?;
        // Relaxed: published by the exchange that links it.
        cpu.store(&node.key, key, Ordering::Relaxed);
        cpu.store(&node.next, u64::from(NONE), Ordering::Relaxed);
        cpu.store(&node.back, 0, Ordering::Relaxed);
        // A late process may have counted it up.
        self.count(cpu, index, |n| n + IN_USE + ONE)?;
        Ok(index)
    }

    /// Makes a link point to another node, if it points to `old`. The caller has
    /// references to both.
    fn swing(&self, cpu: &P, me: usize, link: &P::Word, old: u32, new: u32) -> Result<bool, ListError> {
        self.refer(cpu, new)?;
        // (V3) AcqRel: publishes the node; pairs with the Acquire (V2).
        let swung =
            cpu.compare_exchange(link, old.into(), new.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        self.release(cpu, me, if swung { old } else { new })?;
        Ok(swung)
    }

    /// The key of a node. Relaxed: a key does not change while a process may meet the
    /// node as this one.
    fn key(&self, cpu: &P, index: u32) -> Result<u64, ListError> {
        Ok(cpu.load(&self.node(index)?.key, Ordering::Relaxed))
    }

    fn first(&self, cpu: &P, me: usize, steps: &mut u64) -> Result<ListPosition, ListError> {
        let cell = self.refer(cpu, FIRST)?;
        let auxiliary = self.safe_read(cpu, me, &self.node(cell)?.next, 0)?;
        self.update(cpu, me, ListPosition { cell, auxiliary, target: NONE }, steps)
    }

    /// Moves the cursor to the cell that is now behind it; takes extra auxiliary nodes in
    /// between out.
    fn update(
        &self,
        cpu: &P,
        me: usize,
        at: ListPosition,
        steps: &mut u64,
    ) -> Result<ListPosition, ListError> {
        if at.target != NONE {
            self.release(cpu, me, at.target)?;
        }
        let mut auxiliary = at.auxiliary;
        let mut next = self.safe_read(cpu, me, &self.node(auxiliary)?.next, 0)?;
        while self.key(cpu, next)? == AUXILIARY {
            *steps += 1;
            self.swing(cpu, me, &self.node(at.cell)?.next, auxiliary, next)?;
            self.release(cpu, me, auxiliary)?;
            auxiliary = next;
            next = self.safe_read(cpu, me, &self.node(auxiliary)?.next, 0)?;
        }
        Ok(ListPosition { cell: at.cell, auxiliary, target: next })
    }

    fn next(&self, cpu: &P, me: usize, at: ListPosition, steps: &mut u64) -> Result<ListPosition, ListError> {
        *steps += 2;
        self.release(cpu, me, at.cell)?;
        self.release(cpu, me, at.auxiliary)?;
        let auxiliary = self.safe_read(cpu, me, &self.node(at.target)?.next, 0)?;
        self.update(cpu, me, ListPosition { cell: at.target, auxiliary, target: NONE }, steps)
    }

    fn drop_cursor(&self, cpu: &P, me: usize, at: ListPosition) -> Result<(), ListError> {
        [at.cell, at.auxiliary, at.target].into_iter().try_for_each(|index| self.release(cpu, me, index))
    }

    /// Takes the cursor's cell out of the list.
    fn try_remove(&self, cpu: &P, me: usize, at: ListPosition) -> Result<bool, ListError> {
        let cell = self.node(at.target)?;
        let mut last = self.safe_read(cpu, me, &cell.next, 0)?;
        if !self.swing(cpu, me, &self.node(at.auxiliary)?.next, at.target, last)? {
            self.release(cpu, me, last)?;
            return Ok(false);
        }
        // (V4) Release: pairs with the Acquire (V2) in `safe_read` and the one below.
        cpu.store(&cell.back, u64::from(self.refer(cpu, at.cell)?) + 1, Ordering::Release);
        // Back to a cell that is still in the list.
        let mut before = self.refer(cpu, at.cell)?;
        while cpu.load(&self.node(before)?.back, Ordering::Acquire) != 0 {
            let former = self.safe_read(cpu, me, &self.node(before)?.back, 1)?;
            self.release(cpu, me, before)?;
            before = former;
        }
        // From there on everything up to the last auxiliary node is extra.
        let mut extra = self.safe_read(cpu, me, &self.node(before)?.next, 0)?;
        loop {
            let next = self.safe_read(cpu, me, &self.node(last)?.next, 0)?;
            if self.key(cpu, next)? != AUXILIARY {
                self.release(cpu, me, next)?;
                break;
            }
            self.release(cpu, me, last)?;
            last = next;
        }
        while !self.swing(cpu, me, &self.node(before)?.next, extra, last)? {
            self.release(cpu, me, extra)?;
            extra = self.safe_read(cpu, me, &self.node(before)?.next, 0)?;
            // (V5) Acquire, both: pairs with the exchange (V3) and the Release (V4).
            let gone = cpu.load(&self.node(before)?.back, Ordering::Acquire) != 0;
            let behind = cpu.load(&self.node(last)?.next, Ordering::Acquire) as u32;
            if gone || self.key(cpu, behind)? == AUXILIARY {
                break;
            }
        }
        [before, extra, last].into_iter().try_for_each(|index| self.release(cpu, me, index))?;
        Ok(true)
    }
}

impl<P: Processor> List<P> for Valois<P> {
    const NAME: &'static str = "cas-valois";

    fn new(arena: &impl Arena<P>, plan: &ListPlan) -> Self {
        // However long deleted nodes are kept from use.
        let numbers =
            Pool::<P, NodeNumber>::nodes_for(2 * (plan.pairs as usize + plan.processes), plan.processes);
        let (auxiliary, last) = (numbers as u64, numbers as u64 + 1);
        let kept = IN_USE + ONE;
        let node = |index: usize| match index {
            0 => [auxiliary, 1, kept],
            i if i < numbers => [0, 0, 0],
            i if i == numbers => [last, AUXILIARY, kept],
            // One reference more than there are links to it: it stays.
            _ => [0, LAST, kept + ONE],
        };
        Valois {
            nodes: (0..numbers + 2).map(|i| CountedElement::new(arena, node(i))).collect(),
            free: Pool::new(arena, numbers, plan.processes),
        }
    }

    fn insert(&self, cpu: &P, me: usize, key: u64, steps: &mut u64) -> Result<u32, ListError> {
        let (new, auxiliary) = (self.make(cpu, me, key)?, self.make(cpu, me, AUXILIARY)?);
        // Relaxed: published by the exchange that links the cell.
        cpu.store(&self.node(new)?.next, self.refer(cpu, auxiliary)?.into(), Ordering::Relaxed);
        let mut at = self.first(cpu, me, steps)?;
        loop {
            while self.key(cpu, at.target)? < key {
                at = self.next(cpu, me, at, steps)?;
            }
            cpu.store(&self.node(auxiliary)?.next, self.refer(cpu, at.target)?.into(), Ordering::Relaxed);
            if self.swing(cpu, me, &self.node(at.auxiliary)?.next, at.target, new)? {
                break;
            }
            self.release(cpu, me, at.target)?;
            at = self.update(cpu, me, at, steps)?;
        }
        self.drop_cursor(cpu, me, at)?;
        self.release(cpu, me, auxiliary)?;
        // The reference to the element is the caller's.
        Ok(new)
    }

    fn remove(&self, cpu: &P, me: usize, element: u32, steps: &mut u64) -> Result<bool, ListError> {
        let mut at = self.first(cpu, me, steps)?;
        let found = loop {
            if at.target == element {
                if self.try_remove(cpu, me, at)? {
                    break true;
                }
                at = self.update(cpu, me, at, steps)?;
            } else if self.key(cpu, at.target)? == LAST {
                break false;
            } else {
                at = self.next(cpu, me, at, steps)?;
            }
        };
        self.drop_cursor(cpu, me, at)?;
        if found {
            self.release(cpu, me, element)?;
        }
        Ok(found)
    }

    fn keys(&self, cpu: &P) -> Result<Vec<u64>, ListError> {
        let mut keys = Vec::new();
        let mut index = FIRST;
        loop {
            // (V6) Acquire: the node; pairs with the exchange (V3).
            index = cpu.load(&self.node(index)?.next, Ordering::Acquire) as u32;
            match self.key(cpu, index)? {
                AUXILIARY => {}
                LAST => return Ok(keys),
                key => keys.push(key),
            }
        }
    }
}
// end
