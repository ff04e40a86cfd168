//! Locks of this host as a process of a measurement uses them.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use rustix::fs::{FlockOperation, flock};
use towpath::mplock::{Guard, Lock, LockTraffic, Manager, Protocol};
use towpath::sync::locks::{Mcs, Posix, Robust};
use towpath::sync::{Exclusive, Lock as SyncLock};
use towpath::{Concurrent, Mutex, Object, Shared, World, machine::Native};

/// Lock of a process of a measurement.
pub trait LockPlayer {
    /// True if acquisitions go through another process that needs a core.
    const HAS_SERVER: bool = false;

    /// Acquires the lock, calls `inside`, and releases it.
    fn hold(&self, inside: impl FnOnce()) -> Result<(), String>;

    /// Answers other processes, where that is needed for them to go on.
    fn serve(&self) {}

    /// Serves until all processes have come here.
    fn part(&self) {}

    /// Messages that this process has sent.
    fn traffic(&self) -> LockTraffic {
        LockTraffic::default()
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A lock of ours, by message.
pub struct ByMessage<'a> {
    manager: &'a Manager,
    lock: Lock,
}

impl<'a> ByMessage<'a> {
    /// A lock whose home is that rank.
    pub fn new(manager: &'a Manager, protocol: Protocol, home: u32) -> ByMessage<'a> {
        let mut names = (0..).map(|n| manager.lock_with(&format!("lock {n}"), protocol));
        let lock = names.find(|lock| lock.home() == home);
        ByMessage { manager, lock: lock.unwrap_or_else(|| manager.lock_with("lock", protocol)) }
    }
}

impl LockPlayer for ByMessage<'_> {
    fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        let guard: Guard<'_> = self.lock.acquire().map_err(text)?;
        inside();
        drop(guard);
        Ok(())
    }
    fn serve(&self) {
        self.manager.poll();
    }
    fn part(&self) {
        // A rank that died in it is the measurement's subject.
        let _ = self.manager.barrier();
    }
    fn traffic(&self) -> LockTraffic {
        self.manager.traffic()
    }
}

/// A mutex in shared memory.
pub struct InMemory<L: SyncLock<Native> + Concurrent + Object>(Shared<Mutex<AtomicU64, L>>);

impl<L: SyncLock<Native> + Exclusive + Concurrent + Object> InMemory<L> {
    /// The world's.
    pub fn new(world: &World) -> Result<InMemory<L>, String> {
        world.shared("lock", Mutex::prepare).map(InMemory).map_err(text)
    }
}

/// A pthread mutex.
pub type PosixPlayer = InMemory<Posix<Native>>;
/// Ours.
pub type RobustPlayer = InMemory<Robust<Native>>;
/// A queue.
pub type McsPlayer = InMemory<Mcs<Native, 64>>;

impl<L: SyncLock<Native> + Exclusive + Concurrent + Object> LockPlayer for InMemory<L> {
    #[inline]
    fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        match self.0.lock() {
            Ok(guard) => {
                inside();
                drop(guard);
            }
            Err(towpath::LockError::OwnerDied { guard, .. }) => {
                inside();
                drop(guard);
            }
            Err(other) => return Err(text(other)),
        }
        Ok(())
    }
}

/// A file under flock(2).
pub struct FlockPlayer(File);

impl FlockPlayer {
    /// The file in that folder.
    pub fn new(folder: &Path) -> Result<FlockPlayer, String> {
        File::create(folder.join("lock")).map(FlockPlayer).map_err(text)
    }
}

impl LockPlayer for FlockPlayer {
    fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        flock(&self.0, FlockOperation::LockExclusive).map_err(text)?;
        inside();
        flock(&self.0, FlockOperation::Unlock).map_err(text)
    }
}
