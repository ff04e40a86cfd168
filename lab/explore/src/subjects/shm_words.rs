//! Single words of a world: its header, its objects, handles, signals and gateways.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Park, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_shm::creating::{CreationTurn, newest_record, publish_record};
use towpath_shm::words::{
    Handles, give_signal, header_state, host_events, leave_signal, publish_header, take_signal, tell_gateway,
};
use towpath_sync::Surroundings;

use super::{ENDLESS, ExploredMember, PAUSE};

/// All of them.
pub fn all(cases: &mut Vec<Case>) {
    let mut case = |name: &str, about: &str, make: fn(&Plan, &ExploredMemory) -> Rc<dyn SubjectRun>| {
        let make = move |plan: &Plan, memory: &ExploredMemory| Ok(make(plan, memory));
        cases.push(Case::new(format!("members/{name}"), about, make));
    };
    case("header", "read when it is whole", |_, memory| Rc::new(HeaderRun(WordAndDatum::new(memory))));
    case("handles", "none is in use when its process leaves", |plan, memory| {
        Rc::new(HandlesRun::new(plan, memory))
    });
    case("signals", "a signal is one thread's at a time", |plan, memory| {
        Rc::new(SignalRun { signal: WordAndDatum::new(memory), plan: *plan })
    });
    case("gateway", "learns of each event, and what it stands for", |plan, memory| {
        Rc::new(GatewayRun::new(plan, memory))
    });
    case("creating/threads", "a name has one record, found whole", |plan, memory| {
        Rc::new(CreationRun::new(plan, memory, 2))
    });
    let make = |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        Ok(Rc::new(CreationRun::new(plan, memory, 1)))
    };
    let about = "a name has one record, found whole; the next creator goes on after a death";
    cases.push(Case { endures_deaths: true, ..Case::new("members/creating", about, make) });
}

/// A word, and a datum that it guards.
struct WordAndDatum {
    word: Word,
    datum: DatumId,
}

impl WordAndDatum {
    fn new(memory: &ExploredMemory) -> WordAndDatum {
        WordAndDatum { word: memory.word(Place::NewLine, 0), datum: memory.cell(Place::NewLine, 0) }
    }
}

/// The first thread writes a header, the others read it.
struct HeaderRun(WordAndDatum);

impl SubjectRun for HeaderRun {
    fn thread(&self, cpu: &Explorer) {
        let WordAndDatum { word: state, datum } = &self.0;
        if cpu.id() == 0 {
            cpu.write(datum, 1);
            publish_header(cpu, state, 7);
        } else if header_state(cpu, state) == 7 {
            assert_eq!(cpu.read(datum), 1);
        }
    }
}

/// The first thread leaves when it can, the others use handles, of one process.
struct HandlesRun {
    me: Word,
    handles: Word,
    /// A datum of each thread, of which the leaving process makes an end.
    data: Vec<DatumId>,
    plan: Plan,
}

impl HandlesRun {
    fn new(plan: &Plan, memory: &ExploredMemory) -> HandlesRun {
        let data = (0..plan.threads).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let [me, handles] = [1, 0].map(|value| memory.word(Place::NewLine, value));
        HandlesRun { me, handles, data, plan: *plan }
    }
}

impl SubjectRun for HandlesRun {
    fn thread(&self, cpu: &Explorer) {
        let handles = Handles { me: &self.me, handles: &self.handles };
        if cpu.id() == 0 {
            while handles.leave(cpu).is_err() {
                cpu.delay(PAUSE);
            }
            self.data.iter().for_each(|datum| cpu.write(datum, 1));
            return;
        }
        for _ in 0..self.plan.ops {
            handles.open(cpu);
            // Relaxed: as everywhere, after a handle was opened.
            if cpu.load(&self.me, Ordering::Relaxed) != 0 {
                assert_eq!(cpu.read(&self.data[cpu.id()]), 0, "the process has left");
            }
            handles.close(cpu);
        }
    }
}

/// Threads that have a signal in turns, and each handle it once.
struct SignalRun {
    signal: WordAndDatum,
    plan: Plan,
}

impl SubjectRun for SignalRun {
    fn thread(&self, cpu: &Explorer) {
        let WordAndDatum { word: thread, datum } = &self.signal;
        let me = cpu.id() as u64 + 1;
        for _ in 0..self.plan.ops {
            while !take_signal(cpu, thread) {
                cpu.delay(PAUSE);
            }
            cpu.write(datum, me);
            give_signal(cpu, thread, me);
            assert_eq!(cpu.read(datum), me, "another thread's function");
            leave_signal(cpu, thread);
        }
    }
}

/// The first thread is the gateway; each of the others makes changes, and tells it.
struct GatewayRun {
    events: Word,
    doorbell: Word,
    /// A datum for each change of each thread.
    data: Vec<DatumId>,
    plan: Plan,
    /// Number of changes that have begun, kept by the host.
    begun: Cell<u64>,
}

impl GatewayRun {
    fn new(plan: &Plan, memory: &ExploredMemory) -> GatewayRun {
        let data = (0..plan.threads * plan.ops).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let [events, doorbell] = [0, 1].map(|_| memory.word(Place::NewLine, 0));
        GatewayRun { events, doorbell, data, plan: *plan, begun: Cell::default() }
    }
}

impl SubjectRun for GatewayRun {
    fn thread(&self, cpu: &Explorer) {
        let (me, ops) = (cpu.id(), self.plan.ops);
        if me != 0 {
            for datum in &self.data[me * ops..][..ops] {
                self.begun.set(self.begun.get() + 1);
                cpu.write(datum, 1);
                tell_gateway(cpu, &self.events, &self.doorbell);
            }
            return;
        }
        let all = ((self.plan.threads - 1) * ops) as u64;
        loop {
            // (G3) Acquire: as a gateway does; pairs with the second Release (G1).
            let seen = cpu.load(&self.doorbell, Ordering::Acquire);
            let events = host_events(cpu, &self.events);
            assert!(events <= self.begun.get(), "an event that was not told");
            if events == all {
                break;
            }
            cpu.park(&self.doorbell, seen, ENDLESS);
        }
        self.data[ops..].iter().for_each(|datum| assert_eq!(cpu.read(datum), 1, "a change was not seen"));
    }
}

/// Names of objects.
const NAMES: u64 = 2;

/// A record as its creator writes it: its name, and the record before it.
struct CreatedRecord {
    name: DatumId,
    next: DatumId,
}

/// Participants that open objects by name, and create them if there are none.
struct CreationRun {
    creating: Word,
    among_threads: Vec<Word>,
    head: Word,
    used: Word,
    records: Vec<CreatedRecord>,
    plan: Plan,
    /// Number of threads of a process.
    threads: usize,
}

impl CreationRun {
    fn new(plan: &Plan, memory: &ExploredMemory, threads: usize) -> CreationRun {
        let word = || memory.word(Place::NewLine, 0);
        let cell = || memory.cell(Place::NewLine, 0);
        CreationRun {
            creating: word(),
            among_threads: (0..plan.threads).map(|_| word()).collect(),
            head: word(),
            used: word(),
            records: (0..NAMES).map(|_| CreatedRecord { name: cell(), next: cell() }).collect(),
            plan: *plan,
            threads,
        }
    }

    /// Number of the record of a name, counted from 1.
    fn lookup(&self, cpu: &Explorer, name: u64) -> Option<u64> {
        let mut code = newest_record(cpu, &self.head);
        while let Some(record) = code.checked_sub(1).map(|n| &self.records[n as usize]) {
            if cpu.read(&record.name) == name {
                return Some(code);
            }
            let next = cpu.read(&record.next);
            assert!(next < code, "a list without end");
            code = next;
        }
        None
    }

    fn open(&self, cpu: &Explorer, name: u64) {
        if self.lookup(cpu, name).is_some() {
            return;
        }
        let (process, around) = (cpu.id() / self.threads, ExploredMember::new(cpu));
        let turn = CreationTurn {
            cpu,
            creating: &self.creating,
            among_threads: &self.among_threads[process],
            me: process as u64 + 1,
        };
        let taken = turn.take(
            |creator| self.threads > 1 || around.is_alive(creator as u32),
            || {
                cpu.delay(PAUSE);
                true
            },
        );
        taken.expect("its patience has no end");
        if self.lookup(cpu, name).is_none() {
            // Relaxed, here and below: the creator's, handed over with the turn.
            let mut used = cpu.load(&self.used, Ordering::Relaxed);
            if newest_record(cpu, &self.head) == used + 1 {
                // A dead creator has published its record.
                used += 1;
            }
            let record = self.records.get(used as usize).expect("a record for each name");
            cpu.write(&record.name, name);
            cpu.write(&record.next, newest_record(cpu, &self.head));
            publish_record(cpu, &self.head, used + 1);
            cpu.store(&self.used, used + 1, Ordering::Relaxed);
        }
        turn.give();
    }
}

impl SubjectRun for CreationRun {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            self.open(cpu, (cpu.id() + n) as u64 % NAMES + 1);
        }
    }
    fn last(&self, cpu: &Explorer) {
        for name in 1..=NAMES {
            self.open(cpu, name);
            assert!(self.lookup(cpu, name).is_some(), "it was created");
        }
    }
}
