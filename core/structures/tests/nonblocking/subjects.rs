//! The structures, as the tests see them.

use towpath_machine::{Arena, Place, Processor};
use towpath_structures::dcas::{Actor, Change, DoubleCas};
use towpath_structures::nonblocking::{
    ArrayFifo, ArrayStack, Audit, DependencyMap, Fifo, HarrisMichaelList, HashMap, Inventory, List, PageMap,
    PriorityQueue, Recover, StableError, Stack,
};
use towpath_structures::{Boxed, Storage};
use towpath_sync::Waiting;

use crate::models::{DependencyModel, FifoModel, MapModel, Model, Op, PriorityModel, StackModel, WordsModel};

/// Structure under test, and its model.
pub trait Subject<P: Processor>: Recover<P> + 'static {
    type Model: Model;
    fn name() -> String;
    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self;
    fn act<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, op: Op) -> Result<Option<u64>, StableError>;
}

macro_rules! subject {
    ($structure:ident, $model:ty, $name:literal, |$arena:ident, $capacity:ident, $participants:ident| $new:expr, |$it:ident, $actor:ident, $op:ident| $act:expr) => {
        impl<P: Processor, D: DoubleCas<P>, S: Storage> Subject<P> for $structure<P, D, S> {
            type Model = $model;
            fn name() -> String {
                format!("{} over {}", $name, D::NAME)
            }
            fn new($arena: &impl Arena<P>, $capacity: usize, $participants: usize) -> Self {
                $new
            }
            fn act<W: Waiting<P>>(
                &self,
                $actor: &Actor<'_, P, W>,
                $op: Op,
            ) -> Result<Option<u64>, StableError> {
                let $it = self;
                $act
            }
        }
    };
}

subject!(Stack, StackModel, "stack", |arena, n, p| Self::new(arena, n, p), |it, actor, op| match op {
    Op::Put(_, value) => it.push(actor, value).map(|()| None),
    Op::Take(_) => it.pop(actor),
    Op::Get(_) => it.changes(actor).map(|_| None),
});
subject!(Fifo, FifoModel, "fifo", |arena, n, p| Self::new(arena, n, p), |it, actor, op| match op {
    Op::Put(_, value) => it.push(actor, value).map(|()| None),
    Op::Take(_) => it.pop(actor),
    Op::Get(_) => Ok(None),
});
subject!(ArrayStack, StackModel, "array-stack", |arena, n, p| Self::new(arena, n, p), |it, actor, op| {
    match op {
        Op::Put(_, value) => it.push(actor, value).map(|()| None),
        Op::Take(_) => it.pop(actor),
        Op::Get(_) => Ok(None),
    }
});
subject!(ArrayFifo, FifoModel, "array-fifo", |arena, n, p| Self::new(arena, n, p), |it, actor, op| {
    match op {
        Op::Put(_, value) => it.push(actor, value).map(|()| None),
        Op::Take(_) => it.pop(actor),
        Op::Get(_) => Ok(None),
    }
});
subject!(List, MapModel<false>, "list", |arena, n, p| Self::new(arena, n, p), |it, actor, op| match op {
    Op::Put(key, value) => it.insert(actor, key, value),
    Op::Take(key) => it.remove(actor, key),
    Op::Get(key) => it.get(actor, key),
});
subject!(HashMap, MapModel<true>, "hash-map", |arena, n, p| Self::new(arena, n, 2, p), |it, actor, op| {
    match op {
        Op::Put(key, value) => it.insert(actor, key, value),
        Op::Take(key) => it.remove(actor, key),
        Op::Get(key) => it.get(actor, key),
    }
});
subject!(
    PriorityQueue,
    PriorityModel,
    "priority-queue",
    |arena, n, p| Self::new(arena, n, p),
    |it, actor, op| {
        match op {
            Op::Put(priority, value) => it.insert(actor, priority, value).map(|()| None),
            Op::Take(_) => Ok(it.pop(actor)?.map(PriorityModel::both)),
            Op::Get(_) => Ok(it.first(actor)?.map(PriorityModel::both)),
        }
    }
);
subject!(
    DependencyMap,
    DependencyModel,
    "dependency-map",
    |arena, n, p| Self::new(arena, n, 2, p),
    |it, actor, op| {
        match op {
            Op::Put(object, dependent) => Ok(it.insert(actor, object, dependent)?.then_some(1)),
            Op::Take(object) => it.remove_any(actor, object),
            Op::Get(pair) => Ok(it.contains(actor, pair / 8, pair % 8)?.then_some(1)),
        }
    }
);

/// A small page map: 2 × 2 × 2.
pub type SmallPageMap<P, D, S = Boxed> = PageMap<P, D, S, 2, 2, 2>;

impl<P: Processor, D: DoubleCas<P>, S: Storage> Subject<P> for SmallPageMap<P, D, S> {
    type Model = MapModel<true>;
    fn name() -> String {
        format!("page-map over {}", D::NAME)
    }
    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        PageMap::new(arena, capacity, participants)
    }
    fn act<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, op: Op) -> Result<Option<u64>, StableError> {
        match op {
            Op::Put(page, value) => self.map(actor, page % 8, value),
            Op::Take(page) => self.unmap(actor, page % 8),
            Op::Get(page) => self.get(actor, page % 8),
        }
    }
}

impl<P: Processor, S: Storage> Subject<P> for HarrisMichaelList<P, S> {
    type Model = MapModel<false>;
    fn name() -> String {
        "harris-michael".into()
    }
    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self {
        HarrisMichaelList::new(arena, capacity, participants)
    }
    fn act<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, op: Op) -> Result<Option<u64>, StableError> {
        match op {
            Op::Put(key, value) => self.insert(actor, key, value),
            Op::Take(key) => self.remove(actor, key),
            Op::Get(key) => self.get(actor, key),
        }
    }
}

/// DCAS itself, on two words (and a third one that others are between).
#[repr(C)]
pub struct TwoWords<P: Processor, D, S: Storage = Boxed> {
    words: S::Nodes<P::Word>,
    dcas: D,
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> TwoWords<P, D, S> {
    fn both<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        change: impl Fn(u64, u64) -> Option<(u64, u64)>,
    ) -> Result<Option<(u64, u64)>, StableError> {
        loop {
            let a = self.dcas.read(actor, self.words.as_ref(), 0)?;
            let b = self.dcas.read(actor, self.words.as_ref(), 2)?;
            let Some((x, y)) = change(a, b) else {
                return Ok(None);
            };
            // The order must not matter.
            let changes = [Change { word: 2, old: b, new: y }, Change { word: 0, old: a, new: x }];
            if self.dcas.dcas(actor, self.words.as_ref(), changes)? {
                return Ok(Some((a, b)));
            }
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Subject<P> for TwoWords<P, D, S> {
    type Model = WordsModel;
    fn name() -> String {
        D::NAME.into()
    }
    fn new(arena: &impl Arena<P>, _capacity: usize, participants: usize) -> Self {
        TwoWords { words: S::nodes(3, |_| arena.word(Place::NewLine, 0)), dcas: D::new(arena, participants) }
    }
    fn act<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, op: Op) -> Result<Option<u64>, StableError> {
        match op {
            Op::Put(_, value) => Ok(self.both(actor, |a, _| Some((a + 1, value)))?.map(|(_, b)| b)),
            Op::Take(_) => {
                let done = self.both(actor, |a, b| a.checked_sub(1).map(|a| (a, b + 1)))?;
                Ok(done.map(|(a, _)| a - 1))
            }
            Op::Get(word) => Ok(Some(self.dcas.read(actor, self.words.as_ref(), 2 * word as u32)?)),
        }
    }
}

impl<P: Processor, D: DoubleCas<P>, S: Storage> Recover<P> for TwoWords<P, D, S> {
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError> {
        for dead in (0..self.dcas.participants()).filter(|p| is_dead(*p)) {
            self.dcas.recover(actor, self.words.as_ref(), dead)?;
        }
        Ok(Audit::default())
    }
    fn inventory<W: Waiting<P>>(&self, _actor: &Actor<'_, P, W>) -> Result<Inventory, StableError> {
        Ok(Inventory { free: 0, reachable: 0, all: 0 })
    }
}

/// Calls a generic function with each structure over a DCAS.
#[macro_export]
macro_rules! for_each_structure {
    ($machine:ty, $dcas:ty => $each:ident $arguments:tt) => {
        $each::<$crate::subjects::TwoWords<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::Stack<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::Fifo<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::ArrayStack<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::ArrayFifo<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::List<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::HashMap<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::PriorityQueue<$machine, $dcas>> $arguments;
        $each::<towpath_structures::nonblocking::DependencyMap<$machine, $dcas>> $arguments;
        $each::<$crate::subjects::SmallPageMap<$machine, $dcas>> $arguments;
    };
}
