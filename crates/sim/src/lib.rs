//! Simulated machines: the same algorithms as natively, on processors that are coroutines with clocks of their own, caches, a coherence protocol, a network and an
//! operating system.
#![deny(unsafe_code)]

pub mod explore;
