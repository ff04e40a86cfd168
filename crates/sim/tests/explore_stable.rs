//! The stacks and queues of type-stable memory over each DCAS under the explorer: linearizable, with and without deaths, and nobody waits for the dead.

use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sim::explore::harness::{Case, Container, Order, exchange};
use towpath_sim::explore::{
    Body, Explorer, Liberties, Memory, Method, Plan, Report, Settings, Transferred, search,
};
use towpath_sync::dcas::{Actor, DoubleCas, Guerraoui, Hardware, Harris, Variant};
use towpath_sync::stable::{ArrayFifo, ArrayStack, Fifo, StableError, Stack};
use towpath_sync::{Alone, Boxed, Policy, Wait};

const ROOM: usize = 4;

/// Two descriptors per participant, so that they are used again.
struct Shrunk;

impl Variant for Shrunk {
    const PLACES: usize = 2;
}

type Small = Guerraoui<Explorer, Boxed, Shrunk>;

struct Under<T>(T);

fn put(done: Result<(), StableError>) -> Transferred {
    match done {
        Ok(()) => Transferred::Done,
        Err(StableError::Exhausted) => Transferred::Full,
        Err(error) => panic!("put: {error}"),
    }
}

macro_rules! container {
    ($structure:ident, $order:ident, $name:ident) => {
        impl<D: DoubleCas<Explorer>> Container for Under<$structure<Explorer, D>> {
            fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
                let wait = Wait { policy: Policy::Spin, around: &Alone, budget: 1_000 };
                put(self.0.push(&Actor { cpu, wait: &wait, me: cpu.id() }, value))
            }
            fn take(&self, cpu: &Explorer) -> Transferred {
                let wait = Wait { policy: Policy::Spin, around: &Alone, budget: 1_000 };
                match self.0.pop(&Actor { cpu, wait: &wait, me: cpu.id() }) {
                    Ok(Some(value)) => Transferred::Value(value),
                    Ok(None) => Transferred::Empty,
                    Err(error) => panic!("take: {error}"),
                }
            }
        }

        fn $name<D: DoubleCas<Explorer>>() -> Case {
            let make = |plan: &Plan, memory: &Memory| -> Result<Rc<dyn Body>, String> {
                let it = $structure::<Explorer, D>::new(memory, ROOM, plan.threads);
                Ok(exchange(plan, memory, Under(it), Order::$order, ROOM, 1))
            };
            let name = format!("{}/{}", stringify!($name), D::NAME);
            Case { endures_deaths: true, ..Case::new(name, "linearizable; nobody waits for the dead", make) }
        }
    };
}

container!(Stack, Lifo, stack);
container!(Fifo, Fifo, fifo);
container!(ArrayStack, Lifo, array_stack);
container!(ArrayFifo, Fifo, array_fifo);

fn passes(case: &Case, settings: &Settings) -> Report {
    let report = search(case, settings, &mut |_| {}).unwrap();
    if let Some(found) = &report.found {
        panic!(
            "{} by {:?}: {} {}\n{}\n{}",
            case.name,
            settings.method,
            found.failure.fault.name(),
            found.shortest,
            found.failure.text,
            found.trace
        );
    }
    assert!(report.schedules > 1, "{}: {report:?}", case.name);
    assert_eq!(report.stranded, 0, "{}: somebody waits for the dead", case.name);
    report
}

/// More schedules by the environment variable.
fn schedules() -> u64 {
    std::env::var("TOWPATH_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

fn all<D: DoubleCas<Explorer>>() {
    for case in [stack::<D>(), fifo::<D>(), array_stack::<D>(), array_fifo::<D>()] {
        for method in [Method::Random, Method::Pct { depth: 3 }, Method::Dfs { preemptions: Some(2) }] {
            for (threads, ops) in [(3, 4), (2, 6)] {
                let settings = Settings { method, ..Settings::new(Plan { threads, ops }, schedules()) };
                passes(&case, &settings);
                let liberties = Liberties { kills: 1, ..Liberties::default() };
                passes(&case, &Settings { liberties, ..settings });
            }
        }
    }
}

#[test]
fn over_guerraoui() {
    all::<Small>();
}

#[test]
fn over_harris() {
    all::<Harris<Explorer>>();
}

#[test]
fn over_hardware() {
    all::<Hardware<Explorer>>();
}
