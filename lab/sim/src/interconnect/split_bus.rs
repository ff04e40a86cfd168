//! A snooping bus with split transactions, in the manner of Sun's Gigaplane: MOESI
//! states, addresses and data on lines of their own.
//!
//! The order of the addresses is the order of coherence: when a request gets its address slot, its
//! place in the history of the line is decided. Several transactions on a line may be outstanding:
//! each waits until the one before it that changes the owner is through, and then takes what a
//! transfer takes, without asking for the bus again.

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::event_queue::{EventKind, Time};
use crate::interconnect::{Effect, Interconnect};
use crate::memory::{LineState, copy};
use crate::request::Want;

#[derive(Debug)]
pub(crate) struct SplitBus {
    /// Beginning of the next address slot.
    address: Time,
    data: Bookings,
    banks: Vec<Bookings>,
    order: u64,
}

/// Something that serves one at a time, each for the same length of time, and that is
/// booked in advance: by a chain of transfers of one line, say, which leaves gaps that others use.
#[derive(Clone, Debug, Default)]
struct Bookings {
    /// Beginnings of the bookings, in order.
    taken: VecDeque<Time>,
}

impl Bookings {
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

impl SplitBus {
    pub fn new(banks: usize) -> Self {
        SplitBus {
            address: 0,
            data: Bookings::default(),
            banks: vec![Bookings::default(); banks.max(1)],
            order: 0,
        }
    }
}

impl Interconnect for SplitBus {
    fn issue(&mut self, e: &mut Engine, cpu: usize) {
        let jitter = e.random.below(e.jitter + 1);
        let at = self.address.max(e.now + jitter);
        self.address = at + e.p.bus_address;
        e.counters.bus_transactions += 1;
        e.events.push(at, EventKind::BusGrant, cpu, 0);
    }

    fn on_event(&mut self, e: &mut Engine, kind: EventKind, a: usize, b: usize) -> Effect {
        match kind {
            EventKind::BusGrant => self.grant(e, a),
            EventKind::BusSnoop => self.snoop(e, a, b),
            _ => unreachable!("{kind:?} on a split bus"),
        }
        Effect::Nothing
    }

    fn evict(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        if e.drop_copy(line, cpu) {
            self.write_back(e, line, cpu);
        }
    }

    fn check_at_rest(&self, e: &Engine) -> Result<(), String> {
        e.check_lines()
    }
}

impl SplitBus {
    fn grant(&mut self, e: &mut Engine, cpu: usize) {
        let request = &mut e.cpus[cpu].request;
        let (want, line) = (request.want, request.line as usize);
        self.order += 1;
        request.order = self.order;
        request.served = true;
        if want == Want::Fetch {
            // No operations at memory on this bus: an uncached access to it.
            e.operate_at_memory(cpu);
            return e.events.push(e.now + e.p.bus_memory, EventKind::Reply, cpu, 0);
        }
        let it = e.memory.lines[line];
        let starts = e.now.max(it.settled);
        let owns = it.state == LineState::Exclusive && usize::from(it.owner) == cpu;
        let has_it = owns || e.memory.is_sharer(line, cpu);
        if want == Want::Conditional && !has_it {
            e.cpus[cpu].request.failed = true;
            return e.events.push(starts + e.p.bus_snoop, EventKind::Reply, cpu, 0);
        }
        let upgrade = matches!(want, Want::Upgrade | Want::Conditional) && has_it;
        let done = if upgrade {
            starts + e.p.bus_upgrade
        } else {
            let another = it.state == LineState::Exclusive && !owns;
            let arrives = if another {
                e.counters.from_caches += 1;
                e.counters.interventions += 1;
                e.counters.misses[1] += 1;
                starts + e.p.bus_transfer
            } else {
                e.counters.misses[0] += 1;
                let banks = self.banks.len();
                self.banks[line % banks].take(e.now, starts, e.p.bank_busy) + e.p.bus_memory
            };
            let data = e.p.bus_data;
            self.data.take(e.now, arrives.saturating_sub(data), data) + data
        };
        let it = &mut e.memory.lines[line];
        if want == Want::Read {
            let alone = it.state == LineState::Unowned;
            e.cpus[cpu].request.exclusive = alone;
            if alone {
                it.state = LineState::Exclusive;
                it.owner = cpu as u16;
                it.settled = done;
            }
            e.memory.add_sharer(line, cpu);
        } else {
            it.state = LineState::Exclusive;
            it.owner = cpu as u16;
            it.settled = done;
            e.memory.clear_sharers(line);
            e.memory.add_sharer(line, cpu);
        }
        e.events.push(starts + e.p.bus_snoop, EventKind::BusSnoop, cpu, line);
        e.events.push(done, EventKind::Reply, cpu, 0);
    }

    /// The other caches see the request.
    fn snoop(&mut self, e: &mut Engine, asked: usize, line: usize) {
        let request = &e.cpus[asked].request;
        let (read, order) = (request.want == Want::Read, request.order);
        for cpu in (0..e.cpus.len()).filter(|&cpu| cpu != asked) {
            let other = &mut e.cpus[cpu].request;
            let earlier = other.is_ordered_on(line) && other.order < order;
            if read {
                if e.memory.copy(line, cpu) == copy::MODIFIED {
                    e.memory.set_copy(line, cpu, copy::OWNED);
                }
                continue;
            }
            if earlier && other.want == Want::Read {
                other.use_once = true;
            }
            if e.memory.copy(line, cpu) != copy::INVALID {
                e.snoop_away(line, cpu);
            }
        }
    }

    /// A line goes back to memory.
    fn write_back(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        self.address = self.address.max(e.now) + e.p.bus_address;
        self.data.take(e.now, e.now, e.p.bus_data);
        e.counters.bus_transactions += 1;
        let banks = self.banks.len();
        self.banks[line % banks].take(e.now, e.now, e.p.bank_busy);
        let it = &mut e.memory.lines[line];
        if it.state == LineState::Exclusive && usize::from(it.owner) == cpu {
            it.state = LineState::Shared;
        }
        e.memory.remove_sharer(line, cpu);
    }
}
