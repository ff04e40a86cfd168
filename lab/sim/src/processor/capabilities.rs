//! Capabilities of few machines, on the threads' side: double compare-and-swap, advisory
//! locks, counts of active threads, holders of locks that are rolled back. A machine's file
//! declares them (`processor.dcas`, `processor.advisory`, `os.active_counts`, `os.roll_back`); on
//! another machine they panic, and experiments refuse before that.

use towpath_machine::{ActiveThreads, AdvisoryLoad, Dcas, Ordering, Processor, RollBack};

use crate::memory::AT_MEMORY;
use crate::parameters::{NO_ADVISORY, NO_COUNTS, NO_DCAS, NO_ROLL_BACK, Parameters};
use crate::processor::{Sim, SimWord};
use crate::request::Op;
use crate::task::{Known, Task};
use crate::thread::CriticalSection;

impl Sim {
    /// Panics if the machine lacks a capability.
    fn insist(&self, there: impl FnOnce(&Parameters) -> bool, lack: &str) {
        let e = self.engine();
        let p = &e.p;
        assert!(there(p), "{}{lack}, or use an algorithm without", p.name);
    }
}

impl Dcas for Sim {
    fn dcas(&self, words: [&SimWord; 2], old: [u64; 2], new: [u64; 2]) -> bool {
        let words = words.map(|word| word.0);
        assert!(
            words[0] != words[1] && words.iter().all(|word| word & AT_MEMORY == 0),
            "DCAS takes two different words, neither of them at memory"
        );
        self.insist(|p| p.dcas != NO_DCAS, " has no DCAS: give it `processor.dcas`");
        {
            let e = &mut *self.engine();
            e.threads[self.thread].double = e.new_double(words, old, new);
        }
        self.begin(Task::double()) != 0
    }
}

impl AdvisoryLoad for Sim {
    fn advisory_load(&self, word: &SimWord) -> Option<u64> {
        self.insist(|p| p.advisory != NO_ADVISORY, " has no advisory locks: give it `processor.advisory`");
        assert!(word.0 & AT_MEMORY == 0, "words at memory have no advisory locks");
        let value = self.operate(word.0, Op::Load, |p| p.load + p.advisory_cost);
        let taken = self.engine().take_advisory(self.thread, word.0);
        taken.then_some(value)
    }
}

impl ActiveThreads for Sim {
    fn enter(&self, count: &SimWord, most: u64) -> bool {
        self.insist(
            |p| p.active_counts != NO_COUNTS,
            "'s system keeps no counts of active threads: set `os.active_counts`",
        );
        assert!(count.0 & AT_MEMORY == 0, "counts of active threads do not lie at memory");
        let seen = self.load(count, Ordering::Relaxed);
        if seen >= most || self.update(count.0, Op::Exchange(seen, seen + 1)) != seen {
            return false;
        }
        // In the instant in which it was counted: nothing has happened since.
        self.engine().threads[self.thread].counted = Some(count.0);
        true
    }
    fn leave(&self, count: &SimWord) {
        self.update(count.0, Op::Add(u64::MAX));
        self.engine().threads[self.thread].counted = None;
    }
}

impl Sim {
    fn known(&self, word: &SimWord, op: Op, known: Known) -> bool {
        assert!(word.0 & AT_MEMORY == 0, "what the system puts back does not lie at memory");
        let cost = self.engine().p.store;
        self.begin(Task::known(word.0, op, known, cost)) == 0
    }
}

impl RollBack for Sim {
    fn take(&self, lock: &SimWord) -> bool {
        self.insist(
            |p| p.roll_back != NO_ROLL_BACK,
            "'s system does not roll holders of locks back: set `os.roll_back`",
        );
        assert!(lock.0 & AT_MEMORY == 0, "locks that the system knows do not lie at memory");
        let seen = self.load(lock, Ordering::Relaxed);
        if seen % 2 == 1 || self.update(lock.0, Op::Exchange(seen, seen + 1)) != seen {
            return false;
        }
        // In the instant in which it was taken.
        let section = CriticalSection { lock: lock.0, tentative: None };
        self.engine().threads[self.thread].section = Some(section);
        true
    }
    fn store_tentatively(&self, word: &SimWord, value: u64) -> bool {
        self.known(word, Op::Store(value), Known::Tentative)
    }
    fn store_finally(&self, word: &SimWord, value: u64) -> bool {
        self.known(word, Op::Store(value), Known::Final)
    }
    fn free(&self, lock: &SimWord) -> bool {
        self.known(lock, Op::Add(1), Known::Free)
    }
}
