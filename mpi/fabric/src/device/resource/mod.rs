//! Objects that operations refer to: buffers, memory regions, completions.
pub mod buffers;
pub mod completion;
pub mod regions;
pub mod slab;
