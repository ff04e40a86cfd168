//! The locks: one algorithm, one file.

mod anderson;
mod clh;
mod compact;
mod hybrid_queue;
mod list;
mod mcs;
mod plain;
mod posix;
mod reactive;
mod robust;
mod scheduler_conscious;
mod test_and_set;
mod test_and_test_and_set;
mod ticket;

pub use anderson::{Anderson, Granted};
pub use clh::{Clh, ClhHeld};
pub use compact::Compact;
pub use hybrid_queue::{HybridHeld, HybridQueue};
pub use mcs::{Mcs, McsHeld};
pub use posix::{Posix, PosixHeld};
pub use reactive::{ModeHint, ModeWord, NoModeWord, Reactive, ReactiveHeld};
pub use robust::{Robust, RobustHeld};
pub use scheduler_conscious::{Kernel, Preemption, Published, SchedulerConscious, SchedulerConsciousHeld};
pub use test_and_set::TestAndSet;
pub use test_and_test_and_set::TestAndTestAndSet;
pub use ticket::{Number, Ticket, TicketTwoLines};
