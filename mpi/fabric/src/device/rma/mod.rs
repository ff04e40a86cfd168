//! Remote memory access: one-sided operations, which the owner of the memory performs.
pub mod atomics;
pub mod onesided;
pub mod regions;
