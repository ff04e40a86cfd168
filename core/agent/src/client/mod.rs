//! Locks that span hosts, for programs: [`Manager`], [`Lock`], [`Request`], [`Guard`].
//!
//! Each request is a connection to this host's agent ([`AgentPlace`](crate::AgentPlace)), which is
//! closed when the lock is released, or the process dies. So handles may be used from any thread,
//! threads exclude each other as processes do, and no process has to serve.

mod guard;
mod lock;
mod manager;
mod request;

pub use guard::Guard;
pub use lock::Lock;
pub use manager::Manager;
pub use request::Request;
