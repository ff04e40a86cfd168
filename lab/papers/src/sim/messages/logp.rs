//! LogP of short messages between two processors, as paper L's Section 4.1 and its
//! reference 8 (Culler et al. 1996) define it: a client and an RPC server.
//!
//! * o_s: a short burst of requests, only their sending timed (as in `towpath bench logp`).
//! * o_r: a request, a computation longer than a round trip, a poll: the whole less the first two.
//! * g: requests without end, a poll after each.
//! * RTT: one request at a time. L = RTT ÷ 2 − o_s − o_r.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sim::{Counters, Sim, Simulation, Stuck};

use super::domain::{Endpoint, Simulated, on};
use super::world::World;
use super::{Layer, MessageAlgorithm, ns};
use crate::paper::LogP;

/// Figures of LogP.
#[derive(Clone, Debug, Default)]
pub struct LogPWithSend {
    /// LogP in nanoseconds.
    pub logp: LogP,
    /// Counts during the sending of one message alone, to an idle server.
    pub one_send: Counters,
}

/// Messages in a burst.
const BURST: u64 = 16;
/// Repetitions of each measurement but g.
const REPETITIONS: u64 = 60;
/// Messages for g, of which the first quarter is not counted.
const STREAM: u64 = 2000;

const ECHO: u8 = 1;
const COUNT: u8 = 2;

/// Measures one algorithm.
///
/// # Errors
///
/// [`Stuck`] if the programs don't end.
pub fn logp(layer: &Layer, algorithm: MessageAlgorithm) -> Result<LogPWithSend, Stuck> {
    let mut simulation = Simulation::new(&layer.run.machine, 2, layer.run.seed);
    let arena = simulation.arena();
    let world = Rc::new(World::new(&arena, layer.sizes.config(2, algorithm.kind()), algorithm));
    let over = Rc::new(Cell::new(false));
    let figures = Rc::new(RefCell::new(LogPWithSend::default()));
    let habits = layer.habits;
    {
        let (world, over) = (world.clone(), over.clone());
        simulation.spawn(0, 0, move |cpu| {
            let endpoint = Simulated::new(cpu, &world, 0, habits).endpoint();
            on(&endpoint, ECHO, |token| token.reply(COUNT, token.args()).expect("a request is answered"));
            while !over.get() {
                endpoint.poll();
            }
        });
    }
    let result = figures.clone();
    simulation.spawn(1, 1, move |cpu| {
        let replies = Cell::new(0u64);
        let endpoint = Simulated::new(cpu, &world, 1, habits).endpoint();
        on(&endpoint, COUNT, |_| replies.set(replies.get() + 1));
        endpoint.map_world().expect("the server comes");
        let client = Client { cpu, endpoint, replies: &replies };
        *result.borrow_mut() = client.measure();
        over.set(true);
    });
    simulation.run()?;
    Ok(figures.take())
}

struct Client<'m> {
    cpu: &'m Sim,
    endpoint: Endpoint<'m>,
    replies: &'m Cell<u64>,
}

impl Client<'_> {
    fn request(&self) {
        self.endpoint.request(0, ECHO, &[1, 2]).expect("the server is mapped");
    }

    fn until_replied(&self, replies: u64) {
        while self.replies.get() < replies {
            self.endpoint.poll();
        }
    }

    /// The mean of some repetitions, in nanoseconds.
    fn mean(&self, mut timed: impl FnMut() -> f64) -> f64 {
        (0..REPETITIONS).map(|_| timed()).sum::<f64>() / REPETITIONS as f64
    }

    fn time(&self, body: impl FnOnce()) -> f64 {
        let start = self.cpu.clock();
        body();
        ns(self.cpu.clock() - start)
    }

    fn measure(&self) -> LogPWithSend {
        let ping = || {
            let before = self.replies.get();
            self.request();
            self.until_replied(before + 1);
        };
        // A lap of the ring, so that every line has been used.
        (0..300).for_each(|_| ping());
        let round_trip = self.mean(|| self.time(ping));
        let send = self.mean(|| {
            let before = self.replies.get();
            let time = self.time(|| (0..BURST).for_each(|_| self.request()));
            self.until_replied(before + BURST);
            time / BURST as f64
        });
        let pause = 3 * round_trip as u64;
        let iteration = self.mean(|| {
            self.time(|| {
                self.request();
                self.cpu.work(pause);
                self.endpoint.poll();
            })
        });
        let receive = iteration - pause as f64 - send;
        let mut begun = 0;
        for n in 0..STREAM {
            if n == STREAM / 4 {
                begun = self.cpu.clock();
            }
            self.request();
            self.endpoint.poll();
        }
        let gap = ns(self.cpu.clock() - begun) / (STREAM - STREAM / 4) as f64;
        while self.endpoint.poll() > 0 {}
        // The server is idle, and the client's next packet is one that was used before.
        self.cpu.work(100_000);
        while self.endpoint.poll() > 0 {}
        let before = self.cpu.counters();
        self.request();
        let one_send = self.cpu.counters().since(&before);
        LogPWithSend { logp: LogP::from_measured(send, receive, gap, round_trip), one_send }
    }
}
