//! Histories: calls, their order, and their results.

use std::cell::{Cell, RefCell};
use std::fmt::{Debug, Write};
use std::hash::{Hash, Hasher};

use crate::end::End;
use crate::machine::{CLOCKS, Clock};
use crate::merging::{CallSoFar, Mixer, digest};
use crate::processor::Explorer;
use crate::words::MemoryModel;

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

/// The calls of a run, and their order.
///
/// A call came before another if it ended before the other began; under C11, where no thread sees
/// the time, if its end happens before the other's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedCalls<Op, Res> {
    calls: Vec<Call<Op, Res>>,
    /// Set of the calls that came before each call.
    before: Vec<u128>,
}

/// Maximum number of calls of a history.
pub const MAX_CALLS: usize = 128;

impl<Op, Res> OrderedCalls<Op, Res> {
    fn new(calls: Vec<Call<Op, Res>>, precedes: impl Fn(usize, usize) -> bool) -> Self {
        assert!(calls.len() <= MAX_CALLS, "a history of more than {MAX_CALLS} calls");
        let all = 0..calls.len();
        let set = |b| all.clone().filter(|&a| a != b && precedes(a, b)).fold(0, |set, a| set | 1u128 << a);
        let before = all.clone().map(set).collect();
        OrderedCalls { calls, before }
    }

    /// Calls that came before another one if they ended before it began.
    ///
    /// # Panics
    ///
    /// If there are more than [`MAX_CALLS`] calls.
    pub fn by_time(calls: Vec<Call<Op, Res>>) -> Self {
        let ended = |a: usize| calls[a].responded.as_ref().map(|r| r.0);
        let precedes = |a: usize, b: usize| ended(a).is_some_and(|end| end < calls[b].invoked);
        let before: Vec<Vec<bool>> =
            (0..calls.len()).map(|a| (0..calls.len()).map(|b| precedes(a, b)).collect()).collect();
        OrderedCalls::new(calls, |a, b| before[a][b])
    }

    /// The calls, by the time at which they began.
    pub fn as_slice(&self) -> &[Call<Op, Res>] {
        &self.calls
    }

    /// Returns whether a call, by its place, came before another one.
    pub fn precedes(&self, first: usize, second: usize) -> bool {
        self.before[second] >> first & 1 == 1
    }

    /// The calls that came before this one, a bit each.
    pub fn before(&self, call: usize) -> u128 {
        self.before[call]
    }
}

/// A call, and the clocks that order it.
#[derive(Clone, Debug)]
struct Noted<Op, Res> {
    call: Call<Op, Res>,
    /// Thread's knowledge of the others when it began.
    knows: Clock,
    /// Thread's own clock when it ended.
    ended: u32,
    /// A digest of it and of the ended calls that came before it; 0: not known.
    digest: Cell<u64>,
}

/// Numbers of a run's calls that have begun, and that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryLength {
    begun: usize,
    ended: usize,
}

/// The calls of a run, as they come.
#[derive(Debug)]
pub struct History<Op, Res> {
    calls: RefCell<Vec<Noted<Op, Res>>>,
    /// Places of those that have ended, as they ended.
    ended: RefCell<Vec<usize>>,
}

/// A call that has not yet touched anything.
const NOT_YET: u64 = u64::MAX;

impl<Op, Res> Default for History<Op, Res> {
    fn default() -> Self {
        History { calls: RefCell::default(), ended: RefCell::default() }
    }
}

impl<Op: Clone + Debug, Res: Clone + Debug> History<Op, Res> {
    /// Calls the operation and records its times and its result.
    pub fn call(&self, cpu: &Explorer, op: Op, run: impl FnOnce() -> Res) -> Res {
        // Of a thread that is taken back to where it was, calls are recorded already.
        if !cpu.retraces() {
            self.begin(cpu, op);
        }
        let result = run();
        if !cpu.retraces() {
            self.end(cpu, &result);
        }
        result
    }

    /// Records an invocation.
    fn begin(&self, cpu: &Explorer, op: Op) {
        let knows = cpu.begin(cpu.is_traced().then(|| format!("{op:?}")));
        let call = Call { thread: cpu.index, op, invoked: NOT_YET, responded: None };
        self.calls.borrow_mut().push(Noted { call, knows, ended: 0, digest: Cell::new(0) });
    }

    /// Records the result of the thread's last call that has none, and both times.
    fn end(&self, cpu: &Explorer, result: &Res) {
        let (invoked, responded, own) = cpu.end(cpu.is_traced().then(|| format!("{result:?}")));
        let mut calls = self.calls.borrow_mut();
        let is_open = |call: &Call<Op, Res>| call.thread == cpu.index && call.responded.is_none();
        let last = calls.iter().rposition(|noted| is_open(&noted.call));
        let index = last.expect("a call that has begun");
        let noted = &mut calls[index];
        noted.call.invoked = invoked;
        noted.call.responded = Some((responded, result.clone()));
        noted.ended = own;
        noted.digest.set(0);
        self.ended.borrow_mut().push(index);
    }

    /// Numbers of the calls that have begun, and that have ended.
    pub fn length(&self) -> HistoryLength {
        HistoryLength { begun: self.calls.borrow().len(), ended: self.ended.borrow().len() }
    }

    /// Forgets calls, and ends of calls, beyond these numbers.
    pub fn cut(&self, length: HistoryLength) {
        let mut calls = self.calls.borrow_mut();
        for index in self.ended.borrow_mut().drain(length.ended..) {
            let noted = &mut calls[index];
            (noted.call.invoked, noted.call.responded, noted.ended) = (NOT_YET, None, 0);
            noted.digest.set(0);
        }
        calls.truncate(length.begun);
    }

    /// All calls so far, by thread.
    pub(crate) fn so_far(&self, end: &End) -> Vec<CallSoFar<Op, Res>> {
        let noted = self.calls.borrow();
        let mut order: Vec<usize> = (0..noted.len()).collect();
        order.sort_by_key(|&n| noted[n].call.thread);
        let is_by_clocks = end.is_by_clocks();
        let invoked = |n: usize| match noted[n].call.responded {
            Some(_) => noted[n].call.invoked,
            None => end.invoked(noted[n].call.thread).unwrap_or(NOT_YET),
        };
        let precedes = |a: usize, b: usize| {
            let (first, second) = (&noted[a], &noted[b]);
            let thread = first.call.thread;
            a < b
                && first.call.responded.as_ref().is_some_and(|r| match is_by_clocks {
                    false => r.0 < invoked(b),
                    true => {
                        thread >= CLOCKS
                            || thread == second.call.thread
                            || second.knows[thread] >= first.ended
                    }
                })
        };
        let before = |b: usize| {
            let set = order.iter().enumerate().filter(|(_, a)| precedes(**a, b));
            set.fold(0, |set, (place, _)| set | 1u128 << place)
        };
        let so_far = |&n: &usize| {
            let Noted { call, ended, .. } = &noted[n];
            let result = call.responded.as_ref().map(|r| r.1.clone());
            let ended = result.is_some().then_some(*ended);
            CallSoFar { thread: call.thread, op: call.op.clone(), result, ended, before: before(n) }
        };
        order.iter().map(so_far).collect()
    }

    /// All calls that have touched anything, once the run is over.
    pub fn calls(&self, end: &End) -> OrderedCalls<Op, Res> {
        let mut noted = self.calls.borrow().clone();
        for Noted { call, .. } in noted.iter_mut().filter(|c| c.call.responded.is_none()) {
            call.invoked = end.invoked(call.thread).unwrap_or(NOT_YET);
        }
        noted.retain(|c| c.call.invoked != NOT_YET);
        noted.sort_by_key(|c| c.call.invoked);
        let calls = noted.iter().map(|c| c.call.clone()).collect();
        if end.model() == MemoryModel::Sc {
            return OrderedCalls::by_time(calls);
        }
        OrderedCalls::new(calls, |a, b| {
            let (first, second) = (&noted[a], &noted[b]);
            let thread = first.call.thread;
            let is_earlier = first.call.responded.as_ref().is_some_and(|r| r.0 < second.call.invoked);
            is_earlier
                && (thread >= CLOCKS || thread == second.call.thread || second.knows[thread] >= first.ended)
        })
    }
}

impl<Op: Hash, Res: Hash> History<Op, Res> {
    /// Digest of the calls, and of those that each thread's next one comes after.
    ///
    /// Only if calls are ordered by the threads' knowledge.
    pub(crate) fn digest_by_clocks(&self, end: &End) -> u64 {
        let noted = self.calls.borrow();
        let ended_of = |thread: usize, clock: u32| {
            let ended = |other: &&Noted<Op, Res>| {
                other.call.thread == thread && other.call.responded.is_some() && other.ended <= clock
            };
            noted.iter().filter(ended).count() as u64
        };
        let known = |clock: &Clock| (0..end.threads).fold(0, |n, t| n << 8 | ended_of(t, clock[t]));
        let mut sum = 0u64;
        for (n, Noted { call, knows, digest: kept, .. }) in noted.iter().enumerate() {
            if kept.get() == 0 {
                let place = noted[..n].iter().filter(|other| other.call.thread == call.thread).count();
                let result = call.responded.as_ref().map(|(_, result)| digest(result));
                kept.set(digest(&(call.thread, place, digest(&call.op), result, known(knows))) | 1);
            }
            sum = sum.wrapping_add(kept.get());
        }
        let mut hasher = Mixer::resume(sum);
        end.inner.alive().for_each(|(index, t)| (index, known(&t.clock)).hash(&mut hasher));
        hasher.finish()
    }

    /// The thread's own clock at the end of its n-th call.
    pub(crate) fn end_of(&self, thread: usize, n: usize) -> Option<u32> {
        let noted = self.calls.borrow();
        let call = noted.iter().filter(|other| other.call.thread == thread).nth(n)?;
        call.call.responded.is_some().then_some(call.ended)
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
