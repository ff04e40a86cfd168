//! What a read of an empty completion queue does with its time.
//!
//! An MPI that waits polls in a loop, and what it waits for need not come through here: messages to oneself, files and threads are its own business. So a read must not keep it for long before it has had a few turns
//! of its loop; and while a rank waits, whoever has something to do wants the core. A waiter goes through five stages:
//!
//! 1. *Look on*, where there are cores to spare: an answer takes less time than another turn of the MPI's loop.
//! 2. *Return at once*: whatever the MPI sent to itself is found now. Once if the program has started something here, since then it most likely waits for others; a few times if it has not.
//! 3. *Yield*, [`Settings::yields`] times, unless the MPI does: then others have run between two polls, and one yield after the other would only make it wait twice.
//! 4. *Be judged*: a few polls return at once while the processor time between them is looked at.
//! 5. *Sleep* on the doorbell: shortly, then longer, up to [`Settings::nap`]. Whoever sends rings. Between two sleeps there are always a few polls, judged too.
//!
//! It begins anew when the program starts an operation, when something comes, and when the program was doing something else between two polls: it has used clearly more processor time than it usually does between
//! two. Where cores are shared time passes while others run, so the thread's own processor time is looked at; asking for it takes a call of the system, so not before it matters.

use towpath_machine::{Native, Processor};

use super::settings::Settings;

/// How often the peers' lives are looked at while nothing happens, in nanoseconds.
pub const LOOK_EVERY: u64 = 10_000_000;
/// Polls closer together than this belong to one loop that waits, in nanoseconds.
const TIGHT: u64 = 10_000;
/// So many polls in a loop, some ten milliseconds, and it sleeps even where there are cores enough.
const TIRED: u32 = 5_000;
/// Programs that do something else between polls do it more often than once in so many.
const OFTEN: u32 = 16;
/// What the first ones may take where there are cores to spare: less than a program that has other things to do would notice, and more than an answer takes, in nanoseconds.
const GLANCE: u64 = 1_000;
/// So many of them.
const GLANCES: u32 = 3;
/// So many polls return at once where cores are shared, if the program has started nothing here: enough for the answer to a message that it sent to itself.
const FREE: u32 = 6;
/// The first sleep then, in nanoseconds.
const FIRST_NAP: u64 = 50_000;
/// And if it has, so that somebody will most likely ring.
const FIRST_NAP_OF_ASKER: u64 = 200_000;
/// Who was asked to wait sleeps after so many polls in vain.
const LONG: u32 = 20;
/// A thread that has lost more than this between two polls was not running all the time, in nanoseconds.
const SWITCHED: u64 = 1_000;

/// What has happened at the endpoints so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Operations that the program started.
    pub calls: u64,
    /// Those of them that were neither receives nor tagged.
    pub untagged: u64,
    /// Frames that came.
    pub frames: u64,
    /// Changes when another domain of the process gives the program something.
    pub elsewhere: u64,
}

impl Happened {
    /// The program has started an operation. `tagged`: a tagged one, or a receive.
    #[inline(always)]
    pub fn called(&mut self, tagged: bool) {
        self.calls += 1;
        self.untagged += u64::from(!tagged);
    }
    /// Together with another endpoint's.
    pub fn add(&mut self, other: &Happened) {
        self.calls += other.calls;
        self.untagged += other.untagged;
        self.frames += other.frames;
    }
}

/// What a program that polls in vain is doing.
#[derive(Debug, Default)]
pub struct Idle {
    /// Polls in vain since it last began anew, or slept.
    polls: u32,
    /// The same, without regard to sleeps.
    vain: u32,
    /// Its last sleep, or 0.
    nap: u64,
    /// The clocks at the end of the last step: the thread's own (where cores are shared, and if `timed`), everybody's.
    last: (u64, u64),
    timed: bool,
    /// What it usually uses between two polls.
    usual: u64,
    /// Polls since it was last taken for doing something else.
    since: u32,
    happened: Happened,
    /// The program has started something since the last time that something came.
    fresh: bool,
    /// The last thing that happened was here, and not in another domain.
    is_here: bool,
    crowded: bool,
    /// A pause has just ended.
    has_paused: bool,
    looked: u64,
}

/// Has a program that started something look at its own affairs before it finds what has come.
///
/// MPICH sends messages to itself through memory of its own, and looks there after it has looked at its completion queue and counters here. A rank that was put off its core right after it sent something (by the
/// receiver that it has woken, say) would find the answer, and what others did then, before its own earlier message to itself: `mpi4py.util.sync` has its ranks wait for ever if that happens. So the first
/// read of a completion queue after an untagged send or a one-sided operation, which is what one-sided MPI is made of, finds nothing new, and the reads of counters before that neither.
#[derive(Debug, Default)]
pub struct Turn {
    calls: u64,
    was_first: bool,
    counters: u32,
}

/// So many reads of counters may be in vain before a program is taken for one that reads nothing else.
const COUNTERS: u32 = 3;

impl Turn {
    /// Whether a read of a completion queue should find nothing new. `calls`: such operations so far.
    pub fn is_first(&mut self, calls: u64) -> bool {
        self.counters = 0;
        let before = core::mem::replace(&mut self.calls, calls);
        // Not twice running: who starts something between any two reads makes progress too.
        self.was_first = calls != before && !self.was_first;
        self.was_first
    }

    /// The same for a counter.
    pub fn is_before(&mut self, calls: u64) -> bool {
        if calls == self.calls || self.counters >= COUNTERS {
            return false;
        }
        self.counters += 1;
        true
    }
}

/// The same for who looks for a message from anybody, by a peek.
///
/// MPICH probes its own memory, where messages to itself are, and then here; what it has sent to itself meanwhile it sees only when it has made progress. If the probe finds a message of another process here that came earlier,
/// the receive from anybody that follows gets the message to itself, which is now visible, with the other one's length: `MPI_Dist_graph_create` does so. After a peek that found nothing MPICH makes progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    calls: u64,
    in_vain: bool,
}

impl Look {
    /// Whether a peek for a message from anybody should find nothing: none before it was in vain, at least not since the program started something. `calls`: operations so far.
    pub fn is_first(&mut self, calls: u64) -> bool {
        let before = self.in_vain && self.calls == calls;
        *self = Look { calls, in_vain: true };
        !before
    }

    /// It has found something.
    pub fn found(&mut self) {
        self.in_vain = false;
    }
}

/// How to wait now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Not at all.
    None,
    /// Look on for so many nanoseconds.
    Spin(u64),
    /// Let others run.
    Yield,
    /// Sleep for so many nanoseconds.
    Sleep(u64),
}

/// The calling thread's processor time, in nanoseconds.
#[allow(unsafe_code)]
fn cpu_time() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Idle {
    /// What was waited for has come.
    #[inline(always)]
    pub fn reset(&mut self) {
        self.polls = 0;
        self.vain = 0;
        self.nap = 0;
    }

    /// A poll found nothing: what to do, and whether it is time to look after things.
    pub fn step(&mut self, crowded: bool, happened: Happened, settings: &Settings) -> (Pause, bool) {
        let now = Native::with_id(0).now();
        if crowded != self.crowded {
            *self = Idle { crowded, looked: self.looked, ..Idle::default() };
        }
        let look = now.wrapping_sub(self.looked) >= LOOK_EVERY;
        if look {
            self.looked = now;
        }
        (self.decide(if crowded { cpu_time } else { || 0 }, now, happened, settings), look)
    }

    /// `used`: the thread's own processor time.
    fn decide(&mut self, used: impl Fn() -> u64, now: u64, happened: Happened, settings: &Settings) -> Pause {
        let whole = now.wrapping_sub(self.last.1);
        let before = core::mem::replace(&mut self.happened, happened);
        if happened.calls != before.calls {
            self.reset();
            self.fresh = true;
            self.is_here = true;
        } else if happened.elsewhere != before.elsewhere {
            self.reset();
            self.fresh = false;
            self.is_here = false;
        } else if happened.frames != before.frames {
            self.is_here = true;
            // Others were served; the program has got nothing.
            self.polls = self.polls.min(self.free());
            self.nap = 0;
        }
        let is_judged = !self.crowded || self.polls >= self.free() + settings.yields;
        let used = if !is_judged || !self.crowded { now } else { used() };
        let was_timed = core::mem::replace(&mut self.timed, is_judged);
        let gap = used.wrapping_sub(self.last.0);
        self.last = (used, now);
        let paused = core::mem::take(&mut self.has_paused);
        if !is_judged || !was_timed || happened != before {
            // Nothing to compare.
        } else if gap >= TIGHT {
            self.did_something_else();
        } else if whole <= gap + SWITCHED && !paused {
            // It ran all the time, and with warm caches, so that is what it did.
            if self.usual > 0 && gap > self.usual + self.usual / 2 {
                self.did_something_else();
            }
            self.usual =
                if gap < self.usual || self.usual == 0 { gap } else { self.usual + (gap - self.usual) / 8 };
        }
        self.since = self.since.saturating_add(1);
        self.polls = self.polls.saturating_add(1);
        self.vain = self.vain.saturating_add(1);
        if self.crowded { self.shared(whole, settings) } else { self.alone(settings) }
    }

    /// It was not only polling.
    fn did_something_else(&mut self) {
        // With a core to itself that is read from a clock that interrupts and other programs hold up too, but not so often.
        if self.crowded || self.since < OFTEN {
            self.reset();
            self.fresh = false;
        }
        self.since = 0;
    }

    /// With a core for everybody.
    fn alone(&mut self, settings: &Settings) -> Pause {
        match self.polls {
            n if n <= 2 && !self.fresh => Pause::None,
            n if n <= GLANCES => Pause::Spin(GLANCE.min(settings.spin)),
            n if n >= TIRED => Pause::Sleep(settings.nap),
            // Other programs may want the core even where the ranks have one each.
            n if n.is_multiple_of(2) => Pause::Yield,
            _ => Pause::Spin(settings.spin),
        }
    }

    /// With fewer cores than ranks.
    fn shared(&mut self, whole: u64, settings: &Settings) -> Pause {
        let free = self.free();
        match self.polls {
            n if n <= free => Pause::None,
            n if n <= free + settings.yields => {
                if whole < SWITCHED {
                    Pause::Yield
                } else {
                    Pause::None
                }
            }
            n if n <= free + settings.yields + free => Pause::None,
            _ => {
                self.polls = free + settings.yields + free / 2;
                let next = match (self.nap, self.fresh) {
                    (0, true) => FIRST_NAP_OF_ASKER,
                    (0, false) => FIRST_NAP,
                    (_, true) => settings.nap,
                    (nap, false) => nap * 2,
                };
                self.nap = next.min(settings.nap);
                Pause::Sleep(self.nap)
            }
        }
    }

    /// So many polls return at once where cores are shared.
    fn free(&self) -> u32 {
        if self.fresh { 1 } else { FREE }
    }

    /// Whether more than an answer from another core takes was in vain.
    pub fn is_waiting(&self) -> bool {
        self.vain > GLANCES
    }

    /// Whether it has been waiting for long enough to sleep.
    pub fn is_long(&self) -> bool {
        self.vain > LONG
    }

    /// Whether what the program waits for will most likely come here. If not, and it polls other domains too, it had better wait in one of those.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// A pause has ended.
    pub fn paused(&mut self) {
        self.has_paused = true;
        let now = Native::with_id(0).now();
        self.last = (if self.crowded && self.timed { cpu_time() } else { now }, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that shares its core, and the clocks that it sees.
    struct Rank {
        idle: Idle,
        used: u64,
        now: u64,
        happened: Happened,
        settings: Settings,
    }

    impl Rank {
        fn new(crowded: bool) -> Rank {
            let idle = Idle { crowded, ..Idle::default() };
            Rank {
                idle,
                used: 1 << 40,
                now: 1 << 50,
                happened: Happened::default(),
                settings: Settings::default(),
            }
        }

        /// Another poll in vain, after it ran and after it was off its core for so long.
        fn poll(&mut self, ran: u64, off: u64) -> Pause {
            self.used += ran;
            self.now += ran + off;
            let used = self.used;
            let pause = self.idle.decide(|| used, self.now, self.happened, &self.settings);
            self.idle.has_paused = pause != Pause::None;
            pause
        }

        fn polls(&mut self, ran: u64, count: usize) -> Vec<Pause> {
            (0..count).map(|_| self.poll(ran, 0)).collect()
        }
    }

    fn slept(pauses: &[Pause]) -> Vec<u64> {
        pauses.iter().filter_map(|p| if let Pause::Sleep(ns) = p { Some(*ns) } else { None }).collect()
    }

    #[test]
    fn who_waits_sleeps_longer_and_longer_and_polls_in_between() {
        let mut rank = Rank::new(true);
        let pauses = rank.polls(1000, 100);
        assert!(pauses[..FREE as usize].iter().all(|p| *p == Pause::None));
        // Who has asked for something sleeps soon.
        let mut asker = Rank::new(true);
        asker.happened.calls += 1;
        let yields = asker.settings.yields as usize;
        let first = asker.polls(500, yields + 3);
        assert_eq!(first[0], Pause::None);
        assert!(first[1..=yields].iter().all(|p| *p == Pause::Yield));
        assert_eq!(first[yields + 1..], [Pause::None, Pause::Sleep(FIRST_NAP_OF_ASKER)]);
        // An MPI that yields by itself need not be made to.
        let mut asker = Rank::new(true);
        asker.happened.calls += 1;
        assert!((0..=yields).all(|_| asker.poll(500, SWITCHED) == Pause::None));
        let sleeps = slept(&pauses);
        assert!(sleeps.is_sorted() && sleeps[0] == FIRST_NAP && sleeps.last() == Some(&rank.settings.nap));
        assert!(!pauses.windows(2).any(|p| matches!(p, [Pause::Sleep(_), Pause::Sleep(_)])));
        assert!(rank.idle.is_long());
    }

    #[test]
    fn a_loop_around_operations_that_do_not_come_through_here_never_sleeps() {
        // Messages to itself: five polls in each, and what the program does between them.
        let mut rank = Rank::new(true);
        for _ in 0..100 {
            assert!(slept(&rank.polls(1100, 5)).is_empty());
            assert!(!matches!(rank.poll(2400, 0), Pause::Sleep(_)));
        }
    }

    #[test]
    fn being_off_the_core_is_not_taken_for_work() {
        let mut rank = Rank::new(true);
        let pauses: Vec<_> =
            (0..100).map(|i| rank.poll(if i % 3 == 0 { 3000 } else { 1000 }, 1_000_000)).collect();
        assert!(slept(&pauses).len() > 10);
    }

    #[test]
    fn what_happens_begins_it_anew() {
        let mut rank = Rank::new(true);
        rank.polls(1000, 100);
        // Served others: sleeps soon again, but shortly.
        rank.happened.frames += 1;
        let soon = rank.polls(1000, (FREE + 1 + rank.settings.yields) as usize);
        assert_eq!(slept(&soon)[..], [FIRST_NAP]);
        // Was given something elsewhere.
        rank.polls(1000, 100);
        rank.happened.elsewhere += 1;
        let soon = rank.polls(1000, (2 * FREE + rank.settings.yields + 1) as usize);
        assert_eq!(slept(&soon)[..], [FIRST_NAP]);
        assert!(!rank.idle.is_here());
        rank.happened.calls += 1;
        rank.polls(1000, 1);
        assert!(rank.idle.is_here());
        // Computed.
        rank.polls(1000, 100);
        assert_eq!(rank.poll(1_000_000, 0), Pause::None);
        // Started something.
        rank.polls(1000, 100);
        rank.happened.calls += 1;
        assert_eq!(rank.poll(1000, 0), Pause::None);
    }

    #[test]
    fn with_cores_to_spare_it_looks_on_for_an_answer() {
        let mut rank = Rank::new(false);
        rank.happened.calls += 1;
        assert_eq!(rank.poll(500, 0), Pause::Spin(GLANCE));
        // But not if it has asked nothing.
        let mut rank = Rank::new(false);
        assert_eq!(rank.poll(500, 0), Pause::None);
        let sleeps = slept(&rank.polls(500, 2 * TIRED as usize));
        assert!(sleeps.len() > TIRED as usize / 2);
    }

    #[test]
    fn every_peek_that_finds_something_comes_after_one_in_vain() {
        let mut look = Look::default();
        assert!(look.is_first(0) && !look.is_first(0));
        look.found();
        assert!(look.is_first(0) && look.is_first(1) && !look.is_first(1) && !look.is_first(1));
    }

    #[test]
    fn an_interrupt_now_and_then_is_not_taken_for_work_but_work_is() {
        let mut rank = Rank::new(false);
        let wait = |rank: &mut Rank| -> Vec<Pause> {
            (0..3 * TIRED).map(|i| rank.poll(if i % 100 == 0 { 3 * TIGHT } else { 500 }, 0)).collect()
        };
        assert!(slept(&wait(&mut rank)).len() > TIRED as usize);
        // Three polls, and what it does then.
        let pauses: Vec<_> =
            (0..3 * TIRED).map(|i| rank.poll(if i % 3 == 0 { 3 * TIGHT } else { 500 }, 0)).collect();
        assert!(slept(&pauses).len() < OFTEN as usize);
    }

    #[test]
    fn the_first_look_finds_nothing_new_but_the_second_does() {
        let mut turn = Turn::default();
        assert!(!turn.is_first(0));
        assert!(turn.is_before(1) && turn.is_first(1) && !turn.is_before(1) && !turn.is_first(1));
        // Something started between any two reads.
        let found = (2..100).filter(|&calls| !turn.is_first(calls)).count();
        assert!(found > 40);
        // Nothing but counters read.
        let found = (100..200).filter(|&calls| !turn.is_before(calls)).count();
        assert!(found > 90);
    }
}
