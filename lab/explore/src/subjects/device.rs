//! A place among the members of an endpoint of the MPI device.

use std::rc::Rc;

use towpath_channel::places::{free_place, join_place, place_state, take_place};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};

use super::PAUSE;

/// A place's state; above it the number of its uses, and then that of its sender.
const STATE: u64 = 3;
const FREE: u64 = 0;
const JOINING: u64 = 1;
const JOINED: u64 = 2;
/// One use, and one in a sender's number.
const USE: u64 = 4;
const SENDER: u64 = 1 << 32;

/// Its subject.
pub fn all(cases: &mut Vec<Case>) {
    let make = |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let [state, left] = [0, 1].map(|_| memory.word(Place::NewLine, 0));
        let address = memory.cell(Place::NewLine, 0);
        Ok(Rc::new(PlaceRun { state, left, address, plan: *plan }))
    };
    cases.push(Case::new("endpoint/place", "a member's address is its own, and clean before the next", make));
}

/// Senders that take the place in turns; the first thread is its owner.
///
/// The owner frees it after each good-bye.
struct PlaceRun {
    state: Word,
    /// Number of good-byes.
    left: Word,
    address: DatumId,
    plan: Plan,
}

impl PlaceRun {
    fn send(&self, cpu: &Explorer) {
        let sender = cpu.id() as u64;
        for _ in 0..self.plan.ops {
            let taken = loop {
                let seen = place_state(cpu, &self.state);
                let taken = ((seen % SENDER) & !STATE) | (sender * SENDER);
                if seen & STATE == FREE && take_place(cpu, &self.state, seen, taken | JOINING) {
                    break taken;
                }
                cpu.delay(PAUSE);
            };
            assert_eq!(cpu.read(&self.address), 0, "not clean");
            cpu.write(&self.address, sender);
            join_place(cpu, &self.state, taken | JOINED);
            // (G1) AcqRel: a good-bye comes by the queue; pairs with the Acquire (G2).
            cpu.fetch_add(&self.left, 1, Ordering::AcqRel);
        }
    }

    fn own(&self, cpu: &Explorer) {
        let all = ((self.plan.threads - 1) * self.plan.ops) as u64;
        let mut freed = 0;
        while freed < all {
            let state = place_state(cpu, &self.state);
            if state & STATE == JOINED {
                assert_eq!(cpu.read(&self.address), state / SENDER, "another one's address");
                // (G2) Acquire: as a frame is taken; pairs with the AcqRel (G1) in `send`.
                if cpu.load(&self.left, Ordering::Acquire) > freed {
                    cpu.write(&self.address, 0);
                    freed += 1;
                    free_place(cpu, &self.state, ((state % SENDER) & !STATE) + USE);
                    continue;
                }
            }
            cpu.delay(PAUSE);
        }
    }
}

impl SubjectRun for PlaceRun {
    fn thread(&self, cpu: &Explorer) {
        if cpu.id() == 0 { self.own(cpu) } else { self.send(cpu) }
    }
}
