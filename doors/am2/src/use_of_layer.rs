//! Begin and end of the use of Active Messages, and its limits.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use towpath_am::WorldConfig;
use towpath_shm::World;

use crate::bundle::free;
use crate::call::{AmError, USES, answered, check, refused};
use crate::endpoint::mark_names;
use crate::message::MAX_LONG;
use crate::process;

/// Number of endpoints in the world of a process that no launcher has started.
const ENDPOINTS_ALONE: u32 = 16;

/// The world of `towpath run`, or one of this process alone.
fn world() -> Result<World, AmError> {
    match World::join() {
        Err(towpath_shm::Error::NotLaunched) => {
            let config = WorldConfig { endpoints: ENDPOINTS_ALONE, ..WorldConfig::new(1) };
            let world = World::create(&config.spec(None))?;
            world.enter(None)?;
            mark_names(true);
            Ok(world)
        }
        Err(towpath_shm::Error::RankTaken { rank, pid }) if pid == std::process::id() => Err(refused(
            AmError::RESOURCE,
            &format!("this process has entered the job's world as rank {rank} already, not by AM_Init"),
        )),
        Err(towpath_shm::Error::RankTaken { rank, pid }) => Err(refused(
            AmError::RESOURCE,
            &format!(
                "rank {rank} of the job is process {pid}: a child that a rank has forked is no rank, and has no \
                 place in the job"
            ),
        )),
        joined => {
            let world = joined?;
            mark_names(false);
            Ok(world)
        }
    }
}

/// Begins the use of Active Messages.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_Init() -> c_int {
    answered("AM_Init", || process::initialise(world))
}

/// Ends the use; the last one frees all bundles and endpoints.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_Terminate() -> c_int {
    answered("AM_Terminate", || {
        check()?;
        if USES.load(Relaxed) == 1 {
            for address in process::bundles() {
                free(core::ptr::with_exposed_provenance_mut(address))?;
            }
            process::leave();
        }
        // Relaxed: only whether it is 0 is asked (`check`).
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
    process::ask(|_, config| config.block_size as c_int).unwrap_or(WorldConfig::new(1).block_size as c_int)
}

/// Maximum number of bytes of a transfer.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
pub extern "C" fn AM_MaxLong() -> c_int {
    MAX_LONG as c_int
}
