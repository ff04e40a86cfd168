//! Bundles: endpoints that are polled and waited for together.

use core::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use towpath_channel::doorbell;
use towpath_machine::{Ordering, Park, Processor};
use towpath_sync::SlowRounds;
use towpath_sync::strategy::{Limits, Step, Strategy, WaitState};

use crate::claim::Claim;
use crate::domain::Side;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::queue::STALL;
use crate::shared_memory::SharedMemory;
use crate::state::{Bundled, Core, Domain};

/// Events that [`Bundle::wait`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// A message (or one that came back) can be polled.
    pub not_empty: bool,
    /// Every mapped destination has space for a request.
    pub can_send: bool,
}

impl Default for Events {
    fn default() -> Self {
        Events { not_empty: true, can_send: false }
    }
}

/// Sequential bundle: endpoints of one thread. Waiting in any of them polls all of them.
pub struct Bundle<D: Domain = SharedMemory> {
    inner: Rc<Bundled<D>>,
    events: Cell<Events>,
}

impl<D: Domain> Default for Bundle<D> {
    fn default() -> Self {
        Bundle { inner: Rc::new(Bundled { members: RefCell::default() }), events: Cell::default() }
    }
}

impl<D: Domain> core::fmt::Debug for Bundle<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bundle")
            .field("endpoints", &self.inner.members.borrow().len())
            .finish_non_exhaustive()
    }
}

/// Time of an empty poll, in nanoseconds, about.
const POLL: u64 = 8;

impl Bundle {
    /// Makes an empty bundle. In another domain: [`Bundle::default`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let bundle = towpath::Bundle::new();
    /// bundle.add(&endpoint);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn new() -> Bundle {
        Bundle::default()
    }
}

impl<D: Domain> Bundle<D> {
    /// Moves an endpoint here from whatever bundle it was in.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let bundle = towpath::Bundle::new();
    /// bundle.add(&endpoint);
    /// assert_eq!(bundle.len(), 1);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn add(&self, endpoint: &Endpoint<D>) {
        let core = &endpoint.core;
        if let Some(old) = core.company.bundle.borrow().upgrade() {
            old.remove(core);
        }
        self.inner.members.borrow_mut().push(core.clone());
        *core.company.bundle.borrow_mut() = Rc::downgrade(&self.inner);
    }

    /// Returns the number of its endpoints.
    ///
    /// ```
    /// assert_eq!(towpath::Bundle::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.inner.members.borrow().len()
    }

    /// Returns whether it has no endpoint.
    ///
    /// ```
    /// assert!(towpath::Bundle::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the events that [`Bundle::wait`] waits for.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use towpath::{Bundle, Events};
    ///
    /// let bundle = Bundle::new();
    /// bundle.add(&endpoint);
    /// bundle.set_events(Events { not_empty: false, can_send: true });
    /// assert!(bundle.wait(None)?, "there is space everywhere");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn set_events(&self, events: Events) {
        self.events.set(events);
    }

    /// Polls every endpoint once. Returns how many messages were delivered.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let bundle = towpath::Bundle::new();
    /// bundle.add(&endpoint);
    /// assert_eq!(bundle.poll(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn poll(&self) -> usize {
        self.inner.members.borrow().iter().map(|core| core.poll()).sum()
    }

    /// Blocks until one of the bundle's events happens, as the world's waiting policy
    /// says, or until `timeout`. Delivers nothing. Returns whether an event happened.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if no event is selected, or the bundle is empty: it would wait for
    /// ever.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use std::time::Duration;
    ///
    /// let bundle = towpath::Bundle::new();
    /// bundle.add(&endpoint);
    /// assert!(!bundle.wait(Some(Duration::from_millis(1)))?, "no message has come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let events = self.events.get();
        let members = self.inner.members.borrow();
        let Some(first) = members.first() else {
            return Err(Error::BadArgument("waiting on an empty bundle".into()));
        };
        if !events.not_empty && !events.can_send {
            return Err(Error::BadArgument("waiting with an empty event mask".into()));
        }
        Ok(wait_for(first, &members, events, timeout, &()))
    }
}

impl<D: Domain> Endpoint<D> {
    /// Blocks until a message can be polled, or until `timeout`: [`Bundle::wait`] for one
    /// endpoint. Returns whether one can.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// use std::time::Duration;
    ///
    /// assert!(!endpoint.wait(Some(Duration::from_millis(1))), "no message has come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        wait_for(&self.core, core::slice::from_ref(&self.core), Events::default(), timeout, &())
    }

    /// Returns the number of empty polls that cost about as much as a sleep. Messages
    /// that come soon are found soonest by polling.
    fn polls_before_waiting(&self) -> u64 {
        let domain = &self.core.domain;
        if domain.policy().spins() { domain.budget() / POLL } else { 0 }
    }

    /// Polls the endpoint, or all of its bundle, until `until` is reached, or about until
    /// no message has come for `timeout`.
    pub(crate) fn poll_until_or(&self, timeout: Option<Duration>, until: &impl Until) {
        let patience = self.polls_before_waiting();
        let mut idle = 0;
        while !until.is_reached() {
            if self.core.poll_bundle() > 0 {
                idle = 0;
            } else if idle < patience {
                idle += 1;
            } else {
                let bundle = self.core.company.bundle.borrow().upgrade();
                let alone = core::slice::from_ref(&self.core);
                let happened = match &bundle {
                    Some(bundle) => {
                        wait_for(&self.core, &bundle.members.borrow(), Events::default(), timeout, until)
                    }
                    None => wait_for(&self.core, alone, Events::default(), timeout, until),
                };
                if !happened {
                    return;
                }
                idle = 0;
            }
        }
    }

    /// Polls, waiting when there is nothing, until `done` says so.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    ///
    /// let done = Arc::new(AtomicBool::new(false));
    /// let flag = done.clone();
    /// endpoint.set_handler(1, move |_| flag.store(true, Relaxed));
    /// endpoint.request(0, 1, &[])?;
    /// endpoint.poll_until(|| done.load(Relaxed));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn poll_until(&self, mut done: impl FnMut() -> bool) {
        let patience = self.polls_before_waiting();
        let mut idle = 0;
        while !done() {
            if self.poll() > 0 {
                idle = 0;
            } else if idle < patience {
                idle += 1;
            } else if !done() {
                self.wait(Some(Duration::from_millis(100)));
                idle = 0;
            }
        }
    }
}

/// End of a wait for another event than an endpoint's.
pub(crate) trait Until {
    /// Returns whether the event has come.
    fn is_reached(&self) -> bool {
        false
    }
    /// Announces to the processes that bring the event about that the waiter is about to
    /// sleep at its doorbell.
    fn announce_sleep(&self) {}
}

/// Wait for the endpoint's events only.
impl Until for () {}

fn happened<D: Domain>(members: &[Rc<Core<D>>], events: Events, until: &impl Until) -> bool {
    until.is_reached()
        || events.not_empty && members.iter().any(|core| core.has_message())
        || events.can_send && members.iter().all(|core| core.can_send())
}

/// Sleeps on the doorbell for at most `nap` nanoseconds (asked last), unless an event has
/// happened.
fn sleep<D: Domain>(
    first: &Rc<Core<D>>,
    members: &[Rc<Core<D>>],
    events: Events,
    until: &impl Until,
    nap: impl FnOnce() -> u64,
) {
    let (domain, cpu) = (&first.domain, first.cpu());
    let Some(doorbell) = domain.me().and_then(|me| domain.doorbell(me.index)) else { return };
    let rung = doorbell::count(cpu, doorbell);
    until.announce_sleep();
    if members.iter().all(|core| core.fall_asleep()) && !happened(members, events, until) {
        // No process wakes this one when space appears, or for packets that were claimed before it
        // said that it sleeps, and that will be passed over.
        let soon = events.can_send || members.iter().any(|core| core.is_behind());
        let nap = nap().min(if soon { STALL } else { u64::MAX });
        domain.asleep(true);
        cpu.park(doorbell, rung, nap);
        domain.asleep(false);
    }
    for core in members {
        core.wake_up();
    }
}

/// Returns whether a waiter goes on spinning for a transfer that is being stored.
fn is_stored_into<D: Domain>(domain: &D, members: &[Rc<Core<D>>]) -> bool {
    domain.policy().spins() && members.iter().any(|core| core.is_stored_into()) && !domain.oversubscribed()
}

fn wait_for<D: Domain>(
    first: &Rc<Core<D>>,
    members: &[Rc<Core<D>>],
    events: Events,
    timeout: Option<Duration>,
    until: &impl Until,
) -> bool {
    if happened(members, events, until) {
        return true;
    }
    let (domain, cpu) = (&first.domain, first.cpu());
    let strategy = || {
        let policy = SlowRounds::policy_now(domain.slow_rounds(), domain.policy(), cpu);
        Strategy::new(policy, domain.budget(), &Limits::MESSAGE)
    };
    let mut steps = strategy();
    let mut state = WaitState::default();
    let deadline = timeout.map(|t| cpu.now().saturating_add(u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)));
    let left = || deadline.map_or(u64::MAX, |d| d.saturating_sub(cpu.now()));
    loop {
        match steps.next(&mut state, || domain.oversubscribed()) {
            Step::Spin(ns) => {
                let spin = || first.spin_for(ns, || happened(members, events, until)).then_some(()).ok_or(());
                if SlowRounds::spin(domain.slow_rounds(), cpu, ns, spin).is_ok() {
                    return true;
                }
                if !state.is_between_rounds() {
                    continue;
                }
            }
            Step::Yield => {
                SlowRounds::yield_now(domain.slow_rounds(), cpu);
                steps = strategy();
            }
            Step::Park(_) if is_stored_into(domain, members) => {}
            Step::Park(nap) => sleep(first, members, events, until, || left().min(nap)),
        }
        if happened(members, events, until) {
            return true;
        }
        for core in members {
            core.look_after(false);
        }
        if happened(members, events, until) {
            return true;
        }
        if left() == 0 {
            return false;
        }
    }
}

impl<D: Domain> Core<D> {
    /// Probes for about `ns` nanoseconds.
    fn spin_for(&self, ns: u64, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        if ns == 0 {
            return false;
        }
        let header = &self.request.side.queue().slot(self.request.receiver.borrow().head).header;
        // Relaxed: a probe of one word that is likely to change; what counts is `done`.
        self.cpu().spin_until(header, Ordering::Relaxed, ns, |_| done()).is_ok()
    }

    pub(crate) fn fall_asleep(&self) -> bool {
        self.arm_lines()
            && self.arm_streams()
            && [&self.request, &self.reply]
                .iter()
                .all(|own| own.side.claim().fall_asleep(own.side.queue(), &own.receiver.borrow(), self.cpu()))
    }

    fn wake_up(&self) {
        self.disarm_lines();
        self.disarm_streams();
        for own in [&self.request, &self.reply] {
            own.side.claim().wake_up(own.side.queue(), self.cpu());
        }
    }
}
