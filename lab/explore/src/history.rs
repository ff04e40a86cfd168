//! Histories: calls, their times, and their results.

use std::cell::RefCell;
use std::fmt::{Debug, Write};

use crate::end::End;
use crate::machine::CLOCKS;
use crate::processor::Explorer;

/// One call of an operation, in the order of steps: from its first access to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<Op, Res> {
    /// Number of the caller; `usize::MAX` before the threads started.
    pub thread: usize,
    /// The operation.
    pub op: Op,
    /// Time of its first access.
    pub invoked: u64,
    /// Time of its end, and the result; `None` if it has not ended (its thread is dead,
    /// or waits).
    pub responded: Option<(u64, Res)>,
}

/// The calls of a run, as they come.
#[derive(Debug)]
pub struct History<Op, Res>(RefCell<Vec<Call<Op, Res>>>);

/// A call that has not yet touched anything.
const NOT_YET: u64 = u64::MAX;

impl<Op, Res> Default for History<Op, Res> {
    fn default() -> Self {
        History(RefCell::new(Vec::new()))
    }
}

impl<Op: Clone + Debug, Res: Clone + Debug> History<Op, Res> {
    /// Calls the operation and records its times and its result.
    pub fn call(&self, cpu: &Explorer, op: Op, run: impl FnOnce() -> Res) -> Res {
        let index = self.begin(cpu, op);
        let result = run();
        self.end(cpu, index, &result);
        result
    }

    /// Records an invocation, to which an index belongs.
    fn begin(&self, cpu: &Explorer, op: Op) -> usize {
        cpu.begin(cpu.is_traced().then(|| format!("{op:?}")));
        let mut calls = self.0.borrow_mut();
        calls.push(Call { thread: cpu.index, op, invoked: NOT_YET, responded: None });
        calls.len() - 1
    }

    /// Records the result, and both times.
    fn end(&self, cpu: &Explorer, index: usize, result: &Res) {
        let (invoked, responded) = cpu.end(cpu.is_traced().then(|| format!("{result:?}")));
        let mut calls = self.0.borrow_mut();
        calls[index].invoked = invoked;
        calls[index].responded = Some((responded, result.clone()));
    }

    /// All calls that have touched anything, once the run is over.
    pub fn calls(&self, end: &End) -> Vec<Call<Op, Res>> {
        let mut calls = self.0.borrow().clone();
        for call in calls.iter_mut().filter(|c| c.responded.is_none()) {
            call.invoked = end.invoked(call.thread).unwrap_or(NOT_YET);
        }
        calls.retain(|c| c.invoked != NOT_YET);
        calls.sort_by_key(|c| c.invoked);
        calls
    }
}

/// The calls as a table, by the time at which they began.
pub fn render<Op: Debug, Res: Debug>(calls: &[Call<Op, Res>]) -> String {
    let mut text = String::from("  thread  from  to    call\n");
    for call in calls {
        let (to, result) = match &call.responded {
            Some((to, result)) => (to.to_string(), format!("{result:?}")),
            None => ("-".into(), "never ended".into()),
        };
        let thread = if call.thread < CLOCKS { call.thread.to_string() } else { "before".into() };
        let _ = writeln!(text, "{thread:>8}  {:<4}  {to:<4}  {:?} = {result}", call.invoked, call.op);
    }
    text
}
