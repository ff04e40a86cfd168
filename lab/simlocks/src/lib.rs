//! Paper K's locks on simulated machines, and the waiting of all algorithms there
//! (Kuo, Carter & Kuramkote 1998).
//!
//! * `table.rs`: a table of locks of one kind, by message or in shared memory.
//! * `managers.rs`: lock managers in the nodes' kernels, over the state machines of `core/mplock`.
//! * `backing_off.rs`: the paper's test&test&set.
//! * `one_sided.rs`: locks by one-sided operations, which are no part of the paper.
//! * `patience.rs`: waiting as on the machine that is simulated.
//!
//! A room of its own since it is optimised, as the papers' experiments are not.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod backing_off;
mod managers;
mod one_sided;
mod patience;
mod table;

pub use managers::ForwardsInside;
pub use patience::Patience;
pub use table::{HomePlacement, LockTable, MOST_NODES, Mix, Scheme};
