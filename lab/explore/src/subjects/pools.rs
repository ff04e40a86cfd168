//! Pools of nodes: one holder of each at a time, which sees the writes of the last one.
//!
//! The nodes are fewer than the threads want, so that they go from hand to hand. Those of
//! [`StablePool`] also go through a structure of one word, which holds one node; the living audit
//! after deaths, while others go on, and at the end all nodes are free.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_structures::nonblocking::{Audit, Pool as StablePool, StableError};
use towpath_structures::{Boxed, Counter, Pool, PoolError};
use towpath_sync::{Atomics, LoadLinked, Universal};

use super::REPAIR;
use super::repair::is_dead;
use towpath_schedules::DatumId;
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Word};

/// Number of audits after which nothing may be pending, when no thread acts.
const ENOUGH: usize = 3;

/// Both pools.
pub fn all(cases: &mut Vec<Case>) {
    chains::<Atomics>(cases);
    chains::<LoadLinked>(cases);
    let about = "one holder of each node; the living audit, and nothing is lost";
    for (name, predecessor) in [
        ("pool", Predecessor::None),
        ("pool-audited", Predecessor::Deep),
        ("pool-walked", Predecessor::Giving),
    ] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(Rc::new(SharedNodes::new(plan, memory, predecessor)))
        };
        let name = format!("{REPAIR}/{name}");
        cases.push(Case { endures_deaths: true, ..Case::new(name, about, make) });
    }
}

/// Holders of nodes by number: 0 is none, else the thread's number and 1.
struct HeldNodes {
    holders: Vec<Cell<usize>>,
    data: Vec<DatumId>,
}

impl HeldNodes {
    fn new(memory: &ExploredMemory, nodes: usize) -> HeldNodes {
        HeldNodes {
            holders: (0..=nodes).map(|_| Cell::new(0)).collect(),
            data: (0..=nodes).map(|_| memory.cell(Place::NewLine, 0)).collect(),
        }
    }

    /// The thread holds the node now, and writes in it.
    fn hold(&self, cpu: &Explorer, node: u32) {
        let holder = self.holders[node as usize].replace(cpu.id() + 1);
        let is_left = holder == 0 || is_dead(cpu, holder - 1);
        assert!(is_left, "node {node} is held by two threads: {} and {}", holder - 1, cpu.id());
        let datum = &self.data[node as usize];
        let before = cpu.read(datum);
        cpu.write(datum, before + 1);
    }

    /// The thread gives the node up.
    fn leave(&self, node: u32) {
        self.holders[node as usize].set(0);
    }
}

struct ChainedNodes<M> {
    pool: Pool<Explorer, Counter<Explorer>, M, Boxed, 1>,
    held: HeldNodes,
    plan: Plan,
}

/// A pool whose chains are of one node, so that they travel.
fn chains<M: Universal<Explorer> + 'static>(cases: &mut Vec<Case>) {
    let make = |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let nodes = 2 * plan.threads;
        let pool = Pool::new(memory, nodes + 1, plan.threads);
        Ok(Rc::new(ChainedNodes::<M> { pool, held: HeldNodes::new(memory, nodes), plan: *plan }))
    };
    cases.push(Case::new(format!("{REPAIR}/chains-{}", M::NAME), "one holder of each node", make));
}

impl<M: Universal<Explorer>> SubjectRun for ChainedNodes<M> {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let mut taken = Vec::new();
            for _ in 0..=(n + cpu.id()) % 4 {
                match self.pool.take(cpu, cpu.id()) {
                    Ok(node) => {
                        self.held.hold(cpu, node);
                        taken.push(node);
                    }
                    Err(PoolError::Exhausted) => break,
                    Err(error) => panic!("take: {error}"),
                }
            }
            for node in taken {
                self.held.leave(node);
                self.pool.give(cpu, cpu.id(), node).unwrap_or_else(|error| panic!("give: {error}"));
            }
        }
    }
}

/// Participant that has died before all began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Predecessor {
    None,
    /// Took and was about to take nodes, handler over handler.
    Deep,
    /// Died after it had given all nodes, with one in its hands that is under another.
    ///
    /// Thread 0 audits, the others take and give.
    Giving,
}

struct SharedNodes {
    pool: StablePool<Explorer, Counter<Explorer>, Boxed, 1>,
    predecessor: Predecessor,
    /// The structure: number of the node in it, or 0.
    word: Word,
    held: HeldNodes,
    plan: Plan,
}

impl SharedNodes {
    fn new(plan: &Plan, memory: &ExploredMemory, predecessor: Predecessor) -> SharedNodes {
        let dead = plan.threads;
        let nodes = if predecessor == Predecessor::Giving { 3 } else { plan.threads };
        let pool = StablePool::new(memory, nodes, plan.threads + 1);
        if predecessor == Predecessor::Giving {
            let cpu = memory.at_rest();
            let give = || -> Result<(), StableError> {
                let taken = [pool.take(&cpu, dead)?, pool.take(&cpu, dead)?, pool.take(&cpu, dead)?];
                let lower = taken[1].node();
                for held in taken {
                    pool.give(&cpu, dead, held)?;
                }
                pool.aim(&cpu, dead, lower).map(drop)
            };
            give().unwrap_or_else(|error| panic!("{error}"));
        }
        if predecessor == Predecessor::Deep {
            let cpu = memory.at_rest();
            // One that it had taken, and some that it was about to take, handler over handler.
            let taken = pool.take(&cpu, dead).map(|_| ());
            let mut aims = (1..=nodes as u32).cycle();
            let deepest = loop {
                if let Err(error) = pool.aim(&cpu, dead, aims.next().unwrap_or(1)) {
                    break error;
                }
            };
            assert!(taken.is_ok() && deepest == StableError::TooDeep, "{taken:?}, {deepest}");
        }
        let (word, held) = (memory.word(Place::NewLine, 0), HeldNodes::new(memory, nodes));
        SharedNodes { pool, predecessor, word, held, plan: *plan }
    }

    /// Takes a node, and exchanges it for that in the structure if `puts`.
    fn act(&self, cpu: &Explorer, puts: bool) -> Result<(), StableError> {
        let (me, pool) = (cpu.id(), &self.pool);
        let mine = match pool.take(cpu, me) {
            Err(StableError::Exhausted) => return self.exchange(cpu, 0).map(drop),
            mine => mine?,
        };
        self.held.hold(cpu, mine.node());
        if !puts {
            self.held.leave(mine.node());
            return pool.give(cpu, me, mine);
        }
        self.held.leave(mine.node());
        self.exchange(cpu, mine.node())?;
        pool.leave(cpu, me, mine)
    }

    /// Exchanges the node in the structure for this one, or for none.
    fn exchange(&self, cpu: &Explorer, node: u32) -> Result<(), StableError> {
        let (me, pool) = (cpu.id(), &self.pool);
        // (E1) Acquire: what was done with the node; pairs with the exchange (E2).
        let mut old = cpu.load(&self.word, Ordering::Acquire);
        loop {
            let aimed = pool.aim(cpu, me, old as u32)?;
            // (E2) AcqRel: as (E1), and what was done with ours; pairs with (E1) and itself.
            let done =
                cpu.compare_exchange(&self.word, old, node.into(), Ordering::AcqRel, Ordering::Acquire);
            match done {
                Ok(0) => return pool.leave(cpu, me, aimed),
                Ok(_) => {
                    pool.claim(cpu, me, &aimed)?;
                    self.held.hold(cpu, aimed.node());
                    self.held.leave(aimed.node());
                    return pool.give(cpu, me, aimed);
                }
                Err(now) => {
                    pool.leave(cpu, me, aimed)?;
                    old = now;
                }
            }
        }
    }

    /// An audit, if a thread has died.
    fn audit(&self, cpu: &Explorer) -> Audit {
        let mut dead: Vec<bool> = (0..self.plan.threads).map(|thread| is_dead(cpu, thread)).collect();
        dead.push(self.predecessor != Predecessor::None);
        if !dead.contains(&true) {
            return Audit::default();
        }
        // (E3) Acquire: pairs with the exchange (E2).
        let is_in = |node| Ok(Some(cpu.load(&self.word, Ordering::Acquire) == u64::from(node)));
        let audit = self.pool.audit(cpu, cpu.id(), |participant| dead[participant], is_in);
        audit.unwrap_or_else(|error| panic!("audit: {error}"))
    }
}

impl SubjectRun for SharedNodes {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let walked = self.predecessor == Predecessor::Giving;
            if self.predecessor == Predecessor::Deep || cpu.deaths() > 0 || walked && cpu.id() == 0 {
                self.audit(cpu);
            }
            if walked && cpu.id() == 0 {
                continue;
            }
            self.act(cpu, !walked && (n + cpu.id()).is_multiple_of(2))
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }

    fn last(&self, cpu: &Explorer) {
        let is_done = (0..ENOUGH).any(|_| self.audit(cpu).pending == 0);
        assert!(is_done, "suspects are pending though no thread acts");
        assert_eq!(self.audit(cpu).suspects, 0, "in the hands of the dead, which were emptied");
        if self.predecessor == Predecessor::Deep {
            // As if it had also been about to take each of them now: all are found where they are.
            for node in 1..=self.plan.threads as u32 {
                let aimed = self.pool.aim(cpu, self.plan.threads, node);
                aimed.map(drop).unwrap_or_else(|error| panic!("{error}"));
            }
            assert_eq!(self.audit(cpu).pending, 0, "nodes are not found though no thread acts");
        }
        self.exchange(cpu, 0).unwrap_or_else(|error| panic!("{error}"));
        let free = self.pool.free(cpu).unwrap_or_else(|error| panic!("free: {error}"));
        assert_eq!(free, self.pool.capacity(), "free nodes, of all");
        let mut taken = vec![false; free + 1];
        for _ in 0..free {
            let held = self.pool.take(cpu, cpu.id()).unwrap_or_else(|error| panic!("take: {error}"));
            assert!(!std::mem::replace(&mut taken[held.node() as usize], true), "a node is there twice");
            self.pool.leave(cpu, cpu.id(), held).unwrap_or_else(|error| panic!("leave: {error}"));
        }
    }
}
