//! What can be explored.

use std::rc::Rc;

use crate::fault::Failure;
use crate::machine::Memory;
use crate::processor::Explorer;
use crate::run::End;

/// How much is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Threads.
    pub threads: usize,
    /// Operations of each.
    pub ops: usize,
}

/// Something to explore, by name.
pub trait Subject {
    /// The name by which users choose it.
    fn name(&self) -> String;
    /// What it is and what is checked, in a line.
    fn about(&self) -> String;
    /// Makes it anew in the memory of a run: for each schedule once.
    ///
    /// # Errors
    ///
    /// If it cannot be made for this plan: why, and what would do.
    fn set_up(&self, plan: &Plan, memory: &Memory) -> Result<Rc<dyn Body>, String>;
    /// Whether the others are to go on whoever dies. If not, it is no fault that they
    /// wait for the dead.
    fn endures_deaths(&self) -> bool {
        false
    }
    /// Whether a sleeper may count on its timeout. If not, that nobody wakes it is a
    /// fault.
    fn naps(&self) -> bool {
        false
    }
}

/// One run of a subject.
pub trait Body {
    /// What each thread does; which one it is, its [`id`](towpath_machine::Processor::id)
    /// says.
    fn thread(&self, cpu: &Explorer);
    /// What is done when all others have ended: finding out what is left. Not where
    /// somebody died and the subject doesn't endure it.
    fn last(&self, _cpu: &Explorer) {}
    /// Whether it went well.
    ///
    /// # Errors
    ///
    /// What did not.
    fn judge(&self, end: &End) -> Result<(), Failure>;
}

/// What a machine may do beside running the program.
#[derive(Clone, Copy, Debug)]
pub struct Liberties {
    /// How many waits may time out although somebody else could go on.
    pub timeouts: u32,
    /// How many steps may fail for no reason: store-conditionals, parks.
    pub spurious: u32,
    /// How many threads may die.
    pub kills: u32,
    /// Whether a sleep's timeout is a remedy like another (`true`), or sleeping until it
    /// a fault.
    pub naps: bool,
    /// How often who waits for the dead may look again, in vain, until that is a fault;
    /// 0: they need not get on.
    pub patience: u32,
}

impl Default for Liberties {
    fn default() -> Self {
        Liberties { timeouts: 2, spurious: 1, kills: 0, naps: false, patience: 0 }
    }
}
