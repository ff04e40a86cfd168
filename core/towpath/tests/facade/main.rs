//! The face of the library, in one program.

mod forked;
mod names;
mod objects;
