//! The barriers: one algorithm, one file.

mod centralized;
mod dissemination;
mod list;
mod mcs_tree;
mod member;
mod plain;

pub use centralized::Centralized;
pub use dissemination::Dissemination;
pub use mcs_tree::McsTree;
