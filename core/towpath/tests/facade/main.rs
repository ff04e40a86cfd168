//! The face of the library, in one program.

mod errors;
mod forked;
mod names;
mod objects;
