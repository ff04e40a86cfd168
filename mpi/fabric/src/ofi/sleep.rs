//! How a domain sleeps: on the doorbell of its endpoint, on those of the program's other
//! domains too ([`vigil`]), or on the bells of several endpoints.

use crate::device::bell;
use crate::device::port::Port;
use crate::device::wait::activity::Activity;
use crate::device::wait::multi_domain_sleep::{self, Beds, Company};

use super::domain::{BEHIND, Domain, Guard, SHORTLY};

impl Domain {
    /// Sleeps for so long at most, or until something comes. `in_company`: the program
    /// may be polling other domains in the same loop, and waits for what comes to them as well;
    /// while one of them is awake this returns at once.
    pub fn sleep<'a>(&'a self, guard: Guard<'a>, ns: u64, in_company: bool) -> Guard<'a> {
        let activity = self.activity();
        self.sleepers.set(self.sleepers.get() + 1);
        self.slept_at.set(activity);
        let guard = match self.endpoints.borrow()[..] {
            [only] => {
                // SAFETY: as in `each`. What sleeps without the lock touches only the port's words,
                // which nobody changes while an endpoint is in use.
                let port = unsafe { &(*only).endpoint.port };
                match if in_company { multi_domain_sleep::company(self.name()) } else { Company::None } {
                    Company::None => self.sleep_on(port, guard, ns, None),
                    Company::Lie(others) => self.sleep_on(port, guard, ns, Some(others)),
                    Company::Awake => {
                        self.lie_down(port, activity);
                        guard
                    }
                }
            }
            _ => self.sleep_on_all(guard, ns),
        };
        self.sleepers.set(self.sleepers.get() - 1);
        guard
    }

    fn sleep_on<'a>(&'a self, port: &Port, guard: Guard<'a>, ns: u64, others: Option<Beds>) -> Guard<'a> {
        let Some(rung) = port.lie_down() else { return guard };
        let ns = if port.is_behind() { ns.min(BEHIND) } else { ns };
        drop(guard);
        match others {
            None => port.park(rung, ns),
            Some(others) => others.park(&port.segment, rung, ns),
        }
        let guard = self.enter();
        self.get_up(port);
        guard
    }

    /// What a thread's list of domains has this one under.
    fn name(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Polls are in vain, and this thread may be polling other domains too.
    pub fn join(&self) {
        multi_domain_sleep::polled(self.name());
    }

    /// Something has come, or been started: it does not lie any more.
    #[inline(always)]
    pub fn get_up_if(&self, activity: Activity) {
        if self.lies.get().is_some_and(|before| before != activity) {
            self.each(|endpoint| self.get_up(&endpoint.port));
        }
    }

    /// Whoever sends rings from now on, and the last domain of the thread that falls
    /// asleep hears it.
    fn lie_down(&self, port: &Port, activity: Activity) {
        match port.lie_down() {
            Some(rung) if !port.is_behind() => {
                self.lies.set(Some(activity));
                multi_domain_sleep::lie_down(self.name(), &port.segment, rung);
            }
            _ => self.get_up(port),
        }
    }

    fn get_up(&self, port: &Port) {
        port.get_up();
        if self.lies.take().is_some() {
            multi_domain_sleep::get_up(self.name());
        }
    }

    /// On the bells of several endpoints (or of none).
    fn sleep_on_all<'a>(&'a self, guard: Guard<'a>, mut ns: u64) -> Guard<'a> {
        let (mut bells, mut came) = (Vec::new(), false);
        self.each(|endpoint| {
            match endpoint.port.bell() {
                Ok(bell) => bells.push(bell.inner()),
                Err(_) => ns = ns.min(SHORTLY),
            }
            came |= !endpoint.port.listen();
            if endpoint.port.is_behind() {
                ns = ns.min(BEHIND);
            }
        });
        if came {
            return guard;
        }
        drop(guard);
        bell::wait(&bells, ns);
        self.enter()
    }

    /// Another thread has taken or done something meanwhile that may be what a sleeper
    /// waits for. The domain is locked.
    #[cold]
    pub fn wake_sleepers(&self) {
        let activity = self.activity();
        if self.slept_at.replace(activity) != activity {
            self.ring();
        }
    }

    /// Wakes whoever sleeps here. The domain is locked.
    pub fn ring(&self) {
        self.each(|endpoint| endpoint.port.ring());
    }
}
