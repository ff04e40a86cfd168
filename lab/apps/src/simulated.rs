//! Applications on simulated machines: a thread on each processor, in one or several
//! copies of the program.

use std::cell::RefCell;
use std::rc::Rc;

use towpath_sim::{Outcome, Parameters, Sim, SimArena, Simulation, Time};

use crate::memory::Memory;
use crate::problem::{Problem, ProblemChoice, Verified, make};
use crate::team::{LockSet, MeetingPoint, Needs, TaskQueues, Team};

/// Parts of a team on a simulated machine.
pub struct SimParts {
    /// Its locks.
    pub locks: Box<dyn LockSet<Sim>>,
    /// Its barrier.
    pub barrier: Box<dyn MeetingPoint<Sim>>,
    /// Its queues.
    pub queues: Box<dyn TaskQueues<Sim>>,
}

impl std::fmt::Debug for SimParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimParts").finish_non_exhaustive()
    }
}

/// Course of a simulated run.
#[derive(Clone, Debug)]
pub struct SimulatedRun {
    /// The machine's.
    pub outcome: Outcome,
    /// End of each copy of the program.
    pub ends: Vec<Time>,
    /// The first copy's result; all agree with the reference.
    pub verified: Verified,
}

/// Solves the problem of that choice in so many copies of the program. `parts` makes each
/// copy's team.
///
/// # Errors
///
/// If the threads get stuck, or a result differs from the reference.
pub fn run(
    machine: &Parameters,
    choice: ProblemChoice,
    copies: usize,
    parts: &mut dyn FnMut(&mut Simulation, &SimArena, Needs) -> SimParts,
) -> Result<SimulatedRun, String> {
    let mut simulation = Simulation::new(machine, choice.procs, choice.seed);
    let arena = simulation.arena();
    let memory =
        Memory { arena: &arena, line: machine.line as usize / 8, per_node: machine.per_node.max(1) as usize };
    let ends = Rc::new(RefCell::new(vec![0; copies]));
    let mut problems: Vec<Rc<dyn Problem<Sim>>> = Vec::new();
    let nodes = choice.procs.div_ceil(memory.per_node);
    for copy in 0..copies {
        // Each copy's main process began on a node of its own.
        simulation.make_words_at(copy * nodes / copies);
        let problem: Rc<dyn Problem<Sim>> = Rc::from(make(choice, &memory));
        let parts = Rc::new(parts(&mut simulation, &arena, problem.needs()));
        problems.push(Rc::clone(&problem));
        for me in 0..choice.procs {
            let (problem, parts, ends) = (Rc::clone(&problem), Rc::clone(&parts), Rc::clone(&ends));
            simulation.spawn_in_job(me, me, copy, move |cpu| {
                let team = Team {
                    procs: choice.procs,
                    locks: &*parts.locks,
                    barrier: &*parts.barrier,
                    queues: &*parts.queues,
                };
                problem.work(cpu, me, &team);
                let end = &mut ends.borrow_mut()[copy];
                *end = cpu.clock().max(*end);
            });
        }
    }
    let outcome = simulation.run().map_err(|stuck| stuck.to_string())?;
    let mut verified = Vec::new();
    for problem in problems {
        verified.push(problem.check(&|cell| arena.value(cell))?);
    }
    let ends = ends.take();
    Ok(SimulatedRun { outcome, ends, verified: verified.swap_remove(0) })
}
