//! Entries that participants leave, and those that find them, in a set order: each step
//! of a takeover is needed in one of these.
//!
//! In `left-words` and `left-lock` thread 0 acts for all participants, so that one schedule shows
//! it. In `left-claims` and `left-data` thread 1 is the other one.

use std::cell::Cell;
use std::mem;
use std::rc::Rc;

use towpath_am::claim::{Algorithm, Any, Locked};
use towpath_am::domain::{DomainMemory, Hooks, Side};
use towpath_am::packet::Header;
use towpath_am::queue::{intent, write_intent};
use towpath_am::suspicion::Suspicion;
use towpath_am::{Direction, Endpoint, SegmentKind, Tag};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_sync::{Lock, Policy};

use super::super::PAUSE;
use super::domain::{ExploredDomain, ExploredWorld};
use super::{ExploredEndpoint, REQUEST};

/// Leftover of a case.
#[derive(Clone, Copy)]
enum CaseLeftover {
    Words,
    Lock,
    Claims,
    Data,
}

/// All of them.
pub(super) fn all(cases: &mut Vec<Case>, policy: Policy) {
    use CaseLeftover::{Claims, Data, Lock, Words};
    for (name, leftover, algorithm, about) in [
        ("words", Words, Algorithm::Towpath, "a successor finds nothing of its predecessor's in its entry"),
        ("lock", Lock, Algorithm::Ticket, "a queue is closed if a sender died holding its lock, else not"),
        ("claims", Claims, Algorithm::Ticket, "two successors do not wait for each other's predecessor"),
        ("data", Data, Algorithm::Towpath, "all that an endpoint's owner did is known once it is closed"),
    ] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            if plan.threads < 2 {
                return Err("is for two threads".into());
            }
            // No entry is to be free but that of the dead.
            let ranks = if matches!(leftover, Lock) { 3 } else { 2 };
            let mut world = ExploredWorld::new(memory, plan.threads, ranks, algorithm, 1, false, policy);
            // A successor looks at the lock for a while.
            world.timer = matches!(leftover, Lock).then(|| memory.word(Place::NewLine, 0));
            Ok(Rc::new(Leavers {
                world,
                leftover,
                stages: [0, 1].map(|_| memory.word(Place::NewLine, 0)),
                datum: memory.cell(Place::NewLine, 0),
                handled: Cell::default(),
                back: Cell::default(),
            }))
        };
        cases.push(Case::new(format!("endpoint/left-{name}"), about, make));
    }
}

struct Leavers {
    world: ExploredWorld,
    leftover: CaseLeftover,
    /// Value 1 when this thread is ready for the other.
    stages: [Word; 2],
    datum: DatumId,
    /// Number of requests that were handled, and that came back, kept by the host.
    handled: Cell<u32>,
    back: Cell<u32>,
}

impl Leavers {
    /// Opens an endpoint that counts.
    fn open<'m>(&'m self, domain: ExploredDomain<'m>, segment: SegmentKind) -> ExploredEndpoint<'m> {
        let endpoint = Endpoint::in_domain(domain, segment).unwrap_or_else(|error| panic!("{error}"));
        endpoint.set_boxed_handler(REQUEST, Box::new(|_| self.handled.set(self.handled.get() + 1)));
        endpoint.set_boxed_handler(0, Box::new(|_| self.back.set(self.back.get() + 1)));
        endpoint
    }

    /// Opens the endpoint of a rank for this thread.
    fn open_rank<'m>(&'m self, cpu: &'m Explorer, rank: usize) -> ExploredEndpoint<'m> {
        self.open(self.world.domain(cpu, rank), SegmentKind::None)
    }

    /// Sends so many requests.
    fn ask(&self, client: &ExploredEndpoint<'_>, server: &ExploredEndpoint<'_>, requests: u32) {
        client.map(0, server.name(), Tag::ALL).expect("it is open");
        (0..requests).for_each(|_| client.request(0, REQUEST, &[]).expect("the entry is mapped"));
    }

    fn await_other(&self, cpu: &Explorer) {
        // (L1) Acquire: pairs with the Release (L2) in `leave_claims`.
        while cpu.load(&self.stages[1 - cpu.id()], Ordering::Acquire) == 0 {
            cpu.delay(PAUSE);
        }
    }

    /// Rank 0 dies with a request in its queue.
    ///
    /// A successor closes with four in it, and another one handles one.
    fn leave_words(&self, cpu: &Explorer) {
        let domain = self.world.domain(cpu, 0);
        let entry = domain.entry(0).expect("there is one");
        let sides = [false, true].map(|reply| domain.side(0, Direction::of(reply)).expect("it has both"));
        let client = self.open_rank(cpu, 1);
        let first = self.open(self.world.mortal(cpu, 0, 0), SegmentKind::Shared);
        self.ask(&client, &first, 2);
        while self.handled.get() < 2 {
            first.poll();
        }
        self.ask(&client, &first, 1);
        // Words that other endpoints write, too, or that only the native machine's do.
        let words = || {
            let queues = sides.iter().map(|side| side.queue().control);
            let of_queues = queues.flat_map(|control| [&*control.sleeping, &*control.streams]);
            [&entry.signal, &entry.segment_len, &entry.own.polls_at_barrier].into_iter().chain(of_queues)
        };
        // Relaxed, all: a single thread's.
        words().for_each(|word| cpu.store(word, 1, Ordering::Relaxed));
        mem::forget(first);
        self.world.bury(cpu, 0);
        client.recover();
        while client.poll() > 0 {}
        assert_eq!(self.back.get(), 1, "of the dead");

        let second = self.open_rank(cpu, 0);
        for word in words() {
            assert_eq!(cpu.load(word, Ordering::Relaxed), 0, "the dead one's word");
        }
        self.ask(&client, &second, 4);
        assert_eq!(self.back.get(), 1, "the successor is there");
        drop(second);
        client.recover();
        while client.poll() > 0 {}
        assert_eq!(self.back.get(), 5, "of the one that was closed");

        let third = self.open_rank(cpu, 0);
        self.ask(&client, &third, 1);
        while third.poll() > 0 {}
        assert_eq!((self.handled.get(), self.back.get()), (3, 5));
    }

    /// Rank 1 dies while it wants the lock of rank 0's queue, then while it has it.
    fn leave_lock(&self, cpu: &Explorer) {
        let domain = self.world.domain(cpu, 0);
        let side = domain.side(0, Direction::Request).expect("there is one");
        let (queue, entries) = (side.queue(), [0, 1, 2].map(|e| domain.entry(e).expect("there are three")));
        let [receiver, client] = [0, 2].map(|rank| self.open_rank(cpu, rank));
        mem::forget(self.open(self.world.mortal(cpu, 1, 0), SegmentKind::None));
        let locks = || {
            write_intent(cpu, &entries[1].own.intents[0], intent::encode(queue.id, intent::LOCKING, 0));
        };
        locks();
        self.world.bury(cpu, 0);
        receiver.recover();
        let intents = (0..).zip(&entries).map(|(endpoint, entry)| (endpoint, &entry.own.intents[0]));
        let is_lost = Suspicion::new(2).is_abandoned(cpu, &queue.control.tail, queue.id, intents, |e| e != 1);
        assert!(!is_lost, "a sender takes the lock for lost, which is free");

        locks();
        let Any::Ticket(Locked(lock)) = side.claim() else { panic!("another algorithm") };
        let around = domain.around(queue);
        let _held = lock.lock(cpu, &domain.wait(&around));
        let _successor = self.open_rank(cpu, 1);
        self.ask(&client, &receiver, 1);
        while client.poll() > 0 {}
        assert_eq!(self.back.get(), 1, "the lock is lost");
    }

    /// Ranks 0 and 1 die with a packet that they have claimed in each other's queue.
    fn leave_claims(&self, cpu: &Explorer) {
        if cpu.id() == 0 {
            for (rank, other) in [(0, 1), (1, 0)] {
                let endpoint = self.open(self.world.mortal(cpu, rank, rank), SegmentKind::None);
                let of_other = self.world.domain(cpu, rank).side(other, Direction::Request);
                let claimed = Header::claimed(rank as u16, 1).0;
                // Relaxed: shown by the stage.
                cpu.store(
                    &of_other.expect("there is one").queue().slot(0).header,
                    claimed,
                    Ordering::Relaxed,
                );
                mem::forget(endpoint);
            }
            [0, 1].into_iter().for_each(|mortal| self.world.bury(cpu, mortal));
            // (L2) Release: the acts of the dead; pairs with the Acquire (L1) in `await_other`.
            cpu.store(&self.stages[0], 1, Ordering::Release);
        } else {
            self.await_other(cpu);
        }
        drop(self.open_rank(cpu, cpu.id()));
    }

    /// Rank 0 writes a datum and closes its endpoint, which rank 1 has mapped.
    fn leave_data(&self, cpu: &Explorer) {
        let endpoint = self.open_rank(cpu, cpu.id());
        if cpu.id() == 0 {
            self.await_other(cpu);
            cpu.write(&self.datum, 1);
            return;
        }
        let is_mapped = || {
            let name = endpoint.name_of_rank(0);
            name.is_some_and(|name| endpoint.map(0, name, Tag::ALL).is_ok())
        };
        while !is_mapped() {
            cpu.delay(PAUSE);
        }
        let (server, _) = endpoint.mapping(0).expect("just mapped");
        // Relaxed: the endpoint is what orders.
        cpu.store(&self.stages[1], 1, Ordering::Relaxed);
        while endpoint.map(0, server, Tag::ALL).is_ok() {
            cpu.delay(PAUSE);
        }
        assert_eq!(cpu.read(&self.datum), 1, "written before the endpoint was closed");
    }
}

impl SubjectRun for Leavers {
    fn thread(&self, cpu: &Explorer) {
        match (self.leftover, cpu.id()) {
            (CaseLeftover::Words, 0) => self.leave_words(cpu),
            (CaseLeftover::Lock, 0) => self.leave_lock(cpu),
            (CaseLeftover::Claims, 0 | 1) => self.leave_claims(cpu),
            (CaseLeftover::Data, 0 | 1) => self.leave_data(cpu),
            _ => {}
        }
    }
}
