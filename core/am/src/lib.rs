//! Active Messages through shared memory, with the semantics of Active Messages II
//! (Mainwaring & Culler 1996).
//!
//! An [`Endpoint`] has a receive block in the world's memory: a request queue and a reply queue,
//! each with a packet queue and a shorter bulk queue (Lumetta & Culler 1998, Figure 1). Many
//! endpoints send to it and one receives. Senders take packets by the world's claim [`Algorithm`],
//! and wait by its policy.
//!
//! All of it is written for any machine: the queues ([`queue`], [`claim`], [`packet`]) for any
//! processor, and endpoints for any [`Domain`] ([`domain`]): memory, membership, and ways to wait.
//! By default an endpoint is native, in a world's [`SharedMemory`].
//!
//! | file | contents |
//! | --- | --- |
//! | `domain.rs`, `entry.rs`, `layout.rs` | the world around an endpoint, and the layout of its memory |
//! | `shared_memory.rs` | the native domain |
//! | `state.rs` | the state of an endpoint |
//! | `endpoint.rs`, `translation.rs`, `requests.rs`, `token.rs` | the API |
//! | `handlers.rs` | handlers that are set |
//! | `segment.rs`, `lent_memory.rs`, `lending.rs` | where long messages go |
//! | `outgoing.rs`, `send.rs`, `deliver.rs` | messages out and in |
//! | `answers.rs`, `streams.rs` | short messages beside the queues |
//! | `stores.rs` | long messages into the receiver's shared segment |
//! | `offers.rs`, `offer_choice.rs` | long messages out of the sender's memory |
//! | `directory.rs`, `census.rs`, `upkeep.rs`, `outstanding.rs` | deaths and successors |
//! | `bundle.rs`, `barrier.rs`, `parallel.rs`, `sleep.rs`, `signal.rs` | several endpoints, ranks, threads; signals |
//! | `proxy.rs` | endpoints of other hosts' ranks, for gateways |
//! | `reply_predictor.rs` | prefetch of the line that an answer will use |
#![deny(unsafe_code)]

mod answers;
mod audit;
mod barrier;
mod bundle;
#[doc(hidden)]
pub mod calls;
mod census;
mod deliver;
mod directory;
pub mod domain;
mod endpoint;
mod entry;
mod error;
mod handlers;
mod layout;
mod lending;
mod lent_memory;
mod message;
mod name;
mod offer_choice;
mod offers;
mod outgoing;
mod outstanding;
mod parallel;
mod proxy;
mod reply_predictor;
mod requests;
mod segment;
mod send;
mod shared_memory;
mod signal;
mod signalled;
mod sleep;
mod state;
mod stores;
mod streams;
mod token;
mod translation;
mod upkeep;

pub use towpath_channel::{answer_line, claim, packet, path, queue, stream, suspicion};

pub use audit::Audit;
pub use barrier::PollsAtBarrier;
pub use bundle::{Bundle, Events};
pub use claim::Algorithm;
pub use endpoint::Endpoint;
pub use error::{Error, Status};
pub use layout::{LAYOUT, Layout, MAX_ENDPOINTS, WorldConfig};
pub use message::{Direction, Operation, Payload, Returned};
pub use name::{Name, Tag};
pub use packet::MAX_ARGS;
pub use parallel::{ParallelBundle, ParallelEndpoint};
pub use proxy::{EndpointWatch, ForwardedMessage, ForwardedPiece, Proxy, QueueWatch};
pub use segment::{PrivateSegment, Segment, SegmentKind};
pub use shared_memory::{SharedMemory, SharedSegment};
pub use signal::SignalEndpoint;
pub use sleep::EndpointSleep;
pub use state::{Domain, Token};

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
