//! Connections to this host's agent that a manager keeps for its next requests.
//!
//! A request takes one, or makes one; it comes back when the lock is given on. A forked child makes
//! its own: those that it has inherited stay its parent's.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

use towpath_lockfile::{LockAccess, check_name};

use crate::Error;
use crate::hosts::HostsFile;
use crate::place::AgentPlace;

/// Maximum number of idle connections.
const IDLE: usize = 16;

/// Hosts of a cluster, this host's name among them, and idle connections to its agent.
#[derive(Debug)]
pub(super) struct ManagerHosts {
    pub(super) file: HostsFile,
    pub(super) host: Option<String>,
    /// Name of this program, for the status.
    program: String,
    /// Connections. It is only tried: a child may have been forked while a thread had it.
    idle: Mutex<Vec<AgentPlace>>,
}

impl ManagerHosts {
    pub(super) fn new(file: HostsFile, host: Option<String>) -> ManagerHosts {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = program.to_string_lossy().into_owned();
        ManagerHosts { file, host, program, idle: Mutex::default() }
    }

    /// Connects to the agent, if no connection is there.
    pub(super) fn connect(&self) -> Result<LentPlace<'_>, Error> {
        let place = match self.take() {
            Some(place) => place,
            None => {
                let mut place = AgentPlace::connect(&self.file, self.host.as_deref())?;
                place.stay();
                place
            }
        };
        Ok(LentPlace { place: Some(place), hosts: self })
    }

    /// Takes a place in a lock's queue.
    pub(super) fn enter(&self, lock: &str, access: LockAccess, tries: bool) -> Result<LentPlace<'_>, Error> {
        check_name(lock)?;
        let mut place = self.connect()?;
        place.ask(lock, access, tries, &self.program);
        Ok(place)
    }

    fn take(&self) -> Option<AgentPlace> {
        let mut idle = self.idle.try_lock().ok()?;
        // This process may be a child, and the agent may have ended meanwhile.
        std::iter::from_fn(|| idle.pop()).find_map(|mut place| place.may_ask_again().then_some(place))
    }

    fn give_back(&self, place: AgentPlace) {
        if let Ok(mut idle) = self.idle.try_lock()
            && idle.len() < IDLE
        {
            idle.push(place);
        }
    }
}

/// Place in a lock's queue, whose connection goes back to its manager.
#[derive(Debug)]
pub(super) struct LentPlace<'a> {
    /// Place, until this is dropped.
    place: Option<AgentPlace>,
    hosts: &'a ManagerHosts,
}

impl LentPlace<'_> {
    /// Returns the place, unless this process is a child of the one that has taken it.
    pub(super) fn own(&mut self) -> Result<&mut AgentPlace, Error> {
        if self.is_inherited() { Err(Error::Inherited) } else { Ok(self) }
    }
}

impl Deref for LentPlace<'_> {
    type Target = AgentPlace;

    fn deref(&self) -> &AgentPlace {
        self.place.as_ref().expect("a place")
    }
}

impl DerefMut for LentPlace<'_> {
    fn deref_mut(&mut self) -> &mut AgentPlace {
        self.place.as_mut().expect("a place")
    }
}

impl Drop for LentPlace<'_> {
    fn drop(&mut self) {
        if let Some(mut place) = self.place.take()
            && place.may_ask_again()
        {
            self.hosts.give_back(place);
        }
    }
}
