//! World of this process, and its bundles.
//!
//! A forked child has none of them: its copies of them stay as they are, since its memory is
//! that of a process with endpoints of its own. It may call `AM_Init` itself.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use towpath_am::WorldConfig;
use towpath_shm::World;

use crate::call::{AmError, USE, USES, check, refused};
use crate::spmd;

/// Number of bundles that a process may have.
const MAX_BUNDLES: usize = 255;

/// Number of the last use of the layer.
static LAST_USE: AtomicU32 = AtomicU32::new(0);
/// Number of forks between this process and the one that first called `AM_Init`.
static FORKS: AtomicU32 = AtomicU32::new(0);

static PROCESS: Mutex<Option<AmProcess>> = Mutex::new(None);

/// This process's world, and its bundles.
struct AmProcess {
    world: World,
    config: WorldConfig,
    /// Addresses of its bundles.
    bundles: Vec<usize>,
}

fn process() -> MutexGuard<'static, Option<AmProcess>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of the present use of the layer.
pub(crate) fn present_use() -> u32 {
    // Relaxed: see `call::check`.
    USE.load(Relaxed)
}

/// Number that is another one in a forked child.
pub(crate) fn forks() -> u32 {
    // Relaxed: written while the process has one thread.
    FORKS.load(Relaxed)
}

/// Ends the use of the layer in a forked child: stores to numbers, as after a fork of a
/// process with several threads.
extern "C" fn begin_child() {
    // Relaxed, all: the child has one thread.
    USE.store(0, Relaxed);
    USES.store(0, Relaxed);
    FORKS.fetch_add(1, Relaxed);
    spmd::begin_child();
}

/// A number that no other process has, and never 0.
pub(crate) fn random_number() -> u64 {
    let mut number = [0u8; 8];
    // Where the system has no number, 1 stays.
    let _ = rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(number) | 1
}

fn watch_forks() {
    static WATCHES: Once = Once::new();
    WATCHES.call_once(|| {
        // SAFETY: the function stores to numbers only. Without memory for it a child is as if it
        // had not been forked.
        unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
    });
}

/// Initialises the layer in a world that the process has entered, unless it is
/// initialised.
///
/// # Errors
///
/// `AM_ERR_RESOURCE` without a world.
pub fn initialise(world: impl FnOnce() -> Result<World, AmError>) -> Result<(), AmError> {
    let mut process = process();
    // Relaxed, all: see `call::check`.
    if USES.load(Relaxed) == 0 {
        // Of the process that has forked this one, if there is any.
        core::mem::forget(process.take());
        watch_forks();
        let world = world()?;
        let config = WorldConfig::from_params(&world.params())?;
        *process = Some(AmProcess { world, config, bundles: Vec::new() });
        USE.store(LAST_USE.fetch_add(1, Relaxed).wrapping_add(1).max(1), Relaxed);
    }
    USES.fetch_add(1, Relaxed);
    Ok(())
}

/// Asks this process's world.
pub(crate) fn ask<T>(question: impl FnOnce(&World, &WorldConfig) -> T) -> Result<T, AmError> {
    check()?;
    match &*process() {
        Some(process) => Ok(question(&process.world, &process.config)),
        None => Err(AmError::NOT_INIT),
    }
}

/// Enters a new bundle.
pub(crate) fn enter<B>(bundle: Box<B>) -> Result<*mut B, AmError> {
    match &mut *process() {
        Some(process) if process.bundles.len() < MAX_BUNDLES => {
            let bundle = Box::into_raw(bundle);
            process.bundles.push(bundle.expose_provenance());
            Ok(bundle)
        }
        Some(_) => Err(refused(AmError::RESOURCE, "a process has 255 bundles at most")),
        None => Err(AmError::NOT_INIT),
    }
}

/// Takes a bundle out. Returns whether it was there.
pub(crate) fn take<B>(bundle: *const B) -> bool {
    let mut process = process();
    let Some(process) = &mut *process else { return false };
    let count = process.bundles.len();
    process.bundles.retain(|&address| address != bundle.addr());
    process.bundles.len() < count
}

/// Addresses of this process's bundles.
pub(crate) fn bundles() -> Vec<usize> {
    process().as_ref().map_or_else(Vec::new, |process| process.bundles.clone())
}

/// Leaves the world. A job's rank may have handles to it that stay.
pub(crate) fn leave() {
    // Relaxed: see `call::check`.
    USE.store(0, Relaxed);
    let left = process().take();
    if let Some(left) = left {
        // A world that can't be left ends with the process.
        let _ = left.world.leave();
    }
}
