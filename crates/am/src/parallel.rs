//! Parallel bundles: endpoints that several threads use.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use towpath_machine::{Native, Park};

use crate::endpoint::{Audit, Core, Endpoint};
use crate::error::Error;
use crate::name::{Name, Tag};
use crate::token::Token;

/// An endpoint that several threads may send through and poll: its calls take turns. While one thread waits for space the others can poll and send.
pub struct ParallelEndpoint {
    inner: Mutex<Movable>,
}

impl core::fmt::Debug for ParallelEndpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ParallelEndpoint")
    }
}

/// An endpoint that may change threads.
struct Movable(Endpoint);

#[allow(unsafe_code)]
// SAFETY: everything that the endpoint shares without atomic counts (`Rc`s of its core, its peers and its handlers) is reachable from this endpoint
// alone (`into_parallel` has taken it out of its bundle, and handlers, which are `Send + Sync`, can't hold a part of it), so all of it moves between
// threads together.
unsafe impl Send for Movable {}

impl Endpoint {
    /// Moves the endpoint from its sequential bundle into a parallel one.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], with nothing changed, if it is polled at this moment (from a handler).
    pub fn into_parallel(self) -> Result<ParallelEndpoint, Error> {
        if let Some(bundle) = self.core.bundle.borrow().upgrade() {
            bundle.remove(&self.core);
        }
        *self.core.bundle.borrow_mut() = std::rc::Weak::new();
        if std::rc::Rc::strong_count(&self.core) != 1 {
            return Err(Error::InUse("the endpoint is being polled".into()));
        }
        Ok(ParallelEndpoint { inner: Mutex::new(Movable(self)) })
    }
}

impl ParallelEndpoint {
    fn lock(&self) -> MutexGuard<'_, Movable> {
        // A handler that panicked has left nothing half done that a later call would trip over.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it back into the hands of one thread.
    pub fn into_sequential(self) -> Endpoint {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Tries under the lock until it goes out; polls there too, and lets the others have the lock in between.
    fn until_sent(&self, mut attempt: impl FnMut(&Core) -> Result<(), Error>) -> Result<(), Error> {
        loop {
            let endpoint = self.lock();
            match attempt(&endpoint.0.core) {
                Err(Error::NotSent) => {}
                result => return result,
            }
            if endpoint.0.poll() == 0 {
                endpoint.0.core.look_after(false);
            }
            drop(endpoint);
            Native::with_id(0).yield_now();
        }
    }

    /// As [`Endpoint::name`].
    pub fn name(&self) -> Name {
        self.lock().0.name()
    }

    /// As [`Endpoint::map`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn map(&self, index: usize, name: Name, tag: Tag) -> Result<(), Error> {
        self.lock().0.map(index, name, tag)
    }

    /// As [`Endpoint::map_world`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn map_world(&self) -> Result<(), Error> {
        self.lock().0.map_world()
    }

    /// As [`Endpoint::set_handler`].
    pub fn set_handler(&self, index: u8, handler: impl Fn(&Token<'_>) + Send + Sync + 'static) {
        self.lock().0.set_handler(index, handler);
    }

    /// As [`Endpoint::request`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn request(&self, index: usize, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.until_sent(|core| core.request_short(index, handler, args, false))
    }

    /// As [`Endpoint::request_medium`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn request_medium(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
    ) -> Result<(), Error> {
        self.until_sent(|core| core.request_medium(index, handler, args, payload, false))
    }

    /// As [`Endpoint::request_long`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn request_long(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        self.until_sent(|core| core.request_long(index, handler, args, payload, offset, false))
    }

    /// As [`Endpoint::poll`]; 0 at once if another thread is using the endpoint.
    pub fn poll(&self) -> usize {
        match self.inner.try_lock() {
            Ok(guard) => guard.0.poll(),
            Err(TryLockError::Poisoned(guard)) => guard.into_inner().0.poll(),
            Err(TryLockError::WouldBlock) => 0,
        }
    }

    /// Waits for a message, in turns of at most a millisecond so that other threads can send, until `timeout`.
    pub fn wait(&self, timeout: Duration) -> bool {
        let end = std::time::Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if self.lock().0.wait(Some(left.min(Duration::from_millis(1)))) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            // So that a thread that wants to send gets its turn.
            Native::with_id(0).yield_now();
        }
    }

    /// As [`Endpoint::audit`].
    pub fn audit(&self) -> Audit {
        self.lock().0.audit()
    }
}
