//! Sequential versions of the structures, to be put under a lock: chains of nodes by
//! number, and free nodes.
//!
//! Each change is made by one store of a link, after what it leads to is whole. So a chain is whole
//! after each step, and a survivor that takes the lock over from a dead holder has to mend only
//! what can be derived: the free nodes and the tail ([`Chains::mend`]).

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_structures::Storage;
use towpath_structures::nonblocking::{Inventory, StableError};

use super::subject::StructureOp;

/// Chains, and free nodes. Node 0 is none.
#[repr(C)]
pub struct Chains<S: Storage> {
    /// The first free node.
    free: AtomicU64,
    /// Number of nodes that were ever in use.
    fresh: AtomicU64,
    /// The last node of a queue.
    tail: AtomicU64,
    /// Number of repairs.
    mended: AtomicU64,
    heads: S::Nodes<AtomicU64>,
    nodes: S::Nodes<ChainNode>,
}

#[repr(C, align(32))]
#[derive(Default)]
pub struct ChainNode {
    next: AtomicU64,
    key: AtomicU64,
    value: AtomicU64,
    /// Number of the mending that found it in a chain.
    seen: AtomicU64,
}

// Under a lock: Relaxed suffices, but links are stored after the nodes to which they lead, for the
// successor of a dead holder.
fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
fn set(word: &AtomicU64, value: u64) {
    // (N1) Release: pairs with the Acquire of the lock that the successor takes.
    word.store(value, Ordering::Release);
}

/// A place in a chain: the link that leads there, and the node (0: the end).
struct LinkSpot<'a> {
    link: &'a AtomicU64,
    node: u64,
}

impl<S: Storage> Chains<S> {
    /// Empty ones.
    pub fn new(capacity: usize, heads: usize) -> Self {
        Chains {
            free: AtomicU64::new(0),
            fresh: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            mended: AtomicU64::new(0),
            heads: S::nodes(heads, |_| AtomicU64::new(0)),
            nodes: S::nodes(capacity + 1, |_| ChainNode::default()),
        }
    }

    fn capacity(&self) -> usize {
        self.nodes.as_ref().len() - 1
    }

    fn node(&self, number: u64) -> Result<&ChainNode, StableError> {
        self.nodes.as_ref().get(number as usize).ok_or(StableError::Corrupt)
    }

    /// A node out of the free ones.
    fn take(&self, key: u64, value: u64) -> Result<u64, StableError> {
        let number = match get(&self.free) {
            0 if get(&self.fresh) < self.capacity() as u64 => {
                let number = get(&self.fresh) + 1;
                set(&self.fresh, number);
                number
            }
            0 => return Err(StableError::Exhausted),
            number => {
                set(&self.free, get(&self.node(number)?.next));
                number
            }
        };
        let node = self.node(number)?;
        set(&node.key, key);
        set(&node.value, value);
        Ok(number)
    }

    fn give(&self, number: u64) -> Result<(), StableError> {
        set(&self.node(number)?.next, get(&self.free));
        set(&self.free, number);
        Ok(())
    }

    fn link(&self, spot: &LinkSpot<'_>, number: u64) -> Result<(), StableError> {
        set(&self.node(number)?.next, spot.node);
        set(spot.link, number);
        Ok(())
    }

    fn unlink(&self, spot: &LinkSpot<'_>) -> Result<u64, StableError> {
        let node = self.node(spot.node)?;
        let value = get(&node.value);
        set(spot.link, get(&node.next));
        self.give(spot.node)?;
        Ok(value)
    }

    /// The first node that is not `past`, with its key.
    fn seek(
        &self,
        head: usize,
        past: impl Fn(u64) -> bool,
    ) -> Result<(LinkSpot<'_>, Option<u64>), StableError> {
        let mut link = self.heads.as_ref().get(head).ok_or(StableError::Corrupt)?;
        for _ in 0..=self.capacity() {
            let number = get(link);
            if number == 0 {
                return Ok((LinkSpot { link, node: 0 }, None));
            }
            let node = self.node(number)?;
            let key = get(&node.key);
            if !past(key) {
                return Ok((LinkSpot { link, node: number }, Some(key)));
            }
            link = &node.next;
        }
        Err(StableError::Corrupt)
    }

    /// Takes the first node of the first chain out.
    fn pop(&self) -> Result<Option<u64>, StableError> {
        let (spot, found) = self.seek(0, |_| false)?;
        found.map(|_| self.unlink(&spot)).transpose()
    }

    /// Inserts a key in the order of keys; a key that exists keeps its node.
    fn insert(&self, head: usize, key: u64, value: u64, replaces: bool) -> Result<Option<u64>, StableError> {
        let (spot, found) = self.seek(head, |k| k < key)?;
        if found == Some(key) {
            let node = self.node(spot.node)?;
            let before = get(&node.value);
            if replaces {
                set(&node.value, value);
            }
            return Ok(Some(before));
        }
        let number = self.take(key, value)?;
        self.link(&spot, number)?;
        Ok(None)
    }

    fn remove(&self, head: usize, key: u64) -> Result<Option<u64>, StableError> {
        let (spot, found) = self.seek(head, |k| k < key)?;
        found.filter(|k| *k == key).map(|_| self.unlink(&spot)).transpose()
    }

    fn find(&self, head: usize, key: u64) -> Result<Option<u64>, StableError> {
        let (spot, found) = self.seek(head, |k| k < key)?;
        found.filter(|k| *k == key).map(|_| Ok(get(&self.node(spot.node)?.value))).transpose()
    }

    fn push_back(&self, value: u64) -> Result<(), StableError> {
        let number = self.take(0, value)?;
        set(&self.node(number)?.next, 0);
        match get(&self.tail) {
            0 => set(&self.heads.as_ref()[0], number),
            last => set(&self.node(last)?.next, number),
        }
        set(&self.tail, number);
        Ok(())
    }

    fn pop_front(&self) -> Result<Option<u64>, StableError> {
        let value = self.pop()?;
        if get(&self.heads.as_ref()[0]) == 0 {
            set(&self.tail, 0);
        }
        Ok(value)
    }

    fn bucket(&self, key: u64) -> usize {
        // As `towpath_structures::nonblocking::HashMap` does.
        let buckets = self.heads.as_ref().len() as u64;
        (((key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) * buckets) >> 32) as usize
    }

    /// Derives the free nodes and the tail anew, after a holder has died.
    pub fn mend(&self) -> Result<(), StableError> {
        let turn = get(&self.mended) + 1;
        set(&self.mended, turn);
        let mut last = 0;
        for head in self.heads.as_ref() {
            let mut at = get(head);
            for _ in 0..=self.capacity() {
                if at == 0 {
                    break;
                }
                let node = self.node(at)?;
                set(&node.seen, turn);
                last = at;
                at = get(&node.next);
            }
        }
        set(&self.tail, last);
        set(&self.free, 0);
        for number in 1..=get(&self.fresh).min(self.capacity() as u64) {
            if get(&self.node(number)?.seen) != turn {
                self.give(number)?;
            }
        }
        Ok(())
    }

    /// Counts the nodes.
    pub fn inventory(&self) -> Result<Inventory, StableError> {
        let all = self.capacity();
        let mut inventory =
            Inventory { free: all.saturating_sub(get(&self.fresh) as usize), reachable: 0, all };
        let walk = |from: u64| -> Result<usize, StableError> {
            let (mut at, mut count) = (from, 0);
            while at != 0 && count <= all {
                count += 1;
                at = get(&self.node(at)?.next);
            }
            Ok(count)
        };
        inventory.free += walk(get(&self.free))?;
        for head in self.heads.as_ref() {
            inventory.reachable += walk(get(head))?;
        }
        Ok(inventory)
    }
}

/// A structure made of chains.
pub trait ChainKind: 'static {
    /// Performs an operation. The caller has the chains to itself.
    fn act<S: Storage>(chains: &Chains<S>, op: StructureOp) -> Result<Option<u64>, StableError>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: |$it:ident, $op:ident| $act:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name(PhantomData<()>);
        impl ChainKind for $name {
            #[inline(always)]
            fn act<S: Storage>($it: &Chains<S>, $op: StructureOp) -> Result<Option<u64>, StableError> {
                $act
            }
        }
    )*};
}

kinds! {
    /// A stack.
    AsStack: |it, op| match op {
        StructureOp::Put(_, value) => {
            let number = it.take(0, value)?;
            let (spot, _) = it.seek(0, |_| false)?;
            it.link(&spot, number).map(|()| None)
        }
        StructureOp::Take(_) | StructureOp::Get(_) => it.pop(),
    };
    /// A queue.
    AsFifo: |it, op| match op {
        StructureOp::Put(_, value) => it.push_back(value).map(|()| None),
        StructureOp::Take(_) | StructureOp::Get(_) => it.pop_front(),
    };
    /// A list in the order of keys.
    AsList: |it, op| match op {
        StructureOp::Put(key, value) => it.insert(0, key, value, false),
        StructureOp::Take(key) => it.remove(0, key),
        StructureOp::Get(key) => it.find(0, key),
    };
    /// A hash map.
    AsHashMap: |it, op| match op {
        StructureOp::Put(key, value) => it.insert(it.bucket(key), key, value, true),
        StructureOp::Take(key) => it.remove(it.bucket(key), key),
        StructureOp::Get(key) => it.find(it.bucket(key), key),
    };
    /// A priority queue.
    AsPriorityQueue: |it, op| match op {
        StructureOp::Put(priority, value) => {
            let number = it.take(priority, value)?;
            let (spot, _) = it.seek(0, |p| p <= priority)?;
            it.link(&spot, number).map(|()| None)
        }
        StructureOp::Take(_) => it.pop(),
        StructureOp::Get(priority) => it.find(0, priority),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_structures::Boxed;

    fn chains(heads: usize) -> Chains<Boxed> {
        Chains::new(4, heads)
    }

    #[test]
    fn each_kind_gives_what_it_should() {
        let take = |op: &dyn Fn(StructureOp) -> Result<Option<u64>, StableError>| {
            (0..4).map(|_| op(StructureOp::Take(0)).unwrap()).collect::<Vec<_>>()
        };
        let (stack, fifo, queue) = (chains(1), chains(1), chains(1));
        for (priority, value) in [(5, 1), (3, 2), (5, 3)] {
            AsStack::act(&stack, StructureOp::Put(priority, value)).unwrap();
            AsFifo::act(&fifo, StructureOp::Put(priority, value)).unwrap();
            AsPriorityQueue::act(&queue, StructureOp::Put(priority, value)).unwrap();
        }
        assert_eq!(take(&|op| AsStack::act(&stack, op)), [Some(3), Some(2), Some(1), None]);
        assert_eq!(take(&|op| AsFifo::act(&fifo, op)), [Some(1), Some(2), Some(3), None]);
        assert_eq!(take(&|op| AsPriorityQueue::act(&queue, op)), [Some(2), Some(1), Some(3), None]);
        let (list, map) = (chains(1), chains(3));
        for (structure, replaces) in [(&list, false), (&map, true)] {
            let act = |op| if replaces { AsHashMap::act(structure, op) } else { AsList::act(structure, op) };
            assert_eq!((act(StructureOp::Put(7, 1)), act(StructureOp::Put(7, 2))), (Ok(None), Ok(Some(1))));
            assert_eq!(act(StructureOp::Get(7)), Ok(Some(if replaces { 2 } else { 1 })));
            assert_eq!(act(StructureOp::Get(8)), Ok(None));
            assert!(act(StructureOp::Take(7)).unwrap().is_some());
            assert_eq!(act(StructureOp::Take(7)), Ok(None));
        }
    }

    #[test]
    fn a_full_one_says_so_and_mending_finds_what_a_dead_holder_had() {
        let fifo = chains(1);
        for value in 1..=4 {
            AsFifo::act(&fifo, StructureOp::Put(0, value)).unwrap();
        }
        assert_eq!(AsFifo::act(&fifo, StructureOp::Put(0, 5)), Err(StableError::Exhausted));
        assert_eq!(AsFifo::act(&fifo, StructureOp::Take(0)), Ok(Some(1)));
        // Dies after it has taken a node, before it has linked it.
        fifo.take(0, 9).unwrap();
        let inventory = fifo.inventory().unwrap();
        assert_eq!((inventory.free, inventory.reachable), (0, 3));
        fifo.mend().unwrap();
        let inventory = fifo.inventory().unwrap();
        assert_eq!((inventory.free, inventory.reachable), (1, 3));
        AsFifo::act(&fifo, StructureOp::Put(0, 6)).unwrap();
        let all: Vec<_> = (0..5).map(|_| AsFifo::act(&fifo, StructureOp::Take(0)).unwrap()).collect();
        assert_eq!(all, [Some(2), Some(3), Some(4), Some(6), None]);
    }
}
