//! Bodies for lists, sets and priority queues.

use std::rc::Rc;

use super::{Care, ValueData, no_order};
use crate::end::End;
use crate::fault::LocatedFault;
use crate::history::History;
use crate::machine::ExploredMemory;
use crate::plan::Plan;
use crate::processor::Explorer;
use crate::specifications::{KeyedObject, KeyedResult, Lookup};
use crate::subject::SubjectRun;
use towpath_machine::Processor;

/// Operations of each thread on keys: inserts, removes or gets, with the key. By the
/// thread's number, again from the start after six.
const LOOKUPS: [&[(u8, u64); 6]; 4] = [
    &[(b'i', 2), (b'r', 1), (b'g', 3), (b'i', 1), (b'r', 2), (b'g', 1)],
    &[(b'r', 2), (b'i', 1), (b'i', 2), (b'g', 2), (b'r', 3), (b'r', 1)],
    &[(b'g', 1), (b'i', 3), (b'r', 2), (b'g', 2), (b'i', 2), (b'r', 3)],
    &[(b'i', 3), (b'g', 2), (b'r', 1), (b'r', 3), (b'i', 1), (b'g', 3)],
];
/// Operations on keys: some threads look up an entry, others move those around it.
const MOVES: [&[(u8, u64); 6]; 4] = [
    &[(b'r', 1), (b'i', 3), (b'r', 3), (b'i', 1), (b'r', 1), (b'i', 3)],
    &[(b'g', 2), (b'g', 2), (b'g', 2), (b'g', 1), (b'g', 3), (b'g', 2)],
    &[(b'g', 2), (b'r', 2), (b'i', 2), (b'g', 2), (b'r', 3), (b'i', 1)],
    &[(b'i', 3), (b'r', 2), (b'g', 1), (b'r', 3), (b'i', 2), (b'g', 2)],
];
/// The keys in them.
const KEYS: u64 = 3;

/// Number of entries for which an object must have room that is never to be full, beside
/// those in the hands of threads.
pub fn entries(plan: &Plan) -> usize {
    plan.threads * plan.ops + KEYS as usize
}

/// Action of an object with keys.
type Act = Box<dyn Fn(&Explorer, Lookup) -> KeyedResult>;

struct Lookups {
    act: Act,
    scripts: &'static [&'static [(u8, u64); 6]; 4],
    care: Option<Care>,
    specification: KeyedObject,
    plan: Plan,
    named: ValueData,
    calls: History<Lookup, KeyedResult>,
}

/// Threads that insert, remove and look up a few keys; at the end everything that is left
/// is taken out. The calls must be what the specification says, in some order. The acts of
/// a thread before it inserts a value come before those of a thread that has found it.
///
/// It must have room for [`entries`]. Keys 1 and 2 are in at the start.
pub fn lookups(
    plan: &Plan,
    memory: &ExploredMemory,
    specification: impl Into<KeyedObject>,
    act: impl Fn(&Explorer, Lookup) -> KeyedResult + 'static,
) -> Rc<dyn SubjectRun> {
    lookups_by(plan, memory, specification.into(), Box::new(act), &LOOKUPS, None)
}

/// Lookups as in [`lookups`], of entries around which others move.
///
/// The living repair with `care`.
pub fn moves(
    plan: &Plan,
    memory: &ExploredMemory,
    specification: impl Into<KeyedObject>,
    act: impl Fn(&Explorer, Lookup) -> KeyedResult + 'static,
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    lookups_by(plan, memory, specification.into(), Box::new(act), &MOVES, care)
}

fn lookups_by(
    plan: &Plan,
    memory: &ExploredMemory,
    specification: KeyedObject,
    act: Act,
    scripts: &'static [&'static [(u8, u64); 6]; 4],
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    let named = ValueData::new(plan, memory);
    let calls = History::default();
    let body = Lookups { act, scripts, care, specification, plan: *plan, named, calls };
    let cpu = memory.at_rest();
    for key in 1..KEYS {
        body.call(&cpu, Lookup::Insert(key, key));
    }
    Rc::new(body)
}

impl Lookups {
    fn call(&self, cpu: &Explorer, lookup: Lookup) -> KeyedResult {
        if let Lookup::Insert(_, value) = lookup {
            self.named.write(cpu, value);
        }
        let result = self.calls.call(cpu, lookup, || (self.act)(cpu, lookup));
        if let KeyedResult::Value(value) = result {
            self.named.read(cpu, value);
        }
        result
    }
}

impl SubjectRun for Lookups {
    fn thread(&self, cpu: &Explorer) {
        let script = self.scripts[cpu.id() % self.scripts.len()];
        for n in 0..self.plan.ops {
            Care::repair(&self.care, cpu);
            let (what, key) = script[n % script.len()];
            self.call(
                cpu,
                match what {
                    b'i' => Lookup::Insert(key, self.named.value(cpu, n)),
                    b'r' => Lookup::Remove(key),
                    _ => Lookup::Get(key),
                },
            );
        }
    }

    fn last(&self, cpu: &Explorer) {
        Care::repair(&self.care, cpu);
        for key in 1..=KEYS {
            self.call(cpu, Lookup::Get(key));
        }
        // A priority queue gives one at a time, whatever its key.
        for n in 0..2 * entries(&self.plan) as u64 {
            let key = n % KEYS + 1;
            if self.call(cpu, Lookup::Remove(key)) == KeyedResult::Nothing && n >= KEYS {
                break;
            }
        }
        Care::inspect(&self.care, cpu);
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        self.specification.judge(&self.calls.calls(end)).map_err(no_order)
    }
}
