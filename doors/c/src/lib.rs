//! Towpath for C and C++: `include/towpath.h`, `include/towpath.hpp`.
//!
//! Each function here is one of the header, where it is described. `scripts/install-c.sh` makes
//! `libtowpath.so` and `libtowpath.a` of this crate. A test compares the header's declarations with
//! the functions' signatures.
//!
//! * A handle is a box that C sees as a pointer to an opaque structure. Functions take it as an
//!   `Option` of a reference: the null pointer is `None`, and refused.
//! * No panic gets out: [`call::guarded`] turns it into `TP_EPANIC`.
//! * What lies in memory is laid out and checked by the rooms below; nothing here reads or writes
//!   it otherwise.
//!
//! **Do not use it** from Rust: `towpath` has these primitives with guards.
#![allow(clippy::missing_safety_doc, reason = "the header says what the caller guarantees")]
#![allow(missing_debug_implementations, reason = "handles are opaque")]

pub mod barrier;
pub mod broadcast;
pub mod call;
pub mod condition;
pub mod endpoint;
pub mod event;
pub mod fault;
pub mod messages;
pub mod mutex;
pub mod queue;
pub mod rw_lock;
pub mod semaphore;
pub mod structures;
pub mod thread_number;
pub mod world;
