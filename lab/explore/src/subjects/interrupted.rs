//! Threads that are interrupted by handlers of signals, which use the same objects.
//!
//! A signal comes at any access, and its handler finds the thread's stores as a compiler may have
//! ordered them: one that no fence of the compiler's, no release and no call of the kernel has put
//! in its place may not have been made yet.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_am::calls::Calls;
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectExtras, SubjectRun, Word};
use towpath_shm::words::{give_signal, leave_signal, take_signal};
use towpath_structures::dcas::places::Places;

/// Places that an operation may take.
const PLACES: usize = 1;

/// All of them.
pub fn all(cases: &mut Vec<Case>) {
    let mut case = |name: &str, about: &str, make: fn(&Plan, &ExploredMemory) -> Rc<dyn SubjectRun>| {
        let make = move |plan: &Plan, memory: &ExploredMemory| Ok(make(plan, memory));
        let extras = SubjectExtras { is_interrupted: true, ..SubjectExtras::default() };
        cases.push(Case { extras, ..Case::new(format!("interrupted/{name}"), about, make) });
    };
    case("places", "a place has one operation at a time, of a thread or of its handlers", |plan, memory| {
        Rc::new(PlacesRun::new(plan, memory))
    });
    case("calls", "no handler finds a call half done", |plan, memory| Rc::new(CallsRun::new(plan, memory)));
    case("given", "a handler whose thread has the signal finds its data", |plan, memory| {
        Rc::new(GivenRun {
            signal: memory.word(Place::NewLine, 0),
            needed: memory.cell(Place::NewLine, 0),
            plan: *plan,
        })
    });
}

/// Participants that take places and give them back, as do their handlers.
struct PlacesRun {
    participants: Vec<PlacesOwner>,
    plan: Plan,
}

struct PlacesOwner {
    places: Places<Explorer>,
    /// Each place: 1 while an operation uses it.
    used: Vec<DatumId>,
    /// Each place's number of uses, by which operations are told apart.
    uses: Vec<DatumId>,
    /// Those that there were, kept by the host.
    known: RefCell<Vec<(usize, u64)>>,
}

impl PlacesRun {
    fn new(plan: &Plan, memory: &ExploredMemory) -> PlacesRun {
        let cells = || (0..PLACES).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let one = |_| PlacesOwner {
            places: Places::new(memory),
            used: cells(),
            uses: cells(),
            known: RefCell::default(),
        };
        PlacesRun { participants: (0..plan.threads).map(one).collect(), plan: *plan }
    }

    fn operate(&self, cpu: &Explorer) {
        let PlacesOwner { places, used, uses, known } = &self.participants[cpu.id()];
        let Ok(Some(place)) = places.take(cpu, PLACES, false) else { return };
        assert_eq!(cpu.read(&used[place]), 0, "another operation uses the place");
        cpu.write(&used[place], 1);
        let number = cpu.read(&uses[place]) + 1;
        assert!(!known.borrow().contains(&(place, number)), "a use's number comes again");
        known.borrow_mut().push((place, number));
        cpu.write(&used[place], 0);
        cpu.write(&uses[place], number);
        places.give(cpu, place);
    }
}

impl SubjectRun for PlacesRun {
    fn thread(&self, cpu: &Explorer) {
        (0..self.plan.ops).for_each(|_| self.operate(cpu));
    }
    fn interrupt(&self, cpu: &Explorer) {
        self.operate(cpu);
    }
}

/// Threads in calls, whose handlers do the same where no call is under way.
struct CallsRun {
    threads: Vec<(Calls<Explorer>, [DatumId; 2])>,
    plan: Plan,
    /// Number of handlers that have found a call under way, kept by the host.
    missed: Cell<u64>,
}

impl CallsRun {
    fn new(plan: &Plan, memory: &ExploredMemory) -> CallsRun {
        let one = |_| (Calls::new(memory), [(); 2].map(|()| memory.cell(Place::NewLine, 0)));
        CallsRun { threads: (0..plan.threads).map(one).collect(), plan: *plan, missed: Cell::default() }
    }

    /// A call: two data have the same number when it is done.
    fn call(&self, cpu: &Explorer) {
        let (calls, data) = &self.threads[cpu.id()];
        calls.begin(cpu);
        let number = cpu.read(&data[0]);
        assert_eq!(cpu.read(&data[1]), number, "another call is half done");
        data.iter().for_each(|datum| cpu.write(datum, number + 1));
        calls.end(cpu);
    }
}

impl SubjectRun for CallsRun {
    fn thread(&self, cpu: &Explorer) {
        (0..self.plan.ops).for_each(|_| self.call(cpu));
    }
    fn interrupt(&self, cpu: &Explorer) {
        if self.threads[cpu.id()].0.are_under_way(cpu) {
            self.missed.set(self.missed.get() + 1);
        } else {
            self.call(cpu);
        }
    }
}

/// Threads that have a signal in turns, with a datum for its handler.
struct GivenRun {
    signal: Word,
    /// Datum that the handler reads, written by the thread that has the signal.
    needed: DatumId,
    plan: Plan,
}

impl SubjectRun for GivenRun {
    fn thread(&self, cpu: &Explorer) {
        let me = cpu.id() as u64 + 1;
        for _ in 0..self.plan.ops {
            if take_signal(cpu, &self.signal) {
                cpu.write(&self.needed, me);
                give_signal(cpu, &self.signal, me);
                leave_signal(cpu, &self.signal);
            }
        }
    }
    fn interrupt(&self, cpu: &Explorer) {
        let me = cpu.id() as u64 + 1;
        // Relaxed: as a handler reads it, on the thread that has written it.
        if cpu.load(&self.signal, Ordering::Relaxed) == me {
            assert_eq!(cpu.read(&self.needed), me, "data of another thread's handler");
        }
    }
}
