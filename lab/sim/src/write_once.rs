//! A bus that is held for a whole transaction, and caches that write once (Goodman, ISCA
//! 1983), as Greenwald & Cheriton's simulations have them.
//!
//! | state | here | reads | writes |
//! | --- | --- | --- | --- |
//! | Invalid | no copy | a line from memory | a line from memory, then as Valid |
//! | Valid | `SHARED` | hit | the word goes through to memory, which invalidates the other copies; then Reserved |
//! | Reserved | `MODIFIED`, mark not `dirty` | hit | hit; then Dirty |
//! | Dirty | `MODIFIED`, mark `dirty` | hit | hit |
//!
//! Somebody else's read makes Reserved Valid; a Dirty line goes back to memory first, in the same
//! transaction, and is then Valid. A Dirty line that has to leave its cache is written back right
//! after the transaction that drove it out, before anybody else gets the bus.
//!
//! Transactions are served one after the other in the order of their arrival. The other caches see
//! one when it begins; who asked has its line when it ends. Nothing overtakes anything, so there
//! are no races: what a request is, is decided when it gets the bus (an upgrade whose copy has gone
//! meanwhile is a write miss).

use std::collections::VecDeque;

use crate::engine::{Engine, NONE, Op, Want};
use crate::events::{Kind, Time};
use crate::memory::{AT_MEMORY, State, copy};

/// Who wants the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    /// A processor, for its request.
    Request { cpu: usize },
    /// A line that goes back to memory.
    WriteBack,
    /// The operating system, to change a word.
    System { cpu: usize, word: u32, op: Op },
}

#[derive(Debug, Default)]
pub(crate) struct HeldBus {
    waiting: VecDeque<Asking>,
    /// Who has it.
    holder: Option<Asking>,
}

impl HeldBus {
    /// Nobody waits for it.
    pub fn check_at_rest(&self) -> Result<(), String> {
        match (self.holder, self.waiting.front()) {
            (None, None) => Ok(()),
            held => Err(format!("the bus is held or waited for: {held:?}")),
        }
    }
}

impl Engine {
    pub(crate) fn held_issue(&mut self, cpu: usize) {
        let jitter = self.random.below(self.jitter + 1);
        self.events.push(self.now + jitter, Kind::BusGrant, cpu, 0);
    }

    pub(crate) fn held_arrive(&mut self, cpu: usize) {
        self.ask_for_bus(Asking::Request { cpu });
    }

    /// The operating system changes a word: in memory, past all caches.
    pub(crate) fn held_change(&mut self, cpu: usize, word: u32, op: Op) {
        self.ask_for_bus(Asking::System { cpu, word, op });
    }

    fn ask_for_bus(&mut self, asking: Asking) {
        self.held.waiting.push_back(asking);
        if self.held.holder.is_none() {
            self.next_transaction();
        }
    }

    /// A transaction is over. Its requester has its reply already, which was sent first.
    pub(crate) fn held_free(&mut self) {
        if let Some(Asking::System { cpu, word, op }) = self.held.holder.take() {
            op.apply(&mut self.memory.values[word as usize]);
            self.progress = self.now;
            self.changed(cpu);
        }
        // The system may have asked for it again meanwhile.
        if self.held.holder.is_none() {
            self.next_transaction();
        }
    }

    fn next_transaction(&mut self) {
        let Some(asking) = self.held.waiting.pop_front() else { return };
        self.held.holder = Some(asking);
        self.counters.bus_transactions += 1;
        let length = match asking {
            Asking::WriteBack => self.p.bus_write_back,
            Asking::System { word, .. } => {
                let line = self.memory.line_of(word);
                let length = self.take_back(line, NONE as usize) + self.p.bus_memory + self.p.bus_write;
                self.drop_copies(line, NONE as usize);
                length
            }
            Asking::Request { cpu } => {
                let length = self.serve_held(cpu);
                self.events.push(self.now + length, Kind::Reply, cpu, 0);
                length
            }
        };
        self.counters.bus_held += length;
        self.events.push(self.now + length, Kind::BusFree, 0, 0);
    }

    /// What becomes of a request that has got the bus. Returns for how long it holds it.
    fn serve_held(&mut self, cpu: usize) -> Time {
        let request = &mut self.cpus[cpu].request;
        request.served = true;
        let (line, second, prefetch) = (request.line as usize, request.second as usize, request.prefetch);
        match request.want {
            Want::Fetch => {
                let value = &mut self.memory.values[(request.word & !AT_MEMORY) as usize];
                request.result = request.op.apply(value);
                if request.op != Op::Load {
                    self.progress = self.now;
                }
                self.p.bus_memory
            }
            Want::Read => self.read_held(cpu, line),
            Want::Exclusive | Want::Upgrade => {
                let missing = self.memory.copy(line, cpu) == copy::INVALID;
                let fetched = if missing { self.read_held(cpu, line) } else { 0 };
                fetched + self.write_through(cpu, line, prefetch)
            }
            Want::Conditional | Want::Both => {
                let lines = [line, second];
                let lines = if second == NONE as usize || second == line { &lines[..1] } else { &lines };
                if lines.iter().any(|&line| self.memory.copy(line, cpu) == copy::INVALID) {
                    // The controller has seen its line go while it waited, and does not take the
                    // bus.
                    self.cpus[cpu].request.failed = true;
                    return 0;
                }
                let mut length = 0;
                for &line in lines {
                    if self.memory.copy(line, cpu) != copy::MODIFIED {
                        length += self.write_through(cpu, line, false);
                    }
                }
                length
            }
            Want::Locked => self.locked_double(cpu, [line, second]),
        }
    }

    /// A line comes from memory; whoever has it alone has it no longer.
    fn read_held(&mut self, cpu: usize, line: usize) -> Time {
        let back = self.take_back(line, cpu);
        self.counters.misses[usize::from(back != 0)] += 1;
        self.memory.lines[line].state = State::Shared;
        self.memory.add_sharer(line, cpu);
        back + self.p.bus_memory
    }

    /// Whoever but that one has a line alone shares it now, and memory is right. Returns
    /// how long that holds the bus.
    fn take_back(&mut self, line: usize, but: usize) -> Time {
        let it = self.memory.lines[line];
        let owner = usize::from(it.owner);
        if it.state != State::Exclusive || owner == but || self.memory.copy(line, owner) != copy::MODIFIED {
            return 0;
        }
        self.counters.interventions += 1;
        self.counters.interventions_received += 1;
        self.memory.set_copy(line, owner, copy::SHARED);
        self.memory.add_sharer(line, owner);
        self.memory.lines[line].state = State::Shared;
        if !std::mem::take(&mut self.memory.marks[line].dirty) {
            return 0;
        }
        self.counters.from_caches += 1;
        self.counters.write_backs += 1;
        self.p.bus_write_back
    }

    /// A word goes through to memory: its line is the writer's alone.
    fn write_through(&mut self, cpu: usize, line: usize, prefetch: bool) -> Time {
        self.drop_copies(line, cpu);
        let it = &mut self.memory.lines[line];
        it.state = State::Exclusive;
        it.owner = cpu as u16;
        self.memory.add_sharer(line, cpu);
        let mark = &mut self.memory.marks[line];
        (mark.dirty, mark.through) = (false, !prefetch);
        self.counters.write_throughs += 1;
        self.p.bus_write
    }

    /// All caches but one lose a line.
    fn drop_copies(&mut self, line: usize, but: usize) {
        for cpu in (0..self.cpus.len()).filter(|&cpu| cpu != but) {
            if self.memory.copy(line, cpu) != copy::INVALID {
                self.counters.invalidations += 1;
                self.counters.invalidations_received += 1;
                self.counters.invalidations_hit += 1;
                self.invalidate(line, cpu);
            }
        }
        self.memory.clear_sharers(line);
        self.memory.lines[line].state = State::Shared;
    }

    /// A double compare-and-swap in memory: no cache has the lines afterwards if it has
    /// written them.
    fn locked_double(&mut self, cpu: usize, lines: [usize; 2]) -> Time {
        let Some(t) = self.cpus[cpu].current else { return 0 };
        let double = self.threads[t].double;
        let distinct = if lines[0] == lines[1] { &lines[..1] } else { &lines };
        let mut length = 0;
        for &line in distinct {
            length += self.take_back(line, NONE as usize) + self.p.bus_memory;
            self.counters.misses[0] += 1;
        }
        let holds = |i: usize| self.memory.values[double.words[i] as usize] == double.old[i];
        let succeeds = holds(0) && holds(1);
        if succeeds {
            for &line in distinct {
                self.drop_copies(line, NONE as usize);
                self.memory.marks[line].locked = 0;
            }
            for (word, new) in double.words.into_iter().zip(double.new) {
                self.memory.values[word as usize] = new;
                self.counters.write_throughs += 1;
                length += self.p.bus_write;
            }
            self.progress = self.now;
        }
        self.cpus[cpu].request.result = u64::from(succeeds);
        length
    }

    /// A cache needs a line's place.
    pub(crate) fn held_evict(&mut self, line: usize, cpu: usize) {
        let owns = self.memory.copy(line, cpu) == copy::MODIFIED;
        self.invalidate(line, cpu);
        self.memory.remove_sharer(line, cpu);
        if owns {
            self.memory.lines[line].state = State::Shared;
            if std::mem::take(&mut self.memory.marks[line].dirty) {
                self.counters.write_backs += 1;
                // Nobody may read it from memory before that: it goes first.
                self.held.waiting.push_front(Asking::WriteBack);
                if self.held.holder.is_none() {
                    self.next_transaction();
                }
            }
        }
    }
}
