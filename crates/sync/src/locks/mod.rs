//! The locks: one algorithm, one file.

mod anderson;
mod clh;
mod hybrid_queue;
mod list;
mod mcs;
mod plain;
mod posix;
mod robust;
mod test_and_set;
mod test_and_test_and_set;
mod ticket;

pub use anderson::{Anderson, Granted};
pub use clh::{Clh, ClhHeld};
pub use hybrid_queue::{HybridHeld, HybridQueue};
pub use mcs::{Held as McsHeld, Mcs};
pub use posix::{Posix, PosixHeld};
pub use robust::{Robust, RobustHeld};
pub use test_and_set::TestAndSet;
pub use test_and_test_and_set::TestAndTestAndSet;
pub use ticket::{Number, Ticket, TicketTwoLines};
