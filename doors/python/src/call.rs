//! A process's part in a world at each call.

use core::sync::atomic::{AtomicBool, Ordering};

use towpath_machine::Native;
use towpath_shm::{Error, World};
use towpath_sync::Wait;

use crate::fault::Fault;

/// True when the interpreter ends: this process enters no world any more.
static ENDED: AtomicBool = AtomicBool::new(false);

/// The caller as a participant, which it becomes if it is none.
#[inline]
pub fn participation(world: &World) -> Result<(Native, Wait<'_>), Fault> {
    match world.participation() {
        Ok(parts) => Ok(parts),
        Err(_) => {
            enter(world)?;
            Ok(world.participation()?)
        }
    }
}

/// Enters a world, if this process has not.
#[cold]
pub fn enter(world: &World) -> Result<(), Fault> {
    // Relaxed: set by a thread that ends the interpreter.
    if ENDED.load(Ordering::Relaxed) {
        return Err(Fault::Lock(towpath_sync::LockError::NotEntered));
    }
    while world.entered().is_none() {
        match world.enter(None) {
            // Another thread enters.
            Err(Error::AlreadyEntered { .. }) => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
            Ok(_) => crate::names::write(world),
        }
    }
    Ok(())
}

/// Ends this process's part in all worlds that it enters.
pub fn end() {
    // Relaxed: as in `enter`.
    ENDED.store(true, Ordering::Relaxed);
}
