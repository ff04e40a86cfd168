//! Directories at the homes of lines, in the manner of the Origin2000 (Laudon & Lenoski
//! 1997; Culler, Singh & Gupta 1999, chapter 8).
//!
//! * A read of a line that one processor has exclusively is forwarded to it; it replies directly
//!   and tells the home. Meanwhile the line is busy, and requests for it are refused (or queue, as
//!   the machine says).
//! * A write to a shared line makes the writer the owner at once; the home sends invalidations to
//!   the sharers' nodes, whose acknowledgements go to the writer. The writer has the line when the
//!   reply and all acknowledgements are there; an intervention that comes before waits.
//! * A store-conditional asks for the right to write; if somebody else wrote in between, the home
//!   just says so, and sends no invalidations.
//! * A home serves one request at a time, in the order that the machine says. What it sends leaves
//!   after the latency; it is occupied for the occupancy.

use std::collections::VecDeque;

use crate::engine::{Engine, Op, Want};
use crate::events::{Kind, Time};
use crate::memory::{AT_MEMORY, State, copy};
use crate::parameters::{FIFO, LOCAL_FIRST, NACK};

#[derive(Debug, Default)]
struct Home {
    /// Processors whose requests wait.
    queue: VecDeque<u16>,
    serving: bool,
    busy: Time,
    /// The fetch-op cache: the word used last is at the end.
    fetch_cache: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Directory {
    homes: Vec<Home>,
    /// By line: processors whose requests wait until it is not busy any more.
    waiting: Vec<VecDeque<u16>>,
    entries: usize,
}

impl Directory {
    pub fn new(nodes: usize, entries: usize) -> Self {
        Directory { homes: (0..nodes).map(|_| Home::default()).collect(), waiting: Vec::new(), entries }
    }

    /// Nobody waits, and nothing is served.
    pub fn check_at_rest(&self) -> Result<(), String> {
        if let Some(home) = self.homes.iter().position(|h| h.serving || !h.queue.is_empty()) {
            return Err(format!("home {home} still serves: {:?}", self.homes[home]));
        }
        match self.waiting.iter().position(|w| !w.is_empty()) {
            Some(line) => Err(format!("line {line} is still waited for by {:?}", self.waiting[line])),
            None => Ok(()),
        }
    }

    pub fn busiest(&self) -> Time {
        self.homes.iter().map(|h| h.busy).max().unwrap_or(0)
    }
}

/// What a home does with a request.
enum Answer {
    /// A reply to the processor that asked: with the line or without.
    Reply { data: bool },
    /// Interventions and invalidations are on their way instead of or beside it.
    Forwarded,
    /// Wait here.
    Queue,
}

impl Engine {
    pub(crate) fn directory_issue(&mut self, cpu: usize) {
        let request = &mut self.cpus[cpu].request;
        let jitter = self.random.below(self.jitter + 1);
        let home = usize::from(self.memory.lines[request.line as usize].home);
        let at = self.network.request(self.now + jitter, cpu, home);
        self.events.push(at, Kind::HomeArrive, cpu, 0);
    }

    pub(crate) fn home_arrive(&mut self, cpu: usize) {
        let home = self.home_of(cpu);
        if self.directory.homes[home].serving {
            self.directory.homes[home].queue.push_back(cpu as u16);
        } else {
            self.serve(home, cpu);
        }
    }

    pub(crate) fn home_free(&mut self, home: usize) {
        let queue = &mut self.directory.homes[home].queue;
        let next = if self.p.service == FIFO || queue.len() < 2 {
            queue.pop_front()
        } else if self.p.service == LOCAL_FIRST {
            let own = queue.iter().position(|&cpu| self.network.node(usize::from(cpu)) == home);
            queue.remove(own.unwrap_or(0))
        } else {
            let i = self.random.below(queue.len() as u64) as usize;
            queue.swap_remove_back(i)
        };
        match next {
            Some(cpu) => self.serve(home, usize::from(cpu)),
            None => self.directory.homes[home].serving = false,
        }
    }

    fn home_of(&self, cpu: usize) -> usize {
        usize::from(self.memory.lines[self.cpus[cpu].request.line as usize].home)
    }

    fn serve(&mut self, home: usize, cpu: usize) {
        self.directory.homes[home].serving = true;
        let request = &mut self.cpus[cpu].request;
        let line = request.line as usize;
        let mut latency = self.p.directory_latency;
        let mut occupancy = self.p.occupancy_lookup;
        let busy = self.memory.lines[line].busy && request.want != Want::Fetch;
        if busy && self.p.busy == NACK {
            return self.refuse(home, cpu, occupancy);
        }
        let answer = match request.want {
            Want::Fetch => {
                let word = request.word;
                let value = &mut self.memory.values[(word & !AT_MEMORY) as usize];
                request.result = request.op.apply(value);
                if request.op != Op::Load {
                    self.progress = self.now;
                }
                (latency, occupancy) = (self.p.fetch_latency, self.fetch_occupancy(home, word));
                Answer::Reply { data: false }
            }
            _ if busy => Answer::Queue,
            Want::Read => {
                occupancy = self.p.occupancy_data;
                self.serve_read(home, cpu, line)
            }
            _ => {
                let answer = self.serve_write(home, cpu, line, &mut occupancy);
                if matches!(answer, Answer::Reply { data: false }) {
                    latency = self.p.occupancy_lookup;
                }
                answer
            }
        };
        let now = self.now;
        match answer {
            Answer::Reply { data } => {
                self.cpus[cpu].request.served = true;
                let at = self.network.reply(now + latency, home, cpu, data);
                self.events.push(at, Kind::Reply, cpu, 0);
                if data {
                    let distance = self.network.distance(cpu, home * self.p.per_node as usize);
                    self.counters.misses[distance.min(crate::counters::DISTANCES - 1)] += 1;
                }
            }
            Answer::Forwarded => self.cpus[cpu].request.served = true,
            Answer::Queue => {
                let waiting = &mut self.directory.waiting;
                waiting.resize_with(waiting.len().max(line + 1), VecDeque::new);
                waiting[line].push_back(cpu as u16);
            }
        }
        if !self.memory.lines[line].busy {
            self.next_waiting(line);
        }
        self.is_occupied(home, occupancy);
    }

    /// Come again.
    fn refuse(&mut self, home: usize, cpu: usize, occupancy: Time) {
        self.counters.refusals += 1;
        let at = self.network.reply(self.now + occupancy, home, cpu, false);
        self.events.push(at + self.p.retry, Kind::Retry, cpu, 0);
        self.is_occupied(home, occupancy);
    }

    #[inline]
    fn is_occupied(&mut self, home: usize, occupancy: Time) {
        self.directory.homes[home].busy += occupancy;
        self.events.push(self.now + occupancy, Kind::HomeFree, home, 0);
    }

    fn fetch_occupancy(&mut self, home: usize, word: u32) -> Time {
        let cache = &mut self.directory.homes[home].fetch_cache;
        let found = cache.iter().position(|&w| w == word);
        if let Some(i) = found {
            cache.remove(i);
        } else if cache.len() >= self.directory.entries {
            cache.drain(..1.min(cache.len()));
        }
        if self.directory.entries != 0 {
            cache.push(word);
        }
        if found.is_some() { self.p.fetch_occupancy } else { self.p.fetch_miss }
    }

    fn serve_read(&mut self, home: usize, cpu: usize, line: usize) -> Answer {
        let it = &mut self.memory.lines[line];
        match it.state {
            State::Exclusive if usize::from(it.owner) != cpu => {
                it.busy = true;
                let owner = usize::from(it.owner);
                self.send_intervention(home, cpu, owner);
                return Answer::Forwarded;
            }
            State::Unowned | State::Exclusive => {
                it.state = State::Exclusive;
                it.owner = cpu as u16;
                self.cpus[cpu].request.exclusive = true;
            }
            State::Shared => self.memory.add_sharer(line, cpu),
        }
        Answer::Reply { data: true }
    }

    fn serve_write(&mut self, home: usize, cpu: usize, line: usize, occupancy: &mut Time) -> Answer {
        let request = &mut self.cpus[cpu].request;
        let it = &mut self.memory.lines[line];
        let has_it = it.state == State::Shared && self.memory.is_sharer(line, cpu);
        if request.want == Want::Conditional && !has_it {
            request.failed = true;
            return Answer::Reply { data: false };
        }
        let it = &mut self.memory.lines[line];
        let upgrade = request.want != Want::Exclusive && has_it;
        if !upgrade {
            *occupancy = self.p.occupancy_data;
        }
        match it.state {
            State::Exclusive if usize::from(it.owner) != cpu => {
                it.busy = true;
                let owner = usize::from(it.owner);
                self.send_intervention(home, cpu, owner);
                return Answer::Forwarded;
            }
            State::Unowned | State::Exclusive => {}
            State::Shared => *occupancy += self.send_invalidations(home, cpu, line),
        }
        let it = &mut self.memory.lines[line];
        it.state = State::Exclusive;
        it.owner = cpu as u16;
        Answer::Reply { data: !upgrade }
    }

    fn send_intervention(&mut self, home: usize, asked: usize, owner: usize) {
        self.counters.interventions += 1;
        self.counters.interventions_received += self.p.per_node;
        let at = self.network.forward(self.now + self.p.occupancy_lookup, home, asked, owner);
        self.events.push(at, Kind::Intervene, owner, asked);
    }

    /// To all sharers' nodes but (if nobody else there shares) the own one. Returns how
    /// long the home is occupied by it.
    fn send_invalidations(&mut self, home: usize, asked: usize, line: usize) -> Time {
        let mut sharers = std::mem::take(&mut self.buffer);
        self.memory.sharers(line, &mut sharers);
        self.memory.clear_sharers(line);
        let mut leaves = self.now + self.p.occupancy_lookup;
        let mut sent = 0;
        let mut last = usize::MAX;
        for &sharer in sharers.iter().filter(|&&s| usize::from(s) != asked) {
            let node = self.network.node(usize::from(sharer));
            if node == last {
                continue;
            }
            last = node;
            sent += 1;
            leaves += self.p.occupancy_invalidation;
            let at = self.network.forward(leaves, home, asked, usize::from(sharer));
            self.events.push(at, Kind::Invalidate, line, node << 16 | asked);
        }
        self.buffer = sharers;
        self.cpus[asked].request.acks += sent as i32;
        self.counters.invalidations += sent;
        sent * self.p.occupancy_invalidation
    }

    pub(crate) fn node_invalidated(&mut self, line: usize, node: usize, asked: usize) {
        let first = node * self.p.per_node as usize;
        let last = (first + self.p.per_node as usize).min(self.cpus.len());
        for cpu in (first..last).filter(|&cpu| cpu != asked) {
            self.counters.invalidations_received += 1;
            let request = &mut self.cpus[cpu].request;
            if request.is_ordered_on(line) && request.want == Want::Read && !request.exclusive {
                request.once = true;
            }
            if self.memory.copy(line, cpu) != copy::INVALID {
                self.counters.invalidations_hit += 1;
                self.invalidate(line, cpu);
            }
        }
        let at = self.network.direct(self.now, first, asked, false);
        self.events.push(at, Kind::Acknowledge, asked, 0);
    }

    pub(crate) fn intervene(&mut self, owner: usize, asked: usize) {
        let request = &self.cpus[asked].request;
        let (read, line) = (request.want == Want::Read, request.line as usize);
        if self.cpus[owner].request.is_ordered_on(line) {
            // It has not got the line itself yet.
            self.cpus[owner].deferred = Some(asked as u16);
            return;
        }
        let home = usize::from(self.memory.lines[line].home);
        let supplies = self.now + self.p.owner_access;
        let at = self.network.direct(supplies, owner, asked, true);
        if self.memory.copy(line, owner) != copy::INVALID {
            if read {
                self.memory.set_copy(line, owner, copy::SHARED);
            } else {
                self.invalidate(line, owner);
            }
        }
        let it = &mut self.memory.lines[line];
        if read {
            it.state = State::Shared;
            self.memory.clear_sharers(line);
            self.memory.add_sharer(line, owner);
            self.memory.add_sharer(line, asked);
        } else {
            it.state = State::Exclusive;
            it.owner = asked as u16;
        }
        self.events.push(at, Kind::Reply, asked, 0);
        let distance = self.network.distance(asked, owner);
        self.counters.misses[distance.min(crate::counters::DISTANCES - 1)] += 1;
        self.counters.from_caches += 1;
        let at = self.network.back(supplies, owner, home, read);
        self.events.push(at, Kind::HomeUpdate, line, 0);
    }

    pub(crate) fn home_update(&mut self, line: usize) {
        self.memory.lines[line].busy = false;
        self.next_waiting(line);
    }

    /// The next request that waited for the line comes before others that wait for the
    /// home.
    fn next_waiting(&mut self, line: usize) {
        let Some(cpu) = self.directory.waiting.get_mut(line).and_then(VecDeque::pop_front) else { return };
        let home = usize::from(self.memory.lines[line].home);
        if self.directory.homes[home].serving {
            self.directory.homes[home].queue.push_front(cpu);
        } else {
            self.serve(home, usize::from(cpu));
        }
    }

    /// The memory gets a line back; the home knows at once, and the traffic is not
    /// charged.
    pub(crate) fn directory_write_back(&mut self, line: usize, cpu: usize) {
        let it = &mut self.memory.lines[line];
        if it.state == State::Exclusive && usize::from(it.owner) == cpu && !it.busy {
            it.state = State::Unowned;
        }
    }
}
