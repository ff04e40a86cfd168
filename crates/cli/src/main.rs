//! The command `towpath`.
fn main() {}
