//! Locks that span hosts, for programs: [`Manager`], [`Lock`], [`Request`], [`Guard`].
//!
//! Each request has a connection to this host's agent ([`AgentPlace`](crate::AgentPlace)), which
//! its manager keeps for the next one when the lock is released, and which ends with the process.
//! So handles may be used from any thread, threads exclude each other as processes do, and no
//! process has to serve.
//!
//! A child made by `fork` has no part in its parent's requests and guards: dropping its copies has
//! no effect, [`Guard::check`], [`Guard::release`] and [`Request::wait`] return
//! [`Error::Inherited`](crate::Error::Inherited), and they do not keep a lock of a parent that
//! dies. It may use the manager.

mod guard;
mod idle;
mod lock;
mod manager;
mod request;

pub use guard::Guard;
pub use lock::Lock;
pub use manager::Manager;
pub use request::Request;
