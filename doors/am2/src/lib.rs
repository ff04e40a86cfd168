//! Active Messages II for C: `include/am2.h`, `include/ammpi.h`, `include/ammpi_spmd.h`.
//!
//! Each function here is one of the headers, where it is described. Names, numbers and the meaning
//! of calls are those of the specification (Mainwaring & Culler 1996); the start-up's are those
//! that AM programs of GASNet's family use. Below are Towpath's endpoints, so messages come back
//! from dead processes, and Rust programs of the same world can take part.
//!
//! | file | contents |
//! | --- | --- |
//! | `call.rs` | the frame of every call: null pointers, errors as numbers, panics |
//! | `process.rs`, `use_of_layer.rs` | this process's world, and how its use begins and ends |
//! | `turn.rs`, `bundle.rs` | bundles, the turns of threads, events |
//! | `endpoint.rs`, `translation.rs` | endpoints: tag, segment, table |
//! | `handler.rs`, `token.rs` | handlers and what they are told |
//! | `message.rs`, `get.rs`, `numbered.rs` | requests, replies and gets |
//! | `statistics.rs`, `spmd.rs` | what goes beyond the specification |
//!
//! **Do not use it** from Rust: `towpath` has these endpoints with types.
#![allow(non_snake_case, reason = "the names are those of the specification")]
#![allow(clippy::missing_safety_doc, reason = "the headers say what the caller guarantees")]
#![allow(missing_debug_implementations, reason = "handles are opaque")]

pub mod bundle;
pub mod call;
pub mod endpoint;
pub mod get;
pub mod handler;
pub mod message;
pub mod numbered;
pub mod process;
pub mod spmd;
pub mod statistics;
pub mod token;
pub mod translation;
mod turn;
pub mod use_of_layer;

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod get_tests;
#[cfg(test)]
mod header_tests;
#[cfg(test)]
mod numbered_tests;
#[cfg(test)]
mod returned_tests;
