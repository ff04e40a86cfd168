//! Claim on an agent's state: one agent of a user uses it at a time.
//!
//! Agents that use one directory have each a locked file in it, named after their list of hosts.
//! An agent that starts takes its own file and looks at the others' while it holds the file
//! `starting`. So of agents that start at one moment the first one goes on.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Time for which another agent's start is waited for.
///
/// An agent that is stopped in the midst of its start does not keep others from theirs: then each
/// of two may refuse.
const START: Duration = Duration::from_secs(2);

/// Reason why a state can't be used.
#[derive(Debug)]
pub(crate) enum StateTaken {
    /// An agent with the same list of hosts uses it.
    Same,
    /// An agent with another list of hosts uses it.
    Other,
}

/// Claim on a directory of state. It ends when dropped, or with the process.
#[derive(Debug)]
pub(crate) struct StateClaim {
    _file: File,
}

impl StateClaim {
    /// Claims a directory for the agent that keeps this log.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn claim(state: &Path, log: &Path) -> io::Result<Result<StateClaim, StateTaken>> {
        let own = log.with_extension("running");
        let starting = File::create(state.join("starting"))?;
        let begun = Instant::now();
        while flock(&starting, FlockOperation::NonBlockingLockExclusive).is_err() && begun.elapsed() < START {
            thread::sleep(Duration::from_millis(1));
        }
        let file = File::create(&own)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(Err(StateTaken::Same));
        }
        let is_other = has_another(state, &own)?;
        Ok(if is_other { Err(StateTaken::Other) } else { Ok(StateClaim { _file: file }) })
    }
}

/// Returns whether an agent with another list of hosts uses the state in a directory.
fn has_another(state: &Path, own: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(state)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "running") && path != own {
            let other = File::open(&path)?;
            if flock(&other, FlockOperation::NonBlockingLockShared).is_err() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents that start at the same time wait for each other: both would refuse
    /// otherwise.
    #[test]
    fn agent_that_starts_while_another_does_waits_for_it() {
        let state = std::env::temp_dir().join(format!("towpath-agent-running-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        let locked = |name: &str| {
            let file = File::create(state.join(name)).unwrap();
            flock(&file, FlockOperation::LockExclusive).unwrap();
            file
        };
        let claim = |list: &str| StateClaim::claim(&state, &state.join(list)).unwrap();
        let starting = locked("starting");
        let other = locked("log-b.running");
        thread::scope(|scope| {
            let second = scope.spawn(|| claim("log-a"));
            thread::sleep(Duration::from_millis(30));
            assert!(!second.is_finished());
            // The first one gives up.
            drop(other);
            drop(starting);
            assert!(second.join().unwrap().is_ok());
        });
        let first = claim("log-a").unwrap();
        assert!(matches!(claim("log-a"), Err(StateTaken::Same)));
        assert!(matches!(claim("log-b"), Err(StateTaken::Other)));
        drop(first);
        assert!(claim("log-b").is_ok());
        fs::remove_dir_all(&state).unwrap();
    }
}
