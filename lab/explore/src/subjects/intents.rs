//! Table of the processes about to take a lock, as mutexes between processes use it.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_sync::intents::Intents;
use towpath_sync::locks::Ticket;
use towpath_sync::{Lock, Policy, Surroundings, Wait};

use super::{BUDGET, ExploredMember, PAUSE};

/// Places of the table.
const PLACES: usize = 3;
/// Identity of a process that died with a place, before all threads began.
const DEAD: u32 = 99;

/// Its subject.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let intents = Intents::in_arena(memory);
        intents.enter(&memory.at_rest(), DEAD, PLACES);
        Ok(Rc::new(IntentsRun {
            intents,
            lock: Ticket::new(memory),
            data: (0..PLACES).map(|_| memory.cell(Place::NewLine, 0)).collect(),
            owners: Default::default(),
            plan: *plan,
            policy,
        }))
    };
    cases.push(Case::new("intents", "a place has one owner at a time", make));
}

/// Surroundings in which one process is dead.
struct AfterOne(ExploredMember);

impl Surroundings for AfterOne {
    fn identity(&self) -> u32 {
        self.0.identity()
    }
    fn is_alive(&self, identity: u32) -> bool {
        identity != DEAD
    }
    fn deaths(&self) -> u64 {
        1
    }
}

struct IntentsRun {
    intents: Intents<Explorer, PLACES>,
    lock: Ticket<Explorer>,
    /// A datum for each place: its owner's.
    data: Vec<DatumId>,
    /// Owner of each place, kept by the host; 0: none.
    owners: [Cell<u32>; PLACES],
    plan: Plan,
    policy: Policy,
}

impl IntentsRun {
    /// Takes the lock and releases it, as a mutex does.
    fn act(&self, cpu: &Explorer, around: &AfterOne) {
        let wait = Wait { policy: self.policy, around, budget: BUDGET };
        let before = self.intents.look(cpu, around);
        let place = loop {
            match self.intents.enter(cpu, around.identity(), PLACES) {
                Some(place) => break place,
                None => cpu.delay(PAUSE),
            }
        };
        let me = around.identity();
        assert_eq!(self.owners[place].replace(me), 0, "two owners of place {place}");
        cpu.write(&self.data[place], me.into());
        let held = self.lock.lock(cpu, &wait).expect("no holder dies");
        if let Some(before) = before {
            self.intents.clean(cpu, before);
        }
        self.lock.unlock(cpu, &wait, held);
        assert_eq!(cpu.read(&self.data[place]), u64::from(me));
        assert_eq!(self.owners[place].replace(0), me, "two owners of place {place}");
        self.intents.leave(cpu, place);
    }
}

impl SubjectRun for IntentsRun {
    fn thread(&self, cpu: &Explorer) {
        let around = AfterOne(ExploredMember::new(cpu));
        for _ in 0..self.plan.ops {
            self.act(cpu, &around);
        }
    }
    fn last(&self, cpu: &Explorer) {
        let around = AfterOne(ExploredMember::new(cpu));
        assert!(!self.intents.abandoned(cpu, &around), "the dead one's place was not given back");
    }
}
