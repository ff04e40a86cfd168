//! Calls of a subject's operations, as a thread begins and ends them.

use crate::machine::{CLOCKS, Clock};
use crate::processor::Explorer;
use crate::words::MemoryModel;

impl Explorer {
    /// Begins a call: its first access is its invocation. `call` is its text, if the run
    /// [is traced](Self::is_traced). Returns what the thread knows of the others.
    pub(crate) fn begin(&self, call: Option<String>) -> Clock {
        let mut inner = self.memory.0.inner.borrow_mut();
        let Some(t) = inner.threads.get_mut(self.index) else { return [0; CLOCKS] };
        (t.beginning, t.invoked) = (true, None);
        t.begin_or_end();
        if let Some(call) = call {
            t.call = call;
        }
        t.clock
    }

    /// Promises that the thread uses nothing that it has learned since its last call.
    pub(crate) fn forget(&self) {
        if !self.retraces()
            && let Some(t) = self.memory.0.inner.borrow_mut().threads.get_mut(self.index)
        {
            t.forget();
        }
    }

    /// Ends a call. Returns the times of its invocation and end, and the own clock.
    ///
    /// A call without an access takes no time. `result` is its text, if the run is traced.
    pub(crate) fn end(&self, result: Option<String>) -> (u64, u64, u32) {
        self.learn();
        let mut inner = self.memory.0.inner.borrow_mut();
        if let Some(t) = inner.threads.get_mut(self.index)
            && t.beginning
        {
            let call = std::mem::take(&mut t.call);
            inner.line(self.index, "begins", || (String::new(), call));
        }
        inner.line(self.index, "ends", || (String::new(), result.unwrap_or_default()));
        inner.stamp += 2;
        let (now, is_timed) = (inner.stamp, inner.model == MemoryModel::Sc);
        inner.footprint.ends = is_timed;
        let Some(t) = inner.threads.get_mut(self.index) else { return (now - 1, now, 0) };
        t.begin_or_end();
        let without_access = std::mem::take(&mut t.beginning);
        let (invoked, own) = (t.invoked.take().unwrap_or(now - 1), t.clock[self.index]);
        inner.footprint.begins |= without_access && is_timed;
        (invoked, now, own)
    }

    /// Returns whether the run is written down.
    pub(crate) fn is_traced(&self) -> bool {
        self.memory.0.inner.borrow().trace.is_some()
    }

    /// Describes this thread's doings at this instant, for traces.
    pub fn say(&self, what: impl FnOnce() -> String) {
        self.memory.0.inner.borrow_mut().line(self.index, "says", || (String::new(), what()));
    }
}
