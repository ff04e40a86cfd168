//! Locks and barriers between threads, and the cost of the native machine: one program.
//!
//! Some of these tests wait while others compute.

mod barriers;
mod cost;
mod locks;
mod statics;

use std::sync::Mutex;

/// Held by a test that compiles, and by one that measures shares of the cores.
static CORES: Mutex<()> = Mutex::new(());
