//! Sleep of a domain. On the doorbell of its endpoint, on those of the program's other
//! domains too ([`multi_domain_sleep`]), or on the wake pipes of several endpoints.
//!
//! The domain is not locked meanwhile, and another thread may open or close endpoints: a sleeper
//! without the lock holds a segment, and never the list of endpoints or one of them.

use std::sync::Arc;

use crate::device::port::Port;
use crate::device::wait::activity::Activity;
use crate::device::wait::multi_domain_sleep::{self, Doorbells, Others};
use crate::device::wake_pipe;

use super::domain::{BEHIND, DomainGuard, OfiDomain, SHORTLY};
use super::ep::Ep;

impl OfiDomain {
    /// Sleeps for so long at most, in nanoseconds, or until a frame comes.
    ///
    /// `polls_others`: the program may be polling other domains in the same loop, and waits for
    /// their frames as well; while one of them is awake this returns at once.
    pub fn sleep<'a>(&'a self, guard: DomainGuard<'a>, ns: u64, polls_others: bool) -> DomainGuard<'a> {
        let activity = self.activity();
        self.sleepers.set(self.sleepers.get() + 1);
        self.slept_at.set(activity);
        let only = match self.endpoints.borrow()[..] {
            [only] => Some(only.cast_const()),
            _ => None,
        };
        let guard = match only {
            Some(only) => {
                match if polls_others { multi_domain_sleep::others(self.name()) } else { Others::None } {
                    Others::None => self.sleep_on(only, guard, ns, None),
                    Others::Armed(others) => self.sleep_on(only, guard, ns, Some(others)),
                    Others::Awake => {
                        // SAFETY: an endpoint leaves the list before it goes; the lock is held.
                        self.arm(unsafe { &(*only).endpoint.port }, activity);
                        guard
                    }
                }
            }
            None => self.sleep_on_all(guard, ns),
        };
        self.sleepers.set(self.sleepers.get() - 1);
        guard
    }

    fn sleep_on<'a>(
        &'a self,
        only: *const Ep,
        guard: DomainGuard<'a>,
        ns: u64,
        others: Option<Doorbells>,
    ) -> DomainGuard<'a> {
        // SAFETY: an endpoint leaves the list before it goes; the lock is held.
        let port = unsafe { &(*only).endpoint.port };
        let Some(count) = port.arm() else { return guard };
        let ns = if port.is_behind() { ns.min(BEHIND) } else { ns };
        let segment = Arc::clone(&port.segment);
        drop(guard);
        match others {
            None => Port::sleep(&segment, count, ns),
            Some(others) => others.park(&segment, count, ns),
        }
        let guard = self.enter();
        // It may have been closed meanwhile.
        self.each(|endpoint| {
            if Arc::ptr_eq(&endpoint.port.segment, &segment) {
                self.disarm(&endpoint.port);
            }
        });
        guard
    }

    /// Name of this domain in a thread's list of domains.
    fn name(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Notes an empty poll for the thread's list of domains.
    pub fn note_poll(&self) {
        multi_domain_sleep::polled(self.name());
    }

    /// Disarms the domain if anything has happened since it was armed.
    #[inline(always)]
    pub fn disarm_if(&self, activity: Activity) {
        if self.armed_at.get().is_some_and(|before| before != activity) {
            self.each(|endpoint| self.disarm(&endpoint.port));
        }
    }

    /// Arms the domain: senders wake the thread's last domain to fall asleep from now on.
    fn arm(&self, port: &Port, activity: Activity) {
        match port.arm() {
            Some(count) if !port.is_behind() => {
                self.armed_at.set(Some(activity));
                multi_domain_sleep::arm(self.name(), &port.segment, count);
            }
            _ => self.disarm(port),
        }
    }

    fn disarm(&self, port: &Port) {
        port.disarm();
        if self.armed_at.take().is_some() {
            multi_domain_sleep::disarm(self.name());
        }
    }

    /// Sleeps on the wake pipes of several endpoints (or of none).
    fn sleep_on_all<'a>(&'a self, guard: DomainGuard<'a>, mut ns: u64) -> DomainGuard<'a> {
        let (mut pipes, mut came) = (Vec::new(), false);
        self.each(|endpoint| {
            match endpoint.port.wake_pipe() {
                Ok(pipe) => pipes.push(pipe.read_end()),
                Err(_) => ns = ns.min(SHORTLY),
            }
            came |= !endpoint.port.arm_pipe();
            if endpoint.port.is_behind() {
                ns = ns.min(BEHIND);
            }
        });
        if came {
            return guard;
        }
        drop(guard);
        wake_pipe::wait(&pipes, ns);
        self.enter()
    }

    /// Wakes sleepers if another thread has taken or done something meanwhile that they
    /// may wait for. The domain is locked.
    #[cold]
    pub fn wake_sleepers(&self) {
        let activity = self.activity();
        if self.slept_at.replace(activity) != activity {
            self.wake();
        }
    }

    /// Wakes all threads that sleep here. The domain is locked.
    pub fn wake(&self) {
        self.each(|endpoint| endpoint.port.wake());
    }
}
