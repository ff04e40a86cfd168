//! Queue of future events, in the order of (time, sequence).
//!
//! A calendar (Brown 1988) of one turn for what happens soon: a ring of short lists, one for each
//! two nanoseconds of the next eight microseconds, with bits that say which of them are not empty,
//! so that putting in and taking out cost the same however much is under way. A later event lies in
//! a heap until it is the earliest. One event has a place of its own: that a home has finished. It
//! is every third one where a line is contended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds since the start.
pub type Time = u64;

/// Latest time of any clock (53 days), in picoseconds: sums of times do not overflow.
pub(crate) const FOREVER: Time = 1 << 62;

/// Kinds of events. The two numbers beside an event are named in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum EventKind {
    /// A thread goes on. (thread, generation)
    Resume,
    /// A request reaches its home. (processor)
    HomeArrive,
    /// A home has finished with a request. (node)
    HomeFree,
    /// The answer that a processor waits for reaches it. (processor)
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
    /// A store past the cache becomes visible (no coherence). (store)
    Visible,
    /// A transaction that held the bus is over (write-once).
    BusFree,
    /// A message of the coherence protocol reaches a controller. (message)
    ControllerArrive,
    /// A controller has finished with a message. (node, message)
    ControllerFree,
    /// A processor's message leaves its node. (message)
    Depart,
    /// A processor's message reaches its receiver's node. (message)
    Deliver,
    /// A processor is notified of a message. (processor)
    Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimedEvent {
    pub time: Time,
    /// Sequence in the upper 56 bits, kind in the lower 8: one comparison decides between
    /// events of the same time.
    order: u64,
    pub a: u32,
    pub b: u32,
}

impl TimedEvent {
    pub fn kind(&self) -> EventKind {
        KINDS[(self.order & 0xff) as usize]
    }
}

/// All kinds, by number.
pub(crate) const KINDS: [EventKind; 22] = [
    EventKind::Resume,
    EventKind::HomeArrive,
    EventKind::HomeFree,
    EventKind::Reply,
    EventKind::Retry,
    EventKind::Invalidate,
    EventKind::Acknowledge,
    EventKind::Intervene,
    EventKind::HomeUpdate,
    EventKind::BusGrant,
    EventKind::BusSnoop,
    EventKind::Quantum,
    EventKind::Timer,
    EventKind::Ready,
    EventKind::Interrupt,
    EventKind::Visible,
    EventKind::BusFree,
    EventKind::ControllerArrive,
    EventKind::ControllerFree,
    EventKind::Depart,
    EventKind::Deliver,
    EventKind::Notify,
];

/// Longest lead of a thread when nothing at all is due, in picoseconds: a program that
/// only reads for ever must come to the end of the engine's patience.
const LEASH: Time = 100_000_000_000;

/// Number of lists of the calendar; each stands for 2^[`WIDTH`] picoseconds.
const LISTS: usize = 4096;
const WIDTH: u32 = 11;
/// No entry.
const NIL: u32 = u32::MAX;

/// Half a cache line of the host's.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct HeapEntry {
    event: TimedEvent,
    next: u32,
}

/// No home is at work.
const NO_HOME: TimedEvent = TimedEvent { time: Time::MAX, order: EventKind::HomeFree as u64, a: 0, b: 0 };

/// The queue, with a hash of all that has happened.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The first entry of each list.
    first: Box<[u32; LISTS]>,
    /// Bit set of the lists that are not empty, and of its own words that are not 0.
    filled: [u64; LISTS / 64],
    words: u64,
    entries: Vec<HeapEntry>,
    /// Entries that are free, by `next`.
    free: u32,
    /// Events that were too late for the calendar.
    later: BinaryHeap<Reverse<TimedEvent>>,
    /// The list of the last event that happened: the calendar begins there. Its turn ends
    /// before this time.
    start: usize,
    end: Time,
    /// The calendar's earliest event (`Time::MAX` if there is none), and its list.
    soon: Time,
    list: usize,
    /// A [`EventKind::HomeFree`]; those of other homes lie in the calendar.
    free_home: TimedEvent,
    /// The time of the heap's earliest event; `Time::MAX` if there is none.
    late: Time,
    /// The earlier of these two.
    other: Time,
    sequence: u64,
    /// Time of the earliest event, or earlier: no thread may run beyond it.
    pub horizon: Time,
    /// Time before which the running thread may use its cache: the horizon, or later
    /// (`ahead.rs`).
    pub hits_until: Time,
    /// The horizon is never later, whatever is due.
    pub ceiling: Time,
    /// Number of events that have happened.
    pub count: u64,
    /// Hash of all events so far, in order.
    pub hash: u64,
}

impl EventQueue {
    pub fn new() -> Self {
        EventQueue {
            first: Box::new([NIL; LISTS]),
            filled: [0; LISTS / 64],
            words: 0,
            entries: Vec::new(),
            free: NIL,
            later: BinaryHeap::new(),
            start: 0,
            end: (LISTS as Time) << WIDTH,
            soon: Time::MAX,
            list: 0,
            free_home: NO_HOME,
            late: Time::MAX,
            other: Time::MAX,
            sequence: 0,
            horizon: LEASH,
            hits_until: LEASH,
            ceiling: Time::MAX,
            count: 0,
            hash: 0,
        }
    }

    /// Sets the time up to which a thread may run, and no further by hits in its cache.
    #[inline(always)]
    pub fn set_horizon(&mut self, time: Time) {
        self.horizon = time;
        self.hits_until = time;
    }

    #[inline(always)]
    pub fn push(&mut self, time: Time, kind: EventKind, a: usize, b: usize) {
        self.sequence += 1;
        self.set_horizon(self.horizon.min(time));
        let (order, a, b) = (self.sequence << 8 | kind as u64, a as u32, b as u32);
        if kind == EventKind::HomeFree && self.free_home.time == Time::MAX {
            self.free_home = TimedEvent { time, order, a, b };
            self.other = self.other.min(time);
        } else {
            self.put(time, order, a, b);
        }
    }

    /// Puts an event into the calendar or the heap. Number by number: an event that goes
    /// through the stack is read back before the host's processor has written it.
    #[inline(never)]
    fn put(&mut self, time: Time, order: u64, a: u32, b: u32) {
        if time >= self.end {
            return self.put_late(TimedEvent { time, order, a, b });
        }
        let list = (time >> WIDTH) as usize % LISTS;
        if time < self.soon {
            (self.soon, self.list) = (time, list);
        }
        self.filled[list / 64] |= 1 << (list % 64);
        self.words |= 1 << (list / 64);
        if self.free == NIL {
            self.make_room();
        }
        let place = self.free;
        let first = self.first[list];
        let entry = &mut self.entries[place as usize];
        self.free = entry.next;
        (entry.event.time, entry.event.order) = (time, order);
        (entry.event.a, entry.event.b) = (a, b);
        entry.next = first;
        self.first[list] = place;
        if first != NIL {
            self.put_behind(list, first, place);
        }
    }

    /// The entry at the beginning of a list goes behind all that are not later.
    fn put_behind(&mut self, list: usize, first: u32, place: u32) {
        let time = self.entries[place as usize].event.time;
        let (mut before, mut next) = (NIL, first);
        while next != NIL && self.entries[next as usize].event.time <= time {
            (before, next) = (next, self.entries[next as usize].next);
        }
        if before != NIL {
            self.first[list] = first;
            self.entries[before as usize].next = place;
            self.entries[place as usize].next = next;
        }
    }

    #[cold]
    fn put_late(&mut self, event: TimedEvent) {
        self.late = self.late.min(event.time);
        self.other = self.other.min(event.time);
        self.later.push(Reverse(event));
    }

    /// No entry is free.
    #[cold]
    fn make_room(&mut self) {
        self.free = self.entries.len() as u32;
        self.entries.push(HeapEntry { event: NO_HOME, next: NIL });
    }

    /// The list with the earliest event, if the calendar is not empty: the first one that
    /// is filled, beginning at the present.
    #[inline(always)]
    fn earliest(&self) -> Option<usize> {
        let (word, bit) = (self.start / 64 % (LISTS / 64), self.start % 64);
        let here = self.filled[word] >> bit << bit;
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        if self.words == 0 {
            return None;
        }
        // The words after this one, then those before it, and at last the rest of this one.
        let after = self.words & (!1 << word);
        let words = if after != 0 { after } else { self.words };
        let word = words.trailing_zeros() as usize;
        Some(word * 64 + self.filled[word].trailing_zeros() as usize)
    }

    /// The next event, if it happens by `limit`. The one after it is looked for at once:
    /// the host's processor does so while it is busy with what the event does.
    #[inline(always)]
    pub fn pop(&mut self, limit: Time) -> Option<TimedEvent> {
        if self.soon >= self.other {
            return self.pop_other(limit);
        }
        if self.soon > limit {
            return None;
        }
        Some(self.pop_soon())
    }

    /// The calendar's earliest event, which there must be.
    #[inline(always)]
    fn pop_soon(&mut self) -> TimedEvent {
        let list = self.list % LISTS;
        let place = self.first[list];
        let entry = &mut self.entries[place as usize];
        let event = entry.event;
        let next = std::mem::replace(&mut entry.next, self.free);
        self.free = place;
        self.first[list] = next;
        if next == NIL {
            self.filled[list / 64] &= !(1 << (list % 64));
            // No branch: whether the word is empty now is as good as random.
            self.words &= !(u64::from(self.filled[list / 64] == 0) << (list / 64));
        }
        self.happens_at(event.time);
        if let Some(list) = self.earliest() {
            (self.list, self.soon) = (list, self.entries[self.first[list % LISTS] as usize].event.time);
        } else {
            self.soon = Time::MAX;
        }
        self.happened(event)
    }

    /// The earliest event, if one outside the calendar may come before the calendar's.
    #[inline(always)]
    fn pop_other(&mut self, limit: Time) -> Option<TimedEvent> {
        let home = self.free_home;
        if home.time >= self.soon.min(self.late) {
            return self.pop_tied(limit);
        }
        if home.time > limit {
            return None;
        }
        self.happens_at(home.time);
        self.free_home = NO_HOME;
        self.other = self.late;
        Some(self.happened(home))
    }

    /// Takes the earliest event, if it may be the heap's, or two of the three have one
    /// time.
    #[cold]
    fn pop_tied(&mut self, limit: Time) -> Option<TimedEvent> {
        let late = self.later.peek().map(|Reverse(late)| *late);
        let home = Some(self.free_home).filter(|home| home.time != Time::MAX);
        let soon = (self.soon != Time::MAX).then(|| self.entries[self.first[self.list] as usize].event);
        let event = [late, home, soon].into_iter().flatten().min()?;
        if event.time > limit {
            return None;
        }
        if Some(event) == soon {
            return Some(self.pop_soon());
        }
        if Some(event) == late {
            self.later.pop();
            self.late = self.later.peek().map_or(Time::MAX, |Reverse(late)| late.time);
        } else {
            self.free_home = NO_HOME;
        }
        self.other = self.late.min(self.free_home.time);
        self.happens_at(event.time);
        Some(self.happened(event))
    }

    /// The calendar begins there.
    #[inline(always)]
    fn happens_at(&mut self, time: Time) {
        self.start = (time >> WIDTH) as usize % LISTS;
        self.end = ((time >> WIDTH) + LISTS as Time) << WIDTH;
    }

    #[inline(always)]
    fn happened(&mut self, event: TimedEvent) -> TimedEvent {
        self.set_horizon(self.soon.min(self.other).min(event.time + LEASH).min(self.ceiling));
        self.count += 1;
        let what = event.time ^ event.order << 56 ^ u64::from(event.a) << 20 ^ u64::from(event.b);
        self.hash = (self.hash.rotate_left(23) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        event
    }

    /// Returns the time of the earliest event outside the calendar; `Time::MAX` if there
    /// is none.
    pub fn other_time(&self) -> Time {
        self.other
    }

    /// Shows the calendar's events before `limit`, in the order of time, until one is not
    /// accepted.
    pub fn show_before(&self, limit: Time, mut accept: impl FnMut(&TimedEvent) -> bool) {
        if self.soon >= limit {
            return;
        }
        let last = (limit - 1).min(self.end - 1) >> WIDTH;
        let mut at = self.soon >> WIDTH;
        while at <= last {
            let list = at as usize % LISTS;
            let filled = self.filled[list / 64] >> (list % 64);
            if filled == 0 {
                at += 64 - list as u64 % 64;
                continue;
            }
            at += u64::from(filled.trailing_zeros());
            if at > last {
                return;
            }
            let mut place = self.first[at as usize % LISTS];
            while place != NIL {
                let HeapEntry { event, next } = &self.entries[place as usize];
                if event.time >= limit || !accept(event) {
                    return;
                }
                place = *next;
            }
            at += 1;
        }
    }

    /// Returns the time of the next event.
    #[inline]
    pub fn next_time(&self) -> Option<Time> {
        let next = self.soon.min(self.other);
        (next != Time::MAX).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_sending() {
        let mut events = EventQueue::new();
        for (time, a) in [(5, 0), (3, 1), (5, 2), (3, 3), (1, 4)] {
            events.push(time, EventKind::Reply, a, 0);
        }
        assert_eq!(events.horizon, 1);
        let order: Vec<u32> = std::iter::from_fn(|| events.pop(Time::MAX)).map(|e| e.a).collect();
        assert_eq!(order, [4, 1, 3, 0, 2]);
        assert_eq!((events.horizon, events.count), (5 + LEASH, 5));
    }

    #[test]
    fn near_and_far_events_come_in_order() {
        // Against a sorted list: times within one list of the calendar, within its turn, beyond it,
        // and far beyond.
        let mut random = towpath_machine::Random::stream(3, 0);
        let mut events = EventQueue::new();
        let (mut pending, mut now) = (Vec::new(), 0);
        for round in 0..200_000 {
            if random.below(100) < 50 - u64::from(pending.len() > 500) * 10 || pending.is_empty() {
                let spread = [1, 3_000, 1 << 20, 1 << 23, 1 << 24, 1 << 40][random.below(6) as usize];
                let time = now + random.below(spread);
                let kind = if random.below(3) == 0 { EventKind::HomeFree } else { EventKind::Reply };
                events.push(time, kind, round, 0);
                pending.push((time, round));
            } else {
                let first = (0..pending.len()).min_by_key(|&i| pending[i]).unwrap();
                assert_eq!(events.next_time(), Some(pending[first].0));
                assert_eq!(pending[first].0.checked_sub(1).and_then(|before| events.pop(before)), None);
                let event = events.pop(pending[first].0).unwrap();
                assert_eq!((event.time, event.a as usize), pending.swap_remove(first));
                now = event.time;
            }
        }
        let left = std::iter::from_fn(|| events.pop(Time::MAX)).count();
        assert_eq!(left, pending.len());
        assert!(
            events.words == 0
                && events.free_home == NO_HOME
                && events.later.is_empty()
                && events.entries.len() <= 600 + left
        );
    }

    #[test]
    fn every_kind_survives_its_packing() {
        let mut events = EventQueue::new();
        for kind in KINDS {
            events.push(0, kind, 1, 2);
            assert_eq!(events.pop(Time::MAX).unwrap().kind(), kind);
        }
    }
}
