//! Parallel bundles: endpoints that several threads use.
//!
//! An endpoint knows nothing of threads: it has a function that polls the replies of endpoints that
//! the process shares with other threads, and a parallel bundle sets it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use towpath_machine::{Native, Park};

use crate::audit::Audit;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::name::{Name, Tag};
use crate::outgoing::{Body, OnFull, Outgoing};
use crate::state::Token;

/// Parallel bundle: several threads may poll it and send through its endpoints. A thread
/// that waits for space polls all of them.
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
    /// Makes an empty bundle.
    ///
    /// ```
    /// let bundle = towpath::ParallelBundle::new();
    /// assert!(bundle.is_empty());
    /// ```
    pub fn new() -> Arc<ParallelBundle> {
        Arc::default()
    }

    /// Moves an endpoint here from the sequential bundle that it was in.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::into_parallel`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// let bundle = towpath::ParallelBundle::new();
    /// let endpoint = bundle.add(endpoint)?;
    /// std::thread::scope(|scope| {
    ///     for n in 0..4 {
    ///         let endpoint = &endpoint;
    ///         scope.spawn(move || endpoint.request(0, 1, &[n]));
    ///     }
    /// });
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn add(self: &Arc<Self>, endpoint: Endpoint) -> Result<Arc<ParallelEndpoint>, Error> {
        let endpoint = endpoint.into_parallel()?;
        let bundle = Arc::downgrade(self);
        *endpoint.lock().0.core.company.poll_replies.borrow_mut() =
            Some(Box::new(move || bundle.upgrade().map_or(0, |bundle| bundle.poll_replies())));
        let endpoint = Arc::new(ParallelEndpoint { bundle: Arc::downgrade(self), ..endpoint });
        self.members.write().unwrap_or_else(PoisonError::into_inner).push(endpoint.clone());
        Ok(endpoint)
    }

    /// Takes an endpoint out. The caller's is the last handle if no thread has another:
    /// `Arc::into_inner` then gives the endpoint, for [`ParallelEndpoint::into_sequential`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// use std::sync::Arc;
    ///
    /// bundle.remove(&endpoint);
    /// let endpoint = Arc::into_inner(endpoint).expect("no thread has another handle");
    /// let endpoint: towpath::Endpoint = endpoint.into_sequential();
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn remove(&self, endpoint: &Arc<ParallelEndpoint>) {
        self.members.write().unwrap_or_else(PoisonError::into_inner).retain(|m| !Arc::ptr_eq(m, endpoint));
    }

    /// Returns the number of its endpoints.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// assert_eq!(bundle.len(), 1);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Returns whether it has no endpoint.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// assert!(!bundle.is_empty());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn all(&self) -> Vec<Arc<ParallelEndpoint>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Polls every endpoint that no other thread is using. Returns how many messages were
    /// delivered.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// assert_eq!(bundle.poll(), 0, "no message has come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn poll(&self) -> usize {
        self.all().iter().map(|endpoint| endpoint.poll()).sum()
    }

    /// Polls only the replies, while a reply of one of the endpoints waits for space.
    fn poll_replies(&self) -> usize {
        let replies = |endpoint: &Arc<ParallelEndpoint>| match endpoint.inner.try_lock() {
            Ok(guard) => guard.0.core.poll_replies(),
            // In use: by this thread, or by another that polls it.
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
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// assert!(!bundle.wait(std::time::Duration::from_millis(1))?, "no message has come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
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

/// Endpoint that several threads may send through and poll: its calls take turns.
///
/// While one thread waits for space the others can poll and send (except after the first piece of a
/// long transfer, whose rest must follow).
pub struct ParallelEndpoint {
    inner: Mutex<Movable>,
    /// Bundle that it is in, if it is in one.
    bundle: Weak<ParallelBundle>,
}

impl core::fmt::Debug for ParallelEndpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ParallelEndpoint")
    }
}

/// Endpoint that may change threads.
struct Movable(Endpoint);

#[allow(unsafe_code)]
// SAFETY: everything that the endpoint shares without atomic counts (`Rc`s of its core, its peers
// and its handlers) is reachable from this endpoint alone (`into_parallel` has taken it out of its
// bundle, and handlers, of which it refuses those that are not `Send + Sync`, can't hold a part of
// it; its function that polls other endpoints is `Send`), so all of it moves between threads
// together. `ParallelEndpoint` gives no access by which another handler could be set.
unsafe impl Send for Movable {}

impl Endpoint {
    /// Moves the endpoint from its sequential bundle into a parallel one of its own. Into
    /// one that it shares: [`ParallelBundle::add`].
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is polled at this moment (from a handler), or if a handler stays in
    /// this thread ([`Endpoint::set_local_handler`]).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let endpoint = endpoint.into_parallel()?; // may be shared by threads
    /// assert_eq!(endpoint.poll(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn into_parallel(self) -> Result<ParallelEndpoint, Error> {
        if let Some(index) = self.core.tables.handlers.of_one_thread() {
            return Err(Error::InUse(format!(
                "handler {index} stays in its thread (set_local_handler): set it by set_handler, which \
                 takes what is Send + Sync, or remove it"
            )));
        }
        if let Some(bundle) = self.core.company.bundle.borrow().upgrade() {
            bundle.remove(&self.core);
        }
        *self.core.company.bundle.borrow_mut() = std::rc::Weak::new();
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
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let endpoint = endpoint.into_parallel()?.into_sequential();
    /// assert_eq!(endpoint.poll(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn into_sequential(self) -> Endpoint {
        let endpoint = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner).0;
        endpoint.core.company.poll_replies.take();
        endpoint
    }

    /// Tries under the lock until the message goes out; polls there too, and lets other
    /// threads have the lock in between.
    fn until_sent(&self, index: usize, handler: u8, args: &[u32], body: Body<'_>) -> Result<(), Error> {
        let out = Outgoing::request(handler, args, body, OnFull::GiveUp);
        loop {
            let endpoint = self.lock();
            match endpoint.0.core.request_to(index, out) {
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

    /// Returns its name.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// println!("{:?}", endpoint.name());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn name(&self) -> Name {
        self.lock().0.name()
    }

    /// Maps an entry of the translation table: see [`Endpoint::map`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::map`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// endpoint.map(1, endpoint.name(), towpath::Tag::ALL)?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn map(&self, index: usize, name: Name, tag: Tag) -> Result<(), Error> {
        self.lock().0.map(index, name, tag)
    }

    /// Maps entry `r` of the translation table to rank `r`: see [`Endpoint::map_world`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::map_world`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// endpoint.map_world()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn map_world(&self) -> Result<(), Error> {
        self.lock().0.map_world()
    }

    /// Sets a handler: see [`Endpoint::set_handler`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// endpoint.set_handler(1, |message| println!("{:?}", message.args()));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn set_handler(&self, index: u8, handler: impl Fn(&Token<'_>) + Send + Sync + 'static) {
        self.lock().0.set_handler(index, handler);
    }

    /// Sends a request with arguments only: see [`Endpoint::request`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// endpoint.request(0, 1, &[7])?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn request(&self, index: usize, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.until_sent(index, handler, args, Body::Short)
    }

    /// Sends a request with a payload: see [`Endpoint::request_medium`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request_medium`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// endpoint.request_medium(0, 1, &[7], b"a line")?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn request_medium(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
    ) -> Result<(), Error> {
        self.until_sent(index, handler, args, Body::Medium(payload))
    }

    /// Stores into the destination's segment: see [`Endpoint::request_long`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request_long`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use towpath::Endpoint;
    ///
    /// let endpoint = Endpoint::with_private_segment(&world, 4096)?.into_parallel()?;
    /// endpoint.map_world()?;
    /// endpoint.request_long(0, 1, &[], b"data", 100)?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn request_long(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        self.until_sent(index, handler, args, Body::Long { payload, offset })
    }

    /// Polls: see [`Endpoint::poll`]. Returns 0 at once if another thread is using the
    /// endpoint.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// while endpoint.poll() > 0 {}
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn poll(&self) -> usize {
        match self.inner.try_lock() {
            Ok(guard) => guard.0.poll(),
            Err(TryLockError::Poisoned(guard)) => guard.into_inner().0.poll(),
            Err(TryLockError::WouldBlock) => 0,
        }
    }

    /// Waits for a message, in turns of at most a millisecond so that other threads can
    /// send, until `timeout`.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// assert!(!endpoint.wait(std::time::Duration::from_millis(1)), "no message has come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
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

    /// Returns the packets and blocks in use: see [`Endpoint::audit`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let bundle = towpath::ParallelBundle::new();
    /// # let endpoint = bundle.add(endpoint)?;
    /// assert!(endpoint.audit().is_clean());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn audit(&self) -> Audit {
        self.lock().0.audit()
    }
}
