//! Barriers between threads.

use core::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use towpath_machine::{Native, zeroed};

use super::{ArrivalCount, Barrier};
use crate::Deadline;
use crate::mutex::adaptive;
use crate::robust::EpisodeError;

impl Barrier<Native> {
    /// A barrier for so many threads.
    ///
    /// # Panics
    ///
    /// If there are none or more than 64.
    ///
    /// ```
    /// use towpath_sync::robust::Barrier;
    ///
    /// let alone = Barrier::new(1);
    /// assert_eq!(alone.wait(), Ok(()));
    /// ```
    pub const fn new(participants: usize) -> Self {
        assert!(0 < participants && participants <= 64, "a barrier of threads has 1 to 64 participants");
        let (count, participants) = (AtomicU64::new(0), AtomicU64::new(participants as u64));
        Barrier { arrivals: ArrivalCount { count, participants }, ..zeroed() }
    }

    /// Arrives, and waits until all threads have arrived.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::Capacity`] if more threads come than it was made for.
    ///
    /// ```
    /// # use towpath_sync::robust::{Barrier, EpisodeError};
    /// let barrier = Barrier::new(2);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| barrier.wait());
    ///     barrier.wait() // returns when both are there
    /// })?;
    /// # Ok::<(), EpisodeError>(())
    /// ```
    pub fn wait(&self) -> Result<(), EpisodeError> {
        self.wait_as(&Native::of_thread(), &adaptive(), Deadline::NEVER)
    }

    /// Arrives without waiting, and takes part no more, unless this thread waits again:
    /// the others do not wait for it. Returns whether it took part.
    ///
    /// ```
    /// use towpath_sync::robust::Barrier;
    ///
    /// let barrier = Barrier::new(2);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         barrier.wait()?;
    ///         assert!(barrier.leave());
    ///         Ok::<(), towpath_sync::robust::EpisodeError>(())
    ///     });
    ///     barrier.wait()?;
    ///     barrier.wait() // passes without the other thread
    /// })?;
    /// # Ok::<(), towpath_sync::robust::EpisodeError>(())
    /// ```
    pub fn leave(&self) -> bool {
        self.leave_as(&Native::of_thread(), &adaptive())
    }

    /// Arrives, and waits until all threads have arrived; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::TimedOut`]; as [`Barrier::wait`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use towpath_sync::robust::{Barrier, EpisodeError};
    /// let barrier = Barrier::new(2);
    /// let brief = Duration::from_millis(1);
    /// assert_eq!(barrier.wait_timeout(brief), Err(EpisodeError::TimedOut));
    /// ```
    pub fn wait_timeout(&self, time: Duration) -> Result<(), EpisodeError> {
        self.wait_as(&Native::of_thread(), &adaptive(), Deadline::within(time))
    }

    /// Arrives, and waits until all threads have arrived; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::TimedOut`]; as [`Barrier::wait`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::robust::{Barrier, EpisodeError};
    /// let barrier = Barrier::new(2);
    /// let end = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(barrier.wait_until(end), Err(EpisodeError::TimedOut));
    /// ```
    pub fn wait_until(&self, instant: Instant) -> Result<(), EpisodeError> {
        self.wait_as(&Native::of_thread(), &adaptive(), Deadline::at(instant))
    }
}
