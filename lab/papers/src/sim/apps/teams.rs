//! Parts of an application's team by name: one of its parts is the algorithm that an
//! experiment looks at, the others are the usual ones.

use std::rc::Rc;
use std::sync::LazyLock;

use towpath_apps::parts::{all_locks, lock_row, locked_queues, one_barrier, queue_row};
use towpath_apps::simulated::SimParts;
use towpath_apps::{Application, LockSet, MeetingPoint, Needs, PartKind, TaskQueues};
use towpath_sim::parameters::{LL_SC, NO_MESSAGES};
use towpath_sim::{Parameters, Sim, SimArena, Simulation};
use towpath_structures::for_each_queue;
use towpath_structures::queues::{ConcurrentQueue, MichaelScott};
use towpath_sync::barriers::McsTree;
use towpath_sync::locks::TestAndSet;
use towpath_sync::{Barrier, LoadLinked, Lock, for_each_barrier, for_each_lock};

use super::accounts::{LockNotes, TimedBarrier, TimedLocks};
use crate::sim::Patience;
use crate::sim::mplocks::{HomePlacement, LockTable, Scheme};

/// Most processors of a team.
pub const MOST: usize = 64;

type LockMaker = fn(&SimArena, usize, Patience) -> Box<dyn LockSet<Sim>>;
type BarrierMaker = fn(&SimArena, usize, Patience) -> Box<dyn MeetingPoint<Sim>>;
type QueueMaker = fn(&SimArena, Needs, usize, Patience) -> Box<dyn TaskQueues<Sim>>;

/// Maker of a part.
#[derive(Clone, Copy)]
enum PartMaker {
    Locks(LockMaker),
    /// Paper K's locks, on nodes.
    Scheme(Scheme),
    Barrier(BarrierMaker),
    Queues(QueueMaker),
}

/// Part of a team that an experiment looks at.
#[derive(Clone, Copy)]
pub struct NamedPart {
    /// Name of its algorithm, as users call it.
    pub name: &'static str,
    make: PartMaker,
}

/// Returns whether an algorithm updates its words at memory.
fn at_memory(name: &str) -> bool {
    name.starts_with("fetch-op") || name.ends_with("fetch-op")
}

fn locks<L: Lock<Sim> + Send + Sync + 'static>(
    arena: &SimArena,
    count: usize,
    wait: Patience,
) -> Box<dyn LockSet<Sim>> {
    Box::new(lock_row::<Sim, L, _>(arena, count, wait.at_memory(at_memory(L::NAME))))
}

fn barrier<B: Barrier<Sim> + Send + Sync + 'static>(
    arena: &SimArena,
    procs: usize,
    wait: Patience,
) -> Box<dyn MeetingPoint<Sim>> {
    Box::new(one_barrier::<Sim, B, _>(arena, procs, wait.at_memory(at_memory(B::NAME))))
}

fn queues<Q: ConcurrentQueue<Sim> + 'static>(
    arena: &SimArena,
    needs: Needs,
    procs: usize,
    wait: Patience,
) -> Box<dyn TaskQueues<Sim>> {
    Box::new(queue_row::<Sim, Q, _>(arena, needs, procs, wait.at_memory(at_memory(Q::NAME))))
}

fn list_lock<L: Lock<Sim> + Send + Sync + 'static>(all: &mut Vec<NamedPart>) {
    all.push(NamedPart { name: L::NAME, make: PartMaker::Locks(locks::<L>) });
}

fn list_barrier<B: Barrier<Sim> + Send + Sync + 'static>(all: &mut Vec<NamedPart>) {
    all.push(NamedPart { name: B::NAME, make: PartMaker::Barrier(barrier::<B>) });
}

fn list_queue<Q: ConcurrentQueue<Sim> + 'static>(all: &mut Vec<NamedPart>) {
    all.push(NamedPart { name: Q::NAME, make: PartMaker::Queues(queues::<Q>) });
}

/// Parts that an experiment may look at. Queues under compare-and-swap's locks are not
/// among them: under a lock's name, an application's queues are under that lock.
pub static PARTS: LazyLock<Vec<NamedPart>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for_each_lock!([atomics ll_sc fetch_op scheduling] Sim, 64 => list_lock(&mut all));
    for_each_barrier!([atomics ll_sc fetch_op] Sim, 64 => list_barrier(&mut all));
    list_queue::<MichaelScott<Sim>>(&mut all);
    for_each_queue!([ll_sc fetch_op scheduling] Sim, 64 => list_queue(&mut all));
    let known: Vec<&str> = all.iter().map(|part| part.name).collect();
    let schemes = Scheme::ALL.into_iter().filter(|scheme| !known.contains(&scheme.name()));
    let of = |scheme: Scheme| NamedPart { name: scheme.name(), make: PartMaker::Scheme(scheme) };
    all.extend(schemes.map(of).collect::<Vec<_>>());
    all
});

impl NamedPart {
    /// Finds the part of that name. On a machine with messages between nodes, locks that
    /// paper K has are its own.
    pub fn find(machine: &Parameters, name: &str) -> Option<NamedPart> {
        let part = PARTS.iter().copied().find(|part| part.name == name)?;
        if machine.messages == NO_MESSAGES {
            return Some(part);
        }
        let scheme = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
        Some(scheme.map_or(part, |scheme| NamedPart { make: PartMaker::Scheme(scheme), ..part }))
    }

    /// Its kind.
    pub fn kind(&self) -> PartKind {
        match self.make {
            PartMaker::Locks(_) | PartMaker::Scheme(_) => PartKind::Lock,
            PartMaker::Barrier(_) => PartKind::Barrier,
            PartMaker::Queues(_) => PartKind::Queue,
        }
    }

    /// Returns whether an application uses such a part at all.
    pub fn is_used_by(&self, application: Application) -> bool {
        use Application::*;
        match self.kind() {
            PartKind::Barrier => true,
            PartKind::Lock => !matches!(application, Lu | Spark98Reduced),
            PartKind::Queue => matches!(application, Cholesky | Radiosity | Raytrace),
        }
    }

    /// Returns the reason why it can't run on a machine with so many copies; `None` if it
    /// can.
    pub fn lacks(&self, machine: &Parameters, copies: usize) -> Option<String> {
        let PartMaker::Scheme(scheme) = self.make else { return None };
        if machine.per_node > 1 {
            let text = "is for nodes of one processor";
            return Some(format!("`{}` {text}, and {} has {}", self.name, machine.name, machine.per_node));
        }
        if copies > 1 {
            return Some(format!("`{}` runs one copy of the program: leave --copies out", self.name));
        }
        scheme.lacks(machine)
    }

    /// Makes a team's parts: this one, and the usual others. Paper K's locks make notes.
    pub fn team(
        &self,
        simulation: &mut Simulation,
        arena: &SimArena,
        machine: &Parameters,
        needs: Needs,
        patience: &Patience,
    ) -> (SimParts, Option<LockNotes>) {
        let (procs, count) = (simulation.processors(), all_locks(needs));
        let wait = || patience.clone();
        let notes = match self.make {
            PartMaker::Scheme(scheme) => {
                let table = LockTable::new(simulation, machine, scheme, count, HomePlacement::InTurn);
                Some(LockNotes { table: Rc::new(table), accounts: Rc::default() })
            }
            _ => None,
        };
        let mut parts = SimParts {
            locks: match (self.make, &notes) {
                (PartMaker::Locks(make), _) => make(arena, count, wait()),
                (_, Some(notes)) => {
                    let (table, accounts) = (Rc::clone(&notes.table), Rc::clone(&notes.accounts));
                    Box::new(TimedLocks { table, accounts })
                }
                _ if machine.atomics == LL_SC => locks::<TestAndSet<Sim, LoadLinked>>(arena, count, wait()),
                _ => locks::<TestAndSet<Sim>>(arena, count, wait()),
            },
            barrier: match self.make {
                PartMaker::Barrier(make) => make(arena, procs, wait()),
                _ => barrier::<McsTree<Sim, 64>>(arena, procs, wait()),
            },
            queues: match self.make {
                PartMaker::Queues(make) => make(arena, needs, procs, wait()),
                _ => locked_queues(arena, needs, wait()),
            },
        };
        if let Some(notes) = &notes {
            let accounts = Rc::clone(&notes.accounts);
            parts.barrier = Box::new(TimedBarrier { barrier: parts.barrier, accounts });
        }
        (parts, notes)
    }
}

/// Returns the names of the parts that show most about an application on a machine.
pub fn usual(machine: &Parameters, application: Application) -> &'static [&'static str] {
    let messages = machine.messages != NO_MESSAGES && machine.per_node <= 1;
    match (application.decided_by(), machine.atomics == LL_SC) {
        (PartKind::Lock, _) if messages => {
            &["test-and-test-and-set", "mcs", "mp-central", "mp-distributed", "mp-reactive"]
        }
        (PartKind::Lock, true) => &["test-and-set/ll-sc", "ticket/ll-sc", "anderson/ll-sc", "hybrid-queue"],
        (PartKind::Lock, false) => &["test-and-test-and-set", "ticket", "mcs", "reactive"],
        (PartKind::Barrier, true) => &["centralized/ll-sc", "centralized/fetch-op", "mcs-tree"],
        (PartKind::Barrier, false) => &["centralized", "dissemination", "mcs-tree"],
        (PartKind::Queue, true) => &[
            "two-ended/test-and-set/ll-sc",
            "two-ended/anderson/ll-sc",
            "michael-scott/ll-sc",
            "fetch-op-tickets",
        ],
        (PartKind::Queue, false) => &["ticket", "mcs", "michael-scott"],
    }
}
