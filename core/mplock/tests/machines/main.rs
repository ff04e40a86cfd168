//! State machines of the locks by message, in one program.

#[path = "../network/mod.rs"]
mod network;

mod histories;
mod table1;
