//! Primitives that survive deaths: between threads, and under the model checker, with
//! each ordering weakened in turn.

mod broadcast;
mod loom_broadcast;
mod loom_others;
mod loom_queues;
mod loom_rw;
mod others;
mod queues;
mod rw_lock;
mod support;
// Shared with the other models.
#[path = "../weakened/mod.rs"]
mod weakened;
