//! Locks of an etcd that exists already, by its JSON gateway over HTTP.
//!
//! A holder has a *lease*, which a thread keeps alive, and a key of that lease. The keys of
//! writers are those of etcd's own recipe: below `towpath/NAME/`, named after the lease; the one
//! that was made first holds the lock. Readers have keys of their own there, which writers wait
//! for. So the revision at which a key was made is a *fencing token*: it is larger than those of
//! all holders before. A holder that dies, or is cut off from etcd, loses its lease, and with it
//! the key: the next waiter has the lock at most [`LEASE`] later, and a second or two of etcd's
//! own.
//!
//! | file | contents |
//! | --- | --- |
//! | `client.rs` | requests to etcd and their answers; etcd's own recipe |
//! | `login.rs` | the user of an etcd that asks for one |
//! | `queue.rs` | keys of a lock, and what each of them waits for |
//! | `place.rs` | a place in the queue of a lock, its lease and its news |
//! | `status.rs` | holders and waiters |
#![forbid(unsafe_code)]

mod client;
mod error;
mod login;
mod place;
mod queue;
mod status;

pub use client::{Etcd, EtcdLease};
pub use error::Error;
pub use place::{EtcdNews, EtcdPlace, EtcdWish, LEASE};
pub use status::{EtcdLock, EtcdLockPlace, EtcdUser};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
