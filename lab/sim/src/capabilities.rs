//! The threads' side of what few machines have: double compare-and-swap, advisory locks,
//! counts of active threads, holders of locks that are rolled back. A machine's file declares them
//! (`processor.dcas`, `processor.advisory`, `os.active_counts`, `os.roll_back`); on another machine
//! they panic, and experiments refuse before that.

use towpath_machine::{ActiveThreads, AdvisoryLoad, Dcas, Ordering, Processor, RollBack};

use crate::access::{Known, Task};
use crate::engine::{Op, Section};
use crate::memory::AT_MEMORY;
use crate::parameters::{NO_ADVISORY, NO_COUNTS, NO_DCAS, NO_ROLL_BACK, Parameters};
use crate::processor::{Sim, SimWord};

impl Sim {
    /// Panics if the machine lacks what is asked of it.
    fn insist(&self, there: impl FnOnce(&Parameters) -> bool, lack: &str) {
        let p = &self.engine.borrow().p;
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
        let done = {
            let e = &mut *self.engine.borrow_mut();
            assert!(
                e.p.dcas != NO_DCAS,
                "{} has no DCAS: give it `processor.dcas`, or use an algorithm without",
                e.p.name
            );
            e.threads[self.thread].double = e.new_double(words, old, new);
            e.begin(self.thread, Task::double())
        };
        done.unwrap_or_else(|| self.result()) != 0
    }
}

impl AdvisoryLoad for Sim {
    fn advisory_load(&self, word: &SimWord) -> Option<u64> {
        self.insist(|p| p.advisory != NO_ADVISORY, " has no advisory locks: give it `processor.advisory`");
        assert!(word.0 & AT_MEMORY == 0, "words at memory have no advisory locks");
        let value = self.operate(word.0, Op::Load, |e| e.p.load + e.p.advisory_cost);
        let taken = self.engine.borrow_mut().take_advisory(self.thread, word.0);
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
        self.engine.borrow_mut().threads[self.thread].counted = Some(count.0);
        true
    }
    fn leave(&self, count: &SimWord) {
        self.update(count.0, Op::Add(u64::MAX));
        self.engine.borrow_mut().threads[self.thread].counted = None;
    }
}

impl Sim {
    fn known(&self, word: &SimWord, op: Op, known: Known) -> bool {
        assert!(word.0 & AT_MEMORY == 0, "what the system puts back does not lie at memory");
        let done = {
            let e = &mut *self.engine.borrow_mut();
            let cost = e.p.store;
            e.begin(self.thread, Task::known(word.0, op, known, cost))
        };
        done.unwrap_or_else(|| self.result()) == 0
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
        let section = Section { lock: lock.0, tentative: None };
        self.engine.borrow_mut().threads[self.thread].section = Some(section);
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
