//! Structures under a lock of `sync`, in memory that processes share.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use towpath_machine::{Concurrent, Native};
use towpath_structures::nonblocking::{Inventory, StableError};
use towpath_structures::{InPlace, Storage};
use towpath_sync::{Lock, LockError};

use super::board::BoardMember;
use super::chains::{ChainKind, Chains};
use super::subject::{StructureOp, Subject};

/// A structure and the lock around it.
#[repr(C)]
pub struct UnderLock<K, L, S: Storage> {
    lock: L,
    chains: Chains<S>,
    kind: PhantomData<fn() -> K>,
}

// SAFETY: `repr(C)`, made of atomic words, arrays of them and a lock that is `Concurrent` itself,
// so every bit pattern is valid and accesses are atomic; all zero is empty and unlocked; no `Drop`.
// A word read from shared memory is checked before it is used as an index.
unsafe impl<K: 'static, L: Concurrent, const N: usize, const E: usize> Concurrent
    for UnderLock<K, L, InPlace<N, E>>
{
}

fn refused(error: LockError) -> StableError {
    match error {
        LockError::Abandoned => StableError::Abandoned,
        LockError::Poisoned => StableError::Corrupt,
        LockError::Capacity | LockError::NotEntered | LockError::TimedOut => StableError::UnknownParticipant,
    }
}

impl<K: ChainKind, L: Lock<Native> + Sync + 'static, S: Storage> UnderLock<K, L, S> {
    #[inline(always)]
    fn under<R>(
        &self,
        member: &BoardMember<'_>,
        act: impl FnOnce(&Chains<S>) -> Result<R, StableError>,
    ) -> Result<R, StableError> {
        let mut held = self.lock.lock(&member.cpu, &member.wait).map_err(refused)?;
        let mut sound = Ok(());
        if L::owner_died(&held) {
            sound = self.chains.mend();
            if sound.is_ok() {
                self.lock.make_consistent(&member.cpu, &mut held);
            }
        }
        let done = sound.and_then(|()| act(&self.chains));
        self.lock.unlock(&member.cpu, &member.wait, held);
        done
    }
}

impl<K: ChainKind, L: Lock<Native> + Sync + 'static, S: Storage> Subject for UnderLock<K, L, S> {
    #[inline(always)]
    fn act(&self, member: &BoardMember<'_>, op: StructureOp) -> Result<Option<u64>, StableError> {
        self.under(member, |chains| K::act(chains, op))
    }

    /// Takes the lock: one that knows its owner tells the next one of the death, which
    /// mends. Another one may stay held for ever.
    fn recover(
        &self,
        member: &BoardMember<'_>,
        _is_dead: &dyn Fn(usize) -> bool,
    ) -> Result<usize, StableError> {
        if L::KNOWS_OWNER {
            return self.under(member, |_| Ok(0));
        }
        match self.lock.try_lock(&member.cpu) {
            Some(held) => {
                self.lock.unlock(&member.cpu, &member.wait, held);
                Ok(0)
            }
            None => Ok(1),
        }
    }

    fn inventory(&self, member: &BoardMember<'_>) -> Result<Inventory, StableError> {
        self.under(member, |chains| chains.inventory())
    }
}
