//! Parallel bundles: endpoints that several threads use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use towpath_machine::{Native, Park};

use crate::attach::SharedMemory;
use crate::endpoint::{Audit, Core, Endpoint};
use crate::error::Error;
use crate::name::{Name, Tag};
use crate::token::Token;

/// A parallel bundle: several threads may poll it and send through its endpoints. Whoever
/// waits for space polls all of them.
#[derive(Default)]
pub struct ParallelBundle {
    members: RwLock<Vec<Arc<ParallelEndpoint>>>,
}

impl core::fmt::Debug for ParallelBundle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ParallelBundle").field("endpoints", &self.len()).finish()
    }
}

impl ParallelBundle {
    /// An empty bundle.
    pub fn new() -> Arc<ParallelBundle> {
        Arc::default()
    }

    /// Moves an endpoint here from the sequential bundle that it was in.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::into_parallel`].
    pub fn add(self: &Arc<Self>, endpoint: Endpoint) -> Result<Arc<ParallelEndpoint>, Error> {
        let endpoint = endpoint.into_parallel()?;
        *endpoint.lock().0.core.domain.parallel.borrow_mut() = Arc::downgrade(self);
        let endpoint = Arc::new(ParallelEndpoint { bundle: Arc::downgrade(self), ..endpoint });
        self.members.write().unwrap_or_else(PoisonError::into_inner).push(endpoint.clone());
        Ok(endpoint)
    }

    /// Takes an endpoint out. The caller's is the last handle if no thread has another:
    /// `Arc::into_inner` then gives the endpoint, for [`ParallelEndpoint::into_sequential`].
    pub fn remove(&self, endpoint: &Arc<ParallelEndpoint>) {
        self.members.write().unwrap_or_else(PoisonError::into_inner).retain(|m| !Arc::ptr_eq(m, endpoint));
    }

    /// How many endpoints it has.
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn all(&self) -> Vec<Arc<ParallelEndpoint>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Polls every endpoint that no other thread is using. Returns how many messages were
    /// delivered.
    pub fn poll(&self) -> usize {
        self.all().iter().map(|endpoint| endpoint.poll()).sum()
    }

    /// The replies alone, while a reply of one of them waits for space.
    pub(crate) fn poll_replies(&self) -> usize {
        let replies = |endpoint: &Arc<ParallelEndpoint>| match endpoint.inner.try_lock() {
            Ok(guard) => guard.0.core.poll_replies(),
            // In use: by us, or by somebody who polls it himself.
            Err(_) => 0,
        };
        self.all().iter().map(replies).sum()
    }

    /// Waits until a message can be polled at one of them, or until `timeout`. Returns
    /// whether one can.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if the bundle is empty.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let members = self.all();
        if members.is_empty() {
            return Err(Error::BadArgument("waiting on an empty bundle".into()));
        }
        let end = Instant::now() + timeout;
        // Each in turn, for a short time if there are several.
        let turn = Duration::from_millis(1) / members.len() as u32;
        loop {
            for endpoint in &members {
                let left = end.saturating_duration_since(Instant::now());
                if endpoint.lock().0.wait(Some(left.min(turn))) {
                    return Ok(true);
                }
                if left.is_zero() {
                    return Ok(false);
                }
            }
            Native::with_id(0).yield_now();
        }
    }
}

/// An endpoint that several threads may send through and poll: its calls take turns.
/// While one thread waits for space the others can poll and send (except after the first piece of a
/// long transfer, whose rest must follow).
pub struct ParallelEndpoint {
    inner: Mutex<Movable>,
    /// The bundle that it lives in, if it shares one.
    bundle: Weak<ParallelBundle>,
}

impl core::fmt::Debug for ParallelEndpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ParallelEndpoint")
    }
}

/// An endpoint that may change threads.
struct Movable(Endpoint);

#[allow(unsafe_code)]
// SAFETY: everything that the endpoint shares without atomic counts (`Rc`s of its core, its peers
// and its handlers) is reachable from this endpoint alone (`into_parallel` has taken it out of its
// bundle, and handlers, which are `Send + Sync`, can't hold a part of it), so all of it moves
// between threads together.
unsafe impl Send for Movable {}

impl Endpoint {
    /// Moves the endpoint from its sequential bundle into a parallel one of its own. Into
    /// one that it shares: [`ParallelBundle::add`].
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
        Ok(ParallelEndpoint { inner: Mutex::new(Movable(self)), bundle: Weak::new() })
    }
}

impl ParallelEndpoint {
    fn lock(&self) -> MutexGuard<'_, Movable> {
        // A handler that panicked has left nothing half done that a later call would trip over.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it back into the hands of one thread.
    pub fn into_sequential(self) -> Endpoint {
        let endpoint = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner).0;
        endpoint.core.domain.parallel.take();
        endpoint
    }

    /// Tries under the lock until it goes out; polls there too, and lets the others have
    /// the lock in between.
    fn until_sent(
        &self,
        mut attempt: impl FnMut(&Core<SharedMemory>) -> Result<(), Error>,
    ) -> Result<(), Error> {
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
            if let Some(bundle) = self.bundle.upgrade() {
                bundle.poll();
            }
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

    /// Waits for a message, in turns of at most a millisecond so that other threads can
    /// send, until `timeout`.
    pub fn wait(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
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
