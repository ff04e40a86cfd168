//! Directories whose homes block: a controller at each node handles one message at a time
//! (Kuo, Carter & Kuramkote 1998, Sections 2 and 4.1: Avalanche).
//!
//! * A transaction takes four hops at most: from the requester to the home, to the owner or the
//!   sharers, back to the home, to the requester. Meanwhile the line is busy, and requests for it
//!   queue there.
//! * Each message that reaches a controller, and each request that leaves one, occupies it: longer
//!   if a block is moved. Messages wait for a controller in the order of their arrival.
//! * A processor whose own node is the home, and has what it asks for, gets it from local memory
//!   past the controller.
//! * A line that no cache has comes shared to a reader at another node, exclusively to one at the
//!   home.

use std::collections::VecDeque;

use crate::counters::{Counters, DISTANCES};
use crate::engine::Engine;
use crate::event_queue::{EventKind, Time};
use crate::interconnect::fetch_cache::FetchCache;
use crate::interconnect::switches::Switches;
use crate::interconnect::{Effect, Interconnect, SlackTable};
use crate::memory::{LineState, copy};
use crate::parameters::{NO_MESSAGES, Parameters};
use crate::request::Want;

/// Message of the protocol.
#[derive(Clone, Copy, Debug)]
enum ProtocolMessage {
    /// A processor's request leaves its node.
    Leave(u16),
    /// A processor's request reaches the home.
    Request(u16),
    /// The home asks an owner or a sharer, on behalf of a processor.
    Ask { line: u32, asked: u16 },
    /// An owner or a sharer answers the home.
    Answer { line: u32, data: bool },
    /// The home replies to a processor.
    Reply { cpu: u16, data: bool },
}

#[derive(Clone, Copy, Debug)]
struct ControllerMessage {
    node: u16,
    kind: ProtocolMessage,
}

#[derive(Debug, Default)]
struct Controller {
    queue: VecDeque<u32>,
    serving: bool,
    busy: Time,
    /// Number of transactions of its lines that wait for answers.
    under_way: u64,
    /// Requests that wait until one of these has ended.
    held: VecDeque<u32>,
    fetch_cache: FetchCache,
}

/// Transaction that waits for answers at its home.
#[derive(Clone, Copy, Debug)]
struct HomeTransaction {
    line: u32,
    cpu: u16,
    answers: u16,
    /// True if the requester has the line already.
    upgrade: bool,
}

/// Controllers at the nodes, and the switches between them.
#[derive(Debug)]
pub(crate) struct BlockingHomes {
    network: Switches,
    controllers: Vec<Controller>,
    packets: Vec<ControllerMessage>,
    free: Vec<u32>,
    pending: Vec<HomeTransaction>,
    /// Processors, for each line, whose requests wait until it is not busy any more.
    waiting: Vec<VecDeque<u16>>,
    /// Number of answers to invalidations that have come.
    acknowledged: u64,
    /// Sharers of the line that is being invalidated.
    buffer: Vec<u16>,
}

impl BlockingHomes {
    pub fn new(p: &Parameters, nodes: usize) -> Self {
        BlockingHomes {
            network: Switches::new(p, nodes),
            controllers: (0..nodes).map(|_| Controller::default()).collect(),
            packets: Vec::new(),
            free: Vec::new(),
            pending: Vec::new(),
            waiting: Vec::new(),
            acknowledged: 0,
            buffer: Vec::new(),
        }
    }
}

impl Interconnect for BlockingHomes {
    fn issue(&mut self, e: &mut Engine, cpu: usize) {
        let jitter = e.random.below(e.jitter + 1);
        e.events.push(e.now + jitter + e.p.to_hub, EventKind::HomeArrive, cpu, 0);
    }

    fn on_event(&mut self, e: &mut Engine, kind: EventKind, a: usize, b: usize) -> Effect {
        match kind {
            EventKind::HomeArrive => self.reach_controller(e, a),
            EventKind::ControllerArrive => self.arrive(e, a as u32),
            EventKind::ControllerFree => self.finish(e, a, b as u32),
            EventKind::Intervene => self.ask_owner(e, a, b),
            EventKind::Invalidate => self.ask_sharer(e, a, b >> 16, b & 0xffff),
            _ => unreachable!("{kind:?} among blocking homes"),
        }
        Effect::Nothing
    }

    fn evict(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        if e.drop_copy(line, cpu) {
            let it = &mut e.memory.lines[line];
            if it.state == LineState::Exclusive && usize::from(it.owner) == cpu && !it.busy {
                it.state = LineState::Unowned;
            }
        }
    }

    fn carry(&mut self, _e: &Engine, now: Time, from: usize, to: usize) -> Time {
        self.network.travel(now, from, to, false)
    }

    /// A cache changes by a question that a controller has handled, after `owner_access`.
    /// The question is that controller's own answer to a request, or has crossed the network and
    /// waited for another one.
    fn slacks(&self, e: &Engine) -> SlackTable {
        let asks = e.p.owner_access;
        let handles = e.p.occupancy_lookup.min(e.p.occupancy_data) + asks;
        let mut longest = e.p.to_hub + handles;
        if e.p.messages != NO_MESSAGES {
            longest = longest.min(e.p.message_interface);
        }
        use EventKind::*;
        SlackTable::default()
            // Another thread goes on: its next request leaves its node, or its next message.
            .with(&[Resume, Timer, Reply, Notify], longest)
            .with(&[Depart, Deliver], handles.min(longest))
            // Its controller is the first of two, or its home's.
            .with(&[HomeArrive, ControllerArrive, Intervene, Invalidate], handles)
            .with(&[ControllerFree], asks)
    }

    /// Checks that every invalidation was answered, that no request waits, no controller
    /// works, and that the directory covers the caches.
    fn check_at_rest(&self, e: &Engine) -> Result<(), String> {
        if self.acknowledged != e.counters.invalidations {
            let (acks, sent) = (self.acknowledged, e.counters.invalidations);
            return Err(format!("{sent} invalidations, {acks} acknowledgements"));
        }
        if let Some(node) =
            self.controllers.iter().position(|c| c.serving || !c.queue.is_empty() || !c.held.is_empty())
        {
            return Err(format!("controller {node} still works: {:?}", self.controllers[node]));
        }
        if let Some(line) = self.waiting.iter().position(|w| !w.is_empty()) {
            return Err(format!("line {line} is still waited for by {:?}", self.waiting[line]));
        }
        if !self.pending.is_empty() || self.free.len() != self.packets.len() {
            return Err(format!("transactions are under way: {:?}", self.pending));
        }
        e.check_lines()
    }

    fn count(&self, counters: &mut Counters) {
        counters.messages = self.network.messages;
        counters.home_busy = self.controllers.iter().map(|c| c.busy).max().unwrap_or(0);
    }
}

impl BlockingHomes {
    /// Returns the home's node of a processor's request.
    fn home_of(e: &Engine, cpu: usize) -> usize {
        usize::from(e.memory.lines[e.cpus[cpu].request.line as usize].home)
    }

    /// Handles a request that has come over its node's bus.
    fn reach_controller(&mut self, e: &mut Engine, cpu: usize) {
        let home = Self::home_of(e, cpu);
        if home != cpu {
            return self.deliver(e, e.now, cpu, ProtocolMessage::Leave(cpu as u16));
        }
        let line = e.cpus[cpu].request.line as usize;
        let it = &e.memory.lines[line];
        let is_here = match e.cpus[cpu].request.want {
            Want::Fetch | Want::Conditional => false,
            Want::Read => it.state != LineState::Exclusive || usize::from(it.owner) == cpu,
            _ => it.state == LineState::Unowned,
        };
        if is_here && !it.busy {
            self.grant(e, cpu, line, false, e.p.directory_latency);
        } else {
            self.deliver(e, e.now, cpu, ProtocolMessage::Request(cpu as u16));
        }
    }

    /// Sends a message from a node to another one's controller.
    fn send(&mut self, e: &mut Engine, from: usize, to: usize, kind: ProtocolMessage) {
        let data = matches!(
            kind,
            ProtocolMessage::Answer { data: true, .. } | ProtocolMessage::Reply { data: true, .. }
        );
        let at = self.network.travel(e.now, from, to, data);
        self.deliver(e, at, to, kind);
    }

    fn deliver(&mut self, e: &mut Engine, at: Time, node: usize, kind: ProtocolMessage) {
        let packet = ControllerMessage { node: node as u16, kind };
        let number = match self.free.pop() {
            Some(number) => {
                self.packets[number as usize] = packet;
                number
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        };
        e.events.push(at, EventKind::ControllerArrive, number as usize, 0);
    }

    fn arrive(&mut self, e: &mut Engine, number: u32) {
        let node = usize::from(self.packets[number as usize].node);
        self.controllers[node].queue.push_back(number);
        if !self.controllers[node].serving {
            self.next(e, node);
        }
    }

    /// Lets a controller that is free begin with its next message.
    fn next(&mut self, e: &mut Engine, node: usize) {
        let Some(number) = self.next_message(e, node) else {
            self.controllers[node].serving = false;
            return;
        };
        let kind = self.packets[number as usize].kind;
        let occupancy = self.occupancy(e, node, kind);
        let it = &mut self.controllers[node];
        it.serving = true;
        it.busy += occupancy;
        e.events.push(e.now + occupancy, EventKind::ControllerFree, node, number as usize);
    }

    /// Takes the next message out of a controller's queue.
    ///
    /// A request waits while the home has as many transactions as it can have
    /// (`directory.transactions`).
    fn next_message(&mut self, e: &Engine, node: usize) -> Option<u32> {
        let it = &mut self.controllers[node];
        let is_full = e.p.transactions != 0 && it.under_way == e.p.transactions;
        while let Some(number) = it.queue.pop_front() {
            if !is_full || !matches!(self.packets[number as usize].kind, ProtocolMessage::Request(_)) {
                return Some(number);
            }
            it.held.push_back(number);
        }
        None
    }

    /// Notes the end of a transaction at its home: requests that wait come first now.
    fn transaction_ends(&mut self, e: &mut Engine, node: usize) {
        let it = &mut self.controllers[node];
        it.under_way -= 1;
        while let Some(number) = it.held.pop_back() {
            it.queue.push_front(number);
        }
        if !it.serving {
            self.next(e, node);
        }
    }

    /// Returns how long a message occupies its controller, by the state of its line when
    /// the controller begins.
    fn occupancy(&mut self, e: &Engine, node: usize, kind: ProtocolMessage) -> Time {
        let moves = match kind {
            ProtocolMessage::Leave(_) => false,
            ProtocolMessage::Request(cpu) => {
                let request = &e.cpus[usize::from(cpu)].request;
                if request.want == Want::Fetch {
                    return self.controllers[node].fetch_cache.occupancy(&e.p, request.word);
                }
                let it = &e.memory.lines[request.line as usize];
                let has_it = e.memory.is_sharer(request.line as usize, usize::from(cpu));
                match it.state {
                    LineState::Exclusive => false,
                    LineState::Unowned => true,
                    LineState::Shared => request.want == Want::Read || !has_it,
                }
            }
            ProtocolMessage::Ask { line, .. } => e.memory.copy(line as usize, node) >= copy::OWNED,
            ProtocolMessage::Answer { data, .. } | ProtocolMessage::Reply { data, .. } => data,
        };
        if moves { e.p.occupancy_data } else { e.p.occupancy_lookup }
    }

    /// Acts on a message that its controller has handled.
    fn finish(&mut self, e: &mut Engine, node: usize, number: u32) {
        let kind = self.packets[number as usize].kind;
        self.free.push(number);
        match kind {
            ProtocolMessage::Leave(cpu) => {
                let home = Self::home_of(e, usize::from(cpu));
                self.send(e, node, home, ProtocolMessage::Request(cpu));
            }
            ProtocolMessage::Request(cpu) => {
                let line = e.cpus[usize::from(cpu)].request.line as usize;
                self.serve(e, node, usize::from(cpu));
                self.next_waiting(e, line);
            }
            ProtocolMessage::Ask { line, asked } => {
                self.reach_cache(e, node, line as usize, usize::from(asked))
            }
            ProtocolMessage::Answer { line, .. } => self.answered(e, line),
            ProtocolMessage::Reply { cpu, .. } => {
                e.events.push(e.now + e.p.to_processor, EventKind::Reply, usize::from(cpu), 0);
            }
        }
        self.next(e, node);
    }

    /// Serves a request at its home.
    fn serve(&mut self, e: &mut Engine, home: usize, cpu: usize) {
        let request = &e.cpus[cpu].request;
        let (want, line) = (request.want, request.line as usize);
        if want == Want::Fetch {
            e.operate_at_memory(cpu);
            return self.reply(e, home, cpu, false, 0);
        }
        if e.memory.lines[line].busy {
            let waiting = &mut self.waiting;
            waiting.resize_with(waiting.len().max(line + 1), VecDeque::new);
            return waiting[line].push_back(cpu as u16);
        }
        let it = e.memory.lines[line];
        let has_it = it.state == LineState::Shared && e.memory.is_sharer(line, cpu);
        if want == Want::Conditional && !has_it {
            e.cpus[cpu].request.failed = true;
            e.cpus[cpu].request.served = true;
            return self.reply(e, home, cpu, false, 0);
        }
        let upgrade = want != Want::Exclusive && want != Want::Read && has_it;
        let answers = match it.state {
            LineState::Exclusive if usize::from(it.owner) != cpu => {
                e.counters.interventions += 1;
                e.counters.interventions_received += 1;
                self.ask(e, home, usize::from(it.owner), line, cpu);
                1
            }
            LineState::Shared if want != Want::Read => self.ask_sharers(e, home, line, cpu),
            _ => 0,
        };
        if answers == 0 {
            return self.grant(e, cpu, line, upgrade, 0);
        }
        e.memory.lines[line].busy = true;
        self.controllers[home].under_way += 1;
        self.pending.push(HomeTransaction { line: line as u32, cpu: cpu as u16, answers, upgrade });
    }

    /// Asks all sharers but the requester to give up the line. Returns their number.
    fn ask_sharers(&mut self, e: &mut Engine, home: usize, line: usize, cpu: usize) -> u16 {
        let mut sharers = std::mem::take(&mut self.buffer);
        e.memory.sharers(line, &mut sharers);
        sharers.retain(|&sharer| usize::from(sharer) != cpu);
        for &sharer in &sharers {
            self.ask(e, home, usize::from(sharer), line, cpu);
        }
        e.counters.invalidations += sharers.len() as u64;
        let count = sharers.len() as u16;
        self.buffer = sharers;
        count
    }

    /// Asks a node for the line: the home's own over the bus.
    fn ask(&mut self, e: &mut Engine, home: usize, node: usize, line: usize, asked: usize) {
        if node == home {
            self.reach_cache(e, node, line, asked);
        } else {
            self.send(e, home, node, ProtocolMessage::Ask { line: line as u32, asked: asked as u16 });
        }
    }

    /// Lets a question reach a node's cache.
    fn reach_cache(&mut self, e: &mut Engine, node: usize, line: usize, asked: usize) {
        let at = e.now + e.p.owner_access;
        if e.memory.lines[line].state == LineState::Exclusive {
            e.events.push(at, EventKind::Intervene, node, asked);
        } else {
            e.events.push(at, EventKind::Invalidate, line, node << 16 | asked);
        }
    }

    fn ask_owner(&mut self, e: &mut Engine, owner: usize, asked: usize) {
        let request = &e.cpus[asked].request;
        let (read, line) = (request.want == Want::Read, request.line as usize);
        if e.cpus[owner].request.is_ordered_on(line) {
            // It has not got the line itself yet.
            e.cpus[owner].deferred = Some(asked as u16);
            return;
        }
        let home = usize::from(e.memory.lines[line].home);
        if e.memory.copy(line, owner) != copy::INVALID {
            if read {
                e.memory.set_copy(line, owner, copy::SHARED);
            } else {
                e.invalidate(line, owner);
            }
        }
        e.memory.clear_sharers(line);
        if read {
            e.memory.add_sharer(line, owner);
        }
        e.counters.from_caches += 1;
        self.answer(e, owner, home, line, true);
    }

    fn ask_sharer(&mut self, e: &mut Engine, line: usize, node: usize, asked: usize) {
        debug_assert_ne!(node, asked);
        e.counters.invalidations_received += 1;
        let request = &mut e.cpus[node].request;
        if request.is_ordered_on(line) && request.want == Want::Read && !request.exclusive {
            request.use_once = true;
        }
        if e.memory.copy(line, node) != copy::INVALID {
            e.counters.invalidations_hit += 1;
            e.invalidate(line, node);
        }
        self.acknowledged += 1;
        let home = usize::from(e.memory.lines[line].home);
        self.answer(e, node, home, line, false);
    }

    fn answer(&mut self, e: &mut Engine, node: usize, home: usize, line: usize, data: bool) {
        if node == home {
            self.answered(e, line as u32);
        } else {
            self.send(e, node, home, ProtocolMessage::Answer { line: line as u32, data });
        }
    }

    /// Notes an answer at the home, which grants the line when all have come.
    fn answered(&mut self, e: &mut Engine, line: u32) {
        let Some(at) = self.pending.iter().position(|p| p.line == line) else { return };
        self.pending[at].answers -= 1;
        if self.pending[at].answers != 0 {
            return;
        }
        let HomeTransaction { cpu, upgrade, .. } = self.pending.swap_remove(at);
        let line = line as usize;
        e.memory.lines[line].busy = false;
        let cpu = usize::from(cpu);
        if e.cpus[cpu].request.want == Want::Read {
            // The former owner is a sharer already, and memory is right again.
            e.memory.lines[line].state = LineState::Shared;
        }
        self.grant(e, cpu, line, upgrade, 0);
        self.next_waiting(e, line);
        self.transaction_ends(e, usize::from(e.memory.lines[line].home));
    }

    /// Lets the next request for a line that is not busy come to its home again.
    fn next_waiting(&mut self, e: &mut Engine, line: usize) {
        let it = &e.memory.lines[line];
        if it.busy {
            return;
        }
        let home = usize::from(it.home);
        if let Some(next) = self.waiting.get_mut(line).and_then(VecDeque::pop_front) {
            self.deliver(e, e.now, home, ProtocolMessage::Request(next));
        }
    }

    /// Grants a processor the line that it has asked for.
    fn grant(&mut self, e: &mut Engine, cpu: usize, line: usize, upgrade: bool, latency: Time) {
        let it = &mut e.memory.lines[line];
        let home = usize::from(it.home);
        if e.cpus[cpu].request.want != Want::Read {
            it.state = LineState::Exclusive;
            it.owner = cpu as u16;
            e.memory.clear_sharers(line);
        } else if it.state == LineState::Exclusive || it.state == LineState::Unowned && home == cpu {
            // Its own, which it had thrown out; or its own node's, which no other one has.
            it.state = LineState::Exclusive;
            it.owner = cpu as u16;
            e.cpus[cpu].request.exclusive = true;
        } else {
            it.state = LineState::Shared;
            e.memory.add_sharer(line, cpu);
        }
        e.cpus[cpu].request.served = true;
        if !upgrade {
            let distance = self.network.distance(home, cpu);
            e.counters.misses[distance.min(DISTANCES - 1)] += 1;
        }
        self.reply(e, home, cpu, !upgrade, latency);
    }

    fn reply(&mut self, e: &mut Engine, home: usize, cpu: usize, data: bool, latency: Time) {
        if home == cpu {
            e.events.push(e.now + latency + e.p.to_processor, EventKind::Reply, cpu, 0);
        } else {
            self.send(e, home, cpu, ProtocolMessage::Reply { cpu: cpu as u16, data });
        }
    }
}
