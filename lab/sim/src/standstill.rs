//! Standstill: when a machine whose threads only wait and look counts as stuck.
//!
//! No clock alone can tell: one access may take hours where latencies are long, and a thread may be
//! kept from its processor for days. So two things come together: nothing has been written,
//! computed or ended for [`PATIENCE`], and every thread that something can still happen to has
//! looked [`LOOKS`] times since. A thread that waits for a change without a deadline does not
//! count: only another thread can let it go on.

use crate::engine::{Doing, Engine, FOREVER};
use crate::events::Time;

/// How long at least the machine goes on while nobody writes, computes or ends.
const PATIENCE: Time = 10_000_000_000_000;
/// How many accesses at least each thread makes meanwhile.
const LOOKS: u64 = 20_000;

/// What is known of a standstill.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// Before this time it is not looked for again.
    next: Time,
    /// It has been found.
    found: bool,
}

/// How many accesses a thread has made since the machine's last progress.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// When that progress was.
    since: Time,
    count: u64,
}

impl Engine {
    /// A thread has got on by so many accesses.
    #[inline]
    pub fn looked(&mut self, t: usize, accesses: u64) {
        let looks = &mut self.threads[t].looks;
        if looks.since != self.progress {
            *looks = Looks { since: self.progress, count: 0 };
        }
        looks.count += accesses;
    }

    /// A thread loses its processor while it waits for a change: it would look and wait
    /// again until there is one.
    pub fn has_spun(&mut self, t: usize) {
        if self.threads[t].deadline >= FOREVER {
            self.looked(t, LOOKS);
        }
    }

    /// Until when a machine without progress goes on before [`Engine::stands_still`] is
    /// asked.
    #[inline]
    pub fn patience_ends(&self) -> Time {
        self.standstill.next.max(self.progress.saturating_add(PATIENCE))
    }

    /// Nothing happens before [`Engine::patience_ends`], but at that time. Returns
    /// whether the machine is stuck; if not, it is asked again after a while, which grows so that
    /// asking costs little.
    pub fn gives_up(&mut self, time: Time) -> bool {
        self.standstill.found = self.stands_still();
        let waited = time.saturating_sub(self.progress);
        self.standstill.next = time.saturating_add(waited / 4);
        self.standstill.found
    }

    /// Whether the machine, which has stopped, is stuck, and has not only come to that
    /// limit.
    pub fn is_stuck(&self, limit: Time) -> bool {
        self.standstill.found || limit > self.progress.saturating_add(PATIENCE) && self.stands_still()
    }

    /// Whether nobody can do more than it has done in vain.
    fn stands_still(&self) -> bool {
        self.threads.iter().all(|thread| match thread.doing {
            Doing::Done => true,
            Doing::Spinning | Doing::Parked(_) if thread.deadline >= FOREVER => true,
            _ => thread.looks.since == self.progress && thread.looks.count >= LOOKS,
        })
    }
}
