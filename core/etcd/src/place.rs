//! Place in the queue of a lock: its lease, the thread that keeps it alive, and its news.
//!
//! Two threads ask etcd: one waits for the lock, one keeps the lease alive. They tell
//! their news by a pipe, so that the place's owner can sleep on it beside other descriptors.
//!
//! **Time.** The lease counts from the moment before its last request was sent, by a clock that no
//! user sets and that goes on in suspend. The owner is told of its loss when nine tenths of the
//! time are over: etcd's own count began later, so the lock is not yet given on.
//!
//! | it dies | then |
//! | --- | --- |
//! | the process | the lease ends within its time, and the next waiter has the lock |
//! | etcd, or the way to it | requests are sent again; the owner is told when the lease may have ended |
//! | etcd, and all its data | a new etcd counts revisions from 1: tokens start again |

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{ClockId, clock_gettime};

use crate::client::{ANSWER, Etcd, EtcdLease};
use crate::error::Error;
use crate::queue::QueueKey;
use crate::status::EtcdUser;

/// Time of a lease: within it, and a second or two of etcd's own, the next waiter has the
/// lock of a host that is gone.
pub const LEASE: Duration = Duration::from_secs(5);
/// Pause before a request is sent again.
const AGAIN: Duration = Duration::from_millis(200);

/// Wish for a lock.
#[derive(Clone, Debug)]
pub struct EtcdWish<'a> {
    /// Name of the lock.
    pub name: &'a str,
    /// True to hold it together with others that do so.
    pub shared: bool,
    /// True not to wait where the lock is held or waited for.
    pub tries: bool,
    /// Process that the status shows.
    pub user: EtcdUser,
}

/// Something that happened to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdNews {
    /// The lock is had.
    Granted {
        /// Fencing token: larger than those of all holders before.
        token: u64,
    },
    /// Another holder has the lock, or waits for it, and this place does not wait.
    Refused,
    /// The lock can't be had.
    Failed(Error),
    /// The lease has ended, or is about to: the lock goes to the next waiter.
    Lost,
}

/// State that the place and its threads share.
#[derive(Debug)]
struct EtcdPlaceState {
    etcd: Etcd,
    lease: EtcdLease,
    /// True when the place is left.
    left: AtomicBool,
    sleep: Condvar,
    /// Time, since the host was started, after which the lease may have ended.
    until: Mutex<Duration>,
}

impl EtcdPlaceState {
    fn until(&self) -> MutexGuard<'_, Duration> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_left(&self) -> bool {
        // (E1) Acquire: pairs with the Release (E2) in `leave`, after which the lease is ended.
        self.left.load(Ordering::Acquire)
    }

    /// Sleeps, or until the place is left.
    fn pause(&self, time: Duration) {
        let until = self.until();
        if !self.is_left() {
            drop(self.sleep.wait_timeout(until, time));
        }
    }
}

/// Place in the queue of a lock of an etcd.
#[derive(Debug)]
pub struct EtcdPlace {
    state: Arc<EtcdPlaceState>,
    news: mpsc::Receiver<EtcdNews>,
    ready: OwnedFd,
}

/// Sender of a thread's news.
#[derive(Clone, Debug)]
struct Teller {
    news: mpsc::Sender<EtcdNews>,
    pipe: Arc<OwnedFd>,
}

impl Teller {
    fn tell(&self, news: EtcdNews) {
        // Without a receiver the place is gone.
        if self.news.send(news).is_ok() {
            let _ = rustix::io::write(&self.pipe, &[1]);
        }
    }
}

impl EtcdPlace {
    /// Takes a place in the queue of a lock.
    ///
    /// Threads wait for the lock and keep the place.
    ///
    /// # Errors
    ///
    /// No etcd answers at these addresses, or it refuses a lease; the system refuses a thread.
    pub fn enter(addresses: &str, wish: &EtcdWish<'_>) -> Result<EtcdPlace, Error> {
        let system = |error: io::Error| Error::System(error.to_string());
        let etcd = Etcd::new(addresses)?;
        let (ready, pipe) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| system(error.into()))?;
        let begun = now();
        let (asked, lease) = loop {
            let asked = now();
            match etcd.grant_lease(LEASE) {
                Ok(lease) => break (asked, lease),
                // It elects a leader.
                Err(Error::NotReady { .. }) if asked < begun + LEASE => thread::sleep(AGAIN),
                Err(error) => return Err(error),
            }
        };
        let until = Mutex::new(asked + lease.time * 9 / 10);
        let state = Arc::new(EtcdPlaceState {
            etcd,
            lease,
            left: AtomicBool::new(false),
            sleep: Condvar::new(),
            until,
        });
        let (news, receiver) = mpsc::channel();
        let teller = Teller { news, pipe: Arc::new(pipe) };
        let place = EtcdPlace { state: state.clone(), news: receiver, ready };
        let (keeper, keeps) = (state.clone(), teller.clone());
        thread::Builder::new().spawn(move || keep(&keeper, &keeps)).map_err(system)?;
        let (key, tries) = (QueueKey::new(wish.name, lease, wish.shared, wish.user.to_value()), wish.tries);
        thread::Builder::new().spawn(move || acquire(&state, &key, tries, &teller)).map_err(system)?;
        Ok(place)
    }

    /// Returns the news that have come, one at a time.
    pub fn take_news(&mut self) -> Option<EtcdNews> {
        let _ = rustix::io::read(&self.ready, &mut [0; 1][..]);
        self.news.try_recv().ok()
    }

    /// Waits for news.
    pub fn wait(&mut self) -> EtcdNews {
        self.news.recv().unwrap_or(EtcdNews::Failed(Error::LeaseEnded))
    }

    /// Returns the descriptor that is readable when there are news.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Leaves: the lock goes to the next waiter at once. If etcd does not answer, it does
    /// when the lease has ended. Dropping a place does this, too.
    pub fn leave(&mut self) {
        let until = self.state.until();
        // (E2) AcqRel, the Release of it: the threads stop asking before the lease is ended; pairs
        // with the Acquire (E1). The Acquire has no partner: one thread has the place.
        let was_left = self.state.left.swap(true, Ordering::AcqRel);
        self.state.sleep.notify_all();
        drop(until);
        if !was_left {
            // Without an answer it ends by itself.
            let _ = self.state.etcd.revoke(self.state.lease);
        }
    }
}

impl Drop for EtcdPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Time since the host was started, with that in suspend.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Keeps the lease alive until the place is left or the lease has ended.
fn keep(state: &EtcdPlaceState, teller: &Teller) {
    let (whole, mut pause) = (state.lease.time, state.lease.time / 3);
    loop {
        state.pause(pause);
        if state.is_left() {
            return;
        }
        let asked = now();
        let left = state.until().saturating_sub(asked);
        if left.is_zero() {
            return teller.tell(EtcdNews::Lost);
        }
        match state.etcd.keep_alive(state.lease, left.min(ANSWER)) {
            Ok(true) => {
                *state.until() = asked + whole * 9 / 10;
                pause = whole / 3;
            }
            Ok(false) if state.is_left() => return,
            Ok(false) => return teller.tell(EtcdNews::Lost),
            Err(_) => pause = AGAIN.min(left),
        }
    }
}

/// Waits for the lock, and tells how that ends.
fn acquire(state: &EtcdPlaceState, key: &QueueKey, tries: bool, teller: &Teller) {
    loop {
        match attempt(state, key, tries) {
            Ok(Some(news)) => return teller.tell(news),
            // The key stays while the lease does: asking again goes on in the same place.
            Err(Error::NoAnswer { .. } | Error::NotReady { .. })
                if !state.is_left() && now() < *state.until() =>
            {
                state.pause(AGAIN)
            }
            Ok(None) => return,
            Err(_) if state.is_left() => return,
            Err(error) => return teller.tell(EtcdNews::Failed(error)),
        }
    }
}

/// Waits for the lock; `None` where the place is left.
fn attempt(state: &EtcdPlaceState, key: &QueueKey, tries: bool) -> Result<Option<EtcdNews>, Error> {
    loop {
        // Made once more where it was deleted while its lease lives.
        let (token, has_lock) = state.etcd.make(key)?;
        if has_lock {
            return Ok(Some(EtcdNews::Granted { token }));
        }
        if tries {
            return Ok(Some(EtcdNews::Refused));
        }
        while let Some(older) = state.etcd.older(key, token)? {
            if !state.etcd.watch(key, &older, LEASE)? {
                // The next one may be cancelled, too.
                state.pause(AGAIN);
            }
            if state.is_left() {
                return Ok(None);
            }
        }
    }
}
