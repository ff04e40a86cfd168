//! The queue of what is going to happen, in the order of (time, sequence).
//!
//! A calendar (Brown 1988) of one turn for what happens soon: a ring of short lists, one for each two nanoseconds of the next eight microseconds, with bits that say which of
//! them are not empty, so that putting in and taking out cost the same however much is under way. What comes later lies in a heap until it is the earliest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds since the start.
pub type Time = u64;

/// What happens. The two numbers beside it are explained here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A thread goes on. (thread, generation)
    Resume,
    /// A request reaches its home. (processor)
    HomeArrive,
    /// A home has finished with a request. (node)
    HomeFree,
    /// What a processor waits for reaches it. (processor)
    Reply,
    /// A request was refused; the processor sends it again. (processor)
    Retry,
    /// An invalidation reaches a node. (line, node and requester)
    Invalidate,
    /// An acknowledgement of an invalidation reaches the requester. (processor)
    Acknowledge,
    /// An intervention reaches the owner of a line. (owner, requester)
    Intervene,
    /// The home learns that an intervention is over. (line)
    HomeUpdate,
    /// A request gets the bus. (processor)
    BusGrant,
    /// The other caches see an exclusive request on the bus. (processor, line)
    BusSnoop,
    /// A time slice is over. (processor, generation)
    Quantum,
    /// A spinner's time may be over. (thread)
    Timer,
    /// A blocked thread may run again. (thread, generation)
    Ready,
    /// The operating system takes a processor for an interrupt. (processor)
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub time: Time,
    /// Sequence in the upper 56 bits, kind in the lower 8: one comparison decides between events of the same time.
    order: u64,
    pub a: u32,
    pub b: u32,
}

impl Event {
    pub fn kind(&self) -> Kind {
        KINDS[(self.order & 0xff) as usize]
    }
}

const KINDS: [Kind; 15] = [
    Kind::Resume,
    Kind::HomeArrive,
    Kind::HomeFree,
    Kind::Reply,
    Kind::Retry,
    Kind::Invalidate,
    Kind::Acknowledge,
    Kind::Intervene,
    Kind::HomeUpdate,
    Kind::BusGrant,
    Kind::BusSnoop,
    Kind::Quantum,
    Kind::Timer,
    Kind::Ready,
    Kind::Interrupt,
];

/// How far a thread may run ahead when nothing at all is due: a program that only reads for ever must come to the end of the engine's patience.
const LEASH: Time = 100_000_000_000;

/// How many lists the calendar has, and how many picoseconds (as a power of two) each stands for.
const LISTS: usize = 4096;
const WIDTH: u32 = 11;
/// No entry.
const NIL: u32 = u32::MAX;

/// Half a cache line of the host's.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Entry {
    event: Event,
    next: u32,
}

/// The queue, with a hash of all that has happened.
#[derive(Debug)]
pub(crate) struct Events {
    /// The first entry of each list.
    first: Box<[u32; LISTS]>,
    /// Which lists are not empty, and which of these words are not 0.
    filled: [u64; LISTS / 64],
    words: u64,
    entries: Vec<Entry>,
    /// Entries that are free, by `next`.
    free: u32,
    /// What was too late for the calendar.
    later: BinaryHeap<Reverse<Event>>,
    /// The time of the last event that happened: the calendar begins there.
    now: Time,
    /// The calendar's earliest event (`Time::MAX` if there is none), and its list.
    soon: Time,
    list: usize,
    /// The heap's earliest event; `Time::MAX` if there is none.
    late: Time,
    sequence: u64,
    /// The time of the earliest event, or earlier: nobody may run beyond it.
    pub horizon: Time,
    /// The horizon is never later, whatever is due.
    pub ceiling: Time,
    /// How many have happened.
    pub count: u64,
    /// Of all events so far, in order.
    pub hash: u64,
}

impl Events {
    pub fn new() -> Self {
        Events {
            first: Box::new([NIL; LISTS]),
            filled: [0; LISTS / 64],
            words: 0,
            entries: Vec::new(),
            free: NIL,
            later: BinaryHeap::new(),
            now: 0,
            soon: Time::MAX,
            list: 0,
            late: Time::MAX,
            sequence: 0,
            horizon: LEASH,
            ceiling: Time::MAX,
            count: 0,
            hash: 0,
        }
    }

    #[inline]
    pub fn push(&mut self, time: Time, kind: Kind, a: usize, b: usize) {
        self.sequence += 1;
        self.horizon = self.horizon.min(time);
        let order = self.sequence << 8 | kind as u64;
        let event = Event { time, order, a: a as u32, b: b as u32 };
        if (time >> WIDTH) - (self.now >> WIDTH) >= LISTS as u64 {
            self.late = self.late.min(time);
            return self.later.push(Reverse(event));
        }
        let list = (time >> WIDTH) as usize % LISTS;
        if time < self.soon {
            (self.soon, self.list) = (time, list);
        }
        self.filled[list / 64] |= 1 << (list % 64);
        self.words |= 1 << (list / 64);
        // Behind all that are not later.
        let (mut before, mut next) = (NIL, self.first[list]);
        while next != NIL && self.entries[next as usize].event.time <= time {
            (before, next) = (next, self.entries[next as usize].next);
        }
        let entry = Entry { event, next };
        let place = self.free;
        if place == NIL {
            self.entries.push(entry);
        } else {
            self.free = self.entries[place as usize].next;
            self.entries[place as usize] = entry;
        }
        let place = if place == NIL { self.entries.len() as u32 - 1 } else { place };
        if before == NIL {
            self.first[list] = place;
        } else {
            self.entries[before as usize].next = place;
        }
    }

    /// The list with the earliest event, if the calendar is not empty: the first one that is filled, beginning at the present.
    #[inline]
    fn earliest(&self) -> Option<usize> {
        if self.words == 0 {
            return None;
        }
        let start = (self.now >> WIDTH) as usize % LISTS;
        let (word, bit) = (start / 64, start % 64);
        let here = self.filled[word] >> bit << bit;
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        // The words after this one, then those before it, and at last the rest of this one.
        let after = self.words & (!1 << word);
        let words = if after != 0 { after } else { self.words };
        let word = words.trailing_zeros() as usize;
        Some(word * 64 + self.filled[word].trailing_zeros() as usize)
    }

    /// The next event, if it happens by `limit`. The one after it is looked for at once: the host's processor does so while it is busy with what the event does.
    #[inline]
    pub fn pop(&mut self, limit: Time) -> Option<Event> {
        if self.soon >= self.late {
            return self.pop_late(limit);
        }
        if self.soon > limit {
            return None;
        }
        Some(self.pop_soon())
    }

    /// The calendar's earliest event, which there must be.
    #[inline(always)]
    fn pop_soon(&mut self) -> Event {
        let list = self.list;
        let event = self.entries[self.first[list] as usize].event;
        self.take_first(list);
        self.now = event.time;
        if let Some(list) = self.earliest() {
            (self.list, self.soon) = (list, self.entries[self.first[list] as usize].event.time);
        } else {
            self.soon = Time::MAX;
        }
        self.happened(event)
    }

    /// The earliest event, if the heap's may come before the calendar's.
    #[cold]
    fn pop_late(&mut self, limit: Time) -> Option<Event> {
        let Reverse(late) = *self.later.peek()?;
        if late.time > limit {
            return None;
        }
        if self.soon == late.time && self.entries[self.first[self.list] as usize].event < late {
            return Some(self.pop_soon());
        }
        self.later.pop();
        self.late = self.later.peek().map_or(Time::MAX, |Reverse(late)| late.time);
        self.now = late.time;
        Some(self.happened(late))
    }

    #[inline(always)]
    fn happened(&mut self, event: Event) -> Event {
        self.horizon = self.soon.min(self.late).min(event.time.saturating_add(LEASH)).min(self.ceiling);
        self.count += 1;
        let what = event.time ^ (event.order & 0xff) << 56 ^ u64::from(event.a) << 20 ^ u64::from(event.b);
        self.hash = (self.hash.rotate_left(23) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        event
    }

    /// The earliest entry of a list goes.
    #[inline]
    fn take_first(&mut self, list: usize) {
        let place = self.first[list];
        let next = std::mem::replace(&mut self.entries[place as usize].next, self.free);
        self.free = place;
        self.first[list] = next;
        if next == NIL {
            self.filled[list / 64] &= !(1 << (list % 64));
            if self.filled[list / 64] == 0 {
                self.words &= !(1 << (list / 64));
            }
        }
    }

    /// When the next one happens.
    #[inline]
    pub fn next_time(&self) -> Option<Time> {
        let next = self.soon.min(self.late);
        (next != Time::MAX).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_sending() {
        let mut events = Events::new();
        for (time, a) in [(5, 0), (3, 1), (5, 2), (3, 3), (1, 4)] {
            events.push(time, Kind::Reply, a, 0);
        }
        assert_eq!(events.horizon, 1);
        let order: Vec<u32> = std::iter::from_fn(|| events.pop(Time::MAX)).map(|e| e.a).collect();
        assert_eq!(order, [4, 1, 3, 0, 2]);
        assert_eq!((events.horizon, events.count), (5 + LEASH, 5));
    }

    #[test]
    fn near_and_far_events_come_in_order() {
        // Against a sorted list: times within one list of the calendar, within its turn, beyond it, and far beyond.
        let mut random = crate::random::Random::new(3, 0);
        let mut events = Events::new();
        let (mut pending, mut now) = (Vec::new(), 0);
        for round in 0..200_000 {
            if random.below(100) < 50 - u64::from(pending.len() > 500) * 10 || pending.is_empty() {
                let spread = [1, 3_000, 1 << 20, 1 << 23, 1 << 24, 1 << 40][random.below(6) as usize];
                let time = now + random.below(spread);
                events.push(time, Kind::Reply, round, 0);
                pending.push((time, round));
            } else {
                let first = (0..pending.len()).min_by_key(|&i| pending[i]).unwrap();
                assert_eq!(events.next_time(), Some(pending[first].0));
                let event = events.pop(Time::MAX).unwrap();
                assert_eq!((event.time, event.a as usize), pending.swap_remove(first));
                now = event.time;
            }
        }
        let left = std::iter::from_fn(|| events.pop(Time::MAX)).count();
        assert_eq!(left, pending.len());
        assert!(events.words == 0 && events.later.is_empty() && events.entries.len() <= 600 + left);
    }

    #[test]
    fn every_kind_survives_its_packing() {
        let mut events = Events::new();
        for kind in KINDS {
            events.push(0, kind, 1, 2);
            assert_eq!(events.pop(Time::MAX).unwrap().kind(), kind);
        }
    }
}
