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
mod ahead;
mod cache;
mod counters;
mod dcas;
mod engine;
mod event_queue;
mod interconnect;
mod machine;
pub mod machines;
mod memory;
mod messages;
mod os;
pub mod parameters;
mod processor;
mod request;
mod same_range;
mod simulation;
mod standstill;
mod task;
mod thread;

pub use counters::{Counters, DISTANCES};
pub use event_queue::Time;
pub use messages::{ArrivedMessage, NodeKernel, Reception};
pub use parameters::{ParameterError, Parameters};
pub use processor::uncached::{Macro, Macros};
pub use processor::{Note, Sim, SimArena, SimBytes, SimCell, SimMutex, SimWord};
pub use same_range::SameRange;
pub use simulation::{Outcome, Simulation, Stuck};
