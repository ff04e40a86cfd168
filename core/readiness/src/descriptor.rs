//! A descriptor that is readable when an operation may go on.

use core::fmt;
use core::task::Waker;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};
use towpath_sync::{Asleep, Attempt};

use crate::operation::AsyncOperation;
use crate::ring::KernelWait;
use crate::sleepers::SleepRegistration;
use crate::turn::RetryTurn;

/// Means by which a descriptor becomes readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The kernel waits for the word, by `io_uring`.
    Kernel,
    /// A thread of this process waits for the word, and writes to an eventfd.
    Thread,
}

/// Descriptor that becomes readable when an operation may go on.
///
/// One for each object that an event loop waits for. It is readable until the next attempt, and may
/// be readable for no reason.
pub struct ReadyDescriptor {
    kind: DescriptorKind,
    turn: RetryTurn,
}

enum DescriptorKind {
    Kernel(Box<KernelWait>),
    Thread { eventfd: Arc<EventFd>, sleep: Option<(Asleep, SleepRegistration)> },
}

struct EventFd(OwnedFd);

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        // It can only be refused because the count is full: then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl ReadyDescriptor {
    /// Makes one by the better means that the system allows.
    ///
    /// # Errors
    ///
    /// The system's: too many descriptors are open.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    ///
    /// let ready = towpath_readiness::ReadyDescriptor::new()?;
    /// let registered = ready.as_fd(); // by an event loop, for reading
    /// # let _ = registered;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> io::Result<ReadyDescriptor> {
        ReadyDescriptor::by(Means::Kernel).or_else(|_| ReadyDescriptor::by(Means::Thread))
    }

    /// Makes one by these means.
    ///
    /// # Errors
    ///
    /// The system's; for [`Means::Kernel`] also that it does not allow `io_uring`, or
    /// `Unsupported`.
    ///
    /// ```
    /// use towpath_readiness::{Means, ReadyDescriptor};
    ///
    /// assert_eq!(ReadyDescriptor::by(Means::Thread)?.means(), Means::Thread);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn by(means: Means) -> io::Result<ReadyDescriptor> {
        let kind = match means {
            Means::Kernel => DescriptorKind::Kernel(Box::new(KernelWait::new()?)),
            Means::Thread => {
                let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                DescriptorKind::Thread { eventfd: Arc::new(EventFd(descriptor)), sleep: None }
            }
        };
        Ok(ReadyDescriptor { kind, turn: RetryTurn::default() })
    }

    /// The means by which it becomes readable.
    ///
    /// ```
    /// use towpath_readiness::{Means, ReadyDescriptor};
    ///
    /// match ReadyDescriptor::new()?.means() {
    ///     Means::Kernel => println!("the kernel waits"),
    ///     Means::Thread => println!("a thread of this process waits"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn means(&self) -> Means {
        match self.kind {
            DescriptorKind::Kernel(_) => Means::Kernel,
            DescriptorKind::Thread { .. } => Means::Thread,
        }
    }

    /// Sets the time after which an operation is tried again without a change.
    ///
    /// Then it looks for deaths. By default 4 ms, and then twice as long each time, up to 32 ms.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let mut ready = towpath_readiness::ReadyDescriptor::new()?;
    /// ready.set_turn(Duration::from_millis(100)); // deaths may be noticed that late
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_turn(&mut self, turn: Duration) {
        self.turn = RetryTurn::always(turn);
    }

    /// Tries an operation.
    ///
    /// `None`: it would sleep, and the descriptor becomes readable when it should be tried again.
    ///
    /// # Errors
    ///
    /// The system's, where it refuses to wait.
    ///
    /// ```
    /// use towpath_readiness::{ReadyDescriptor, ValueReception};
    /// use towpath_sync::queues::{Mpmc, between_threads};
    ///
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(16);
    /// let mut ready = ReadyDescriptor::new()?;
    /// let value = ready.attempt(&mut ValueReception(&receiver))?;
    /// assert!(value.is_none(), "an event loop waits for the descriptor now");
    /// sender.send(7)?;
    /// assert_eq!(ready.attempt(&mut ValueReception(&receiver))?, Some(Ok(7)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt<O: AsyncOperation>(&mut self, operation: &mut O) -> io::Result<Option<O::Output>> {
        self.drain();
        loop {
            match operation.attempt() {
                Attempt::Done(output) => {
                    self.turn.begin_anew();
                    return Ok(Some(output));
                }
                Attempt::Asleep(asleep) => {
                    self.sleep(asleep)?;
                    return Ok(None);
                }
                Attempt::Again => {}
            }
        }
    }

    fn drain(&mut self) {
        match &mut self.kind {
            DescriptorKind::Kernel(wait) => wait.drain(),
            DescriptorKind::Thread { eventfd, sleep } => {
                if sleep.as_ref().is_some_and(|(_, registration)| !registration.is_asleep()) {
                    *sleep = None;
                }
                let _ = rustix::io::read(&eventfd.0, &mut [0u8; 8]);
            }
        }
    }

    fn sleep(&mut self, asleep: Asleep) -> io::Result<()> {
        let turn = self.turn.next();
        match &mut self.kind {
            DescriptorKind::Kernel(wait) => wait.sleep(asleep, turn),
            DescriptorKind::Thread { sleep: Some((same, _)), .. } if *same == asleep => Ok(()),
            DescriptorKind::Thread { eventfd, sleep } => {
                let waker = Waker::from(eventfd.clone());
                *sleep = Some((asleep, SleepRegistration::new(asleep, turn, waker)?));
                Ok(())
            }
        }
    }
}

impl AsFd for ReadyDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            DescriptorKind::Kernel(wait) => wait.as_fd(),
            DescriptorKind::Thread { eventfd, .. } => eventfd.0.as_fd(),
        }
    }
}

impl std::os::fd::AsRawFd for ReadyDescriptor {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for ReadyDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyDescriptor").field("means", &self.means()).finish_non_exhaustive()
    }
}
