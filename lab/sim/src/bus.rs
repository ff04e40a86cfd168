//! A snooping bus with split transactions, in the manner of Sun's Gigaplane: MOESI
//! states, addresses and data on lines of their own.
//!
//! The order of the addresses is the order of coherence: when a request gets its address slot, its
//! place in the history of the line is decided. Several transactions on a line may be outstanding:
//! each waits until the one before it that changes the owner is through, and then takes what a
//! transfer takes, without asking for the bus again.

use std::collections::VecDeque;

use crate::engine::{Engine, Op, Want};
use crate::events::{Kind, Time};
use crate::memory::{AT_MEMORY, State, copy};

#[derive(Debug)]
pub(crate) struct Bus {
    /// When the next address slot begins.
    address: Time,
    data: Slots,
    banks: Vec<Slots>,
    order: u64,
}

/// Something that serves one at a time, each for the same length of time, and that is
/// booked in advance: by a chain of transfers of one line, say, which leaves gaps that others use.
#[derive(Clone, Debug, Default)]
struct Slots {
    /// When the bookings begin, in order.
    taken: VecDeque<Time>,
}

impl Slots {
    /// Books the first gap from `earliest` on. Returns when it begins.
    fn take(&mut self, now: Time, earliest: Time, length: Time) -> Time {
        if length == 0 {
            return earliest;
        }
        while self.taken.front().is_some_and(|&first| first + length <= now) {
            self.taken.pop_front();
        }
        let mut at = earliest;
        let mut place = self.taken.len();
        for (i, &begins) in self.taken.iter().enumerate() {
            if at + length <= begins {
                place = i;
                break;
            }
            at = at.max(begins + length);
        }
        self.taken.insert(place, at);
        at
    }
}

impl Bus {
    pub fn new(banks: usize) -> Self {
        Bus { address: 0, data: Slots::default(), banks: vec![Slots::default(); banks.max(1)], order: 0 }
    }
}

impl Engine {
    pub(crate) fn bus_issue(&mut self, cpu: usize) {
        let jitter = self.random.below(self.jitter + 1);
        let at = self.bus.address.max(self.now + jitter);
        self.bus.address = at + self.p.bus_address;
        self.counters.bus_transactions += 1;
        self.events.push(at, Kind::BusGrant, cpu, 0);
    }

    pub(crate) fn bus_grant(&mut self, cpu: usize) {
        let request = &mut self.cpus[cpu].request;
        let (want, line) = (request.want, request.line as usize);
        self.bus.order += 1;
        request.order = self.bus.order;
        request.served = true;
        if want == Want::Fetch {
            // No operations at memory on this bus: an uncached access to it.
            let value = &mut self.memory.values[(request.word & !AT_MEMORY) as usize];
            request.result = request.op.apply(value);
            if request.op != Op::Load {
                self.progress = self.now;
            }
            return self.events.push(self.now + self.p.bus_memory, Kind::Reply, cpu, 0);
        }
        let it = self.memory.lines[line];
        let starts = self.now.max(it.settled);
        let owns = it.state == State::Exclusive && usize::from(it.owner) == cpu;
        let has_it = owns || self.memory.is_sharer(line, cpu);
        if want == Want::Conditional && !has_it {
            self.cpus[cpu].request.failed = true;
            return self.events.push(starts + self.p.bus_snoop, Kind::Reply, cpu, 0);
        }
        let upgrade = matches!(want, Want::Upgrade | Want::Conditional) && has_it;
        let done = if upgrade {
            starts + self.p.bus_upgrade
        } else {
            let another = it.state == State::Exclusive && !owns;
            let arrives = if another {
                self.counters.from_caches += 1;
                self.counters.interventions += 1;
                self.counters.misses[1] += 1;
                starts + self.p.bus_transfer
            } else {
                self.counters.misses[0] += 1;
                let banks = self.bus.banks.len();
                self.bus.banks[line % banks].take(self.now, starts, self.p.bank_busy) + self.p.bus_memory
            };
            let data = self.p.bus_data;
            self.bus.data.take(self.now, arrives.saturating_sub(data), data) + data
        };
        let it = &mut self.memory.lines[line];
        if want == Want::Read {
            let alone = it.state == State::Unowned;
            self.cpus[cpu].request.exclusive = alone;
            if alone {
                it.state = State::Exclusive;
                it.owner = cpu as u16;
                it.settled = done;
            }
            self.memory.add_sharer(line, cpu);
        } else {
            it.state = State::Exclusive;
            it.owner = cpu as u16;
            it.settled = done;
            self.memory.clear_sharers(line);
            self.memory.add_sharer(line, cpu);
        }
        self.events.push(starts + self.p.bus_snoop, Kind::BusSnoop, cpu, line);
        self.events.push(done, Kind::Reply, cpu, 0);
    }

    /// The other caches see the request.
    pub(crate) fn bus_snoop(&mut self, asked: usize, line: usize) {
        let request = &self.cpus[asked].request;
        let (read, order) = (request.want == Want::Read, request.order);
        for cpu in (0..self.cpus.len()).filter(|&cpu| cpu != asked) {
            let other = &mut self.cpus[cpu].request;
            let earlier = other.is_ordered_on(line) && other.order < order;
            if read {
                if self.memory.copy(line, cpu) == copy::MODIFIED {
                    self.memory.set_copy(line, cpu, copy::OWNED);
                }
                continue;
            }
            if earlier && other.want == Want::Read {
                other.once = true;
            }
            if self.memory.copy(line, cpu) != copy::INVALID {
                self.counters.invalidations += 1;
                self.counters.invalidations_received += 1;
                self.counters.invalidations_hit += 1;
                self.invalidate(line, cpu);
            }
        }
    }

    /// A line goes back to memory.
    pub(crate) fn bus_write_back(&mut self, line: usize, cpu: usize) {
        self.bus.address = self.bus.address.max(self.now) + self.p.bus_address;
        self.bus.data.take(self.now, self.now, self.p.bus_data);
        self.counters.bus_transactions += 1;
        let banks = self.bus.banks.len();
        self.bus.banks[line % banks].take(self.now, self.now, self.p.bank_busy);
        let it = &mut self.memory.lines[line];
        if it.state == State::Exclusive && usize::from(it.owner) == cpu {
            it.state = State::Shared;
        }
        self.memory.remove_sharer(line, cpu);
    }
}
