//! Endpoints that a real-time signal polls when a message arrives while their thread does
//! other work.
//!
//! **Source.** Greenwald & Cheriton 1996, §3 and §6 (remote calls that are performed in the signal
//! handler, on structures that the interrupted code may be in the middle of); the protocol is our
//! own.
//!
//! A receiver that leaves off polling *says that it is away*: it stores its thread's address
//! ([`Interrupts`]) in its entry of the directory, then says at its two queues that it sleeps, as
//! it would before sleeping. The sender that finds a queue asleep wakes its receiver, as always,
//! and takes the address: the sender that gets it sends the signal. So there is one signal at most
//! until the receiver has been there and says again that it is away.
//!
//! **What runs in the signal.** From the front of each queue, as long as the next message is for a
//! handler that is marked as safe there ([`SignalEndpoint::set_signal_handler`]), is short with at
//! most twelve arguments, and comes (if it is a request) from an endpoint that this one has mapped
//! or heard of. The first other one, and all behind it in that queue, wait for the next ordinary
//! poll: so requests of one sender are handled in their order, and so are replies, as everywhere. A
//! reply that finds no space is kept (one), and no request is handled in a signal until it is out.
//!
//! **No re-entrance.** While the thread is in a call of the endpoint, the signal only leaves a
//! note; the call looks for messages before it returns. So `calls` is all that the two have to
//! agree on, and they are the same thread.
//!
//! **Progress.** What runs in the signal waits for no process. So only the claim algorithm
//! `towpath` will do: a signal handler can't wait for locks, nor pass over the places that senders
//! under `lock-free` give up when they don't want to wait. **Fields.** `Entry::signal`: the
//! receiver stores its address; a sender takes it (swap); the entry's next owner clears it. All
//! else: the thread.
//!
//! **Crashes.** A sender that dies after it has taken the address, or after it has claimed a packet
//! of a sleeping queue, and before its signal: the receiver is not told. So a timer interrupts the
//! thread twenty times a second. A sender that dies (or is stopped) with a packet that it has
//! claimed and not published is passed over by ordinary polls only, which may allocate: until the
//! next one, messages behind it wait. A receiver that dies: as everywhere.
//!
//! **Memory.** A word of the directory's entry. **Don't use it** where the thread polls often
//! anyway: each call of the endpoint says again that it is away, which costs two locked
//! instructions.
#![allow(unsafe_code)]

use core::cell::{Cell, OnceCell};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::rc::Rc;

use towpath_machine::{Heap, Native, Processor};
use towpath_shm::{Interrupts, Ticker};

use crate::calls::Calls;
use crate::claim::{Algorithm, Claim};
use crate::domain::{Membership, Side};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handlers::HandlerScope;
use crate::message::{Direction, Source};
use crate::name::Tag;
use crate::outgoing::{Body, OnFull, Outgoing};
use crate::packet::{Form, LINE_ARGS, MAX_ARGS, from_source_code};
use crate::queue::Arrival;
use crate::signalled::Kept;
use crate::state::{Core, Domain, Own, PeerEndpoint, Token};

/// Period of the timer that interrupts the thread: bounds the delay of a message whose
/// sender died just before its signal.
const TICK: Duration = Duration::from_millis(50);
/// Time until the next signal where a packet was claimed whose message is not there yet,
/// or there are more messages than one signal takes.
const SOON: Duration = Duration::from_micros(50);
/// Maximum number of messages that one signal takes from a queue.
const QUOTA: u32 = 64;
/// Maximum number of looks in one signal because messages came meanwhile.
const ROUNDS: u32 = 4;

/// Message at the front of a queue.
enum Front {
    Nothing,
    /// Message for an ordinary poll.
    Other,
    Safe(Arrival),
}

impl<D: Domain> Core<D> {
    /// Sends a short reply from a handler that runs in a signal: neither waits nor
    /// allocates. A reply that finds no space is kept.
    #[cold]
    pub(crate) fn reply_from_signal(&self, source: Source, out: &Outgoing<'_>) -> Result<(), Error> {
        let mut args = [0; MAX_ARGS];
        let count = out.args.len();
        args.get_mut(..count).ok_or(Error::NotSent)?.copy_from_slice(out.args);
        let reply = Kept { source, handler: out.handler, tag: out.tag, args, count };
        if !self.try_reply(&reply) {
            self.dispatch.signalled.kept.set(Some(reply));
        }
        Ok(())
    }

    fn try_reply(&self, reply: &Kept) -> bool {
        let Some(peer) = self.known(reply.source) else { return false };
        let args = &reply.args[..reply.count];
        let content =
            self.content(&Outgoing::reply(reply.handler, reply.tag, args, Body::Short), Form::Short, 0);
        self.packet(&peer, Direction::Reply, &content, None, OnFull::GiveUp).is_ok()
    }

    /// Sends the reply that a signal has kept, in the ordinary way.
    fn send_kept(&self) {
        if let Some(Kept { source, handler, tag, args, count }) = self.dispatch.signalled.kept.take() {
            // Not too many arguments: that has been seen.
            let _ = self.reply_to(source, Outgoing::reply(handler, tag, &args[..count], Body::Short));
        }
    }

    /// Returns the sender of a message, if it is known without asking the directory.
    fn known(&self, source: Source) -> Option<Rc<PeerEndpoint<D>>> {
        let code = match source {
            Source::Coded(code) => code,
            Source::Named(name) => name.code(),
        };
        let peers = self.tables.peers.try_borrow().ok()?;
        let peer = peers.get(usize::from(from_source_code(code).0))?.as_ref()?;
        let same = peer.name.code() == code && !peer.gone.get();
        same.then(|| peer.clone())
    }

    fn front(&self, own: &Own<D>, direction: Direction) -> Front {
        let reply = direction.is_reply();
        let Ok(mut receiver) = own.receiver.try_borrow_mut() else { return Front::Other };
        let (q, cpu) = (own.side.queue(), self.cpu());
        let Some(arrival) = receiver.next(own.side.claim(), q, cpu) else { return Front::Nothing };
        if self.answers.has_lines() || self.streams.count.get() > 0 {
            // A message of a line or of a stream may come before it.
            return Front::Other;
        }
        let header = arrival.header;
        let is_simple = header.is_short() && header.args() <= LINE_ARGS;
        let has_handler = self.tables.handlers.is_for_signals(header.handler());
        let is_ours = || reply || self.tag.get().accepts(Tag(cpu.read(&q.slot(arrival.ticket).tag)));
        let can_be_answered = || {
            reply
                || !self.dispatch.signalled.keeps_one()
                    && self.known(Source::Coded(header.source())).is_some()
        };
        if is_simple && has_handler && is_ours() && can_be_answered() {
            Front::Safe(arrival)
        } else {
            Front::Other
        }
    }

    /// Delivers messages of one queue that may be delivered in a signal. Returns their
    /// number.
    fn poll_in_signal(&self, direction: Direction) -> u32 {
        let own = self.own(direction);
        let (claim, q, cpu) = (own.side.claim(), own.side.queue(), self.cpu());
        let mut delivered = 0;
        while delivered < QUOTA
            && let Front::Safe(arrival) = self.front(own, direction)
        {
            self.deliver(arrival, direction);
            own.receiver.borrow_mut().done(claim, q, cpu, arrival);
            delivered += 1;
        }
        if delivered > 0 {
            let around = self.domain.around(q);
            claim.flush(q, &mut own.receiver.borrow_mut(), cpu, &self.domain.wait(&around));
        }
        delivered
    }

    /// Says at both queues that the thread is away. Returns `false` if a packet has been
    /// claimed whose message is not there yet, or is there by now. Where the front is for an
    /// ordinary poll, no sender needs to call the thread.
    fn leave(&self, address: u64) -> bool {
        // Relaxed: a queue that says so afterwards releases it (T8).
        self.cpu().store(&self.entry.signal, address, Ordering::Relaxed);
        Direction::REPLIES_FIRST.into_iter().all(|direction| {
            let own = self.own(direction);
            match self.front(own, direction) {
                Front::Safe(_) => false,
                Front::Other => true,
                Front::Nothing => own.receiver.try_borrow().is_ok_and(|receiver| {
                    own.side.claim().fall_asleep(own.side.queue(), &receiver, self.cpu())
                }),
            }
        })
    }

    /// Says at both queues that senders need not wake the thread for now.
    fn come_back(&self) {
        for own in [&self.reply, &self.request] {
            own.side.claim().wake_up(own.side.queue(), self.cpu());
        }
    }
}

/// Endpoint that a real-time signal polls when a message arrives while its thread does
/// other work. It belongs to the thread that made it.
///
/// Some messages wait for an ordinary poll: those that the signal may not handle, and those behind
/// the packet of a sender that has died or stands still in the middle of a send. So poll now and
/// then where there is time.
///
/// So do answers of endpoints with which this one had exchanged several messages before.
///
/// System calls of the thread may be interrupted: twenty times a second at least. They are begun
/// again where the system does that (`SA_RESTART`); `sleep` and `poll` end early.
///
/// ```no_run
/// use towpath::{Endpoint, SignalEndpoint};
/// # fn example(world: &towpath::World) -> Result<(), towpath::Error> {
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// static SUM: AtomicU32 = AtomicU32::new(0);
///
/// let endpoint = Endpoint::new(world)?;
/// endpoint.map_world()?; // requests of endpoints that are known can be handled in the signal
/// let endpoint = SignalEndpoint::new(endpoint, 0)?; // SIGRTMIN + 0
/// // SAFETY: it touches an atomic and replies.
/// unsafe {
///     endpoint.set_signal_handler(1, |request| {
///         SUM.fetch_add(request.args()[0], Relaxed);
///         let _ = request.reply(2, &[]);
///     });
/// }
/// // … compute, without polling.
/// # Ok(())
/// # }
/// ```
pub struct SignalEndpoint {
    /// Dropped first: then no signal is handled any more.
    interrupts: Interrupts,
    inner: Rc<SignalCore>,
}

struct SignalCore {
    endpoint: Endpoint,
    address: Cell<u64>,
    ticker: OnceCell<Ticker>,
    calls: Calls<Native>,
    /// True if a signal came meanwhile.
    ///
    /// Relaxed, here and with the next ones: a signal handler is the same thread.
    missed: AtomicBool,
    signals: AtomicU64,
    handled: AtomicU64,
}

impl core::fmt::Debug for SignalEndpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SignalEndpoint")
            .field("endpoint", &self.inner.endpoint)
            .field("interrupts", &self.interrupts)
            .finish_non_exhaustive()
    }
}

/// Mark of a thread that is in a call, until it is dropped.
struct Busy<'a>(&'a SignalCore);

impl<'a> Busy<'a> {
    fn new(inner: &'a SignalCore) -> Self {
        inner.calls.begin(inner.endpoint.core.cpu());
        Busy(inner)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.calls.end(self.0.endpoint.core.cpu());
    }
}

/// Handler of the signal.
///
/// # Safety
///
/// `data` is an [`SignalCore`] of this thread's, and lives.
unsafe fn interrupted(data: *const ()) {
    // SAFETY: the caller's obligation.
    let inner = unsafe { &*data.cast::<SignalCore>() };
    inner.signals.store(inner.signals.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    if inner.calls.are_under_way(inner.endpoint.core.cpu()) {
        inner.missed.store(true, Ordering::Relaxed);
        inner.endpoint.core.come_back();
        return;
    }
    inner.serve();
}

impl SignalCore {
    /// Delivers messages that may be delivered here, and says that the thread is away.
    fn serve(&self) {
        let core = &self.endpoint.core;
        // One that is polled with others, or by other threads: not here. Nor before everything is
        // ready.
        let alone = core.company.bundle.try_borrow().is_ok_and(|bundle| bundle.strong_count() == 0);
        let (true, Some(ticker)) = (alone && core.dispatch.depth.get() == 0, self.ticker.get()) else {
            return;
        };
        let mut later = true;
        for _ in 0..ROUNDS {
            self.missed.store(false, Ordering::Relaxed);
            {
                let _busy = Busy::new(self);
                core.dispatch.signalled.running.set(true);
                if let Some(kept) = core.dispatch.signalled.kept.take()
                    && !core.try_reply(&kept)
                {
                    core.dispatch.signalled.kept.set(Some(kept));
                }
                let delivered = Direction::REPLIES_FIRST.map(|direction| core.poll_in_signal(direction));
                core.dispatch.signalled.running.set(false);
                let all = self.handled.load(Ordering::Relaxed) + u64::from(delivered[0] + delivered[1]);
                self.handled.store(all, Ordering::Relaxed);
                later = !core.leave(self.address.get());
            }
            if !later && !self.missed.load(Ordering::Relaxed) {
                break;
            }
        }
        if later {
            ticker.tick(SOON, TICK);
        }
    }
}

impl SignalEndpoint {
    /// Lets `SIGRTMIN + number` poll the endpoint from now on. No handler runs in the
    /// signal until it is marked ([`SignalEndpoint::set_signal_handler`]).
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if the world's claim algorithm is not [`Algorithm::Towpath`], or the
    /// endpoint is in a bundle; [`Error::World`] if there is no such signal, or it is in use.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// let endpoint = towpath::SignalEndpoint::new(endpoint, 4)?; // SIGRTMIN + 4
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn new(endpoint: Endpoint, number: u8) -> Result<SignalEndpoint, Error> {
        let algorithm = endpoint.config().algorithm;
        if algorithm != Algorithm::Towpath {
            return Err(Error::BadArgument(format!(
                "under {}, a signal handler would have to wait: make the world with {}",
                algorithm.name(),
                Algorithm::Towpath.name()
            )));
        }
        if endpoint.core.company.bundle.borrow().strong_count() > 0 {
            return Err(Error::BadArgument("an endpoint that a signal polls can't be in a bundle".into()));
        }
        endpoint.core.answers.enabled.set(false);
        endpoint.core.rest_lines();
        endpoint.core.refuse_streams();
        let inner = Rc::new(SignalCore {
            endpoint,
            address: Cell::new(0),
            ticker: OnceCell::new(),
            calls: Calls::new(&Heap),
            missed: AtomicBool::new(false),
            signals: AtomicU64::new(0),
            handled: AtomicU64::new(0),
        });
        let data = Rc::as_ptr(&inner).cast::<()>();
        // SAFETY: `interrupted` does what a handler may: it touches this endpoint only while no
        // call of it is under way (`calls`), allocates nothing and takes no lock, and the handlers
        // that it runs were marked by the caller that vouches for them (`set_signal_handler`); a
        // panic in one of them ends the process. The data lives until `interrupts` has been
        // dropped.
        let interrupts = unsafe { Interrupts::install(inner.endpoint.world(), number, interrupted, data)? };
        inner.address.set(interrupts.address());
        let ticker = interrupts.ticker();
        ticker.tick(TICK, TICK);
        let _ = inner.ticker.set(ticker);
        let it = SignalEndpoint { interrupts, inner };
        it.with(|_| ());
        Ok(it)
    }

    /// Sets handler `index`, and marks it: it may run in the signal.
    /// [`Endpoint::set_handler`] takes the mark away again.
    ///
    /// In the signal, a request may be answered by [`Token::reply`] only; other replies are
    /// [`Error::NotSent`] then. If there is no space, the reply goes out later.
    ///
    /// # Safety
    ///
    /// The handler may be called at any instruction of this thread. It must not allocate, take
    /// locks, or touch what the interrupted code may be in the middle of, but for what is made for
    /// that: atomics, and the structures of `towpath::structures::nonblocking`. It replies at most
    /// once, and does nothing else with an endpoint. If it panics, the process is aborted.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let endpoint = towpath::SignalEndpoint::new(endpoint, 3)?;
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    ///
    /// static COUNT: AtomicU32 = AtomicU32::new(0);
    ///
    /// // SAFETY: it touches an atomic.
    /// unsafe { endpoint.set_signal_handler(1, |_| drop(COUNT.fetch_add(1, Relaxed))) };
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub unsafe fn set_signal_handler(&self, index: u8, handler: impl Fn(&Token<'_>) + Send + Sync + 'static) {
        self.with(|endpoint| endpoint.set_scoped_handler(index, HandlerScope::Signals, handler));
    }

    /// Uses the endpoint in the ordinary way: to send, to map, to poll. Signals that come
    /// meanwhile wait. Afterwards, messages that may be handled in a signal have been handled, and
    /// the endpoint is away again. Don't add it to a [`Bundle`](crate::Bundle): then no signal
    /// polls it.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let endpoint = towpath::SignalEndpoint::new(endpoint, 3)?;
    /// endpoint.with(|endpoint| endpoint.request(0, 1, &[]))?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn with<R>(&self, act: impl FnOnce(&Endpoint) -> R) -> R {
        let inner = &*self.inner;
        let nested = inner.calls.are_under_way(inner.endpoint.core.cpu());
        let busy = Busy::new(inner);
        if !nested {
            inner.endpoint.core.send_kept();
        }
        let result = act(&inner.endpoint);
        if !nested {
            inner.endpoint.core.rest_lines();
        }
        drop(busy);
        if !nested {
            inner.serve();
        }
        result
    }

    /// Polls in the ordinary way: all handlers may run. Returns how many messages were
    /// delivered.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let endpoint = towpath::SignalEndpoint::new(endpoint, 3)?;
    /// endpoint.poll();
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn poll(&self) -> usize {
        self.with(Endpoint::poll)
    }

    /// Polls in the ordinary way until `done` says so, waiting when there is nothing. In
    /// between, signals poll, too.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let endpoint = towpath::SignalEndpoint::new(endpoint, 3)?;
    /// endpoint.poll_until(|| true);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn poll_until(&self, mut done: impl FnMut() -> bool) {
        while !done() {
            self.with(|endpoint| {
                if endpoint.poll() == 0 && !done() {
                    endpoint.wait(Some(TICK));
                }
            });
        }
    }

    /// Returns the number of signals so far, those of the timer included.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let endpoint = towpath::SignalEndpoint::new(endpoint, 3)?;
    /// println!("{} signals", endpoint.signals());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn signals(&self) -> u64 {
        self.inner.signals.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that were handled in a signal so far, or before a
    /// call returned ([`SignalEndpoint::with`]).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// # let endpoint = towpath::SignalEndpoint::new(endpoint, 3)?;
    /// println!("{} messages handled in signals", endpoint.handled());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn handled(&self) -> u64 {
        self.inner.handled.load(Ordering::Relaxed)
    }
}

impl Drop for SignalEndpoint {
    fn drop(&mut self) {
        let inner = &*self.inner;
        // From here on signals do nothing.
        core::mem::forget(Busy::new(inner));
        let core = &inner.endpoint.core;
        if !core.domain.has_ended() {
            core.send_kept();
            // Relaxed: a late signal finds no thread.
            core.cpu().store(&core.entry.signal, 0, Ordering::Relaxed);
            core.come_back();
        }
    }
}
