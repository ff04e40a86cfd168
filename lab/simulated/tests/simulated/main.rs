//! Tests of the simulated machines, in one program: cores share them.

#[path = "../support/mod.rs"]
mod support;

mod ahead;
mod algorithms;
mod avalanche;
mod hostile;
mod incoherent;
mod litmus;
mod locks;
mod machines;
mod polling;
mod protocol;
mod same_range;
mod saturation;
mod scheduling;
mod standstill;
mod write_once;
