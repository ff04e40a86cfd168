//! Channels between processes that share memory, for any machine.
//!
//! * [`queue`]: packets and blocks of one receiver, written by many senders; [`claim`]: the
//!   algorithms by which a sender takes a packet; [`path`]: sending into a queue and receiving from
//!   it; [`suspicion`]: finding a damaged lock in front of a queue; [`packet`]: a packet's layout.
//!
//! Everything is generic over a [`Processor`](towpath_machine::Processor): it runs natively, on
//! simulated machines, in the schedule explorer and under loom. What knows processes, addresses and
//! handlers (endpoints, the provider's links) lies in the rooms above.
#![deny(unsafe_code)]

pub mod claim;
pub mod packet;
pub mod path;
mod plain;
pub mod queue;
pub mod suspicion;
