//! Directories at the homes of lines, in the manner of the Origin2000 (Laudon & Lenoski
//! 1997; Culler, Singh & Gupta 1999, chapter 8).
//!
//! * A read of a line that one processor has exclusively is forwarded to it; it replies directly
//!   and tells the home. Meanwhile the line is busy, and requests for it are refused (or queue, as
//!   the machine says).
//! * A write to a shared line makes the writer the owner at once; the home sends invalidations to
//!   the sharers' nodes, whose acknowledgements go to the writer. The writer has the line when the
//!   reply and all acknowledgements are there; an intervention that comes before waits.
//! * A store-conditional asks for the right to write; if another processor wrote in between, the
//!   home just says so, and sends no invalidations.
//! * A processor may have several requests under way, each in a place of its own
//!   ([`Engine::places`]); requests are named by their places.
//! * A home serves one request at a time, in the order that the machine says. Its messages leave
//!   after the latency; it is occupied for the occupancy.

use std::collections::VecDeque;

use crate::counters::{Counters, DISTANCES};
use crate::engine::Engine;
use crate::event_queue::{EventKind, Time};
use crate::interconnect::fetch_cache::FetchCache;
use crate::interconnect::network::Network;
use crate::interconnect::{Effect, Interconnect};
use crate::memory::{LineState, copy};
use crate::parameters::{FIFO, LOCAL_FIRST, NACK, Parameters};
use crate::request::Want;

#[derive(Debug, Default)]
struct Home {
    /// Requests that wait.
    queue: VecDeque<u16>,
    serving: bool,
    busy: Time,
    fetch_cache: FetchCache,
}

/// Directories at the homes of lines, and the network between them and the processors.
#[derive(Debug)]
pub(crate) struct DirectoryNetwork {
    network: Network,
    homes: Vec<Home>,
    /// Requests for each line that wait until it is not busy any more.
    waiting: Vec<VecDeque<u16>>,
    /// Number of acknowledgements of invalidations that have come.
    acknowledged: u64,
    /// Sharers of the line that is being invalidated.
    buffer: Vec<u16>,
}

impl DirectoryNetwork {
    pub fn new(p: &Parameters, processors: usize) -> Self {
        let nodes = processors.div_ceil(p.per_node as usize);
        DirectoryNetwork {
            network: Network::new(p, processors),
            homes: (0..nodes).map(|_| Home::default()).collect(),
            waiting: Vec::new(),
            acknowledged: 0,
            buffer: Vec::new(),
        }
    }
}

/// Answer of a home to a request.
enum HomeReply {
    /// A reply to the processor that asked: with the line or without.
    Reply { data: bool },
    /// Interventions and invalidations are on their way instead of or beside it.
    Forwarded,
    /// Wait here.
    Queue,
}

impl Interconnect for DirectoryNetwork {
    fn issue(&mut self, e: &mut Engine, cpu: usize) {
        let request = &mut e.cpus[cpu].request;
        let jitter = e.random.below(e.jitter + 1);
        let home = usize::from(e.memory.lines[request.line as usize].home);
        let at = self.network.request(e.now + jitter, e.sender(cpu), home);
        e.events.push(at, EventKind::HomeArrive, cpu, 0);
    }

    fn on_event(&mut self, e: &mut Engine, kind: EventKind, a: usize, b: usize) -> Effect {
        match kind {
            EventKind::HomeArrive => self.home_arrive(e, a),
            EventKind::HomeFree => self.home_free(e, a),
            EventKind::Retry => self.issue(e, a),
            EventKind::Invalidate => self.node_invalidated(e, a, b >> 16, b & 0xffff),
            EventKind::Acknowledge => {
                self.acknowledged += 1;
                let request = &mut e.cpus[a].request;
                request.acks -= 1;
                if request.replied && request.acks == 0 {
                    return Effect::Complete(a);
                }
            }
            EventKind::Intervene => self.intervene(e, a, b),
            EventKind::HomeUpdate => self.home_update(e, a),
            _ => unreachable!("{kind:?} in a directory network"),
        }
        Effect::Nothing
    }

    fn evict(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        if e.drop_copy(line, cpu) {
            self.write_back(e, line, cpu);
        }
    }

    /// Checks that every invalidation was acknowledged, that no request waits and no home
    /// serves, and that the directory covers the caches.
    fn check_at_rest(&self, e: &Engine) -> Result<(), String> {
        if self.acknowledged != e.counters.invalidations {
            let (acks, sent) = (self.acknowledged, e.counters.invalidations);
            return Err(format!("{sent} invalidations, {acks} acknowledgements"));
        }
        if let Some(home) = self.homes.iter().position(|h| h.serving || !h.queue.is_empty()) {
            return Err(format!("home {home} still serves: {:?}", self.homes[home]));
        }
        if let Some(line) = self.waiting.iter().position(|w| !w.is_empty()) {
            return Err(format!("line {line} is still waited for by {:?}", self.waiting[line]));
        }
        e.check_lines()
    }

    fn count(&self, counters: &mut Counters) {
        counters.messages = self.network.messages;
        counters.home_busy = self.homes.iter().map(|h| h.busy).max().unwrap_or(0);
    }
}

impl DirectoryNetwork {
    fn home_arrive(&mut self, e: &mut Engine, cpu: usize) {
        let home = self.home_of(e, cpu);
        if self.homes[home].serving {
            self.homes[home].queue.push_back(cpu as u16);
        } else {
            self.serve(e, home, cpu);
        }
    }

    fn home_free(&mut self, e: &mut Engine, home: usize) {
        let queue = &mut self.homes[home].queue;
        let next = if e.p.service == FIFO || queue.len() < 2 {
            queue.pop_front()
        } else if e.p.service == LOCAL_FIRST {
            let own = queue.iter().position(|&cpu| self.network.node(e.sender(usize::from(cpu))) == home);
            queue.remove(own.unwrap_or(0))
        } else {
            let i = e.random.below(queue.len() as u64) as usize;
            queue.swap_remove_back(i)
        };
        match next {
            Some(cpu) => self.serve(e, home, usize::from(cpu)),
            None => self.homes[home].serving = false,
        }
    }

    fn home_of(&self, e: &Engine, cpu: usize) -> usize {
        usize::from(e.memory.lines[e.cpus[cpu].request.line as usize].home)
    }

    fn serve(&mut self, e: &mut Engine, home: usize, cpu: usize) {
        self.homes[home].serving = true;
        let request = &mut e.cpus[cpu].request;
        let line = request.line as usize;
        let mut latency = e.p.directory_latency;
        let mut occupancy = e.p.occupancy_lookup;
        let busy = e.memory.lines[line].busy && request.want != Want::Fetch;
        if busy && e.p.busy == NACK {
            return self.refuse(e, home, cpu, occupancy);
        }
        let answer = match request.want {
            Want::Fetch => {
                let word = request.word;
                e.operate_at_memory(cpu);
                (latency, occupancy) =
                    (e.p.fetch_latency, self.homes[home].fetch_cache.occupancy(&e.p, word));
                HomeReply::Reply { data: false }
            }
            _ if busy => HomeReply::Queue,
            Want::Read => {
                occupancy = e.p.occupancy_data;
                self.serve_read(e, home, cpu, line)
            }
            _ => {
                let answer = self.serve_write(e, home, cpu, line, &mut occupancy);
                if matches!(answer, HomeReply::Reply { data: false }) {
                    latency = e.p.occupancy_lookup;
                }
                answer
            }
        };
        let now = e.now;
        match answer {
            HomeReply::Reply { data } => {
                e.cpus[cpu].request.served = true;
                let at = self.network.reply(now + latency, home, e.sender(cpu), data);
                e.events.push(at, EventKind::Reply, cpu, 0);
                if data {
                    let distance = self.network.distance(e.sender(cpu), home * e.p.per_node as usize);
                    e.counters.misses[distance.min(DISTANCES - 1)] += 1;
                }
            }
            HomeReply::Forwarded => e.cpus[cpu].request.served = true,
            HomeReply::Queue => {
                let waiting = &mut self.waiting;
                waiting.resize_with(waiting.len().max(line + 1), VecDeque::new);
                waiting[line].push_back(cpu as u16);
            }
        }
        if !e.memory.lines[line].busy {
            self.next_waiting(e, line);
        }
        self.is_occupied(e, home, occupancy);
    }

    /// Come again.
    fn refuse(&mut self, e: &mut Engine, home: usize, cpu: usize, occupancy: Time) {
        e.counters.refusals += 1;
        let at = self.network.reply(e.now + occupancy, home, e.sender(cpu), false);
        e.events.push(at + e.p.retry, EventKind::Retry, cpu, 0);
        self.is_occupied(e, home, occupancy);
    }

    #[inline]
    fn is_occupied(&mut self, e: &mut Engine, home: usize, occupancy: Time) {
        self.homes[home].busy += occupancy;
        e.events.push(e.now + occupancy, EventKind::HomeFree, home, 0);
    }

    fn serve_read(&mut self, e: &mut Engine, home: usize, place: usize, line: usize) -> HomeReply {
        let cpu = e.sender(place);
        let it = &mut e.memory.lines[line];
        match it.state {
            LineState::Exclusive if usize::from(it.owner) != cpu => {
                it.busy = true;
                let owner = usize::from(it.owner);
                self.send_intervention(e, home, place, owner);
                return HomeReply::Forwarded;
            }
            LineState::Unowned | LineState::Exclusive => {
                it.state = LineState::Exclusive;
                it.owner = cpu as u16;
                e.cpus[place].request.exclusive = true;
            }
            LineState::Shared => e.memory.add_sharer(line, cpu),
        }
        HomeReply::Reply { data: true }
    }

    fn serve_write(
        &mut self,
        e: &mut Engine,
        home: usize,
        place: usize,
        line: usize,
        occupancy: &mut Time,
    ) -> HomeReply {
        let cpu = e.sender(place);
        let request = &mut e.cpus[place].request;
        let it = &mut e.memory.lines[line];
        let has_it = it.state == LineState::Shared && e.memory.is_sharer(line, cpu);
        if request.want == Want::Conditional && !has_it {
            request.failed = true;
            return HomeReply::Reply { data: false };
        }
        let it = &mut e.memory.lines[line];
        let upgrade = request.want != Want::Exclusive && has_it;
        if !upgrade {
            *occupancy = e.p.occupancy_data;
        }
        match it.state {
            LineState::Exclusive if usize::from(it.owner) != cpu => {
                it.busy = true;
                let owner = usize::from(it.owner);
                self.send_intervention(e, home, place, owner);
                return HomeReply::Forwarded;
            }
            LineState::Unowned | LineState::Exclusive => {}
            LineState::Shared => *occupancy += self.send_invalidations(e, home, place, line),
        }
        let it = &mut e.memory.lines[line];
        it.state = LineState::Exclusive;
        it.owner = cpu as u16;
        HomeReply::Reply { data: !upgrade }
    }

    fn send_intervention(&mut self, e: &mut Engine, home: usize, asked: usize, owner: usize) {
        e.counters.interventions += 1;
        e.counters.interventions_received += e.p.per_node;
        let at = self.network.forward(e.now + e.p.occupancy_lookup, home, e.sender(asked), owner);
        e.events.push(at, EventKind::Intervene, owner, asked);
    }

    /// Sends invalidations to the nodes of all sharers, but (if it has no other sharer)
    /// to the requester's. Returns how long that occupies the home.
    fn send_invalidations(&mut self, e: &mut Engine, home: usize, asked: usize, line: usize) -> Time {
        let mut sharers = std::mem::take(&mut self.buffer);
        e.memory.sharers(line, &mut sharers);
        e.memory.clear_sharers(line);
        let mut leaves = e.now + e.p.occupancy_lookup;
        let mut sent = 0;
        let mut last = usize::MAX;
        let sender = e.sender(asked);
        for &sharer in sharers.iter().filter(|&&s| usize::from(s) != sender) {
            let node = self.network.node(usize::from(sharer));
            if node == last {
                continue;
            }
            last = node;
            sent += 1;
            leaves += e.p.occupancy_invalidation;
            let at = self.network.forward(leaves, home, sender, usize::from(sharer));
            e.events.push(at, EventKind::Invalidate, line, node << 16 | asked);
        }
        self.buffer = sharers;
        e.cpus[asked].request.acks += sent as i32;
        e.counters.invalidations += sent;
        sent * e.p.occupancy_invalidation
    }

    fn node_invalidated(&mut self, e: &mut Engine, line: usize, node: usize, asked: usize) {
        let first = node * e.p.per_node as usize;
        let last = (first + e.p.per_node as usize).min(e.memory.processors);
        let sender = e.sender(asked);
        for cpu in (first..last).filter(|&cpu| cpu != sender) {
            e.counters.invalidations_received += 1;
            let request = &mut e.cpus[cpu].request;
            if request.is_ordered_on(line) && request.want == Want::Read && !request.exclusive {
                request.use_once = true;
            }
            if e.memory.copy(line, cpu) != copy::INVALID {
                e.counters.invalidations_hit += 1;
                e.invalidate(line, cpu);
            }
        }
        let at = self.network.direct(e.now, first, sender, false);
        e.events.push(at, EventKind::Acknowledge, asked, 0);
    }

    fn intervene(&mut self, e: &mut Engine, owner: usize, asked: usize) {
        let request = &e.cpus[asked].request;
        let (read, line) = (request.want == Want::Read, request.line as usize);
        if let Some(place) = e.places(owner).find(|&place| e.cpus[place].request.is_ordered_on(line)) {
            // It has not got the line itself yet.
            e.cpus[place].deferred = Some(asked as u16);
            return;
        }
        let sender = e.sender(asked);
        let home = usize::from(e.memory.lines[line].home);
        let supplies = e.now + e.p.owner_access;
        let at = self.network.direct(supplies, owner, sender, true);
        if e.memory.copy(line, owner) != copy::INVALID {
            if read {
                e.memory.set_copy(line, owner, copy::SHARED);
            } else {
                e.invalidate(line, owner);
            }
        }
        let it = &mut e.memory.lines[line];
        if read {
            it.state = LineState::Shared;
            e.memory.clear_sharers(line);
            e.memory.add_sharer(line, owner);
            e.memory.add_sharer(line, sender);
        } else {
            it.state = LineState::Exclusive;
            it.owner = sender as u16;
        }
        e.events.push(at, EventKind::Reply, asked, 0);
        let distance = self.network.distance(sender, owner);
        e.counters.misses[distance.min(DISTANCES - 1)] += 1;
        e.counters.from_caches += 1;
        let at = self.network.back(supplies, owner, home, read);
        e.events.push(at, EventKind::HomeUpdate, line, 0);
    }

    fn home_update(&mut self, e: &mut Engine, line: usize) {
        e.memory.lines[line].busy = false;
        self.next_waiting(e, line);
    }

    /// The next request that waited for the line comes before others that wait for the
    /// home.
    fn next_waiting(&mut self, e: &mut Engine, line: usize) {
        let Some(cpu) = self.waiting.get_mut(line).and_then(VecDeque::pop_front) else { return };
        let home = usize::from(e.memory.lines[line].home);
        if self.homes[home].serving {
            self.homes[home].queue.push_front(cpu);
        } else {
            self.serve(e, home, usize::from(cpu));
        }
    }

    /// The memory gets a line back; the home knows at once, and the traffic is not
    /// charged.
    fn write_back(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        let it = &mut e.memory.lines[line];
        if it.state == LineState::Exclusive && usize::from(it.owner) == cpu && !it.busy {
            it.state = LineState::Unowned;
        }
    }
}
