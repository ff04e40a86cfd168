//! Guard of a lock that spans hosts: a holder's right, until it is dropped.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use towpath_lockfile::{Leaving, LockGrant};
use towpath_mplock::{FencingToken, LockData};

use super::idle::LentPlace;
use super::lock::Lock;
use crate::Error;
use crate::place::PlaceNews;

/// Longest time for which [`Guard::release`] waits for the agent's answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Right of a holder of a [`Lock`] that spans hosts: dropping it releases the lock.
///
/// The right lasts as long as this host's lease: [`Guard::check`] says whether it does, and the
/// guard's descriptor becomes readable when that may have changed. A holder that does not look, or
/// is paused after it has, is refused at the resource by its token
/// ([`Fence`](towpath_mplock::Fence)).
///
/// A guard that is dropped by a panic leaves the state inconsistent: the next holder is told that
/// an owner died. So it is when the process dies, at once, on whatever host; a forked child does
/// not keep its parent's lock.
#[derive(Debug)]
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard<'a> {
    lock: &'a Lock,
    place: LentPlace<'a>,
    token: FencingToken,
    previous_owner_died: bool,
    consistent: bool,
    /// True if the thread was unwinding when it acquired the lock.
    unwinding: bool,
    reads: bool,
    /// True while the host has no lease.
    lost: bool,
    /// True if the agent has ended.
    ended: bool,
    /// True if the lock was given on, and if the agent has said so.
    released: bool,
    confirmed: bool,
    /// Data that go with the lock when it is released, if the holder changes them.
    changed: Option<Vec<u8>>,
}

impl<'a> Guard<'a> {
    pub(super) fn new(lock: &'a Lock, place: LentPlace<'a>, grant: LockGrant, reads: bool) -> Guard<'a> {
        Guard {
            lock,
            place,
            token: FencingToken::from_number(grant.token),
            previous_owner_died: grant.previous_owner_died,
            consistent: !grant.previous_owner_died,
            unwinding: std::thread::panicking(),
            reads,
            lost: false,
            ended: false,
            released: false,
            confirmed: false,
            changed: None,
        }
    }

    /// Returns the fencing token: larger than those of all exclusive holders before.
    ///
    /// Readers of a host that hold a lock together have one token.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let first = lock.acquire()?.token();
    /// assert!(lock.acquire()?.token() > first);
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns whether an earlier holder may have died with the lock.
    ///
    /// And no holder has repaired the state since.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let mut guard = lock.acquire()?;
    /// if guard.previous_owner_died() {
    ///     // Repair the state here, then say so.
    ///     guard.make_consistent();
    /// }
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn previous_owner_died(&self) -> bool {
        self.previous_owner_died
    }

    /// Says that the state is consistent again: the next holder is told of no death.
    ///
    /// A reader's word does not count.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// lock.acquire()?.make_consistent();
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn make_consistent(&mut self) {
        self.consistent = true;
    }

    /// Returns whether the lock counts still.
    ///
    /// While the host has no lease the lock may be given to others at any time; it counts again if
    /// the lease comes back before that.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`]; [`Error::AgentEnded`], after which it does not come back;
    /// [`Error::Inherited`] in a child of the process that acquired it.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let mut guard = lock.acquire()?;
    /// for row in 0..1000 {
    ///     guard.check()?; // stop here if this host was cut off
    ///     println!("changing row {row}");
    /// }
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn check(&mut self) -> Result<(), Error> {
        self.place.own()?;
        while !self.ended
            && let Some(news) = self.place.take_news()
        {
            self.note(news);
        }
        self.standing()
    }

    fn note(&mut self, news: PlaceNews) {
        match news {
            PlaceNews::Lost => self.lost = true,
            PlaceNews::Regained => self.lost = false,
            PlaceNews::AgentEnded => self.ended = true,
            PlaceNews::Left => self.confirmed = true,
            PlaceNews::Granted(_) | PlaceNews::Refused | PlaceNews::NoLease => {}
        }
    }

    fn standing(&self) -> Result<(), Error> {
        match (self.ended, self.lost) {
            (true, _) => Err(Error::AgentEnded),
            (_, true) => Err(Error::LeaseLost(self.lock.name().to_owned())),
            _ => Ok(()),
        }
    }

    /// Returns the data that the lock protects. Empty at first.
    ///
    /// They are those of the last release, or this holder's own changes. After a death
    /// ([`Guard::previous_owner_died`]) they are those of the last release of which the hosts that
    /// are left know, or none; [`Guard::data_version`] says which release that was.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// println!("{} bytes", lock.acquire_shared()?.data().len());
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match &self.changed {
            Some(bytes) => bytes,
            None => self.place.data().map_or(&[], LockData::bytes),
        }
    }

    /// Returns the token of the holder that left the data; `None` if there are none.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let guard = lock.acquire()?;
    /// println!("{:?}, before {}", guard.data_version(), guard.token());
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn data_version(&self) -> Option<FencingToken> {
        self.place.data().map(LockData::version)
    }

    /// Replaces the data: the next holder gets the new ones.
    ///
    /// They go with the release. A holder that dies or panics before has not replaced them.
    ///
    /// # Errors
    ///
    /// [`Error::DataTooLong`] for more than [`LockData::MAX`] bytes; [`Error::ReadsOnly`] for a
    /// reader.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let mut guard = lock.acquire()?;
    /// guard.set_data(b"a row")?;
    /// guard.release()?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn set_data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.reads {
            return Err(Error::ReadsOnly);
        }
        if bytes.len() > LockData::MAX {
            return Err(Error::DataTooLong { len: bytes.len() });
        }
        self.changed = Some(bytes.to_vec());
        Ok(())
    }

    /// Returns the data, to be changed in place; their length stays.
    ///
    /// # Errors
    ///
    /// [`Error::ReadsOnly`] for a reader.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// lock.acquire()?.data_mut()?.fill(0);
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn data_mut(&mut self) -> Result<&mut [u8], Error> {
        if self.reads {
            return Err(Error::ReadsOnly);
        }
        let place = &self.place;
        let received = || place.data().map_or_else(Vec::new, |data| data.bytes().to_vec());
        Ok(self.changed.get_or_insert_with(received))
    }

    /// Releases the lock, and waits until the agent has its data.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLost`] and [`Error::AgentEnded`]: the lock may have been given to others
    /// before, and the data may be lost; [`Error::AgentSilent`] if the agent does not answer within
    /// 5 s; [`Error::Inherited`] in a child, whose parent keeps the lock.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let mut guard = lock.acquire()?;
    /// guard.set_data(b"a row")?;
    /// guard.release()?; // the row counts
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn release(mut self) -> Result<(), Error> {
        self.check()?;
        self.leave(Leaving::Consistent);
        loop {
            while let Some(news) = self.place.take_news() {
                self.note(news);
                if self.confirmed || self.ended {
                    return self.standing();
                }
            }
            if !self.place.sleep(ANSWER) {
                return Err(Error::AgentSilent);
            }
        }
    }

    /// Gives the lock on. `best`: the state in which it is left where no owner died.
    fn leave(&mut self, best: Leaving) {
        let leaving = if self.consistent || best == Leaving::Died { best } else { Leaving::Unchanged };
        let data = self.changed.take().filter(|_| leaving != Leaving::Died);
        self.place.give_on(leaving, data);
        self.released = true;
    }
}

impl AsFd for Guard<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.lifeline()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.released && !self.place.is_inherited() {
            let panicked = !self.unwinding && std::thread::panicking();
            self.leave(if panicked { Leaving::Died } else { Leaving::Consistent });
        }
    }
}
