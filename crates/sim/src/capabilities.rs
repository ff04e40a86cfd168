//! The threads' side of what few machines have: double compare-and-swap, advisory locks, counts of active threads. A machine's file declares them (`processor.dcas`,
//! `processor.advisory`, `os.active_counts`); on another machine they panic, and experiments refuse before that.

use towpath_machine::{ActiveThreads, AdvisoryLoad, Dcas, Ordering, Processor};

use crate::access::Task;
use crate::engine::Op;
use crate::memory::AT_MEMORY;
use crate::parameters::{NO_ADVISORY, NO_COUNTS, NO_DCAS};
use crate::processor::{Sim, SimWord};

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
        {
            let p = &self.engine.borrow().p;
            assert!(
                p.advisory != NO_ADVISORY,
                "{} has no advisory locks: give it `processor.advisory`, or use an algorithm without",
                p.name
            );
        }
        assert!(word.0 & AT_MEMORY == 0, "words at memory have no advisory locks");
        let value = self.operate(word.0, Op::Load, |e| e.p.load + e.p.advisory_cost);
        let taken = self.engine.borrow_mut().take_advisory(self.thread, word.0);
        taken.then_some(value)
    }
}

impl ActiveThreads for Sim {
    fn enter(&self, count: &SimWord, most: u64) -> bool {
        {
            let p = &self.engine.borrow().p;
            assert!(
                p.active_counts != NO_COUNTS,
                "{}'s system keeps no counts of active threads: set `os.active_counts`, or use an algorithm without",
                p.name
            );
        }
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
