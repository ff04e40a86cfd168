//! Deadlock and its absence (paper L, Sections 3.1 and 3.2) with tiny queues: cycles of
//! requests, and bulk transfers among short messages.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_am::Direction;
use towpath_am::Error;
use towpath_am::claim::Claim;
use towpath_am::domain::{DomainMemory, Side};
use towpath_am::packet::{Form, Header, READY_BULK, source_code};
use towpath_am::queue::{ClaimError, Sender};
use towpath_machine::Processor;
use towpath_sim::{Sim, Simulation, Stuck};

use super::claim::AnyClaim;
use super::domain::{Endpoint, Habits, Simulated, name_of, on};
use super::world::{Sizes, World};
use super::{Layer, MessageAlgorithm};

/// The kind of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Each member sends requests to the next one, round the circle.
    Cycle,
    /// All members but the first send bulk transfers and short messages to it.
    Bulk,
}

/// The behaviour of senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The right one.
    Right,
    /// Claims the packet first, then the block: the order of which the paper warns
    /// (Section 3.2).
    PacketFirst,
    /// Does not poll while it waits for space (Section 3.1).
    Deaf,
}

/// Simulated time within which everything is over many times, in picoseconds. The longest
/// run that ends takes 1.2 ms.
const LIMIT: u64 = 100_000_000_000;

const MEMBERS: usize = 4;
const MESSAGES: usize = 40;
const PAYLOAD: [u8; 64] = [7; 64];

const ASK: u8 = 1;
const ANSWER: u8 = 2;

/// Runs some traffic among endpoints that behave in some way, with queues of two packets
/// and one block. `Err` if they stand still.
///
/// # Errors
///
/// [`Stuck`]: the waiters, and where they wait.
pub fn traffic(layer: &Layer, algorithm: MessageAlgorithm, traffic: Traffic, way: Way) -> Result<(), Stuck> {
    let sizes = Sizes { packets: 2, blocks: 1, block_size: 64, segment_bytes: 0 };
    let mut simulation = Simulation::new(&layer.run.machine, MEMBERS, layer.run.seed);
    let arena = simulation.arena();
    let world = Rc::new(World::new(&arena, sizes.config(MEMBERS, algorithm.kind()), algorithm));
    let unfinished = Rc::new(Cell::new(MEMBERS));
    let habits = layer.habits;
    for me in 0..MEMBERS {
        let (world, unfinished) = (world.clone(), unfinished.clone());
        simulation.spawn(me, me, move |cpu| {
            let replies = Cell::new(0);
            let endpoint = Simulated::new(cpu, &world, me, habits).endpoint();
            on(&endpoint, ASK, |token| {
                assert!(
                    token.bytes().is_empty() || token.bytes() == PAYLOAD,
                    "a payload comes as it was sent"
                );
                token.reply(ANSWER, &[]).expect("a request is answered");
            });
            on(&endpoint, ANSWER, |_| replies.set(replies.get() + 1));
            endpoint.map_world().expect("all endpoints come");
            let (to, messages) = match traffic {
                Traffic::Cycle => ((me + 1) % MEMBERS, MESSAGES),
                Traffic::Bulk => (0, if me == 0 { 0 } else { MESSAGES }),
            };
            let wrongly = Wrongly::new(cpu, &endpoint, to, habits);
            for n in 0..messages {
                let bulk = traffic == Traffic::Bulk && (n + me) % 2 == 0;
                let sent = match (way, bulk) {
                    (Way::Deaf, _) => wrongly.deaf(),
                    (Way::PacketFirst, true) => wrongly.packet_first(&PAYLOAD),
                    (_, true) => endpoint.request_medium(to, ASK, &[], &PAYLOAD),
                    (_, false) => endpoint.request(to, ASK, &[]),
                };
                sent.expect("all endpoints are mapped");
            }
            while replies.get() < messages {
                endpoint.poll();
            }
            unfinished.set(unfinished.get() - 1);
            while unfinished.get() > 0 {
                endpoint.poll();
            }
        });
    }
    simulation.run_until(LIMIT).map(|_| ())
}

/// Ways of sending to one endpoint that are wrong, for showing that they are.
struct Wrongly<'a, 'm> {
    cpu: &'m Sim,
    endpoint: &'a Endpoint<'m>,
    to: usize,
    habits: Habits,
    sender: RefCell<Sender>,
}

impl<'a, 'm> Wrongly<'a, 'm> {
    fn new(cpu: &'m Sim, endpoint: &'a Endpoint<'m>, to: usize, habits: Habits) -> Self {
        let [me, other] = [endpoint.name(), name_of(endpoint, to)].map(|name| name.to_bits());
        let sender = RefCell::new(Sender::new(me as u16, (me >> 16) as u16, other >> 16));
        Wrongly { cpu, endpoint, to, habits, sender }
    }

    /// A request, without polling until there is space.
    fn deaf(&self) -> Result<(), Error> {
        let mut round = 0;
        loop {
            match self.endpoint.try_request(self.to, ASK, &[]) {
                Err(Error::NotSent) => self.cpu.delay(self.habits.period.space.pause(round)),
                result => return result,
            }
            round += 1;
        }
    }

    /// A bulk transfer in the wrong order of claims.
    fn packet_first(&self, payload: &[u8]) -> Result<(), Error> {
        let (cpu, wait) = (self.cpu, &self.habits.period);
        let me = self.endpoint.name().to_bits();
        let domain = self.endpoint.domain();
        let (entry, side) = (domain.entry(me as u16)?, domain.side(self.to as u16, Direction::Request)?);
        let (q, claim, intent) = (side.queue(), side.claim(), &entry.own.intents[0]);
        let ticket = self.until_claimed(&side, |s| claim.claim(q, s, cpu, wait, intent));
        // A sender may be delayed anywhere: here by up to 7 µs, as its clock happens to stand. All
        // of its bits decide, since times of a machine are multiples of few latencies.
        cpu.work(1_000 * (cpu.now().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61));
        let block = self.until_claimed(&side, |s| claim.claim_block(q, s, cpu, wait, intent));
        cpu.copy_in(&q.bytes, q.block_at(block), payload);
        cpu.write(&q.blocks[block].len, payload.len() as u64);
        let header = Header::new(Form::Medium, ASK, 0, source_code(me as u16, me >> 16));
        let header = header.with_block(block).with_state(READY_BULK);
        claim.publish(q, &mut self.sender.borrow_mut(), cpu, false, intent, ticket, header);
        Ok(())
    }

    fn until_claimed<T>(
        &self,
        side: &impl Side<Sim, Claim = AnyClaim>,
        mut attempt: impl FnMut(&mut Sender) -> Result<T, ClaimError>,
    ) -> T {
        let mut round = 0;
        loop {
            let result = attempt(&mut self.sender.borrow_mut());
            match result {
                Ok(claimed) => return claimed,
                Err(error) => assert_eq!(error, ClaimError::Full, "no call closes a queue"),
            }
            if self.endpoint.poll() == 0 {
                let (sender, wait) = (self.sender.borrow(), &self.habits.period);
                side.claim().await_space(side.queue(), &sender, self.cpu, wait, round);
                round += 1;
            } else {
                round = 0;
            }
        }
    }
}
