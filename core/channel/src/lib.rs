//! Channels between processes that share memory, for any machine.
//!
//! * [`queue`]: packets and blocks of one receiver, written by many senders; [`claim`]: the
//!   algorithms by which a sender takes a packet; [`path`]: sending into a queue and receiving from
//!   it; [`suspicion`]: finding a damaged lock in front of a queue; [`packet`]: a packet's layout.
//! * [`answer_line`]: the line of two endpoints that answer each other, beside their queues.
//! * [`stream`]: words of one sender beside a queue, for short messages that follow each other.
//! * [`offer`]: the word by which a receiver copies a long transfer out of the sender's memory.
//! * [`ring`]: slots of one sender and one receiver; [`shared_line`]: the line that two rings share
//!   for messages that answer each other.
//! * [`places`]: a sender's place among a receiver's members.
//! * [`doorbell`]: the word on which a receiver sleeps, and the handshake by which no wake-up is
//!   lost.
//!
//! Everything is generic over a [`Processor`](towpath_machine::Processor): it runs natively, on
//! simulated machines, in the schedule explorer and under loom. Code that knows processes,
//! addresses and handlers (endpoints, the provider's links) lies in the rooms above.
#![deny(unsafe_code)]

pub mod ab_test;
pub mod answer_line;
mod census;
pub mod claim;
pub mod doorbell;
pub mod offer;
pub mod packet;
pub mod path;
pub mod places;
mod plain;
pub mod queue;
pub mod ring;
pub mod shared_line;
pub mod store_mode;
pub mod stream;
pub mod suspicion;

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
