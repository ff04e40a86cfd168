//! Locks that span hosts: one agent per host.
//!
//! An [`Agent`] holds the host's side of all locks and serves the host's processes over a Unix
//! socket ([`AgentPlace`]); a process that dies closes its connection. Agents talk over links of
//! [`towpath_net`]. The state machines of the locks are those of [`towpath_mplock`], with hosts as
//! nodes; a quorum of the agents decides, by OmniPaxos, which hosts take part.
//!
//! | file | contents |
//! | --- | --- |
//! | `hosts.rs` | the hosts file |
//! | `agent.rs`, `agent/`, `dial.rs`, `socket.rs` | input and output: links, connections of processes, time |
//! | `service.rs`, `service/` | the locks of a host |
//! | `membership.rs`, `consensus.rs`, `journal.rs` | which hosts take part; the quorum's log, on disk |
//! | `running.rs` | one agent of a user uses a state at a time |
//! | `lease.rs` | until when a host may count on its locks |
//! | `session.rs`, `frame.rs` | letters in order and once; frames as bytes |
//! | `place.rs`, `report.rs` | what processes of the host use |
//! | `client/` | the same for Rust programs: locks and guards |
//! | `look.rs` | how threads wait for events |
//!
//! Without the feature `serve` there is no agent, only the client.
#![deny(unsafe_code)]

#[cfg(feature = "serve")]
mod agent;
pub mod client;
#[cfg(feature = "serve")]
mod consensus;
#[cfg(feature = "serve")]
mod dial;
mod error;
#[cfg(feature = "serve")]
mod frame;
mod hosts;
#[cfg(feature = "serve")]
mod journal;
#[cfg(feature = "serve")]
mod lease;
mod look;
#[cfg(feature = "serve")]
mod membership;
mod place;
mod report;
#[cfg(feature = "serve")]
mod running;
#[cfg(feature = "serve")]
mod service;
#[cfg(feature = "serve")]
mod session;
mod socket;

#[cfg(feature = "serve")]
pub use agent::Agent;
pub use error::Error;
pub use hosts::{ClusterHost, HostsFile};
pub use place::{AgentPlace, PlaceNews, cluster_status};
pub use report::{ClientRow, HostLockRow, HostReport};
pub use socket::{dead_agents, remove_dead_agent};
