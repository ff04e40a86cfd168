//! Bodies for queues and stacks.

use std::rc::Rc;

use super::{Care, ValueData, no_order};
use crate::end::End;
use crate::fault::LocatedFault;
use crate::history::{History, HistoryLength};
use crate::machine::ExploredMemory;
use crate::merging::OpenCalls;
use crate::plan::Plan;
use crate::processor::Explorer;
use crate::specifications::{FirstInFirstOut, Lifo, Transfer, Transferred};
use crate::subject::SubjectRun;
use towpath_machine::Processor;

/// A queue or a stack.
pub trait Container: 'static {
    /// Puts a value in.
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred;
    /// Takes one out.
    fn take(&self, cpu: &Explorer) -> Transferred;
}

/// End of a container that gives first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    Fifo,
    /// The youngest.
    Lifo,
}

/// Operations of each thread: puts or takes. By the thread's number, again from the start
/// after eight.
const SCRIPTS: [&[u8; 8]; 4] = [b"ppttptpt", b"ttppttpp", b"pttptppt", b"tptppptt"];

/// Operations of each thread, for nodes that are used again soon.
const CHURNS: [&[u8; 8]; 4] = [b"ptptptpt", b"tptptptp", b"pptttptp", b"tttppptt"];

struct Exchange {
    container: Box<dyn Container>,
    scripts: &'static [&'static [u8; 8]; 4],
    care: Option<Care>,
    order: Order,
    /// Number of values for which it has room.
    room: usize,
    plan: Plan,
    named: ValueData,
    calls: History<Transfer, Transferred>,
}

/// Threads that put values in and take them out; at the end everything is taken out. The
/// calls must be linearizable: so nothing is lost, comes twice or in the wrong order. The
/// acts of a thread before it puts a value in come before those of the taker.
///
/// It has room for at least `room` values: it must not be full before. `before` values are in at
/// the start.
pub fn exchange(
    plan: &Plan,
    memory: &ExploredMemory,
    container: impl Container,
    order: Order,
    room: usize,
    before: usize,
) -> Rc<dyn SubjectRun> {
    exchange_by(plan, memory, Box::new(container), order, room, before, &SCRIPTS, None)
}

/// Threads as in [`exchange`], with nodes that are used again soon.
///
/// The living repair with `care`.
pub fn churn(
    plan: &Plan,
    memory: &ExploredMemory,
    container: impl Container,
    order: Order,
    room: usize,
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    exchange_by(plan, memory, Box::new(container), order, room, 1, &CHURNS, care)
}

#[allow(clippy::too_many_arguments)] // Private: what the two above choose.
fn exchange_by(
    plan: &Plan,
    memory: &ExploredMemory,
    container: Box<dyn Container>,
    order: Order,
    room: usize,
    before: usize,
    scripts: &'static [&'static [u8; 8]; 4],
    care: Option<Care>,
) -> Rc<dyn SubjectRun> {
    let named = ValueData::new(plan, memory);
    let calls = History::default();
    let body = Exchange { container, scripts, care, order, room, plan: *plan, named, calls };
    let cpu = memory.at_rest();
    for value in 0..before as u64 {
        body.put(&cpu, value + 1);
    }
    Rc::new(body)
}

impl Exchange {
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
        self.named.write(cpu, value);
        self.calls.call(cpu, Transfer::Put(value), || self.container.put(cpu, value))
    }
    fn take(&self, cpu: &Explorer) -> Transferred {
        let taken = self.calls.call(cpu, Transfer::Take, || self.container.take(cpu));
        if let Transferred::Value(value) = taken {
            self.named.read(cpu, value);
            cpu.forget();
        }
        taken
    }
}

impl SubjectRun for Exchange {
    fn thread(&self, cpu: &Explorer) {
        let script = self.scripts[cpu.id() % self.scripts.len()];
        for n in 0..self.plan.ops {
            Care::repair(&self.care, cpu);
            if script[n % 8] == b'p' {
                self.put(cpu, self.named.value(cpu, n));
            } else {
                self.take(cpu);
            }
        }
    }

    fn last(&self, cpu: &Explorer) {
        Care::repair(&self.care, cpu);
        // No more can be in than were put in.
        for _ in 0..=self.plan.threads * self.plan.ops + 8 {
            if self.take(cpu) == Transferred::Empty {
                Care::inspect(&self.care, cpu);
                return;
            }
        }
        panic!("there is no end to what can be taken out");
    }

    fn open_calls(&self, end: &End) -> Option<OpenCalls> {
        let (room, calls) = (self.room, &self.calls);
        match self.order {
            _ if self.care.is_some() => None,
            Order::Fifo => Some(calls.open(end, &FirstInFirstOut { room })),
            Order::Lifo => Some(calls.open(end, &Lifo { room })),
        }
    }

    fn recorded(&self) -> HistoryLength {
        self.calls.length()
    }
    fn take_back(&self, to: HistoryLength) {
        self.calls.cut(to);
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        let calls = self.calls.calls(end);
        let verdict = match self.order {
            Order::Fifo => FirstInFirstOut { room: self.room }.judge(&calls),
            Order::Lifo => Lifo { room: self.room }.judge(&calls),
        };
        verdict.map_err(no_order)
    }
}
