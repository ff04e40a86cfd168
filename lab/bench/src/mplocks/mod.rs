//! Locks by message beside other locks between processes.
//!
//! The cost of an acquisition in each of the states that paper K knows, under contention, and after
//! a holder's death.
//!
//! `mod.rs` says which locks and states there are; `players.rs` how a process uses each lock of
//! this host, `remote.rs` those of servers; `servers.rs` starts and ends servers, `folder.rs` is
//! where their data lie. `plays.rs` is what the processes do in each state, `signalled.rs`
//! interrupts one of them, `kills.rs` kills holders; `win_lock.rs` has an MPI do it.
//! `measure.rs` puts them together; `shown.rs` makes the tables.

mod folder;
mod kills;
mod measure;
mod players;
mod plays;
mod remote;
mod servers;
pub(crate) mod shown;
mod signalled;
mod win_lock;

pub use folder::{LeftFolder, left_folders};
pub use measure::{MpLockBench, p99};
#[cfg(test)]
pub use servers::missing_server;

/// Lock, or messages of a lock by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockAlgorithm {
    /// Ours by message: ownership always returns to the lock's home.
    Central,
    /// Ours by message: ownership stays at its last holder.
    Distributed,
    /// Ours by message: as the one or the other.
    Reactive,
    /// `Central`, of managers with a progress thread.
    CentralThread,
    /// `Distributed`, of managers with a progress thread.
    DistributedThread,
    /// `Reactive`, of managers with a progress thread.
    ReactiveThread,
    /// A pthread mutex in shared memory, robust.
    Posix,
    /// Our lock for processes that may die.
    Robust,
    /// Mellor-Crummey and Scott's queue.
    Mcs,
    /// flock(2) on a file.
    Flock,
    /// Ours across hosts: agents over loopback TCP.
    Hosts,
    /// The lock recipe of an etcd on this host.
    Etcd,
    /// `SET key value NX PX` of a Redis on this host.
    Redis,
    /// `MPI_Win_lock` of MPICH.
    Mpich,
    /// `MPI_Win_lock` of Open MPI.
    OpenMpi,
    /// Request of an endpoint and its reply: no lock, but the way of `Central`.
    Endpoint,
    /// Request of an endpoint to one that a signal polls, and its reply: no lock.
    EndpointSignal,
    /// Frame over an encrypted loopback link and back: no lock, but the way of `Hosts`.
    Link,
}

impl LockAlgorithm {
    /// All of them, in the order in which tables show them.
    pub const ALL: [LockAlgorithm; 18] = [
        LockAlgorithm::Reactive,
        LockAlgorithm::Distributed,
        LockAlgorithm::Central,
        LockAlgorithm::ReactiveThread,
        LockAlgorithm::DistributedThread,
        LockAlgorithm::CentralThread,
        LockAlgorithm::Posix,
        LockAlgorithm::Robust,
        LockAlgorithm::Mcs,
        LockAlgorithm::Flock,
        LockAlgorithm::Mpich,
        LockAlgorithm::OpenMpi,
        LockAlgorithm::Hosts,
        LockAlgorithm::Etcd,
        LockAlgorithm::Redis,
        LockAlgorithm::Endpoint,
        LockAlgorithm::EndpointSignal,
        LockAlgorithm::Link,
    ];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            LockAlgorithm::Central => "central",
            LockAlgorithm::Distributed => "distributed",
            LockAlgorithm::Reactive => "reactive",
            LockAlgorithm::CentralThread => "central-thread",
            LockAlgorithm::DistributedThread => "distributed-thread",
            LockAlgorithm::ReactiveThread => "reactive-thread",
            LockAlgorithm::Posix => "posix",
            LockAlgorithm::Robust => "robust",
            LockAlgorithm::Mcs => "mcs",
            LockAlgorithm::Flock => "flock",
            LockAlgorithm::Hosts => "hosts",
            LockAlgorithm::Etcd => "etcd",
            LockAlgorithm::Redis => "redis",
            LockAlgorithm::Mpich => "mpich",
            LockAlgorithm::OpenMpi => "open-mpi",
            LockAlgorithm::Endpoint => "endpoint",
            LockAlgorithm::EndpointSignal => "endpoint-signal",
            LockAlgorithm::Link => "link",
        }
    }

    /// The algorithm of that name.
    #[cfg(test)]
    pub fn from_name(name: &str) -> Option<LockAlgorithm> {
        LockAlgorithm::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns whether the lock is measured in that state.
    pub const fn has(self, state: LockState) -> bool {
        match self {
            LockAlgorithm::Endpoint | LockAlgorithm::Link => matches!(state, LockState::RemoteIdle),
            LockAlgorithm::EndpointSignal => matches!(state, LockState::Computing),
            LockAlgorithm::CentralThread
            | LockAlgorithm::DistributedThread
            | LockAlgorithm::ReactiveThread => matches!(
                state,
                LockState::LocalIdle | LockState::RemoteIdle | LockState::RemoteBusy | LockState::Computing
            ),
            // Its acquisitions of fresh names are those of an idle lock elsewhere, whatever that
            // computes: the agent answers.
            LockAlgorithm::Hosts => !matches!(state, LockState::LocalIdle | LockState::Computing),
            LockAlgorithm::Mpich | LockAlgorithm::OpenMpi => {
                matches!(state, LockState::LocalIdle | LockState::RemoteIdle | LockState::BackToBack)
            }
            // A dead holder's place in the queue stays.
            LockAlgorithm::Mcs => !matches!(state, LockState::Killed),
            _ => true,
        }
    }
}

/// State of a lock, as paper K has them, and a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockState {
    /// Free, and last used by this process.
    LocalIdle,
    /// Free, and last used by another process.
    RemoteIdle,
    /// Held by another process, which then releases it.
    RemoteBusy,
    /// Free, and last used by its home, which computes for 2 ms between two calls.
    Computing,
    /// Wanted by all at once, which come back to it after a microsecond or so.
    Contended,
    /// Wanted by all at once, which come back to it at once.
    BackToBack,
    /// Held by another process, which is then killed.
    Killed,
}

impl LockState {
    /// All of them.
    pub const ALL: [LockState; 7] = [
        LockState::LocalIdle,
        LockState::RemoteIdle,
        LockState::RemoteBusy,
        LockState::Computing,
        LockState::Contended,
        LockState::BackToBack,
        LockState::Killed,
    ];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            LockState::LocalIdle => "local idle",
            LockState::RemoteIdle => "remote idle",
            LockState::RemoteBusy => "remote busy",
            LockState::Computing => "computing",
            LockState::Contended => "contended",
            LockState::BackToBack => "back to back",
            LockState::Killed => "killed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_found_by_name_and_every_state_has_rivals() {
        assert!(LockAlgorithm::ALL.iter().all(|it| LockAlgorithm::from_name(it.name()) == Some(*it)));
        for state in LockState::ALL {
            assert!(LockAlgorithm::ALL.iter().filter(|it| it.has(state)).count() >= 8, "{state:?}");
        }
    }
}
