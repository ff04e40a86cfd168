//! Locks and jobs of one host and of several, in one program: most of the tests wait.

#[path = "../launching/mod.rs"]
mod launching;

mod lock;
#[cfg(feature = "etcd")]
mod lock_etcd;
mod lock_hosts;
mod run_hosts;
