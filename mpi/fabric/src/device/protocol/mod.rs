//! Protocols between two endpoints: frames, eager and rendezvous messages, matching.
pub mod cross_memory;
mod deliver;
mod eager;
pub mod frame;
pub mod matching;
mod outgoing;
pub mod receive;
mod rendezvous;
pub mod stream;
pub mod wire;
