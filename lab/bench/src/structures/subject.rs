//! The structures' common operations, as the participants use them.

use towpath_machine::Native;
use towpath_structures::Storage;
use towpath_structures::dcas::DoubleCas;
use towpath_structures::nonblocking::{
    Fifo, HarrisMichaelList, HashMap, Inventory, List, PriorityQueue, Recover, StableError, Stack, ValoisList,
};

use super::board::{Board, BoardMember};
use super::work::{WorkKind, loaded};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructureOp {
    /// Key (or priority) and value.
    Put(u64, u64),
    /// Takes the item with this key; from structures without keys the next one.
    Take(u64),
    /// Looks for the item with this key.
    Get(u64),
}

/// A structure under measurement.
pub trait Subject: Sync {
    /// Performs an operation. Returns the value that was taken out, found, or in the way.
    fn act(&self, member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError>;

    /// Ends the operations that the dead have begun, and frees their descriptors. Returns
    /// the number of descriptors that are still undecided.
    fn recover(
        &self,
        member: &BoardMember<'_>,
        is_dead: &dyn Fn(usize) -> bool,
    ) -> Result<usize, StableError>;

    /// Counts the descriptors. The caller has the structure to itself.
    fn inventory(&self, member: &BoardMember<'_>) -> Result<Inventory, StableError>;

    /// Performs a participant's operations under load.
    ///
    /// Here, so that they are compiled for each structure by itself.
    ///
    /// # Errors
    ///
    /// The structure's, but for want of room.
    fn work(&self, member: &BoardMember<'_>, board: &Board<'_>, task: &WorkKind) -> Result<(), StableError> {
        loaded(self, member, board, task)
    }
}

macro_rules! recovered {
    ([$($generics:tt)*] $structure:ty, |$it:ident, $actor:ident, $op:ident| $act:expr) => {
        impl<$($generics)*> Subject for $structure {
            #[inline(always)]
            fn act(&self, member: &BoardMember<'_>, $op: StructureOp) -> Result<Option<u64>, StableError> {
                let ($it, $actor) = (self, &member.actor());
                $act
            }
            fn recover(
                &self,
                member: &BoardMember<'_>,
                is_dead: &dyn Fn(usize) -> bool,
            ) -> Result<usize, StableError> {
                Ok(Recover::recover(self, &member.actor(), is_dead)?.pending)
            }
            fn inventory(&self, member: &BoardMember<'_>) -> Result<Inventory, StableError> {
                Recover::inventory(self, &member.actor())
            }
        }
    };
}

/// An operation of structures with keys.
macro_rules! by_key {
    ($it:expr, $actor:expr, $op:expr) => {
        match $op {
            StructureOp::Put(key, value) => $it.insert($actor, key, value),
            StructureOp::Take(key) => $it.remove($actor, key),
            StructureOp::Get(key) => $it.get($actor, key),
        }
    };
}

recovered!([D: DoubleCas<Native>, S: Storage] Stack<Native, D, S>, |it, actor, op| match op {
    StructureOp::Put(_, value) => it.push(actor, value).map(|()| None),
    StructureOp::Take(_) => it.pop(actor),
    StructureOp::Get(_) => it.changes(actor).map(Some),
});
recovered!([D: DoubleCas<Native>, S: Storage] Fifo<Native, D, S>, |it, actor, op| match op {
    StructureOp::Put(_, value) => it.push(actor, value).map(|()| None),
    StructureOp::Take(_) | StructureOp::Get(_) => it.pop(actor),
});
recovered!([D: DoubleCas<Native>, S: Storage] List<Native, D, S>, |it, actor, op| by_key!(it, actor, op));
recovered!([D: DoubleCas<Native>, S: Storage] HashMap<Native, D, S>, |it, actor, op| by_key!(it, actor, op));
recovered!([D: DoubleCas<Native>, S: Storage] PriorityQueue<Native, D, S>, |it, actor, op| match op {
    StructureOp::Put(priority, value) => it.insert(actor, priority, value).map(|()| None),
    StructureOp::Take(_) => Ok(it.pop(actor)?.map(|(_, value)| value)),
    StructureOp::Get(_) => Ok(it.first(actor)?.map(|(_, value)| value)),
});
recovered!([S: Storage] HarrisMichaelList<Native, S>, |it, actor, op| by_key!(it, actor, op));

impl<S: Storage> Subject for ValoisList<Native, S> {
    #[inline(always)]
    fn act(&self, member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError> {
        by_key!(self, &member.actor(), op)
    }
    /// Does nothing: this structure has no recovery.
    fn recover(
        &self,
        _member: &BoardMember<'_>,
        _is_dead: &dyn Fn(usize) -> bool,
    ) -> Result<usize, StableError> {
        Err(StableError::Abandoned)
    }
    fn inventory(&self, _member: &BoardMember<'_>) -> Result<Inventory, StableError> {
        Err(StableError::Abandoned)
    }
}
