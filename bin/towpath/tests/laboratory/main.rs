//! Commands of the laboratory, in one program.

mod explore;
mod output;
mod screen;
mod sim;
mod terminal;
