//! Worlds: damaged, dead in part, named, and in order; in one program.

#[path = "../common/mod.rs"]
mod common;

mod damaged;
mod deaths;
mod errors;
mod named;
mod reused_and_frozen;
mod squatted;
mod world;
