//! Active Messages through shared memory, with the semantics of Active Messages II
//! (Mainwaring & Culler 1996).
//!
//! An [`Endpoint`] has a receive block in the world's memory: a request queue and a reply queue,
//! each with a packet queue and a shorter bulk queue (Lumetta & Culler 1998, Figure 1). Many send
//! to it and one receives. How concurrent senders come to own a packet is the world's claim
//! [`Algorithm`]; how everybody waits is its policy.
//!
//! All of it is written for any machine: the queues ([`queue`], [`claim`], [`packet`]) for any
//! processor, and endpoints for any [`domain`], that is, wherever there are processors, queues, a
//! directory and somebody who knows who lives. Without further words an endpoint is native, in a
//! world's [`SharedMemory`].
#![deny(unsafe_code)]

mod attach;
mod barrier;
mod bundle;
mod deliver;
mod directory;
pub mod domain;
mod endpoint;
mod error;
mod habit;
mod layout;
mod name;
mod outstanding;
mod parallel;
mod segment;
mod send;
mod signal;
mod token;

pub use towpath_channel::{claim, packet, path, queue, suspicion};

pub use attach::SharedMemory;
pub use bundle::{Bundle, Events};
pub use claim::Algorithm;
pub use endpoint::{Audit, Endpoint};
pub use error::{Error, Status};
pub use layout::{LAYOUT, Layout, MAX_ENDPOINTS, WorldConfig};
pub use name::{Name, Tag};
pub use packet::MAX_ARGS;
pub use parallel::{ParallelBundle, ParallelEndpoint};
pub use segment::{Segment, SegmentKind};
pub use signal::SignalEndpoint;
pub use token::{Operation, Payload, Returned, Token};
