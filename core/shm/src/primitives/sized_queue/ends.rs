//! Calls of the sender and the receiver of a queue of values of a size.

use towpath_sync::Deadline;
use towpath_sync::queues::TransferError;

use super::{OfKind, SizedReceiver, SizedSender};

/// A value under a lease: it comes in again if this process dies before the lease's end.
#[derive(Clone, Copy, Debug)]
pub struct SizedLease {
    /// First byte of the value, which lies there until the lease ends.
    pub at: *const u8,
    /// The lease, by which its receiver ends it.
    pub words: [u64; 2],
}

impl SizedSender {
    /// Number of bytes of a value.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let sender = world.sized_queue("points", SizedKind::Mpsc, 24, 64)?.sender()?;
    /// assert_eq!(sender.bytes(), 24);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sends a value, when there is room for it.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as
    /// [`ValueSender::send`](towpath_sync::queues::ValueSender::send).
    ///
    /// # Panics
    ///
    /// If it has another size.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let sender = world.sized_queue("jobs", SizedKind::Mpmc, 8, 64)?.sender()?;
    /// sender.send(b"a number", Deadline::NEVER)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn send(&self, message: &[u8], deadline: Deadline) -> Result<(), TransferError> {
        assert_eq!(message.len(), self.bytes, "a value of another size");
        each!(&self.of, end => end.send(message, deadline))
    }

    /// Closes the queue: senders are refused, receivers get the values sent before.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let sender = world.sized_queue("jobs", SizedKind::Mpmc, 8, 64)?.sender()?;
    /// sender.close();
    /// assert!(sender.send(b"a number", Deadline::NEVER).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        each!(&self.of, end => end.joined.close());
    }
}

impl SizedReceiver {
    /// Number of bytes of a value.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let receiver = world.sized_queue("points", SizedKind::Mpsc, 24, 64)?.receiver()?;
    /// assert_eq!(receiver.bytes(), 24);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Receives the oldest value, when there is one, into memory of the caller's.
    ///
    /// It has any bytes after an error.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as
    /// [`ValueReceiver::receive`](towpath_sync::queues::ValueReceiver::receive).
    ///
    /// # Safety
    ///
    /// * [`SizedReceiver::bytes`] bytes may be written at `to` during the call.
    /// * No other thread accesses them meanwhile.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let jobs = world.sized_queue("jobs", SizedKind::Spsc, 8, 64)?;
    /// let (sender, receiver) = (jobs.sender()?, jobs.receiver()?);
    /// sender.send(b"a number", Deadline::NEVER)?;
    /// let mut job = [0; 8];
    /// // SAFETY: 8 bytes, of this thread alone.
    /// unsafe { receiver.receive_into(job.as_mut_ptr(), Deadline::NEVER)? };
    /// assert_eq!(&job, b"a number");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub unsafe fn receive_into(&self, to: *mut u8, deadline: Deadline) -> Result<(), TransferError> {
        // SAFETY: the caller's obligations are the same.
        each!(&self.of, end => unsafe { end.receive_into(to, self.bytes, deadline) })
    }

    /// Receives the oldest value under a lease, when there is one.
    ///
    /// # Errors
    ///
    /// `None` at a queue of one sender, which has no leases; as [`SizedReceiver::receive_into`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let jobs = world.sized_queue("jobs", SizedKind::Mpmc, 8, 64)?;
    /// let receiver = jobs.receiver()?;
    /// jobs.sender()?.send(b"a number", Deadline::NEVER)?;
    /// let job = receiver.lease(Deadline::NEVER).expect("many senders")?;
    /// receiver.end(job.words, true).expect("many senders")?; // done
    /// assert!(receiver.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lease(&self, deadline: Deadline) -> Option<Result<SizedLease, TransferError>> {
        match &self.of {
            OfKind::Mpmc(end) => Some(end.lease(deadline)),
            OfKind::Mpsc(end) => Some(end.lease(deadline)),
            OfKind::Spsc(_) => None,
        }
    }

    /// Ends a lease: the value is done with (`completed`), or comes in again.
    ///
    /// # Errors
    ///
    /// As [`SizedReceiver::lease`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let jobs = world.sized_queue("jobs", SizedKind::Mpmc, 8, 64)?;
    /// let (sender, receiver) = (jobs.sender()?, jobs.receiver()?);
    /// sender.send(b"a number", Deadline::NEVER)?;
    /// let job = receiver.lease(Deadline::NEVER).expect("many senders")?;
    /// receiver.end(job.words, false).expect("many senders")?; // not done: it comes in again
    /// assert_eq!(receiver.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end(&self, lease: [u64; 2], completed: bool) -> Option<Result<(), TransferError>> {
        match &self.of {
            OfKind::Mpmc(end) => Some(end.end(lease, completed)),
            OfKind::Mpsc(end) => Some(end.end(lease, completed)),
            OfKind::Spsc(_) => None,
        }
    }

    /// Ends a lease, and sends a value into another queue: both happen, or neither.
    ///
    /// # Errors
    ///
    /// As [`SizedReceiver::lease`], and as `ValueLease::complete_into`.
    ///
    /// # Panics
    ///
    /// If the value has another size.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let jobs = world.sized_queue("jobs", SizedKind::Mpmc, 8, 64)?;
    /// let results = world.sized_queue("results", SizedKind::Mpmc, 8, 64)?;
    /// jobs.sender()?.send(b"a number", Deadline::NEVER)?;
    /// let (worker, done) = (jobs.receiver()?, results.sender()?);
    /// let job = worker.lease(Deadline::NEVER).expect("many senders")?;
    /// worker.end_into(job.words, &done, b"a result", Deadline::NEVER).expect("many senders")?;
    /// assert_eq!((worker.len(), results.receiver()?.len()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end_into(
        &self,
        lease: [u64; 2],
        into: &SizedSender,
        message: &[u8],
        deadline: Deadline,
    ) -> Option<Result<(), TransferError>> {
        assert_eq!(message.len(), into.bytes, "a value of another size");
        Some(match (&self.of, &into.of) {
            (OfKind::Mpmc(from), OfKind::Mpmc(to)) => from.end_into(lease, to, message, deadline),
            (OfKind::Mpmc(from), OfKind::Mpsc(to)) => from.end_into(lease, to, message, deadline),
            (OfKind::Mpsc(from), OfKind::Mpmc(to)) => from.end_into(lease, to, message, deadline),
            (OfKind::Mpsc(from), OfKind::Mpsc(to)) => from.end_into(lease, to, message, deadline),
            _ => return None,
        })
    }

    /// Number of values that wait.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let points = world.sized_queue("points", SizedKind::Spsc, 24, 64)?;
    /// points.sender()?.send(&[7; 24], Deadline::NEVER)?;
    /// assert_eq!(points.receiver()?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> usize {
        each!(&self.of, end => end.joined.len())
    }

    /// Returns whether no value waits.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// assert!(world.sized_queue("points", SizedKind::Spsc, 24, 64)?.receiver()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue: senders are refused, receivers get the values sent before.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use towpath_shm::SizedKind;
    /// # use towpath_sync::Deadline;
    /// let jobs = world.sized_queue("jobs", SizedKind::Mpmc, 8, 64)?;
    /// jobs.receiver()?.close();
    /// assert!(jobs.sender()?.send(b"a number", Deadline::NEVER).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        each!(&self.of, end => end.joined.close());
    }
}
