//! Running ahead: a thread uses its cache while events are due that cannot change it yet.
//!
//! Of the events that are due, most are other threads' turns, and messages that have some way to
//! go. The interconnect knows how long each takes at least until it can change this processor's
//! cache ([`Interconnect::slacks`]); before that, a hit is a hit whether the event has happened or
//! not. A line that this cache may write is in no other one, so no other thread sees what is
//! written meanwhile; and no other thread may write a line that this cache may read. All else, a
//! miss, a message, a sleep, waits for the thread's turn, as ever ([`Engine::permit`]).
//!
//! So the order of shared accesses in simulated time stays exact. Of two events of the very same
//! picosecond another one may come first than without.
//!
//! [`Interconnect::slacks`]: crate::interconnect::Interconnect::slacks
//! [`Engine::permit`]: crate::engine::Engine::permit

use crate::engine::Engine;
use crate::event_queue::{EventKind, Time, TimedEvent};
use crate::machine::Machine;
use crate::thread::Permit;

/// Part of the longest lead that one look at the events allows: a longer one looks at
/// more of them.
const PART: Time = 4;

impl Machine {
    /// Returns whether the running thread may use its cache, at its clock, though events
    /// are due before.
    #[inline(never)]
    pub fn runs_ahead(&mut self, t: usize) -> bool {
        let e = &self.engine;
        let (thread, events) = (&e.threads[t], &e.events);
        let clock = thread.clock;
        // An interrupt or the next thread waits for it to stop.
        let must_stop = thread.stolen > 0 || e.cpus[thread.cpu].preempt;
        if must_stop
            || thread.permit != Permit::Nothing
            || e.buffered != 0
            || clock >= events.horizon.saturating_add(self.lead)
        {
            return false;
        }
        let mut until = (clock + self.lead / PART).min(events.other_time()).min(events.ceiling);
        events.show_before(until, |event| {
            let concerns = Self::concerns(e, event, thread.cpu);
            let slack = if concerns { 0 } else { self.slacks.of(event.kind()) };
            until = until.min(event.time + slack);
            clock < until
        });
        if clock >= until {
            return false;
        }
        self.engine.events.hits_until = until;
        true
    }

    /// Returns whether an event concerns a processor: its thread goes on, or it is asked.
    #[inline(always)]
    fn concerns(e: &Engine, event: &TimedEvent, cpu: usize) -> bool {
        let (a, b) = (event.a as usize, event.b as usize);
        match event.kind() {
            EventKind::Resume | EventKind::Timer => e.threads[a].cpu == cpu,
            EventKind::HomeArrive | EventKind::Reply => e.sender(a) == cpu,
            EventKind::Intervene | EventKind::Notify => a == cpu,
            EventKind::Invalidate => b >> 16 == cpu,
            EventKind::Depart | EventKind::Deliver => e.messages.receiver(a) == cpu,
            _ => false,
        }
    }
}
