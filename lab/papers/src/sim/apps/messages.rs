//! Applications over messages (paper L, Section 4.3), between `am`'s endpoints on a
//! simulated machine: a rank on each processor.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_am::{Tag, Token};
use towpath_apps::messages::party::{Party, SharedHandlers};
use towpath_apps::messages::{self, MessageApplication, MessageInput, RankRun};
use towpath_machine::Processor;
use towpath_sim::{Outcome, Sim, Simulation};

use crate::sim::messages::domain::{Simulated, name_of};
use crate::sim::messages::world::{Sizes, World};
use crate::sim::messages::{Layer, MessageAlgorithm};

impl SharedHandlers for Simulated<'_> {
    fn boxed(handler: impl Fn(&Token<'_, Self>) + Send + Sync + 'static) -> Box<Self::Handler> {
        Box::new(handler)
    }
}

/// Pause of a rank that waits for others that have not begun, or not ended, in
/// nanoseconds.
const PAUSE: u64 = 1_000;

/// Course of a run.
#[derive(Clone, Debug)]
pub struct MessageRun {
    /// The machine's.
    pub outcome: Outcome,
    /// The ranks', by rank.
    pub ranks: Vec<RankRun>,
}

impl MessageRun {
    /// Time of the slowest rank, from the first barrier to the last one, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.ns).max().unwrap_or(0)
    }
}

/// Ranks that have got so far. It costs no simulated time but the waiter's.
#[derive(Default)]
struct RanksThere(Cell<usize>);

impl RanksThere {
    fn arrive(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Pauses, and lets the others come as far.
fn pause(cpu: &Sim) {
    cpu.delay(PAUSE);
    cpu.await_now();
}

/// Runs an application between as many ranks as the layer has processors.
///
/// # Errors
///
/// If the ranks get stuck, or a rank's part of the result differs from the reference.
pub fn run(
    layer: &Layer,
    algorithm: MessageAlgorithm,
    application: MessageApplication,
    input: MessageInput,
) -> Result<MessageRun, String> {
    let procs = layer.run.procs;
    let mut simulation = Simulation::new(&layer.run.machine, procs, layer.run.seed);
    let arena = simulation.arena();
    let world = Rc::new(World::new(&arena, Sizes::PAPER.config(procs, algorithm.kind()), algorithm));
    let results = Rc::new(RefCell::new(vec![Ok(RankRun::default()); procs]));
    let (begun, ended) = (Rc::new(RanksThere::default()), Rc::new(RanksThere::default()));
    for rank in 0..procs {
        let (world, results) = (Rc::clone(&world), Rc::clone(&results));
        let (begun, ended, habits) = (Rc::clone(&begun), Rc::clone(&ended), layer.habits);
        simulation.spawn(rank, rank, move |cpu| {
            let endpoint = Simulated::new(cpu, &world, rank, habits).endpoint();
            for other in 0..procs {
                let name = name_of(&endpoint, other);
                endpoint.map(other, name, Tag(other as u64)).expect("the endpoint's own name");
            }
            let party = Party::new(&endpoint, rank, procs);
            begun.arrive();
            while begun.0.get() < procs {
                pause(cpu);
            }
            results.borrow_mut()[rank] = messages::run(application, input, &party);
            // Others' last messages, and answers that they wait for.
            ended.arrive();
            while ended.0.get() < procs {
                party.poll();
                pause(cpu);
            }
        });
    }
    let outcome = simulation.run().map_err(|stuck| stuck.to_string())?;
    let ranks = results.take().into_iter().collect::<Result<Vec<RankRun>, String>>()?;
    Ok(MessageRun { outcome, ranks })
}
