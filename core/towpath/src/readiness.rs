//! Descriptors for event loops, and futures for executors.
//!
//! A [`Pollable`] receiver, sender, event, semaphore or barrier has a descriptor (`AsFd`) for
//! `poll`, `epoll` or tokio's `AsyncFd`; [`AsyncReceiver::receive_async`] and its like return
//! futures that any executor runs. The other end may be another process, which blocks, and may be
//! killed.
//!
//! ```
//! use towpath::readiness::{AsyncReceiver, Pollable};
//!
//! # async fn work() -> Result<(), Box<dyn std::error::Error>> {
//! let (sender, receiver) = towpath::mpmc::queue::<u64>(16); // or `world.mpmc(…)`
//! sender.send(7)?;
//! assert_eq!(receiver.receive_async().await?, 7);
//!
//! let mut receiver = Pollable::new(receiver)?;
//! assert_eq!(receiver.try_receive()?, None); // now wait until it is readable
//! # Ok(())
//! # }
//! ```

pub use towpath_readiness::*;
