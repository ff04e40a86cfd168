//! Subjects of the explorer.

use std::rc::Rc;

use crate::end::End;
use crate::fault::LocatedFault;
use crate::history::HistoryLength;
use crate::machine::ExploredMemory;
use crate::merging::OpenCalls;
use crate::plan::Plan;
use crate::processor::Explorer;

/// Events and orders that occur in some subjects' runs only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubjectExtras {
    /// A death undoes stores that a compiler may have moved behind others (`delayed.rs`).
    pub loses_stores: bool,
    /// Signals interrupt threads, and find such stores not made yet, as deaths do.
    pub is_interrupted: bool,
    /// The order of sequentially consistent accesses is not that of their execution
    /// (`strong.rs`).
    pub has_free_order: bool,
    /// The machine has no asymmetric fences: both sides of one are whole.
    pub fences_wholly: bool,
    /// A thread to which the system refuses heavy fences, which others make.
    pub sandboxed: Option<usize>,
}

/// Something to explore, by name.
pub trait Subject {
    /// The name by which users choose it.
    fn name(&self) -> String;
    /// Describes the subject and its checks, in a line.
    fn about(&self) -> String;
    /// Makes it anew in the memory of a run: for each schedule once.
    ///
    /// # Errors
    ///
    /// If it cannot be made for this plan: why, and what would do.
    fn set_up(&self, plan: &Plan, memory: &ExploredMemory) -> Result<Rc<dyn SubjectRun>, String>;
    /// Returns whether the others must go on after any death. If not, it is no fault that
    /// they wait for the dead.
    fn endures_deaths(&self) -> bool {
        false
    }
    /// Returns whether a sleeper may count on its timeout. If not, a missing wake is a
    /// fault.
    fn naps(&self) -> bool {
        false
    }
    /// Returns which events and orders occur in its runs, beyond those of all subjects.
    fn extras(&self) -> SubjectExtras {
        SubjectExtras::default()
    }
}

/// One run of a subject.
pub trait SubjectRun {
    /// Runs a thread; its number is the processor's
    /// [`id`](towpath_machine::Processor::id).
    fn thread(&self, cpu: &Explorer);
    /// Handles a signal on a thread: between two of its accesses, alone of this thread.
    fn interrupt(&self, _cpu: &Explorer) {}
    /// Takes a final look when all threads have ended. Not called after a death that the
    /// subject doesn't endure.
    fn last(&self, _cpu: &Explorer) {}
    /// Orders of the calls so far on which later calls can depend (`merging.rs`).
    ///
    /// `None`: its states are not merged. Otherwise the subject promises that its threads keep
    /// nothing from one call to the next, and nothing but what it [takes back](Self::take_back)
    /// outside their stacks.
    fn open_calls(&self, _end: &End) -> Option<OpenCalls> {
        None
    }
    /// Returns how many calls have been recorded.
    fn recorded(&self) -> HistoryLength {
        HistoryLength::default()
    }
    /// Forgets those that have been recorded since.
    fn take_back(&self, _to: HistoryLength) {}
    /// Judges the run, beyond the assertions of its threads and of the last look.
    ///
    /// # Errors
    ///
    /// The failure.
    fn judge(&self, _end: &End) -> Result<(), LocatedFault> {
        Ok(())
    }
}
