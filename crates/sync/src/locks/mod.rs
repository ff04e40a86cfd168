//! The locks: one algorithm, one file.

mod ticket;

pub use ticket::{Ticket, TicketTwoLines};
