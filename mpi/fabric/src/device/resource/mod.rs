//! Objects that operations refer to: buffers, completions, numbered values.
pub mod buffers;
pub mod completion;
pub mod slab;
