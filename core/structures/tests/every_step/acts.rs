//! Structures in place, and their operations beyond putting in, taking out and looking.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::{Arena, Concurrent, Native};
use towpath_structures::dcas::{Actor, DoubleCas};
use towpath_structures::nonblocking::{
    ArrayFifo, ArrayStack, Audit, DependencyMap, Fifo, HarrisMichaelList, HashMap, Inventory, List, Pool,
    PriorityQueue, Recover, StableError, Stack,
};
use towpath_structures::{InPlace, Node};
use towpath_sync::Waiting;

use crate::models::{Model, Op, PriorityModel};
use crate::subjects::{SmallPageMap, Subject, TwoWords};

/// Seven descriptors, three participants.
pub type Room = InPlace<8, 3>;

/// Act of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Operation that all structures have.
    Op(Op),
    /// Operation that some structures have.
    More(usize),
    /// Recovers after the dead.
    Recover,
}

impl Act {
    /// Number in a word of shared memory; 0 is none.
    pub fn encode(self) -> u64 {
        match self {
            Act::Op(Op::Put(key, value)) => 1 | key << 8 | value << 32,
            Act::Op(Op::Take(key)) => 2 | key << 8,
            Act::Op(Op::Get(key)) => 3 | key << 8,
            Act::More(which) => 4 | (which as u64) << 8,
            Act::Recover => 5,
        }
    }

    /// The reverse.
    pub fn decode(word: u64) -> Option<Act> {
        let (key, value) = (word >> 8 & 0xff_ffff, word >> 32);
        match word & 0xff {
            1 => Some(Act::Op(Op::Put(key, value))),
            2 => Some(Act::Op(Op::Take(key))),
            3 => Some(Act::Op(Op::Get(key))),
            4 => Some(Act::More(key as usize)),
            5 => Some(Act::Recover),
            _ => None,
        }
    }
}

/// A structure in shared memory.
pub trait InSegment: Subject<Native> + Concurrent {
    /// Its further operations, by name.
    const MORE: &'static [&'static str] = &[];
    /// Extras of more than one step, whose results are not judged.
    const LOOSE: &'static [usize] = &[];
    /// Key that is looked for.
    const LOOK: u64 = 1;

    /// Performs one of them.
    fn more<W: Waiting<Native>>(
        &self,
        _actor: &Actor<'_, Native, W>,
        _which: usize,
    ) -> Result<Option<u64>, StableError> {
        Ok(None)
    }

    /// Effect of an extra on the model.
    fn model(_model: &mut Self::Model, _which: usize) -> Option<u64> {
        None
    }
}

/// Keys that are tried.
const KEYS: std::ops::Range<u64> = 0..16;

/// A key and its value, in a sum.
fn both(key: u64, value: u64) -> u64 {
    key * 1_000 + value
}

/// Sum of the values in the model.
fn sum<M: Model>(model: &mut M, keys: impl Iterator<Item = u64>) -> u64 {
    keys.filter_map(|key| model.apply(Op::Get(key)).map(|value| both(key, value))).sum()
}

impl<D: DoubleCas<Native> + Concurrent> InSegment for Stack<Native, D, Room> {}
impl<D: DoubleCas<Native> + Concurrent> InSegment for Fifo<Native, D, Room> {}
impl<D: DoubleCas<Native> + Concurrent> InSegment for ArrayStack<Native, D, Room> {}
impl<D: DoubleCas<Native> + Concurrent> InSegment for ArrayFifo<Native, D, Room> {}
impl InSegment for HarrisMichaelList<Native, Room> {}

impl<D: DoubleCas<Native> + Concurrent> InSegment for List<Native, D, Room> {
    const MORE: &'static [&'static str] = &["for_each"];

    fn more<W: Waiting<Native>>(
        &self,
        actor: &Actor<'_, Native, W>,
        _which: usize,
    ) -> Result<Option<u64>, StableError> {
        loop {
            let mut found = 0;
            let each = |key, value| {
                found += both(key, value);
                true
            };
            if self.for_each(actor, 2, each)? {
                return Ok(Some(found));
            }
        }
    }

    fn model(model: &mut Self::Model, _which: usize) -> Option<u64> {
        Some(sum(model, KEYS.filter(|key| *key >= 2)))
    }
}

impl<D: DoubleCas<Native> + Concurrent> InSegment for HashMap<Native, D, Room> {
    const MORE: &'static [&'static str] = &["for_each", "insert_evicting"];
    const LOOSE: &'static [usize] = &[0, 1];

    fn more<W: Waiting<Native>>(
        &self,
        actor: &Actor<'_, Native, W>,
        which: usize,
    ) -> Result<Option<u64>, StableError> {
        if which == 1 {
            return self.insert_evicting(actor, 1, 11, |_, _| ());
        }
        let mut count = 0;
        self.for_each(actor, |_, _| {
            count += 1;
            true
        })?;
        Ok(Some(count))
    }
}

impl<D: DoubleCas<Native> + Concurrent> InSegment for PriorityQueue<Native, D, Room> {
    const MORE: &'static [&'static str] = &["pop_due", "remove"];

    fn more<W: Waiting<Native>>(
        &self,
        actor: &Actor<'_, Native, W>,
        which: usize,
    ) -> Result<Option<u64>, StableError> {
        if which == 0 {
            return Ok(self.pop_due(actor, 1)?.map(PriorityModel::both));
        }
        Ok(self.remove(actor, 2, 8)?.then_some(1))
    }

    fn model(model: &mut Self::Model, which: usize) -> Option<u64> {
        if which == 0 {
            let due = model.apply(Op::Get(0)).is_some_and(|first| first >> 32 <= 1);
            return due.then(|| model.apply(Op::Take(0))).flatten();
        }
        let mut removed = None;
        let rest: Vec<u64> = std::iter::from_fn(|| model.apply(Op::Take(0))).collect();
        for entry in rest {
            if removed.is_none() && entry == PriorityModel::both((2, 8)) {
                removed = Some(1);
            } else {
                model.apply(Op::Put(entry >> 32, entry & 0xffff_ffff));
            }
        }
        removed
    }
}

impl<D: DoubleCas<Native> + Concurrent> InSegment for DependencyMap<Native, D, Room> {
    /// The pair of 1 and 7.
    const LOOK: u64 = 15;
    const MORE: &'static [&'static str] = &["remove", "for_each"];

    fn more<W: Waiting<Native>>(
        &self,
        actor: &Actor<'_, Native, W>,
        which: usize,
    ) -> Result<Option<u64>, StableError> {
        if which == 0 {
            return Ok(self.remove(actor, 1, 7)?.then_some(1));
        }
        loop {
            let mut found = 0;
            let each = |dependent| {
                found += dependent;
                true
            };
            if self.for_each(actor, 1, each)? {
                return Ok(Some(found));
            }
        }
    }

    fn model(model: &mut Self::Model, which: usize) -> Option<u64> {
        let dependents: Vec<u64> = std::iter::from_fn(|| model.apply(Op::Take(1))).collect();
        for dependent in dependents.iter().filter(|d| which == 1 || **d != 7) {
            model.apply(Op::Put(1, *dependent));
        }
        match which {
            0 => dependents.contains(&7).then_some(1),
            _ => Some(dependents.iter().sum()),
        }
    }
}

impl<D: DoubleCas<Native> + Concurrent> InSegment for SmallPageMap<Native, D, Room> {
    const MORE: &'static [&'static str] = &["unload"];

    fn more<W: Waiting<Native>>(
        &self,
        actor: &Actor<'_, Native, W>,
        _which: usize,
    ) -> Result<Option<u64>, StableError> {
        let mut found = 0;
        self.unload(actor, 2, |page, frame| found += both(page, frame))?;
        Ok(Some(found))
    }

    fn model(model: &mut Self::Model, _which: usize) -> Option<u64> {
        let found = sum(model, 2..4);
        model.apply(Op::Take(2));
        model.apply(Op::Take(3));
        Some(found)
    }
}

// SAFETY: `repr(C)`, made of plain values.
unsafe impl<D: Concurrent> Concurrent for TwoWords<Native, D, Room> {}

impl<D: DoubleCas<Native> + Concurrent> InSegment for TwoWords<Native, D, Room> {}

/// The type-stable memory itself: each of four places has one descriptor, or none.
#[repr(C)]
pub struct Places {
    places: [AtomicU64; 4],
    pool: Pool<Native, Value, Room>,
}

// SAFETY: `repr(C)`, made of plain values.
unsafe impl Concurrent for Places {}

/// Value in a descriptor.
#[repr(C)]
pub struct Value(AtomicU64);

// SAFETY: an atomic.
unsafe impl Concurrent for Value {}

impl Node<Native> for Value {
    fn new(_arena: &impl Arena<Native>) -> Self {
        Value(AtomicU64::new(0))
    }
}

/// Each place is empty, or has a value that stays until it is taken out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacesModel([Option<u64>; 4]);

impl Model for PlacesModel {
    fn apply(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Put(key, value) => {
                let place = &mut self.0[key as usize % 4];
                let there = place.is_some().then_some(1);
                place.get_or_insert(value);
                there
            }
            Op::Take(key) => self.0[key as usize % 4].take(),
            Op::Get(key) => self.0[key as usize % 4].map(|_| 1),
        }
    }
    fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }
}

impl Subject<Native> for Places {
    type Model = PlacesModel;
    fn name() -> String {
        "pool".into()
    }
    fn new(_arena: &impl Arena<Native>, _capacity: usize, _participants: usize) -> Self {
        unreachable!("it is made of zeroes")
    }
    fn act<W: Waiting<Native>>(
        &self,
        actor: &Actor<'_, Native, W>,
        op: Op,
    ) -> Result<Option<u64>, StableError> {
        let (Op::Put(key, _) | Op::Take(key) | Op::Get(key)) = op;
        let (cpu, me, place) = (actor.cpu, actor.me, &self.places[key as usize % 4]);
        match op {
            Op::Put(_, value) => {
                let held = self.pool.take(cpu, me)?;
                self.pool.get(held.node())?.0.store(value, Ordering::Relaxed);
                let node = u64::from(held.node());
                // (1) AcqRel: the descriptor's value; pairs with the Acquire (2) and (3).
                match place.compare_exchange(0, node, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => self.pool.leave(cpu, me, held).map(|()| None),
                    Err(_) => self.pool.give(cpu, me, held).map(|()| Some(1)),
                }
            }
            Op::Take(_) => loop {
                // (2) Acquire: pairs with the Release (1).
                let node = place.load(Ordering::Acquire);
                if node == 0 {
                    return Ok(None);
                }
                let held = self.pool.aim(cpu, me, node as u32)?;
                // (3) AcqRel: as (2); pairs with the Release (1) and the Acquire of auditors (4).
                if place.compare_exchange(node, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    self.pool.leave(cpu, me, held)?;
                    continue;
                }
                self.pool.claim(cpu, me, &held)?;
                let value = self.pool.get(held.node())?.0.load(Ordering::Relaxed);
                self.pool.give(cpu, me, held)?;
                return Ok(Some(value));
            },
            // (2b) Acquire: as (2); pairs with the Release (1).
            Op::Get(_) => Ok((place.load(Ordering::Acquire) != 0).then_some(1)),
        }
    }
}

impl Recover<Native> for Places {
    fn recover<W: Waiting<Native>>(
        &self,
        actor: &Actor<'_, Native, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        self.pool.audit(actor.cpu, actor.me, is_dead, |node| {
            // (4) Acquire: pairs with the Release (1), (3).
            Ok(Some(self.places.iter().any(|place| place.load(Ordering::Acquire) == u64::from(node))))
        })
    }
    fn inventory<W: Waiting<Native>>(&self, actor: &Actor<'_, Native, W>) -> Result<Inventory, StableError> {
        // (4b) Acquire: as (4); pairs with the Release (1), (3).
        let reachable = self.places.iter().filter(|place| place.load(Ordering::Acquire) != 0).count();
        Ok(Inventory { free: self.pool.free(actor.cpu)?, reachable, all: self.pool.capacity() })
    }
}

impl InSegment for Places {}
