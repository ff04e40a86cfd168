//! Running ahead: a thread uses its cache while events are due that cannot change it yet.
//!
//! Of the events that are due, most are other threads' turns, and messages that have some way to
//! go. The interconnect knows how long each takes at least until it can change this processor's
//! cache ([`Interconnect::slack`]); before that, a hit is a hit whether the event has happened or
//! not. A line that this cache may write is in no other one, so no other thread sees what is
//! written meanwhile; and no other thread may write a line that this cache may read. All else, a
//! miss, a message, a sleep, waits for the thread's turn, as ever ([`Engine::permit`]).
//!
//! So the order of shared accesses in simulated time stays exact. Of two events of the very same
//! picosecond another one may come first than without.
//!
//! [`Interconnect::slack`]: crate::interconnect::Interconnect::slack
//! [`Engine::permit`]: crate::engine::Engine::permit

use crate::event_queue::Time;
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
            until = until.min(event.time + self.interconnect.slack(e, event, thread.cpu));
            clock < until
        });
        if clock >= until {
            return false;
        }
        self.engine.events.hits_until = until;
        true
    }
}
