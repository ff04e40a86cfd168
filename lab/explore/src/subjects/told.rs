//! Episodes of a barrier that tells of deaths: the check of all subjects that have one.

use std::cell::RefCell;
use std::fmt::Debug;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan};

/// Episodes of all threads. None leaves before all have come; a death is told once.
pub(super) struct ToldEpisodes<E> {
    plan: Plan,
    /// Each thread's own two data, of which it writes one in an episode.
    data: Vec<DatumId>,
    /// Outcome of each episode, by the first thread that had it.
    outcomes: RefCell<Vec<Result<(), E>>>,
}

impl<E: PartialEq + Debug> ToldEpisodes<E> {
    pub(super) fn new(plan: &Plan, memory: &ExploredMemory) -> Self {
        let data = (0..2 * plan.threads).map(|_| memory.cell(Place::NewLine, 0)).collect();
        ToldEpisodes { plan: *plan, data, outcomes: RefCell::default() }
    }

    /// Passes the barrier in each episode.
    pub(super) fn pass_all(&self, cpu: &Explorer, pass: impl Fn() -> Result<(), E>) {
        let (me, threads) = (cpu.id(), self.plan.threads);
        for episode in 0..self.plan.ops {
            let half = episode % 2 * threads;
            cpu.write(&self.data[half + me], episode as u64 + 1);
            let outcome = pass();
            let mut outcomes = self.outcomes.borrow_mut();
            match outcomes.get(episode) {
                Some(first) => assert_eq!(*first, outcome, "two outcomes of episode {episode}"),
                None => outcomes.push(outcome),
            }
            let told = outcomes.iter().filter(|outcome| outcome.is_err()).count();
            assert!(told <= cpu.deaths(), "a death is told twice: {outcomes:?}");
            drop(outcomes);
            for other in (0..threads).filter(|&id| !cpu.is_dead(id)) {
                let seen = cpu.read(&self.data[half + other]);
                assert_eq!(seen, episode as u64 + 1, "thread {other} has not come");
            }
        }
    }
}
