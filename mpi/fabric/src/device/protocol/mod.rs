//! Protocols between two endpoints: frames, matching, one-sided operations.
pub mod atomics;
pub mod cross_memory;
pub mod deliver;
pub mod frame;
pub mod matching;
pub mod onesided;
pub mod receive;
