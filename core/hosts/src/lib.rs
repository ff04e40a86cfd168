//! Worlds that span hosts: gateways between the segments of one world.
//!
//! Each host of such a world has a segment of its own with all ranks ([`World::create_part`]). A
//! [`Gateway`] on each host represents the ranks of the others: local processes send to them as to
//! any other rank, and the gateways carry the messages over links. `docs/hosts.md` says what a
//! program can rely on.
//!
//! ```text
//!   host 1                       host 0                        host 2
//!   ranks ── segment             segment ── ranks              segment ── ranks
//!               │                   │                             │
//!            gateway ── link ── gateway ────────── link ───── gateway
//! ```
//!
//! Hosts are joined in a star: host 0 listens, the others connect to it, and it passes on what two
//! others tell each other. So deaths, arrivals at barriers and their ends have one order for all.
//!
//! | file | contents |
//! | --- | --- |
//! | `gateway.rs` | the API, the threads |
//! | `pump.rs` | a step between the segment and the links |
//! | `local.rs`, `remote.rs` | this host's ranks and endpoints; those of the others |
//! | `inbound.rs` | messages on their way into a local queue |
//! | `agreement.rs` | the end of a barrier's episode |
//! | `item.rs`, `routes.rs`, `link_queue.rs` | items that gateways tell each other; frames on their way |
//! | `expectation.rs` | how long a gateway sleeps |
//!
//! [`World::create_part`]: towpath_shm::World::create_part
#![deny(unsafe_code)]

mod agreement;
mod error;
mod expectation;
mod gateway;
mod hosts;
mod inbound;
mod item;
mod link_queue;
mod local;
mod pump;
#[cfg(test)]
mod pump_tests;
mod remote;
mod routes;

pub use error::Error;
pub use gateway::Gateway;
pub use hosts::{Hosts, MAX_HOSTS};
pub use pump::News;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
