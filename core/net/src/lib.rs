//! Links between the hosts of a cluster.
//!
//! A [`Link`] carries frames over TCP, or over libfabric ([`Link::over_fabric`]). Both ends have
//! the cluster's [`Key`]: a peer without it can neither connect nor read nor alter what a link
//! carries. The handshake and the cipher are those of the Noise protocol framework (`NNpsk0`, by
//! the crate `snow`).
//!
//! **Threads.** Everything blocks; the two halves of a link belong to a thread each
//! ([`Link::split`]). A link of a thread that has many never blocks ([`Link::polled`]).
//! **Failures.** A frame arrives whole or not at all. A peer that is gone, or
//! whose host is gone, is an error of the next call. A host that vanishes without a word is
//! noticed within about [`SILENCE`], by the system while nothing is on its way to it, and by
//! [`LinkMonitor::is_silent`] otherwise. A peer that is stopped keeps its link.
#![deny(unsafe_code)]

mod cipher;
mod error;
#[cfg(feature = "fabric")]
mod fabric;
mod frame;
mod key;
mod link;
mod listener;
mod polled;
mod tcp_info;

pub use error::Error;
pub use frame::MAX_FRAME;
pub use key::Key;
pub use link::{FrameReceiver, FrameSender, Link, LinkMonitor};
pub use listener::{Incoming, Listener};
pub use polled::PolledLink;

use std::time::Duration;

/// Time after which a host that does not answer at all is taken for gone, by its kernel's
/// silence. A process that is stopped does not matter: its kernel answers.
pub const SILENCE: Duration = Duration::from_secs(3);

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
