//! A user's alternatives between threads: the structures under parking_lot's mutex,
//! crossbeam's skip list and queue, dashmap.
//!
//! None of them may lie in memory that processes share: they have pointers, and parking_lot's
//! waiters a table of their own process.

use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;

use crossbeam_queue::SegQueue;
use crossbeam_skiplist::SkipMap;
use dashmap::DashMap;
use parking_lot::Mutex;
use towpath_structures::Boxed;
use towpath_structures::nonblocking::{Inventory, StableError};

use super::board::BoardMember;
use super::chains::{AsFifo, AsHashMap, AsList, AsPriorityQueue, AsStack, ChainKind, Chains};
use super::subject::{StructureOp, Subject};
use super::{Structure, StructureAlgorithm};

/// A peer's structure with room for so many items; nothing if there is none of that
/// algorithm.
pub fn make(
    structure: Structure,
    algorithm: StructureAlgorithm,
    capacity: usize,
) -> Option<Box<dyn Subject>> {
    Some(match (algorithm, structure) {
        (StructureAlgorithm::ParkingLot, Structure::Stack) => {
            Box::new(ParkingLot::<AsStack>::new(capacity, 1))
        }
        (StructureAlgorithm::ParkingLot, Structure::Fifo) => Box::new(ParkingLot::<AsFifo>::new(capacity, 1)),
        (StructureAlgorithm::ParkingLot, Structure::List) => Box::new(ParkingLot::<AsList>::new(capacity, 1)),
        (StructureAlgorithm::ParkingLot, Structure::HashMap) => {
            Box::new(ParkingLot::<AsHashMap>::new(capacity, capacity))
        }
        (StructureAlgorithm::ParkingLot, Structure::PriorityQueue) => {
            Box::new(ParkingLot::<AsPriorityQueue>::new(capacity, 1))
        }
        (StructureAlgorithm::Crossbeam, Structure::Fifo) => Box::new(SegQueue::new()),
        (StructureAlgorithm::Crossbeam, Structure::List) => Box::new(SkipMap::<u64, u64>::new()),
        (StructureAlgorithm::Crossbeam, Structure::PriorityQueue) => {
            Box::new(SkipMap::<(u64, u64), u64>::new())
        }
        (StructureAlgorithm::DashMap, Structure::HashMap) => {
            Box::new(Dash::with_capacity_and_hasher(capacity, BuildHasherDefault::default()))
        }
        _ => return None,
    })
}

/// Recovery and inventory of structures that only threads share.
///
/// None die, and the heap is not counted.
macro_rules! threads_only {
    () => {
        fn recover(
            &self,
            _member: &BoardMember<'_>,
            _is_dead: &dyn Fn(usize) -> bool,
        ) -> Result<usize, StableError> {
            Ok(0)
        }
        fn inventory(&self, _member: &BoardMember<'_>) -> Result<Inventory, StableError> {
            Ok(Inventory { free: 0, reachable: 0, all: 0 })
        }
    };
}

struct ParkingLot<K> {
    chains: Mutex<Chains<Boxed>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> ParkingLot<K> {
    fn new(capacity: usize, heads: usize) -> Self {
        ParkingLot { chains: Mutex::new(Chains::new(capacity, heads)), kind: PhantomData }
    }
}

impl<K: ChainKind> Subject for ParkingLot<K> {
    #[inline(always)]
    fn act(&self, _member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError> {
        K::act(&*self.chains.lock(), op)
    }
    threads_only!();
}

impl Subject for SegQueue<u64> {
    #[inline(always)]
    fn act(&self, _member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError> {
        Ok(match op {
            StructureOp::Put(_, value) => {
                self.push(value);
                None
            }
            StructureOp::Take(_) | StructureOp::Get(_) => self.pop(),
        })
    }
    threads_only!();
}

/// A skip list for our list: it inserts a key only if it is absent.
impl Subject for SkipMap<u64, u64> {
    #[inline(always)]
    fn act(&self, _member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError> {
        Ok(match op {
            StructureOp::Put(key, value) => {
                Some(*self.get_or_insert(key, value).value()).filter(|v| *v != value)
            }
            StructureOp::Take(key) => self.remove(&key).map(|entry| *entry.value()),
            StructureOp::Get(key) => self.get(&key).map(|entry| *entry.value()),
        })
    }
    threads_only!();
}

/// And for the priority queue: values tell equal priorities apart.
impl Subject for SkipMap<(u64, u64), u64> {
    #[inline(always)]
    fn act(&self, _member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError> {
        Ok(match op {
            StructureOp::Put(priority, value) => {
                self.insert((priority, value), value);
                None
            }
            StructureOp::Take(_) => self.pop_front().map(|entry| *entry.value()),
            StructureOp::Get(_) => self.front().map(|entry| *entry.value()),
        })
    }
    threads_only!();
}

type Dash = DashMap<u64, u64, BuildHasherDefault<Fibonacci>>;

/// The multiplication by which our map finds its buckets, so that the maps are compared
/// and not their hash functions: dashmap's own default is slower.
#[derive(Default)]
struct Fibonacci(u64);

impl Hasher for Fibonacci {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, key: u64) {
        // Its tables use the low bits and the topmost ones: the product's best bits to both ends.
        let product = (self.0 ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product.rotate_left(32);
    }
}

impl Subject for Dash {
    #[inline(always)]
    fn act(&self, _member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError> {
        Ok(match op {
            StructureOp::Put(key, value) => self.insert(key, value),
            StructureOp::Take(key) => self.remove(&key).map(|(_, value)| value),
            StructureOp::Get(key) => self.get(&key).map(|entry| *entry),
        })
    }
    threads_only!();
}
