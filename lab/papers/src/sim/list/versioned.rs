//! An ordered singly linked list under a version number and DCAS (paper G §2, Figure 2,
//! and §5.1).
//!
//! **Progress.** Lock-free: a DCAS fails only since another one has succeeded. **Fields.**
//! `version` and every `next` in the list: by DCAS, which counts each change; `next` and `key` of a
//! node that is not in the list: its owner. The version lies beside the first link (§3: what is
//! updated together lies together). **Crashes.** Before its DCAS a process has changed nothing but
//! a node of its own, which is then lost until an audit; after it the operation has happened.
//! **Memory.** Type-stable: a late process finds nodes, if not those of the list, and then another
//! version.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_structures::Pool;

use super::{Control, List, ListError, ListItem, ListPlan};

/// The list.
pub struct Versioned<P: Processor, C: Control<P>> {
    version: P::Word,
    head: P::Word,
    nodes: Pool<P, ListItem<P>>,
    control: C,
}

impl<P: Processor, C: Control<P>> List<P> for Versioned<P, C> {
    const NAME: &'static str = C::NAME;

    fn new(arena: &impl Arena<P>, plan: &ListPlan) -> Self {
        let nodes = Pool::<P, ListItem<P>>::nodes_for(plan.processes, plan.processes);
        Versioned {
            version: arena.word(Place::NewLine, 0),
            head: arena.word(Place::SameLine, 0),
            nodes: Pool::new(arena, nodes, plan.processes),
            control: C::new(arena, plan),
        }
    }

    // begin: insertion and deletion
    fn insert(&self, cpu: &P, me: usize, key: u64, steps: &mut u64) -> Result<u32, ListError> {
        let node = self.nodes.take(cpu, me)?;
        let item = self.nodes.get(node)?;
        // Relaxed, and so the loads: the version tells whether what was read belongs together; the
        // DCAS releases, and reading the version acquires.
        cpu.store(&item.key, key, Ordering::Relaxed);
        self.control.enter(cpu);
        loop {
            let version = self.control.version(cpu, &self.version);
            let mut at = &self.head;
            let mut next = cpu.load(at, Ordering::Relaxed);
            while next != 0 {
                let following = self.nodes.get(next as u32)?;
                if cpu.load(&following.key, Ordering::Relaxed) >= key {
                    break;
                }
                *steps += 1;
                at = &following.next;
                next = cpu.load(at, Ordering::Relaxed);
            }
            cpu.store(&item.next, next, Ordering::Relaxed);
            if self.control.dcas(cpu, [&self.version, at], [version, next], [version + 1, u64::from(node)]) {
                self.control.leave(cpu);
                return Ok(node);
            }
        }
    }

    fn remove(&self, cpu: &P, me: usize, element: u32, steps: &mut u64) -> Result<bool, ListError> {
        let item = self.nodes.get(element)?;
        self.control.enter(cpu);
        loop {
            let version = self.control.version(cpu, &self.version);
            let mut at = &self.head;
            // Relaxed: as in `insert`.
            let mut next = cpu.load(at, Ordering::Relaxed);
            while next != 0 && next != u64::from(element) {
                *steps += 1;
                at = &self.nodes.get(next as u32)?.next;
                next = cpu.load(at, Ordering::Relaxed);
            }
            if next == 0 {
                if cpu.load(&self.version, Ordering::Relaxed) != version {
                    continue;
                }
                self.control.leave(cpu);
                return Ok(false);
            }
            let after = cpu.load(&item.next, Ordering::Relaxed);
            if self.control.dcas(cpu, [&self.version, at], [version, next], [version + 1, after]) {
                self.control.leave(cpu);
                self.nodes.give(cpu, me, element)?;
                return Ok(true);
            }
        }
    }
    // end

    fn keys(&self, cpu: &P) -> Result<Vec<u64>, ListError> {
        super::keys_from(cpu, &self.head, &self.nodes)
    }
}
