//! Endpoints of `am`: clients send requests to a server, whose successors take its entry
//! over when it has left or is dead.
//!
//! Thread 0 serves until it has handled as many requests as a client sends; thread 1 then takes the
//! same entry of the directory, and serves until all clients are done. Of five threads the third
//! serves, too. The others are clients. Of each request either the reply or the request itself
//! comes back, once; a request that came back was not handled, unless its server died. Requests are
//! short, have a block, or are stored into the server's segment, in turns. Where there are answer
//! lines, each client sends so many more before that it uses one.
//!
//! In the subjects with `blocks` in their names the first server leaves early, when each second
//! client has mapped it: those requests, which have the queue's only block, meet the takeover. The
//! other clients map a server meanwhile.

mod domain;
mod leftovers;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::PAUSE;
use towpath_am::claim::Algorithm;
use towpath_am::{Endpoint, Error, Payload, SegmentKind, Tag, Token};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_sync::Policy;

use domain::{ExploredDomain, ExploredWorld};

/// Number of threads that serve, one after the other, as rank 0.
fn servers(plan: &Plan) -> usize {
    if plan.threads < 5 { 2 } else { 3 }
}

/// Handlers of requests, and of replies.
const REQUEST: u8 = 1;
const REPLY: u8 = 2;

/// Number of requests of a client before it and its server use their answer line.
const BEFORE_LINE: usize = 6;

/// Mix of requests of a subject.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestMix {
    /// Requests of all kinds.
    Mixed,
    /// And replies through answer lines.
    Lines,
    /// Requests with a block; the first server leaves early.
    Blocks,
}

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    use RequestMix::{Blocks, Lines, Mixed};
    let names = [
        ("towpath", Algorithm::Towpath, Mixed),
        ("lock-free", Algorithm::LockFree, Mixed),
        ("ticket", Algorithm::Ticket, Mixed),
        ("lines", Algorithm::Towpath, Lines),
        ("blocks-towpath", Algorithm::Towpath, Blocks),
        ("blocks-lock-free", Algorithm::LockFree, Blocks),
    ];
    for (name, algorithm, traffic) in names {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            if !(3..=5).contains(&plan.threads) {
                return Err("is for three to five threads".into());
            }
            Ok(Rc::new(ServiceHandover::new(plan, memory, algorithm, traffic, policy)))
        };
        let about = "each request is answered or comes back, once, also from a server's successor";
        let endures_deaths = algorithm != Algorithm::Ticket;
        cases.push(Case { endures_deaths, ..Case::new(format!("endpoint/{name}"), about, make) });
    }
    leftovers::all(cases, policy);
}

/// Clients, and servers that take over from each other.
struct ServiceHandover {
    world: ExploredWorld,
    plan: Plan,
    traffic: RequestMix,
    /// Number of threads that serve.
    servers: usize,
    /// Number of requests of a client, and that the first server handles.
    ops: usize,
    first_serves: usize,
    /// Stage of each thread: 1 when it has an endpoint, 2 when it is done.
    stage: Vec<Word>,
    /// Data of each request: one of its client and one of its handler, written before.
    data: Vec<[DatumId; 2]>,
    /// Number of requests that the servers at each entry have handled.
    served: Vec<DatumId>,
    /// Times that each request was handled, was answered, came back, and was done with,
    /// kept by the host.
    known: Vec<[Cell<u32>; 4]>,
    /// Names of the servers while their endpoints are open, kept by the host.
    open: Vec<Cell<u64>>,
}

type ExploredEndpoint<'m> = Endpoint<ExploredDomain<'m>>;

impl ServiceHandover {
    fn new(
        plan: &Plan,
        memory: &ExploredMemory,
        algorithm: Algorithm,
        traffic: RequestMix,
        waiting: Policy,
    ) -> ServiceHandover {
        let servers = servers(plan);
        let clients = plan.threads - servers;
        let lines = traffic == RequestMix::Lines;
        let blocks = if traffic == RequestMix::Blocks { 1 } else { 2 };
        let before = if lines { BEFORE_LINE } else { 0 };
        let ops = before + plan.ops;
        let requests = clients * ops;
        ServiceHandover {
            world: ExploredWorld::new(memory, plan.threads, clients + 1, algorithm, blocks, lines, waiting),
            plan: *plan,
            traffic,
            servers,
            ops,
            first_serves: clients * before + plan.ops,
            stage: (0..plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect(),
            data: (0..requests).map(|_| [0, 1].map(|_| memory.cell(Place::NewLine, 0))).collect(),
            served: (0..=clients).map(|_| memory.cell(Place::NewLine, 0)).collect(),
            known: (0..requests).map(|_| Default::default()).collect(),
            open: (0..servers).map(|_| Cell::new(0)).collect(),
        }
    }

    /// Number of a client's request among all.
    fn request(&self, client: usize, n: usize) -> usize {
        (client - self.servers) * self.ops + n
    }

    /// Tells the others how far this thread is, by nothing that orders.
    fn reach(&self, cpu: &Explorer, stage: u64) {
        // Relaxed: the endpoints are what orders.
        cpu.store(&self.stage[cpu.id()], stage, Ordering::Relaxed);
    }

    /// Returns whether this thread has come so far, or is dead.
    fn has_reached(&self, cpu: &Explorer, thread: usize, stage: u64) -> bool {
        // Relaxed: as in `reach`.
        cpu.load(&self.stage[thread], Ordering::Relaxed) >= stage || cpu.is_dead(thread)
    }

    fn clients_have_reached(&self, cpu: &Explorer, stage: u64) -> bool {
        (self.servers..self.plan.threads).all(|client| self.has_reached(cpu, client, stage))
    }

    /// Opens an endpoint, as soon as there is an entry for it.
    fn open<'m>(&'m self, cpu: &'m Explorer, rank: usize) -> ExploredEndpoint<'m> {
        loop {
            match Endpoint::in_domain(self.world.domain(cpu, rank), SegmentKind::Shared) {
                Ok(endpoint) => return endpoint,
                Err(Error::Resource(_)) => cpu.delay(PAUSE),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn serve(&self, cpu: &Explorer) {
        if cpu.id() > 0 {
            // No other entry is to be free than the one that the predecessor leaves.
            let all_have_come = || self.has_reached(cpu, 0, 1) && self.clients_have_reached(cpu, 1);
            while !all_have_come() {
                cpu.delay(PAUSE);
            }
        }
        let handled = Rc::new(RefCell::new(Vec::new()));
        let endpoint = self.open(cpu, 0);
        self.open[cpu.id()].set(endpoint.name().to_bits());
        let (entry, count) = (usize::from(endpoint.name().to_bits() as u16), handled.clone());
        endpoint.set_boxed_handler(
            REQUEST,
            Box::new(move |token| {
                count.borrow_mut().push(token.args()[0] as usize);
                self.handle(cpu, entry, token);
            }),
        );
        endpoint.set_boxed_handler(
            0,
            Box::new(|token| {
                let back = token.returned().expect("handler 0 gets no others");
                assert!(!back.operation.is_request(), "a server sends no requests");
            }),
        );
        self.reach(cpu, 1);
        let is_done = || match (cpu.id(), self.traffic) {
            (0, RequestMix::Blocks) => self.clients_have_reached(cpu, 1),
            (0, _) => handled.borrow().len() >= self.first_serves || self.clients_have_reached(cpu, 2),
            _ => self.clients_have_reached(cpu, 2),
        };
        while !is_done() {
            if endpoint.poll() == 0 {
                endpoint.recover();
                cpu.delay(PAUSE);
            }
            handled.borrow().iter().for_each(|&request: &usize| self.known[request][3].set(1));
        }
        self.open[cpu.id()].set(0);
        drop(endpoint);
        self.reach(cpu, 2);
    }

    fn handle<'m>(&'m self, cpu: &Explorer, entry: usize, token: &Token<'_, ExploredDomain<'m>>) {
        let request = token.args()[0] as usize;
        let [asked, answered] = &self.data[request];
        assert_eq!(cpu.read(asked), request as u64 + 1, "the act of the client before request {request}");
        let mut bytes = [0; 8];
        match token.payload() {
            Payload::None => bytes[0] = request as u8,
            Payload::Medium(payload) => bytes.copy_from_slice(payload),
            Payload::Long { offset, .. } => token.segment().read(offset, &mut bytes),
        }
        assert_eq!(bytes[0], request as u8, "the payload of request {request}");
        let served = &self.served[entry];
        cpu.write(served, cpu.read(served) + 1);
        cpu.write(answered, request as u64 + 1);
        let handled = &self.known[request][0];
        handled.set(handled.get() + 1);
        token.reply(REPLY, &[request as u32]).expect("the requester is here");
    }

    fn send(&self, cpu: &Explorer) {
        let (me, rank) = (cpu.id(), cpu.id() - self.servers + 1);
        let endpoint = self.open(cpu, rank);
        endpoint.set_boxed_handler(
            REPLY,
            Box::new(move |token| {
                let request = token.args()[0] as usize;
                assert_eq!(cpu.read(&self.data[request][1]), request as u64 + 1, "the act of the handler");
                self.known[request][1].set(self.known[request][1].get() + 1);
            }),
        );
        endpoint.set_boxed_handler(
            0,
            Box::new(move |token| {
                let request = token.args()[0] as usize;
                let receiver = token.returned().expect("handler 0 gets no others").destination.to_bits();
                let is_open = |server: usize| self.open[server].get() == receiver && !cpu.is_dead(server);
                assert!(!(0..self.servers).any(is_open), "request {request}'s receiver is there");
                // It is not to be handled any more.
                cpu.write(&self.data[request][0], 0);
                let [_, _, back, done] = &self.known[request];
                assert_eq!(done.get(), 0, "request {request} was done with");
                back.set(back.get() + 1);
            }),
        );
        let is_early = self.traffic == RequestMix::Blocks && rank.is_multiple_of(2);
        let mut is_mapped = is_early && self.map_server(cpu, &endpoint, 1);
        self.reach(cpu, 1);
        for request in self.request(me, 0)..self.request(me, self.ops) {
            if !std::mem::take(&mut is_mapped) && !self.map_server(cpu, &endpoint, self.servers) {
                break;
            }
            self.ask(cpu, &endpoint, request);
            let [handled, answered, back, _] = &self.known[request];
            while answered.get() + back.get() == 0 {
                if endpoint.poll() == 0 {
                    endpoint.recover();
                    cpu.delay(PAUSE);
                }
            }
            // One that its server was handling when it died comes back although it may be answered.
            if !(0..self.servers).any(|server| cpu.is_dead(server)) {
                assert_eq!(handled.get(), answered.get(), "answers of request {request}");
                assert_eq!(answered.get() + back.get(), 1, "ends of request {request}");
            }
        }
        while endpoint.poll() > 0 {}
        for request in self.request(me, 0)..self.request(me, self.ops) {
            let [_, answered, back, _] = &self.known[request];
            assert!(answered.get() <= 1 && back.get() <= 1, "request {request} came back twice");
        }
        self.reach(cpu, 2);
    }

    /// Waits for a server, and maps it. `false`: the first `servers` have left.
    fn map_server(&self, cpu: &Explorer, endpoint: &ExploredEndpoint<'_>, servers: usize) -> bool {
        loop {
            if let Some(name) = endpoint.name_of_rank(0)
                && endpoint.map(0, name, Tag::ALL).is_ok()
            {
                return true;
            }
            if (0..servers).all(|server| self.has_reached(cpu, server, 2)) {
                return false;
            }
            cpu.delay(PAUSE);
        }
    }

    fn ask(&self, cpu: &Explorer, endpoint: &ExploredEndpoint<'_>, request: usize) {
        cpu.write(&self.data[request][0], request as u64 + 1);
        let (args, bytes) = ([request as u32], [request as u8; 8]);
        let sent = match request % 3 {
            _ if self.traffic == RequestMix::Blocks => endpoint.request_medium(0, REQUEST, &args, &bytes),
            0 => endpoint.request_long(0, REQUEST, &args, &bytes, 8 * (cpu.id() - self.servers) as u64),
            1 => endpoint.request(0, REQUEST, &args),
            _ => endpoint.request_medium(0, REQUEST, &args, &bytes),
        };
        sent.expect("the entry is mapped");
    }
}

impl SubjectRun for ServiceHandover {
    fn thread(&self, cpu: &Explorer) {
        if cpu.id() < self.servers { self.serve(cpu) } else { self.send(cpu) }
    }
}
