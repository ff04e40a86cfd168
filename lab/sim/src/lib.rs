//! Simulated machines: the same algorithms as natively, on processors that are coroutines
//! with clocks of their own, caches, a coherence protocol, a network and an operating system.
//!
//! ```
//! use towpath_machine::{Arena, Ordering, Place, Processor};
//! use towpath_sim::{Simulation, machines};
//!
//! let origin = machines::by_name("origin2000").unwrap();
//! let mut simulation = Simulation::new(&origin, 8, 1);
//! let counter = simulation.arena().word(Place::NewLine, 0);
//! simulation.spawn_all(move |cpu| {
//!     for _ in 0..100 {
//!         cpu.fetch_add(&counter, 1, Ordering::Relaxed);
//!         cpu.work(1_000);
//!     }
//! });
//! let outcome = simulation.run().unwrap();
//! assert_eq!(outcome.counters.conditionals, 800);
//! ```
#![deny(unsafe_code)]

mod access;
mod bus;
mod cache;
mod capabilities;
mod counters;
mod directory;
mod double;
mod engine;
mod events;
mod incoherent;
pub mod machines;
mod memory;
mod network;
mod os;
pub mod parameters;
mod past_cache;
mod processor;
mod random;
mod simulation;
mod standstill;
mod write_once;

pub use counters::{Counters, DISTANCES};
pub use events::Time;
pub use parameters::{ParameterError, Parameters};
pub use past_cache::{Macro, Macros};
pub use processor::{Note, Sim, SimArena, SimBytes, SimCell, SimMutex, SimWord};
pub use random::Random;
pub use simulation::{Outcome, Simulation, Stuck};
