//! Guard of data that a dead owner may have left half changed.

use core::ops::{Deref, DerefMut};

/// Guard that can declare its data consistent.
pub trait Repair: DerefMut {
    /// Declares the data consistent after the death of an owner.
    ///
    /// Called by [`Unrepaired::repair`] when the data are whole:
    ///
    /// ```
    /// use core::ops::{Deref, DerefMut};
    /// use towpath_sync::{Repair, Unrepaired};
    ///
    /// struct Checked(u64, bool);
    /// impl Deref for Checked {
    ///     type Target = u64;
    ///     fn deref(&self) -> &u64 { &self.0 }
    /// }
    /// impl DerefMut for Checked {
    ///     fn deref_mut(&mut self) -> &mut u64 { &mut self.0 }
    /// }
    /// impl Repair for Checked {
    ///     fn declare_consistent(&mut self) { self.1 = true; }
    /// }
    /// let whole = Unrepaired::new(Checked(3, false)).repair(|value| *value = 0);
    /// assert!(*whole == 0 && whole.1);
    /// ```
    fn declare_consistent(&mut self);
}

/// Guard of data that a dead owner may have left half changed. Dropped without a repair
/// it leaves the task to the next owner.
///
/// ```
/// use towpath_sync::{LockError, RwLock, RwLockWriteGuard, Unrepaired};
///
/// type Pair<'a> = RwLockWriteGuard<'a, [u64; 2]>;
///
/// fn balanced<'a>(
///     locked: Result<Pair<'a>, LockError<Unrepaired<Pair<'a>>>>,
/// ) -> Result<Pair<'a>, LockError> {
///     match locked {
///         Ok(guard) => Ok(guard),
///         Err(LockError::OwnerDied { guard, .. }) => Ok(guard.repair(|pair| pair[1] = pair[0])),
///         Err(other) => Err(other.without_guard()),
///     }
/// }
/// ```
#[must_use = "the data stay unrepaired, and the next owner is told"]
pub struct Unrepaired<G>(G);

impl<G: core::fmt::Debug> core::fmt::Debug for Unrepaired<G> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Unrepaired").field(&self.0).finish()
    }
}

impl<G: Repair> Unrepaired<G> {
    /// Marks a guard: for the rooms that lend locks to processes.
    ///
    /// ```
    /// use towpath_sync::{Mutex, Unrepaired};
    ///
    /// let balance = Mutex::new(7);
    /// // for a caller that is to look at the data
    /// let unrepaired = Unrepaired::new(balance.lock()?);
    /// assert_eq!(*unrepaired.repair(|balance| *balance = 0), 0);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn new(guard: G) -> Self {
        Unrepaired(guard)
    }

    /// Repairs the data, and declares them consistent. If this process dies meanwhile,
    /// the next owner is told.
    ///
    /// ```
    /// use towpath_sync::{MutexGuard, Unrepaired};
    ///
    /// fn balanced<'a>(guard: Unrepaired<MutexGuard<'a, [u64; 2]>>) -> MutexGuard<'a, [u64; 2]> {
    ///     guard.repair(|pair| pair[1] = pair[0])
    /// }
    /// ```
    pub fn repair(mut self, repair: impl FnOnce(&mut G::Target)) -> G {
        repair(&mut self.0);
        self.assume_consistent()
    }

    /// Declares the data consistent as they are.
    ///
    /// ```
    /// use towpath_sync::{MutexGuard, Unrepaired};
    ///
    /// /// One word is never half changed.
    /// fn counter<'a>(guard: Unrepaired<MutexGuard<'a, u64>>) -> MutexGuard<'a, u64> {
    ///     guard.assume_consistent()
    /// }
    /// ```
    pub fn assume_consistent(mut self) -> G {
        self.0.declare_consistent();
        self.0
    }
}

impl<G: Deref> Deref for Unrepaired<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.0
    }
}

impl<G: DerefMut> DerefMut for Unrepaired<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.0
    }
}
