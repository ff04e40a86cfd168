//! Control of a version-numbered list: its double compare-and-swap; and an advisory lock
//! of the version's line, or a count of active threads that the operating system maintains, which
//! keep processes from getting in each other's way. Neither is needed for the list to be right;
//! both bound a process's waiting.

use towpath_machine::{ActiveThreads, AdvisoryLoad, Arena, Dcas, Ordering, Place, Processor, RollBack};
use towpath_structures::dcas::{DoubleCas, RolledBack};

use super::ListPlan;

/// Maximum number of active threads at a time (paper G §8.4).
const THRESHOLD: u64 = 1;

/// A double compare-and-swap, and a way to keep contention down.
pub trait Control<P: Processor>: Sized {
    /// The algorithm that the list with it is.
    const NAME: &'static str;
    /// Makes it.
    fn new(arena: &impl Arena<P>, plan: &ListPlan) -> Self;
    /// A process comes to an operation.
    fn enter(&self, cpu: &P);
    /// Begins an attempt: reads the version.
    fn version(&self, cpu: &P, version: &P::Word) -> u64;
    /// Ends an attempt: changes the version and a link, if they have the old values.
    fn dcas(&self, cpu: &P, words: [&P::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool;
    /// Leaves: the operation is done.
    fn leave(&self, cpu: &P);
}

/// Exponential back-off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    next: u64,
    longest: u64,
}

impl Pauses {
    pub fn new(plan: &ListPlan) -> Self {
        Pauses { next: plan.first_pause, longest: plan.longest_pause }
    }

    /// The next pause, in nanoseconds.
    pub fn next(&mut self) -> u64 {
        let pause = self.next;
        self.next = (2 * pause).min(self.longest);
        pause
    }
}

/// Cload (paper G §6.2): the version is read by a load that takes the line's advisory
/// lock. A process that finds it locked backs off up to a limit, and then reads the version as it
/// is. The DCAS gives the lock up, since it stores to the line.
#[derive(Clone, Copy, Debug)]
pub struct Advisory {
    plan: ListPlan,
}

impl<P: AdvisoryLoad + Dcas> Control<P> for Advisory {
    const NAME: &'static str = "dcas-cload";

    fn new(_arena: &impl Arena<P>, plan: &ListPlan) -> Self {
        Advisory { plan: *plan }
    }
    fn enter(&self, _cpu: &P) {}
    fn version(&self, cpu: &P, version: &P::Word) -> u64 {
        let (mut pauses, mut waited) = (Pauses::new(&self.plan), 0);
        loop {
            if let Some(version) = cpu.advisory_load(version) {
                return version;
            }
            if waited >= self.plan.threshold {
                // (A1) Acquire: the nodes; pairs with the DCAS, which releases.
                return cpu.load(version, Ordering::Acquire);
            }
            let pause = pauses.next();
            cpu.delay(pause);
            waited += pause;
        }
    }
    fn dcas(&self, cpu: &P, words: [&P::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool {
        cpu.dcas(words, old, new)
    }
    fn leave(&self, _cpu: &P) {}
}

/// Allemany and Felten's count of active threads, with the threshold 1 (paper G §8.4): a
/// process that finds another one active backs off, as in the paper's Figure 2. The operating
/// system takes a process that it switches out off the count. **How they wait is not given**:
/// without pauses, each change of the count costs a transaction for every waiter, and 16
/// processors take twice as long.
pub struct ActiveCount<P: Processor> {
    count: P::Word,
    plan: ListPlan,
}

impl<P: ActiveThreads + Dcas> Control<P> for ActiveCount<P> {
    const NAME: &'static str = "dcas-active-count";

    fn new(arena: &impl Arena<P>, plan: &ListPlan) -> Self {
        ActiveCount { count: arena.word(Place::NewLine, 0), plan: *plan }
    }
    fn enter(&self, cpu: &P) {
        let mut pauses = Pauses::new(&self.plan);
        while !cpu.enter(&self.count, THRESHOLD) {
            cpu.delay(pauses.next());
        }
    }
    fn version(&self, cpu: &P, version: &P::Word) -> u64 {
        // (A1) Acquire: the nodes; pairs with the DCAS, which releases.
        cpu.load(version, Ordering::Acquire)
    }
    fn dcas(&self, cpu: &P, words: [&P::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool {
        cpu.dcas(words, old, new)
    }
    fn leave(&self, cpu: &P) {
        cpu.leave(&self.count);
    }
}

/// Bershad's DCAS (paper G §6.1): in software, under a lock whose holder the operating
/// system rolls back if it switches it out. A process that finds the lock taken backs off, as under
/// a spin lock. The version is stored first, so it is the word that can have a tentative value, and
/// it is read as such ([`RolledBack::look`]).
pub struct BershadControl<P: RollBack> {
    dcas: RolledBack<P>,
    plan: ListPlan,
}

impl<P: RollBack> BershadControl<P> {
    fn backing_off(&self, cpu: &P) -> impl FnMut() {
        let mut pauses = Pauses::new(&self.plan);
        move || cpu.delay(pauses.next())
    }
}

impl<P: RollBack> Control<P> for BershadControl<P> {
    const NAME: &'static str = "dcas-bershad";

    fn new(arena: &impl Arena<P>, plan: &ListPlan) -> Self {
        BershadControl { dcas: RolledBack::new(arena, plan.processes), plan: *plan }
    }
    fn enter(&self, _cpu: &P) {}
    fn version(&self, cpu: &P, version: &P::Word) -> u64 {
        self.dcas.look(cpu, version, self.backing_off(cpu))
    }
    fn dcas(&self, cpu: &P, words: [&P::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool {
        self.dcas.change(cpu, words, old, new, self.backing_off(cpu))
    }
    fn leave(&self, _cpu: &P) {}
}
