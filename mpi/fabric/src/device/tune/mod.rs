//! Settings, and choices that are measured at run time.
pub mod copy_mode;
pub mod settings;
