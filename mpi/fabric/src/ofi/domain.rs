//! A domain: the state that its endpoints and queues share, the lock around it, and
//! progress.

use core::ffi::{c_int, c_void};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::device::connect::address::Address;
use crate::device::endpoint::Endpoint;
use crate::device::rma::regions::Regions;
use crate::device::tune::settings::Settings;
use crate::device::wait::activity::Activity;
use crate::device::wait::idle::{Idle, LOOK_EVERY, Pause};
use crate::device::wait::multi_domain_sleep::{self, DomainCount};
use crate::device::wait::repeat_poll::ReadGate;
use towpath_machine::{Native, Park, Processor};

use super::ep::Ep;
use super::eq::Eq;
use super::fabric::Fabric;
use super::no::{NOTHING, no};
use super::object::{Hold, OfiObject, Users, close, hand_out, header};
use super::sys::*;
use super::wait::{AwaitedEvents, Listeners, WaitDescriptor};
use super::{atomic, av, cntr, cq, ep, failed, mr};

/// Maximum sleep while a frame waits for space, in nanoseconds: receivers that make space
/// don't wake senders.
pub const SHORTLY: u64 = 50_000;
/// Maximum sleep while a sender has claimed a packet and not yet filled it, in
/// nanoseconds.
pub const BEHIND: u64 = 1_000_000;
/// Time of spinning between two looks at the clock, in nanoseconds.
const BETWEEN_CLOCKS: u64 = 200;
/// Time between two counts of processes and cores while the peers stay the same, in
/// nanoseconds.
const COUNT_EVERY: u64 = 1_000_000_000;

#[repr(C)]
pub struct OfiDomain {
    fid: fid_domain,
    /// Taken around everything, unless the program promised to have one thread at a time.
    lock: Option<Mutex<()>>,
    pub settings: Settings,
    /// Programs have addresses as text (`FI_ADDR_STR`).
    pub text: bool,
    /// Event queue for the ends of registrations (`FI_REG_MR`); without one they end when
    /// they return.
    pub registrations: RefCell<Option<*const Eq>>,
    /// Event queues that are bound to it.
    queues: RefCell<Vec<Hold>>,
    pub endpoints: RefCell<Vec<*mut Ep>>,
    pub regions: Regions,
    /// Number of peers at the last count of processes and cores.
    counted_peers: Cell<usize>,
    /// Number of ranks at that count.
    ranks: Cell<usize>,
    counted: Cell<u64>,
    reads: RefCell<ReadGate>,
    /// Flag that the program was given a completion ([`found`]).
    found: Option<&'static AtomicU32>,
    /// Listeners of queues and counters whose users wait on descriptors.
    pub listeners: Listeners,
    looked: Cell<u64>,
    /// Number of threads that sleep.
    pub sleepers: Cell<usize>,
    pub slept_at: Cell<Activity>,
    /// Activity when the endpoint was armed while the program's other domains were awake
    /// ([`multi_domain_sleep`]).
    pub armed_at: Cell<Option<Activity>>,
    count: DomainCount,
    /// Number of completions that the program was given here.
    completions: Cell<u64>,
    /// Objects that were opened on the domain.
    pub users: Users,
    _fabric: Hold,
}

impl OfiObject for OfiDomain {
    fn users(&self) -> &Users {
        &self.users
    }
}

static FID: fi_ops =
    fi_ops { close: Some(close::<OfiDomain>), bind: Some(bind), control: Some(control), ..NOTHING };

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(av::open),
    cq_open: Some(cq::open),
    endpoint: Some(ep::open),
    scalable_ep: no(),
    cntr_open: Some(cntr::open),
    poll_open: no(),
    stx_ctx: no(),
    srx_ctx: no(),
    query_atomic: Some(atomic::query),
    query_collective: no(),
    endpoint2: no(),
};

pub unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_domain(3)`: `info` and `domain` are valid, or null.
    unsafe {
        if info.is_null() || domain.is_null() {
            return failed(FI_EINVAL);
        }
        crate::device::connect::dev_shm::warn();
        let threading = (*info).domain_attr.as_ref().map_or(FI_THREAD_SAFE, |attr| attr.threading);
        let alone = threading == FI_THREAD_DOMAIN;
        let object = OfiDomain {
            fid: fid_domain {
                fid: header(FI_CLASS_DOMAIN, context, &FID),
                ops: (&raw const OPS).cast_mut(),
                mr: (&raw const mr::OPS).cast_mut(),
            },
            lock: (!alone).then(Mutex::default),
            settings: Settings::from_environment(),
            text: (*info).addr_format == FI_ADDR_STR,
            registrations: RefCell::default(),
            queues: RefCell::default(),
            endpoints: RefCell::default(),
            regions: Regions::default(),
            counted_peers: Cell::new(0),
            ranks: Cell::new(1),
            counted: Cell::new(0),
            reads: RefCell::default(),
            found: found(),
            listeners: Listeners::default(),
            looked: Cell::new(0),
            sleepers: Cell::new(0),
            slept_at: Cell::default(),
            armed_at: Cell::default(),
            count: DomainCount::new(),
            completions: Cell::new(0),
            users: Users::default(),
            _fabric: Fabric::hold(fabric),
        };
        hand_out(object, domain);
    }
    0
}

/// The word of `libtowpath-preload.so` (`mpi/preload`) that makes the program's next
/// yield return at once, if that library was loaded first.
fn found() -> Option<&'static AtomicU32> {
    // SAFETY: a name that ends with 0. If there is such a symbol it is that library's, which stays
    // loaded as long as the process lives.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"towpath_found".as_ptr()).cast::<AtomicU32>().as_ref() }
}

/// Binds an event queue. With `FI_REG_MR` the ends of registrations are reported there.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: `fi_domain(3)`: the caller passes open objects, or null.
    unsafe {
        let domain = &*fid.cast::<OfiDomain>();
        let Some(eq) = Eq::of(other) else { return failed(FI_EINVAL) };
        if flags & !FI_REG_MR != 0 {
            return failed(FI_EBADFLAGS);
        }
        let _guard = domain.enter();
        domain.queues.borrow_mut().push(eq.users.hold());
        if flags & FI_REG_MR != 0 {
            domain.registrations.replace(Some(eq));
        }
    }
    0
}

/// Maps raw keys: a key and its raw form are the same eight bytes.
unsafe extern "C" fn control(_fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    if arg.is_null() {
        return failed(FI_EINVAL);
    }
    match command as u32 {
        FI_MAP_RAW_MR => {
            // SAFETY: `fi_mr(3)`: the caller passes the argument of this command, with a key of the
            // size that it says.
            unsafe {
                let raw = &*arg.cast::<fi_mr_map_raw>();
                if raw.key.is_null() || raw.raw_key.is_null() || raw.key_size != size_of::<u64>() {
                    return failed(FI_EINVAL);
                }
                raw.key.write(raw.raw_key.cast::<u64>().read_unaligned());
            }
            0
        }
        FI_UNMAP_KEY => 0,
        _ => failed(FI_ENOSYS),
    }
}

/// The domain is locked as long as this lives.
pub struct DomainGuard<'a> {
    domain: &'a OfiDomain,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl Drop for DomainGuard<'_> {
    /// Wakes waiters on descriptors for reports that were made under the lock, before it
    /// is gone.
    #[inline(always)]
    fn drop(&mut self) {
        if self.domain.listeners.are_armed() {
            self.domain.listeners.tell();
        }
        if self.domain.sleepers.get() != 0 {
            self.domain.wake_sleepers();
        }
    }
}

impl OfiDomain {
    /// Locks it.
    #[inline(always)]
    pub fn enter(&self) -> DomainGuard<'_> {
        // A thread that panicked has ended the process.
        let lock = self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(|e| e.into_inner()));
        DomainGuard { domain: self, _lock: lock }
    }

    /// Runs something for each endpoint. The domain is locked.
    #[inline(always)]
    pub fn each(&self, mut what: impl FnMut(&mut Endpoint)) {
        for &ep in self.endpoints.borrow().iter() {
            // SAFETY: an endpoint leaves the list before it goes; the lock is held.
            what(unsafe { &mut (*ep).endpoint });
        }
    }

    /// Makes progress. The domain is locked.
    #[inline]
    pub fn progress(&self) -> usize {
        let mut taken = 0;
        self.each(|endpoint| taken += endpoint.progress());
        taken
    }

    fn is_ready(&self) -> bool {
        let mut ready = false;
        self.each(|endpoint| ready |= endpoint.port.is_ready());
        ready
    }

    /// Spins until a frame has come, at most for [`BETWEEN_CLOCKS`].
    #[inline]
    fn spin_until_ready(&self) {
        // No single word tells of all ports and rings: they are looked at each time.
        let word = AtomicU64::new(0);
        // Relaxed: orders nothing.
        let _ = Native::with_id(0).spin_until(&word, Ordering::Relaxed, BETWEEN_CLOCKS, |_| self.is_ready());
    }

    fn is_stuck(&self) -> bool {
        let mut stuck = false;
        self.each(|endpoint| stuck |= endpoint.is_stuck());
        stuck
    }

    /// Returns whether a read of a completion queue should find nothing new
    /// ([`ReadGate`]).
    #[inline(always)]
    pub fn read_finds_nothing(&self) -> bool {
        self.reads.borrow_mut().hides(self.activity().untagged)
    }

    /// Returns whether a read of a counter should find nothing new.
    pub fn counter_read_finds_nothing(&self) -> bool {
        self.reads.borrow_mut().hides_from_counter(self.activity().untagged)
    }

    /// The program was given a completion: it need not yield before it looks at it.
    #[inline(always)]
    pub fn on_completion(&self) {
        if multi_domain_sleep::is_needed() {
            self.completions.set(self.completions.get() + 1);
            multi_domain_sleep::note_completion();
        }
        if let Some(found) = self.found {
            // Relaxed: a hint.
            found.store(1, Ordering::Relaxed);
        }
    }

    pub fn activity(&self) -> Activity {
        let mut activity = Activity::default();
        self.each(|endpoint| activity.add(&endpoint.core.activity));
        activity
    }

    /// A read found nothing: takes a little time, as the surroundings permit, and makes
    /// progress. `until`: what is waited for. `force`: sleeps however few poll.
    pub fn pause<'a>(
        &'a self,
        guard: DomainGuard<'a>,
        idle: &RefCell<Idle>,
        force: Option<u64>,
        until: impl Fn() -> bool,
    ) -> DomainGuard<'a> {
        let oversubscribed = self.is_oversubscribed();
        let mut activity = self.activity();
        let polls_others = multi_domain_sleep::is_needed();
        if polls_others {
            self.disarm_if(activity);
            activity.elsewhere = multi_domain_sleep::completions().wrapping_sub(self.completions.get());
        }
        let others = || crate::device::wait::oversubscription::is_exceeded(self.ranks.get());
        let (mut pause, look) = idle.borrow_mut().step(oversubscribed, activity, &self.settings, others);
        if look {
            self.each(|endpoint| endpoint.look_after());
            self.recount_sometimes();
        }
        if polls_others && idle.borrow().is_waiting() {
            self.note_poll();
        }
        if polls_others
            && force.is_none()
            && !idle.borrow().awaits_here()
            && matches!(pause, Pause::Spin(_) | Pause::Yield)
        {
            pause = Pause::None;
        }
        if let Some(ns) = force {
            pause = match pause {
                Pause::Sleep(_) => Pause::Sleep(ns),
                _ if idle.borrow().is_long() => Pause::Sleep(ns),
                other => other,
            };
        }
        let guard = match pause {
            Pause::None => return guard,
            Pause::Spin(ns) => {
                let end = Native::with_id(0).now() + ns;
                loop {
                    self.spin_until_ready();
                    if self.progress() > 0 && until() {
                        idle.borrow_mut().on_completion(|| self.activity());
                        return guard;
                    }
                    if Native::with_id(0).now() >= end {
                        break;
                    }
                }
                guard
            }
            Pause::Yield => {
                drop(guard);
                Native::with_id(0).yield_now();
                self.enter()
            }
            Pause::Sleep(ns) => {
                let ns = if self.is_stuck() { ns.min(SHORTLY) } else { ns };
                // A program that asks for a wait here means frames that come here.
                self.sleep(guard, ns, polls_others && force.is_none())
            }
        };
        self.progress();
        idle.borrow_mut().on_pause_end(pause, others);
        guard
    }

    /// Returns whether there are more ranks than cores.
    fn is_oversubscribed(&self) -> bool {
        let mut peers = 0;
        self.each(|endpoint| peers += endpoint.core.peers.len());
        if self.counted_peers.get() != peers {
            self.recount();
        }
        multi_domain_sleep::is_oversubscribed()
    }

    /// Counts them, if that was not done lately: cores and quotas seldom change, and
    /// asking for them takes long.
    fn recount_sometimes(&self) {
        if Native::with_id(0).now().wrapping_sub(self.counted.get()) >= COUNT_EVERY {
            self.recount();
        }
    }

    /// Counts them.
    #[cold]
    fn recount(&self) {
        self.counted.set(Native::with_id(0).now());
        let mut peers = 0;
        let mut pids = BTreeSet::from([std::process::id()]);
        let mut foreign = HashSet::new();
        self.each(|endpoint| {
            peers += endpoint.core.peers.len();
            for peer in endpoint.core.peers.iter().filter(|p| !p.gone) {
                let Address { pid, start, namespace, .. } = peer.address;
                if peer.is_foreign {
                    foreign.insert((pid, start, namespace));
                } else {
                    pids.insert(pid);
                }
            }
        });
        self.ranks.set(pids.len() + foreign.len());
        let counted = || crate::device::wait::oversubscription::is_oversubscribed(&pids, foreign.len());
        let oversubscribed = self.settings.oversubscribed.map_or_else(counted, |set| set == 1);
        self.counted_peers.set(peers);
        self.count.note(oversubscribed);
        self.each(|endpoint| endpoint.core.oversubscribed = multi_domain_sleep::is_oversubscribed());
    }

    /// Makes a listener, if it is wanted.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn listener(
        &self,
        wanted: bool,
        news: impl FnOnce() -> AwaitedEvents,
    ) -> Result<Option<Rc<WaitDescriptor>>, c_int> {
        if !wanted {
            return Ok(None);
        }
        let listener = WaitDescriptor::new(news()).map_err(|why| why.raw_os_error().unwrap_or(libc::EIO))?;
        let _guard = self.enter();
        self.listeners.add(&listener);
        Ok(Some(listener))
    }

    /// A queue or counter closes: its listener, if it has one, is no longer told.
    pub fn forget(&self, listener: Option<&Rc<WaitDescriptor>>) {
        let _guard = self.enter();
        if let Some(listener) = listener {
            self.listeners.remove(listener);
        }
    }

    /// Returns whether a thread may sleep on the listener's descriptor: not if there is
    /// news. From then on the descriptor becomes readable when there is some, or when there may be,
    /// or after a while.
    pub fn may_wait(&self, listener: &WaitDescriptor) -> bool {
        let cpu = Native::with_id(0);
        let now = cpu.now();
        if now.wrapping_sub(self.looked.get()) >= LOOK_EVERY {
            self.looked.set(now);
            self.each(|endpoint| endpoint.look_after());
            self.recount_sometimes();
        }
        self.progress();
        listener.silence();
        self.each(|endpoint| listener.add(&endpoint.port));
        // Messages that come meanwhile are taken, and then the waiter has to look again. A sender
        // that stops half-way through keeps us from it: then time must tell.
        let mut longest = SHORTLY;
        for _ in 0..3 {
            let (mut came, mut behind) = (false, false);
            self.each(|endpoint| {
                came |= !endpoint.port.arm_pipe();
                behind |= endpoint.port.is_behind();
            });
            if !came {
                longest = if self.is_stuck() {
                    SHORTLY
                } else if behind {
                    BEHIND
                } else {
                    self.settings.listen
                };
                break;
            }
            self.progress();
        }
        self.listeners.arm(listener, longest)
    }

    /// Waits until a queue has something, at most so many milliseconds (negative: for
    /// ever).
    pub fn wait<'a>(
        &'a self,
        mut guard: DomainGuard<'a>,
        idle: &RefCell<Idle>,
        timeout: c_int,
        until: impl Fn() -> bool,
    ) -> (DomainGuard<'a>, bool) {
        let cpu = Native::with_id(0);
        let end = u64::try_from(timeout).ok().map(|ms| cpu.now() + ms * 1_000_000);
        loop {
            self.progress();
            if until() {
                return (guard, true);
            }
            let now = cpu.now();
            if end.is_some_and(|end| now >= end) {
                return (guard, false);
            }
            let left = end.map_or(20_000_000, |end| (end - now).min(20_000_000));
            guard = self.pause(guard, idle, Some(left), &until);
        }
    }
}
