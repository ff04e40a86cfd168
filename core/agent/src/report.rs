//! Status of a cluster, as agents and commands exchange it.

use serde::{Deserialize, Serialize};

/// Holder or waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientRow {
    /// Its process on its host.
    pub pid: u32,
    /// Its description: of `towpath lock`, the command.
    pub command: String,
    /// True if it only reads.
    pub shared: bool,
    /// Its token, of a holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Time since which it holds or waits, in nanoseconds since 1970.
    pub since: u64,
}

/// Lock as one host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostLockRow {
    /// Its name.
    pub name: String,
    /// Number of its home in the hosts file, from 0.
    pub home: u16,
    /// Largest token that the host knows of.
    pub token: u64,
    /// True if the idle lock is kept on this host.
    pub cached: bool,
    /// Number of messages between hosts that brought this host its last grant.
    pub hops: u32,
    /// Time from the last request for it to its grant, in nanoseconds, if one was sent.
    pub waited: u64,
    /// True if its holders were told that an owner died.
    pub previous_owner_died: bool,
    /// Holders on this host.
    pub holders: Vec<ClientRow>,
    /// Waiters on this host, in order.
    pub waiters: Vec<ClientRow>,
    /// Holders that still run, and have lost the lock with this host's membership.
    pub lost: Vec<ClientRow>,
    /// Number of holders and waiters left out: those behind the first thousand of each.
    #[serde(default)]
    pub omitted: usize,
}

/// Host as its agent reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostReport {
    /// Its name.
    pub host: String,
    /// True if its agent has answered.
    pub reachable: bool,
    /// True if it takes part, by its own knowledge.
    pub member: bool,
    /// True if it has a lease: its holders may count on their locks.
    pub lease: bool,
    /// Epoch of the membership.
    pub epoch: u32,
    /// Its locks, by name.
    pub locks: Vec<HostLockRow>,
    /// Number of locks that are left out: those behind the first mebibyte.
    #[serde(default)]
    pub omitted: usize,
}
