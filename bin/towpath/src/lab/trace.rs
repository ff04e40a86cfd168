//! Replays of traces that `towpath preload --trace` has written.

use std::path::Path;

use towpath_host::trace::{LockReplay, LockTrace};

use crate::{CommandFailure, output};

/// Maximum number of threads of a replay on a simulated machine.
pub const MOST_SIMULATED: usize = 64;

/// The replay of a file, by at most so many threads.
pub fn replay(file: &Path, most: usize) -> Result<LockReplay, CommandFailure> {
    let failed = |why: String| CommandFailure::new(why).with_code(2);
    let trace = LockTrace::read(file).map_err(failed)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let replay = LockReplay::new(&trace, most, cores).map_err(failed)?;
    if trace.dropped > 0 {
        output::remark!(
            "towpath: the trace had no room for {} events: it has the program's beginning; more with `towpath preload --trace-events N`",
            trace.dropped
        );
    }
    if trace.forks > 0 {
        output::remark!(
            "towpath: the trace has nothing of the {} processes that the program forked",
            trace.forks
        );
    }
    Ok(replay)
}
