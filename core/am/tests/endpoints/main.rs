//! Endpoints between threads and processes, in one program.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod barrier;
mod model;
mod proxy;
mod returned;
mod semantics;
mod streams;
