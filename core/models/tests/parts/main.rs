//! Parts of the channel with orderings weakened, in one program.

#[path = "../weakened/mod.rs"]
mod weakened;

mod answer_line;
mod doorbell;
mod offer;
mod ring;
mod stream;
