//! An ordered singly linked list under a test&test&set lock with exponential back-off:
//! the base case of paper G §7.2, and its sequential code.
//!
//! **Progress.** Blocking: all wait for a holder that is preempted, and for ever for one
//! that dies. **Fields.** `lock`: every process; all else: its holder.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_structures::Pool;

use super::control::Pauses;
use super::{List, ListError, ListItem, ListPlan};

/// The list.
pub struct Locked<P: Processor> {
    lock: P::Word,
    head: P::Word,
    nodes: Pool<P, ListItem<P>>,
    plan: ListPlan,
}

impl<P: Processor> Locked<P> {
    fn lock(&self, cpu: &P) {
        let mut pauses = Pauses::new(&self.plan);
        loop {
            // Relaxed: only a test; (1) confirms it.
            let seen = cpu.poll_until(&self.lock, Ordering::Relaxed, u64::MAX, |_| pauses.next(), |v| v == 0);
            // (1) Acquire, pairs with the Release (2).
            if seen.is_ok()
                && cpu.compare_exchange(&self.lock, 0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            cpu.delay(pauses.next());
        }
    }

    fn unlock(&self, cpu: &P) {
        // (2) Release, pairs with the Acquire (1).
        cpu.store(&self.lock, 0, Ordering::Release);
    }

    // begin: insertion and deletion
    fn insert_alone(&self, cpu: &P, node: u32, key: u64, steps: &mut u64) -> Result<(), ListError> {
        let item = self.nodes.get(node)?;
        // Relaxed, and so all others: under the lock.
        cpu.store(&item.key, key, Ordering::Relaxed);
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
        cpu.store(at, u64::from(node), Ordering::Relaxed);
        Ok(())
    }

    fn remove_alone(&self, cpu: &P, element: u32, steps: &mut u64) -> Result<bool, ListError> {
        let mut at = &self.head;
        let mut next = cpu.load(at, Ordering::Relaxed);
        while next != 0 && next != u64::from(element) {
            *steps += 1;
            at = &self.nodes.get(next as u32)?.next;
            next = cpu.load(at, Ordering::Relaxed);
        }
        if next != 0 {
            let after = cpu.load(&self.nodes.get(element)?.next, Ordering::Relaxed);
            cpu.store(at, after, Ordering::Relaxed);
        }
        Ok(next != 0)
    }
    // end
}

impl<P: Processor> List<P> for Locked<P> {
    const NAME: &'static str = "spin-lock";

    fn new(arena: &impl Arena<P>, plan: &ListPlan) -> Self {
        let nodes = Pool::<P, ListItem<P>>::nodes_for(plan.processes, plan.processes);
        Locked {
            lock: arena.word(Place::NewLine, 0),
            head: arena.word(Place::NewLine, 0),
            nodes: Pool::new(arena, nodes, plan.processes),
            plan: *plan,
        }
    }

    fn insert(&self, cpu: &P, me: usize, key: u64, steps: &mut u64) -> Result<u32, ListError> {
        let node = self.nodes.take(cpu, me)?;
        self.lock(cpu);
        let done = self.insert_alone(cpu, node, key, steps);
        self.unlock(cpu);
        done.map(|()| node)
    }

    fn remove(&self, cpu: &P, me: usize, element: u32, steps: &mut u64) -> Result<bool, ListError> {
        self.lock(cpu);
        let done = self.remove_alone(cpu, element, steps);
        self.unlock(cpu);
        if done? {
            self.nodes.give(cpu, me, element)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn keys(&self, cpu: &P) -> Result<Vec<u64>, ListError> {
        super::keys_from(cpu, &self.head, &self.nodes)
    }
}
