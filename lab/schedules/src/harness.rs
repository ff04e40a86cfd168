//! Bodies for the families: the threads' operations on a queue, a stack, a lock, a
//! barrier or a counter, and the checks of their results.
//!
//! They hold what they act on behind a pointer, and so exist once, optimised, for all algorithms.

mod containers;
mod keyed;
mod pairs;
mod synchronisation;

use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};

use crate::fault::{Fault, LocatedFault};
use crate::linearizability::NoOrder;
use crate::machine::{DatumId, ExploredMemory};
use crate::plan::Plan;
use crate::processor::Explorer;
use crate::subject::{Subject, SubjectExtras, SubjectRun};
pub use containers::{Container, Order, churn, exchange};
pub use keyed::{entries, lookups, moves};
pub use pairs::{Both, Roles, swapping};
pub use synchronisation::{ExploredBarrier, ExploredLock, counting, episodes, exclusion};

/// Maker of a [`Case`]'s objects, for each run.
pub type Make = Box<dyn Fn(&Plan, &ExploredMemory) -> Result<Rc<dyn SubjectRun>, String>>;

/// A subject, put together from its parts.
pub struct Case {
    /// See [`Subject::name`].
    pub name: String,
    /// See [`Subject::about`].
    pub about: String,
    /// See [`Subject::endures_deaths`].
    pub endures_deaths: bool,
    /// See [`Subject::naps`].
    pub naps: bool,
    /// See [`Subject::extras`].
    pub extras: SubjectExtras,
    /// See [`Subject::set_up`].
    pub make: Make,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Case {
    /// Makes the case of a blocking algorithm.
    ///
    /// No sleeper may count on its timeout in it.
    pub fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        make: impl Fn(&Plan, &ExploredMemory) -> Result<Rc<dyn SubjectRun>, String> + 'static,
    ) -> Case {
        Case {
            name: name.into(),
            about: about.into(),
            endures_deaths: false,
            naps: false,
            extras: SubjectExtras::default(),
            make: Box::new(make),
        }
    }
}

impl Subject for Case {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn about(&self) -> String {
        self.about.clone()
    }
    fn set_up(&self, plan: &Plan, memory: &ExploredMemory) -> Result<Rc<dyn SubjectRun>, String> {
        (self.make)(plan, memory)
    }
    fn endures_deaths(&self) -> bool {
        self.endures_deaths
    }
    fn naps(&self) -> bool {
        self.naps
    }
    fn extras(&self) -> SubjectExtras {
        self.extras
    }
}

fn no_order(error: NoOrder) -> LocatedFault {
    let text = format!(
        "no order of these calls explains their results (at most {} of them):\n{}",
        error.explained, error.text
    );
    LocatedFault { fault: Fault::NotLinearizable, text }
}

/// Data that values name: written before a value goes in, read after it has come out.
struct ValueData {
    data: Vec<DatumId>,
    ops: usize,
}

/// First of the values that name a datum.
const NAMES: u64 = 100;

impl ValueData {
    fn new(plan: &Plan, memory: &ExploredMemory) -> ValueData {
        let data = (0..plan.threads * plan.ops).map(|_| memory.cell(Place::NewLine, 0)).collect();
        ValueData { data, ops: plan.ops }
    }

    /// Value of a thread's n-th operation: each once.
    fn value(&self, cpu: &Explorer, n: usize) -> u64 {
        (cpu.id() as u64 + 1) * NAMES + n as u64
    }

    fn datum(&self, value: u64) -> Option<&DatumId> {
        let thread = (value / NAMES).checked_sub(1)?;
        self.data.get(thread as usize * self.ops + (value % NAMES) as usize)
    }

    /// Writes the datum of a value.
    fn write(&self, cpu: &Explorer, value: u64) {
        self.datum(value).inspect(|datum| cpu.write(datum, value));
    }

    /// Reads the datum of a value: a race unless its writer comes before.
    fn read(&self, cpu: &Explorer, value: u64) {
        self.datum(value).inspect(|datum| assert_eq!(cpu.read(datum), value));
    }
}

/// Repairs after deaths, and the last inspection.
pub struct Care {
    /// Repairs, if a thread has died.
    pub repair: Box<dyn Fn(&Explorer)>,
    /// Inspects the object when it is empty.
    pub inspect: Box<dyn Fn(&Explorer)>,
}

impl Care {
    /// Repairs, between two operations, if a thread has died.
    fn repair(care: &Option<Care>, cpu: &Explorer) {
        let Some(care) = care else { return };
        // Relaxed: there is one thread of the host.
        if cpu.memory().0.dead.load(towpath_machine::Ordering::Relaxed) != 0 {
            (care.repair)(cpu);
        }
    }

    /// Repairs for the last time, and inspects.
    fn inspect(care: &Option<Care>, cpu: &Explorer) {
        Care::repair(care, cpu);
        if let Some(care) = care {
            (care.inspect)(cpu);
        }
    }
}
