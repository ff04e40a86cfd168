//! World of this process: joined or made by `AM_Init`, left by the last `AM_Terminate`.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_am::WorldConfig;
use towpath_shm::World;

use crate::bundle::{AmBundle, free};
use crate::call::{AmError, answered, refused};

/// Number of endpoints in the world of a process that no launcher has started.
const ENDPOINTS_ALONE: u32 = 16;

/// Number of bundles that a process may have.
const MAX_BUNDLES: usize = 255;

/// Number of calls of `AM_Init` without their `AM_Terminate`.
static USES: AtomicU32 = AtomicU32::new(0);

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

/// Checks that the layer is initialised.
#[inline]
pub(crate) fn check() -> Result<(), AmError> {
    // Relaxed: what the initialisation has made is reached through handles, which its thread passes
    // on by means of the program's own.
    if USES.load(Relaxed) > 0 { Ok(()) } else { Err(refused(AmError::NOT_INIT, "call AM_Init first")) }
}

/// The world of `towpath run`, or one of this process alone.
fn world() -> Result<World, AmError> {
    match World::join() {
        Err(towpath_shm::Error::NotLaunched) => {
            let config = WorldConfig { endpoints: ENDPOINTS_ALONE, ..WorldConfig::new(1) };
            let world = World::create(&config.spec(None))?;
            world.enter(None)?;
            Ok(world)
        }
        joined => Ok(joined?),
    }
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
    // Relaxed: see `check`.
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
pub(crate) fn enter(bundle: Box<AmBundle>) -> Result<*mut AmBundle, AmError> {
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
pub(crate) fn take(bundle: *const AmBundle) -> bool {
    let mut process = process();
    let Some(process) = &mut *process else { return false };
    let count = process.bundles.len();
    process.bundles.retain(|&address| address != bundle.addr());
    process.bundles.len() < count
}

/// Begins the use of Active Messages.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_Init() -> c_int {
    answered(|| initialise(world))
}

/// Ends the use; the last one frees all bundles and endpoints.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_Terminate() -> c_int {
    answered(|| {
        check()?;
        if USES.load(Relaxed) == 1 {
            let bundles = process().as_ref().map_or_else(Vec::new, |process| process.bundles.clone());
            for address in bundles {
                free(core::ptr::with_exposed_provenance_mut(address))?;
            }
            let ended = process().take();
            drop(ended);
        }
        // Relaxed: see `check`.
        USES.fetch_sub(1, Relaxed);
        Ok(())
    })
}

/// Maximum number of arguments of a message.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_MaxShort() -> c_int {
    towpath_am::MAX_ARGS as c_int
}

/// Maximum number of bytes of a medium message: a block of the world.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_MaxMedium() -> c_int {
    ask(|_, config| config.block_size as c_int).unwrap_or(WorldConfig::new(1).block_size as c_int)
}

/// Maximum number of bytes of a transfer.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_MaxLong() -> c_int {
    crate::message::MAX_LONG as c_int
}
