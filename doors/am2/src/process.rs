//! World of this process, and its bundles.

use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_am::WorldConfig;
use towpath_shm::World;

use crate::call::{AmError, USES, check, refused};

/// Number of bundles that a process may have.
const MAX_BUNDLES: usize = 255;

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

/// Initialises the layer in a world that the process has entered, unless it is
/// initialised.
///
/// # Errors
///
/// `AM_ERR_RESOURCE` without a world.
pub fn initialise(world: impl FnOnce() -> Result<World, AmError>) -> Result<(), AmError> {
    let mut process = process();
    if process.is_none() {
        let world = world()?;
        let config = WorldConfig::from_params(&world.params())?;
        *process = Some(AmProcess { world, config, bundles: Vec::new() });
    }
    // Relaxed: see `call::check`.
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

/// Leaves the world.
pub(crate) fn leave() {
    let left = process().take();
    drop(left);
}
