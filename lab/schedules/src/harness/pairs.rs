//! Body for two words that are changed together.

use std::rc::Rc;

use super::{Care, ValueData, no_order};
use crate::end::End;
use crate::fault::LocatedFault;
use crate::history::History;
use crate::linearizability::linearize;
use crate::machine::ExploredMemory;
use crate::plan::Plan;
use crate::processor::Explorer;
use crate::specifications::{Pair, PairCall};
use crate::subject::SubjectRun;
use towpath_machine::Processor;

/// Two words that are changed together.
pub trait Both: 'static {
    /// Reads one of them, or (2) a third word.
    fn read(&self, cpu: &Explorer, which: usize) -> u64;
    /// Changes both, if they have the old values.
    fn swap(&self, cpu: &Explorer, old: [u64; 2], new: [u64; 2]) -> bool;
    /// Writes the third word, which one thread alone changes.
    fn write_third(&self, cpu: &Explorer, value: u64);
}

impl<B: Both> Both for Rc<B> {
    fn read(&self, cpu: &Explorer, which: usize) -> u64 {
        B::read(self, cpu, which)
    }
    fn swap(&self, cpu: &Explorer, old: [u64; 2], new: [u64; 2]) -> bool {
        B::swap(self, cpu, old, new)
    }
    fn write_third(&self, cpu: &Explorer, value: u64) {
        B::write_third(self, cpu, value);
    }
}

/// Threads that change two words, and threads that look at them.
///
/// The first thread also writes a third word, which the others read. `s`: reads both, and changes
/// both. `a`, `b`: reads both, one or the other first.
const LOOKS: [&[u8; 4]; 4] = [b"ssss", b"abab", b"bsab", b"sabs"];

/// Calls of each thread of [`swapping`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Roles {
    /// All change the words, each third time in vain.
    #[default]
    AllSwap,
    /// Some only look.
    SomeLook,
    /// All change the words; the values that they read before need no explanation.
    Blind,
}

struct Swapping {
    words: Box<dyn Both>,
    roles: Roles,
    care: Option<Care>,
    plan: Plan,
    named: ValueData,
    calls: History<PairCall, u64>,
}

/// Threads that change two words together, from values that they have read; each third
/// time from a second value that no thread ever writes, which must change nothing. An order of the
/// calls must explain the values that they read. The acts of a thread before it writes a value come
/// before those of a thread that has read it.
pub fn swapping(
    plan: &Plan,
    memory: &ExploredMemory,
    words: impl Both,
    roles: Roles,
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    let named = ValueData::new(plan, memory);
    Rc::new(Swapping { words: Box::new(words), roles, care, plan: *plan, named, calls: History::default() })
}

impl Swapping {
    fn read(&self, cpu: &Explorer, which: usize) -> u64 {
        let value = self.calls.call(cpu, PairCall::Read(which), || self.words.read(cpu, which));
        self.named.read(cpu, value);
        value
    }
    fn swap(&self, cpu: &Explorer, old: [u64; 2], new: [u64; 2]) {
        self.calls.call(cpu, PairCall::Swap { old, new }, || self.words.swap(cpu, old, new).into());
    }

    fn act(&self, cpu: &Explorer, n: usize, step: u8) {
        let has_third = self.roles != Roles::AllSwap;
        if has_third && cpu.id() != 0 {
            let third = self.words.read(cpu, 2);
            self.named.read(cpu, third);
        }
        if step != b's' {
            let first = usize::from(step == b'b');
            self.read(cpu, first);
            self.read(cpu, 1 - first);
            return;
        }
        let blind = self.roles == Roles::Blind;
        let read = |which| match blind {
            // A change that is taken back may be seen.
            true => self.words.read(cpu, which),
            false => self.read(cpu, which),
        };
        let old = [read(0), read(1)];
        let value = self.named.value(cpu, n);
        self.named.write(cpu, value);
        if has_third && cpu.id() == 0 {
            self.words.write_third(cpu, value);
        }
        let never = self.roles == Roles::AllSwap && (n + cpu.id()).is_multiple_of(3);
        let old = if never { [old[0], 99] } else { old };
        if blind {
            old.iter().for_each(|value| self.named.read(cpu, *value));
        }
        self.swap(cpu, old, [value, value]);
    }
}

impl SubjectRun for Swapping {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            Care::repair(&self.care, cpu);
            let looks = LOOKS[cpu.id() % LOOKS.len()][n % 4];
            self.act(cpu, n, if self.roles == Roles::SomeLook { looks } else { b's' });
        }
    }
    fn last(&self, cpu: &Explorer) {
        Care::inspect(&self.care, cpu);
        for which in [0, 1] {
            self.read(cpu, which);
        }
    }
    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        linearize(&Pair, &self.calls.calls(end)).map(drop).map_err(no_order)
    }
}
