//! Request for a lock that spans hosts, before it is granted.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use towpath_lockfile::{Leaving, LockAccess};

use super::guard::Guard;
use super::idle::LentPlace;
use super::lock::Lock;
use crate::Error;
use crate::place::PlaceNews;

/// Wait without an end.
const LONG: Duration = Duration::from_secs(1 << 30);

/// Request for a [`Lock`]: a place in its queue. Dropping it withdraws the request.
#[derive(Debug)]
#[must_use = "the request is withdrawn when it is dropped"]
pub struct Request<'a> {
    lock: &'a Lock,
    /// Its place, until the lock is granted or refused.
    place: Option<LentPlace<'a>>,
    reads: bool,
}

impl<'a> Request<'a> {
    pub(super) fn new(lock: &'a Lock, place: LentPlace<'a>, access: LockAccess) -> Request<'a> {
        Request { lock, place: Some(place), reads: access == LockAccess::Shared }
    }

    /// Waits until the lock is granted.
    ///
    /// # Errors
    ///
    /// [`Error::AgentEnded`]; [`Error::Inherited`] in a child of the process that asked.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let guard = lock.request()?.wait()?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn wait(mut self) -> Result<Guard<'a>, Error> {
        // Only a request that tries is refused.
        self.wait_until(None)?.ok_or(Error::AgentEnded)
    }

    /// Waits until the lock is granted, or until `deadline`: `None`; the request stays.
    ///
    /// With a deadline that is over it only looks whether the lock is granted by now.
    ///
    /// # Errors
    ///
    /// As [`Request::wait`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let mut request = lock.request()?;
    /// let guard = request.wait_until(Some(std::time::Instant::now()))?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Option<Guard<'a>>, Error> {
        while let Some(place) = &mut self.place {
            let place = place.own()?;
            match place.take_news() {
                Some(PlaceNews::Granted(grant)) => {
                    let place = self.place.take();
                    return Ok(place.map(|place| Guard::new(self.lock, place, grant, self.reads)));
                }
                Some(PlaceNews::Refused) => self.place = None,
                Some(PlaceNews::AgentEnded) => return Err(Error::AgentEnded),
                Some(PlaceNews::NoLease | PlaceNews::Lost | PlaceNews::Regained | PlaceNews::Left) => {}
                None => {
                    let left = deadline.map_or(LONG, |end| end.saturating_duration_since(Instant::now()));
                    if left.is_zero() {
                        return Ok(None);
                    }
                    place.sleep(left);
                }
            }
        }
        Ok(None)
    }

    /// Returns the descriptor that becomes readable when there may be an answer.
    ///
    /// `None` when the lock was granted.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let request = lock.request()?;
    /// assert!(request.descriptor().is_some());
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.place.as_ref().map(|place| place.lifeline())
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.as_mut().filter(|place| !place.is_inherited()) {
            // Should it be granted at this moment, no owner has died.
            place.give_on(Leaving::Unchanged, None);
        }
    }
}
