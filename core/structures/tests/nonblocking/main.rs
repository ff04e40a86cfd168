//! DCAS, type-stable memory and the structures in it: one after the other against models,
//! between threads, interrupted and killed at every access, in zeroed and in hostile memory,
//! between processes of which some are killed.

mod interrupted;
mod models;
mod processes;
#[path = "../stepped/mod.rs"]
mod stepped;
mod subjects;
mod threads;
