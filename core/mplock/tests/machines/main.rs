//! State machines of the locks by message, in one program.

mod deaths;
mod histories;
mod loans;
mod network;
mod seats;
mod table1;
mod tries;
