//! Operations on words that algorithms are made of: at memory, and linked.

use std::rc::Rc;

use towpath_machine::{Arena, FetchOp, Link, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};

use super::PAUSE;

/// All of them.
pub fn all(cases: &mut Vec<Case>) {
    let mut case = |name: &str, about: &str, make: fn(&Plan, &ExploredMemory) -> Rc<dyn SubjectRun>| {
        let make = move |plan: &Plan, memory: &ExploredMemory| Ok(make(plan, memory));
        cases.push(Case::new(format!("machine/{name}"), about, make));
    };
    case("at-memory", "each operation acquires and releases", |plan, memory| {
        Rc::new(AtMemoryRun::new(plan, memory))
    });
    case("linked", "one at a time, and published when done", |plan, memory| {
        Rc::new(LinkedRun::new(plan, memory))
    });
}

/// Threads that hand data on by each of the operations at memory.
struct AtMemoryRun {
    /// Number of threads that have come, and of those that have not.
    come: Word,
    missing: Word,
    /// Value 1 while the datum is free; of each thread: while it has not cleared it.
    free: Word,
    uncleared: Vec<Word>,
    shared: DatumId,
    /// Data of each thread, written before it counts up, counts down and clears.
    data: Vec<[DatumId; 3]>,
}

impl AtMemoryRun {
    fn new(plan: &Plan, memory: &ExploredMemory) -> AtMemoryRun {
        let threads = plan.threads;
        let word = |value| memory.word(Place::AtMemory(0), value);
        let datum = || memory.cell(Place::NewLine, 0);
        AtMemoryRun {
            come: word(0),
            missing: word(threads as u64),
            free: word(1),
            uncleared: (0..threads).map(|_| word(1)).collect(),
            shared: datum(),
            data: (0..threads).map(|_| [datum(), datum(), datum()]).collect(),
        }
    }

    /// Reads all threads' data of this turn, in the last thread to come.
    fn read_all(&self, cpu: &Explorer, turn: usize) {
        self.data.iter().for_each(|data| assert_eq!(cpu.read(&data[turn]), 1));
    }
}

impl SubjectRun for AtMemoryRun {
    fn thread(&self, cpu: &Explorer) {
        let (me, last) = (cpu.id(), self.data.len() as u64 - 1);
        cpu.write(&self.data[me][0], 1);
        if cpu.fetch_increment(&self.come) == last {
            self.read_all(cpu, 0);
        }
        cpu.write(&self.data[me][1], 1);
        if cpu.fetch_decrement(&self.missing) == 1 {
            self.read_all(cpu, 1);
        }
        while cpu.fetch_clear(&self.free) == 0 {
            cpu.delay(PAUSE);
        }
        cpu.write(&self.shared, me as u64);
        cpu.fetch_store(&self.free, 1);
        cpu.write(&self.data[me][2], 1);
        cpu.fetch_clear(&self.uncleared[me]);
        for (uncleared, data) in self.uncleared.iter().zip(&self.data) {
            if cpu.fetch_load(uncleared) == 0 {
                assert_eq!(cpu.read(&data[2]), 1);
            }
        }
    }
}

/// Threads that take a lock, and count themselves, by links.
struct LinkedRun {
    taken: Word,
    done: Word,
    shared: DatumId,
    plan: Plan,
}

impl LinkedRun {
    fn new(plan: &Plan, memory: &ExploredMemory) -> LinkedRun {
        let [taken, done] = [0, 1].map(|_| memory.word(Place::NewLine, 0));
        LinkedRun { taken, done, shared: memory.cell(Place::NewLine, 0), plan: *plan }
    }

    /// Makes one of a value the other.
    fn change(&self, cpu: &Explorer, word: &Word, old: impl Fn(u64) -> bool, new: impl Fn(u64) -> u64) {
        loop {
            let link = Link::to(cpu, word);
            if old(link.value()) && link.store(cpu, word, new(link.value())) {
                break;
            }
            cpu.delay(PAUSE);
        }
    }
}

impl SubjectRun for LinkedRun {
    fn thread(&self, cpu: &Explorer) {
        for _ in 0..self.plan.ops {
            self.change(cpu, &self.taken, |taken| taken == 0, |_| 1);
            cpu.write(&self.shared, cpu.read(&self.shared) + 1);
            self.change(cpu, &self.taken, |_| true, |_| 0);
        }
        self.change(cpu, &self.done, |_| true, |done| done + 1);
        let all = self.plan.threads;
        if Link::to(cpu, &self.done).value() == all as u64 {
            assert_eq!(cpu.read(&self.shared), (all * self.plan.ops) as u64);
        }
    }
}
