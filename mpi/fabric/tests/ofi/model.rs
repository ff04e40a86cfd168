//! Random sequences of calls between three endpoints, against a model in memory: every
//! report, every byte and every count is foretold.
//!
//! After each step every node makes progress until nothing happens any more, so that the model
//! knows the order in which messages arrive. (What is not foretold is when a send is reported that
//! has not found its receive: any time before it does, unless its delivery was asked for.)

use std::collections::HashMap;
use std::ptr::null_mut;

use towpath_machine::Random;

use super::settings::has_settings;
use super::support::*;
use sys::*;

const NODES: usize = 3;
/// Bytes of each node's memory that others use.
const WINDOW: usize = 40_000;
/// A buffer for several messages with less space than this is given back (the provider's
/// default).
const LEAST: usize = 64;
const DISCARD: u64 = 1 << 58;
const ENOKEY: i32 = 266;
const LENGTHS: [usize; 10] = [0, 1, 8, 40, 41, 256, 300, 5000, 30_000, 70_000];

/// Place of each count.
const SEND: usize = 0;
const RECEIVE: usize = 1;
const READ: usize = 2;
const WRITE: usize = 3;
const REMOTE_READ: usize = 4;
const REMOTE_WRITE: usize = 5;

/// Choices of a run, which follow from its seed.
struct Draw(Random);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}

#[derive(Clone)]
struct Message {
    from: usize,
    tag: Option<u64>,
    data: Option<u64>,
    bytes: Vec<u8>,
    /// The send's; 0 if it is not to be reported.
    context: usize,
}

/// Condition of a receive: a source, a tag and bits to be ignored.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    from: Option<usize>,
    tag: Option<(u64, u64)>,
}

impl Wanted {
    fn takes(&self, m: &Message) -> bool {
        let fits = match (self.tag, m.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(its)) => (tag ^ its) & !ignore == 0,
            _ => false,
        };
        fits && self.from.is_none_or(|from| from == m.from)
    }
    fn flags(&self) -> u64 {
        u64::from(FI_RECV | if self.tag.is_some() { FI_TAGGED } else { FI_MSG })
    }
}

/// A receive that waits. Its buffer has its context.
struct Posted {
    context: usize,
    wanted: Wanted,
    len: usize,
    /// Number of bytes in use, of a buffer for several messages.
    used: Option<usize>,
}

#[derive(Default)]
struct Side {
    posted: Vec<Posted>,
    waiting: Vec<Message>,
    claimed: Vec<(usize, Wanted, Message)>,
    /// Reports that must have come by the end of the step.
    receives: Vec<Report>,
    sends: Vec<(usize, i32)>,
    counts: [u64; 6],
    errors: [u64; 6],
    window: Vec<u8>,
}

struct World {
    nodes: Vec<Node>,
    sides: Vec<Side>,
    windows: Vec<Vec<u8>>,
    /// Sends that wait: whether they may be reported, and whether they have been.
    pending: HashMap<usize, (bool, bool)>,
    /// Bytes that operations refer to, by their context.
    buffers: HashMap<usize, Vec<u8>>,
    /// Parts of buffers at the end of the step.
    checks: Vec<(usize, usize, Vec<u8>)>,
    /// Buffers for several messages that are given back in this step.
    spent: Vec<usize>,
    /// Buffers that are not needed after this step.
    over: Vec<usize>,
    next: usize,
    random: Draw,
}

impl World {
    fn context(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// A message arrives.
    fn arrive(&mut self, at: usize, m: Message) {
        match self.sides[at].posted.iter().position(|posted| posted.wanted.takes(&m)) {
            Some(place) => self.fulfil(at, place, m),
            None => self.sides[at].waiting.push(m),
        }
    }

    /// A message has found its receive, or is thrown away.
    fn found(&mut self, m: &Message) {
        if let Some((_, reported)) = self.pending.remove(&m.context)
            && !reported
        {
            self.sides[m.from].sends.push((m.context, 0));
        }
        self.over.push(m.context);
    }

    fn fulfil(&mut self, at: usize, place: usize, m: Message) {
        let posted = &mut self.sides[at].posted[place];
        let (context, wanted) = (posted.context, posted.wanted);
        let Some(used) = posted.used else {
            let len = posted.len;
            self.sides[at].posted.remove(place);
            return self.take(at, context, wanted, (0, len), m, false);
        };
        let room = posted.len - used;
        let now = used + m.bytes.len().min(room);
        posted.used = Some(now);
        if posted.len - now < LEAST {
            self.sides[at].posted.remove(place);
            self.spent.push(context);
        }
        self.take(at, context, wanted, (used, room), m, true);
    }

    /// A receive gets a message into this part of its buffer.
    fn take(
        &mut self,
        at: usize,
        context: usize,
        wanted: Wanted,
        part: (usize, usize),
        m: Message,
        multi: bool,
    ) {
        let (offset, room) = part;
        let len = m.bytes.len().min(room);
        let excess = m.bytes.len() - len;
        let error = if excess > 0 { FI_ETRUNC as i32 } else { 0 };
        let data = if m.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let base = self.buffers[&context].as_ptr() as usize;
        let report = Report {
            context,
            flags: wanted.flags() | u64::from(data),
            len,
            buffer: if multi { base + offset } else { 0 },
            data: m.data.unwrap_or(0),
            tag: m.tag.unwrap_or(0),
            source: if error == 0 { self.nodes[at].peers[m.from] } else { ANY },
            error,
            excess,
        };
        let side = &mut self.sides[at];
        if error == 0 {
            side.counts[RECEIVE] += 1
        } else {
            side.errors[RECEIVE] += 1
        }
        side.receives.push(report);
        self.checks.push((context, offset, m.bytes[..len].to_vec()));
        if !multi {
            self.over.push(context);
        }
        self.found(&m);
    }

    fn send(&mut self) {
        let (from, to) = (self.random.below(NODES), self.random.below(NODES));
        // Several in a row, all to one: their order is known.
        for _ in 0..self.random.of(&[1, 1, 1, 2, 12]) {
            let len = self.random.of(&LENGTHS);
            let context = self.context();
            let bytes = pattern(len, context);
            self.buffers.insert(context, bytes.clone());
            let tag = (!self.random.one_in(3)).then(|| self.random.below(4) as u64);
            let data = self.random.one_in(3).then_some(context as u64 * 3);
            let node = &self.nodes[from];
            let peer = node.peers[to];
            let kept = &self.buffers[&context];
            let mut m = Message { from, tag, data, bytes, context };
            if len <= 256 && data.is_none() && self.random.one_in(4) {
                m.context = 0;
                let at = kept.as_ptr().cast();
                // SAFETY: the bytes are taken at once.
                start(&self.nodes, || unsafe {
                    match tag {
                        Some(tag) => call!(node.ep, tagged, inject, at, len, peer, tag),
                        None => call!(node.ep, msg, inject, at, len, peer),
                    }
                });
                self.over.push(context);
            } else {
                let matched = self.random.one_in(4);
                let mut flags = if data.is_some() { u64::from(FI_REMOTE_CQ_DATA) } else { 0 };
                flags |= if matched { u64::from(FI_MATCH_COMPLETE) } else { 0 };
                flags |= if self.random.one_in(4) { u64::from(FI_DELIVERY_COMPLETE) } else { 0 };
                flags |= if len <= 256 && self.random.one_in(4) { u64::from(FI_INJECT) } else { 0 };
                let (a, b) = kept.split_at(self.random.below(len + 1));
                start(&self.nodes, || {
                    node.send_message(peer, tag, &[a, b], data.unwrap_or(0), context, flags)
                });
                self.pending.insert(context, (!matched, false));
            }
            self.sides[from].counts[SEND] += 1;
            self.arrive(to, m);
        }
    }

    fn wanted(&mut self) -> Wanted {
        let from = self.random.one_in(2).then(|| self.random.below(NODES));
        let ignore = self.random.of(&[0, 1, 3, u64::MAX]);
        let tag = (!self.random.one_in(3)).then(|| (self.random.below(4) as u64, ignore));
        Wanted { from, tag }
    }

    fn source(&self, at: usize, wanted: Wanted) -> fi_addr_t {
        wanted.from.map_or(ANY, |from| self.nodes[at].peers[from])
    }

    fn receive(&mut self) {
        let (at, wanted, context) = (self.random.below(NODES), self.wanted(), self.context());
        let multi = self.random.one_in(6);
        let len = if multi { self.random.of(&[100, 1000, 50_000]) } else { self.random.of(&LENGTHS) };
        let from = self.source(at, wanted);
        self.buffers.insert(context, vec![0xee; len]);
        let into = self.buffers.get_mut(&context).expect("just inserted");
        let flags = if multi { FI_MULTI_RECV.into() } else { 0 };
        let (a, b) = into.split_at_mut(if multi { len } else { len / 3 });
        assert_eq!(self.nodes[at].receive_message(from, wanted.tag, &mut [a, b], context, flags), 0);
        self.sides[at].posted.push(Posted { context, wanted, len, used: multi.then_some(0) });
        self.match_waiting(at);
    }

    /// The last receive that was posted takes waiting messages.
    fn match_waiting(&mut self, at: usize) {
        let context = self.sides[at].posted.last().expect("just posted").context;
        loop {
            let side = &mut self.sides[at];
            let Some(place) = side.posted.iter().position(|posted| posted.context == context) else { return };
            let wanted = side.posted[place].wanted;
            let Some(message) = side.waiting.iter().position(|m| wanted.takes(m)) else { return };
            let m = side.waiting.remove(message);
            self.fulfil(at, place, m);
        }
    }

    fn cancel(&mut self) {
        let at = self.random.below(NODES);
        let n = self.sides[at].posted.len();
        if n == 0 || self.random.one_in(10) {
            assert_ne!(self.nodes[at].cancel(1), 0, "no receive has this context");
            return;
        }
        let place = self.random.below(n);
        self.take_back(at, place);
    }

    fn take_back(&mut self, at: usize, place: usize) {
        let posted = self.sides[at].posted.remove(place);
        let context = posted.context;
        assert_eq!(self.nodes[at].cancel(context), 0);
        if posted.used.is_some() {
            self.spent.push(context);
        }
        let (flags, error) = (posted.wanted.flags(), FI_ECANCELED as i32);
        let report = Report { context, flags, source: ANY, error, ..Report::default() };
        self.sides[at].receives.push(report);
        self.sides[at].errors[RECEIVE] += 1;
        self.over.push(context);
    }

    fn peek(&mut self) {
        let (at, wanted, context) = (self.random.below(NODES), self.wanted(), self.context());
        let how = self.random.of(&[0, FI_CLAIM, DISCARD]);
        let from = self.source(at, wanted);
        let flags = u64::from(FI_PEEK) | how;
        assert_eq!(self.nodes[at].receive_message(from, wanted.tag, &mut [], context, flags), 0);
        let mut report = Report { context, flags: wanted.flags(), source: ANY, ..Report::default() };
        match self.sides[at].waiting.iter().position(|m| wanted.takes(m)) {
            None => {
                report.tag = wanted.tag.map_or(0, |tag| tag.0);
                report.error = FI_ENOMSG as i32;
            }
            Some(place) => {
                let m = self.sides[at].waiting[place].clone();
                report.flags |= if m.data.is_some() { u64::from(FI_REMOTE_CQ_DATA) } else { 0 };
                report.len = m.bytes.len();
                (report.tag, report.data) = (m.tag.unwrap_or(0), m.data.unwrap_or(0));
                report.source = self.nodes[at].peers[m.from];
                if how != 0 {
                    self.sides[at].waiting.remove(place);
                }
                if how == FI_CLAIM {
                    self.sides[at].claimed.push((context, wanted, m));
                } else if how == DISCARD {
                    self.found(&m);
                }
            }
        }
        self.sides[at].receives.push(report);
    }

    fn claim(&mut self) {
        let at = self.random.below(NODES);
        let n = self.sides[at].claimed.len();
        if n == 0 {
            return;
        }
        let (context, wanted, m) = self.sides[at].claimed.swap_remove(self.random.below(n));
        if self.random.one_in(3) {
            let flags = FI_CLAIM | DISCARD;
            assert_eq!(self.nodes[at].receive_message(ANY, wanted.tag, &mut [], context, flags), 0);
            let source = self.nodes[at].peers[m.from];
            let tag = m.tag.unwrap_or(0);
            let report = Report { context, flags: wanted.flags(), source, tag, ..Report::default() };
            self.sides[at].receives.push(report);
            self.found(&m);
            return;
        }
        let len = self.random.of(&LENGTHS);
        self.buffers.insert(context, vec![0xee; len]);
        let into = self.buffers.get_mut(&context).expect("just inserted");
        assert_eq!(self.nodes[at].receive_message(ANY, wanted.tag, &mut [into], context, FI_CLAIM), 0);
        self.take(at, context, wanted, (0, len), m, false);
    }

    /// Reads, writes or counts in a peer's memory.
    fn use_memory(&mut self) {
        let (from, of) = (self.random.below(NODES), self.random.below(NODES));
        let (context, what) = (self.context(), self.random.below(3));
        let len = if what == 2 { 8 } else { self.random.of(&LENGTHS[1..9]) };
        let offset = self.random.below((WINDOW - len) / 8 + 1) * 8;
        let (node, peer) = (&self.nodes[from], self.nodes[from].peers[of]);
        let bad = self.random.one_in(8);
        let (key, at, ctx, d) =
            (if bad { 77 } else { of as u64 }, offset as u64, context as *mut _, null_mut());
        let data = (what == 0 && self.random.one_in(2)).then_some(context as u64);
        let bytes = if what == 1 { vec![0xee; len] } else { pattern(len, context) };
        self.buffers.insert(context, bytes.clone());
        let buffer = self.buffers.get_mut(&context).expect("just inserted");
        let (into, found) = (buffer.as_mut_ptr().cast(), context + (1 << 32));
        self.buffers.insert(found, vec![0xee; 8]);
        let result = self.buffers.get_mut(&found).expect("just inserted").as_mut_ptr().cast();
        // SAFETY: all of these stay until the end of the step.
        start(&self.nodes, || unsafe {
            match (what, data) {
                (0, None) => call!(node.ep, rma, write, into, len, d, peer, at, key, ctx),
                (0, Some(data)) => call!(node.ep, rma, writedata, into, len, d, data, peer, at, key, ctx),
                (1, _) => call!(node.ep, rma, read, into, len, d, peer, at, key, ctx),
                _ => call!(
                    node.ep, atomic, readwrite, into, 1, d, result, d, peer, at, key, FI_UINT64, FI_SUM, ctx
                ),
            }
        });
        self.over.extend([context, found]);
        let (own, theirs) = [(WRITE, REMOTE_WRITE), (READ, REMOTE_READ), (READ, REMOTE_WRITE)][what];
        if bad {
            self.sides[from].sends.push((context, ENOKEY));
            self.sides[from].errors[own] += 1;
            return;
        }
        self.sides[from].sends.push((context, 0));
        self.sides[from].counts[own] += 1;
        self.sides[of].counts[theirs] += 1;
        let part = &mut self.sides[of].window[offset..offset + len];
        match what {
            0 => part.copy_from_slice(&bytes),
            1 => self.checks.push((context, 0, part.to_vec())),
            _ => {
                self.checks.push((found, 0, part.to_vec()));
                let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
                let sum = word(part).wrapping_add(word(&bytes));
                part.copy_from_slice(&sum.to_ne_bytes());
            }
        }
        if let Some(data) = data {
            let flags = (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA).into();
            let source = self.nodes[of].peers[from];
            self.sides[of].receives.push(Report { flags, data, source, ..Report::default() });
        }
    }

    /// The end of a step: all that was foretold has come, and nothing else.
    fn settle(&mut self, what: &str) {
        let is_done = |sides: &[Side]| sides.iter().all(|s| s.receives.is_empty() && s.sends.is_empty());
        let mut given_back = Vec::new();
        let start = std::time::Instant::now();
        let mut quiet = 0;
        while quiet < 3 {
            let mut came = false;
            for (i, node) in self.nodes.iter().enumerate() {
                let side = &mut self.sides[i];
                while node.has_report(node.tx)
                    && let Some(report) = node.take(node.tx)
                {
                    came = true;
                    let outcome = (report.context, report.error);
                    if let Some(place) = side.sends.iter().position(|known| *known == outcome) {
                        side.sends.swap_remove(place);
                        continue;
                    }
                    let early = self.pending.get_mut(&report.context);
                    let early = early.unwrap_or_else(|| panic!("{what}: node {i} did not send {report:?}"));
                    assert_eq!((*early, report.error), ((true, false), 0), "{what}: {report:?}");
                    early.1 = true;
                }
                while node.has_report(node.rx)
                    && let Some(mut report) = node.take(node.rx)
                {
                    came = true;
                    let last = report.flags & u64::from(FI_MULTI_RECV) != 0;
                    report.flags &= !u64::from(FI_MULTI_RECV);
                    assert!(!given_back.contains(&report.context), "{what}: after its last: {report:?}");
                    if last {
                        given_back.push(report.context);
                    }
                    let place = side.receives.iter().position(|known| *known == report);
                    let place = place.unwrap_or_else(|| {
                        panic!("{what}: node {i} reports {report:?}, and should {:?}", side.receives)
                    });
                    side.receives.swap_remove(place);
                }
            }
            if came || !is_done(&self.sides) {
                quiet = 0;
                assert!(
                    start.elapsed() < PATIENCE,
                    "{what}: it does not come: {:?}",
                    self.sides.iter().map(|s| (&s.receives, &s.sends)).collect::<Vec<_>>()
                );
            } else {
                quiet += 1;
            }
        }
        given_back.sort_unstable();
        self.spent.sort_unstable();
        assert_eq!(given_back, self.spent, "{what}: buffers for several messages");
        for (context, offset, bytes) in self.checks.drain(..) {
            let part = &self.buffers[&context][offset..offset + bytes.len()];
            assert!(part == bytes, "{what}: {} bytes at {offset} of {context}", bytes.len());
        }
        for (window, side) in self.windows.iter().zip(&self.sides) {
            assert!(*window == side.window, "{what}: memory differs");
        }
        for context in self.over.drain(..).chain(self.spent.drain(..)) {
            self.buffers.remove(&context);
        }
    }
}

fn run(seed: u64, options: &Options) {
    let nodes = nodes(NODES, options);
    let windows = vec![vec![0u8; WINDOW]; NODES];
    let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let regions: Vec<_> =
        (0..NODES).map(|i| nodes[i].register(&windows[i], access, i as u64).expect("registered")).collect();
    let mut world = World {
        nodes,
        sides: (0..NODES).map(|_| Side { window: vec![0; WINDOW], ..Side::default() }).collect(),
        windows,
        pending: HashMap::new(),
        buffers: HashMap::new(),
        checks: Vec::new(),
        spent: Vec::new(),
        over: Vec::new(),
        next: 1,
        random: Draw(Random::new(seed)),
    };
    for step in 0..400 {
        let kind = world.random.below(20);
        match kind {
            0..6 => world.send(),
            6..12 => world.receive(),
            12 => world.cancel(),
            13 | 14 => world.peek(),
            15 | 16 => world.claim(),
            _ => world.use_memory(),
        }
        world.settle(&format!("seed {seed}, step {step}, kind {kind}"));
    }
    // Everything that waits is taken back or received.
    for at in 0..NODES {
        while !world.sides[at].posted.is_empty() {
            world.take_back(at, 0);
            world.settle(&format!("seed {seed}, taking back at {at}"));
        }
        while let Some(m) = world.sides[at].waiting.first() {
            let (len, context) = (m.bytes.len(), world.context());
            let m = &world.sides[at].waiting[0];
            let wanted = Wanted { from: None, tag: m.tag.map(|_| (0, u64::MAX)) };
            world.buffers.insert(context, vec![0xee; len]);
            let into = world.buffers.get_mut(&context).expect("just inserted");
            assert_eq!(world.nodes[at].receive(ANY, wanted.tag, into, context), 0);
            world.sides[at].posted.push(Posted { context, wanted, len, used: None });
            world.match_waiting(at);
            world.settle(&format!("seed {seed}, the rest at {at}"));
        }
        while !world.sides[at].claimed.is_empty() {
            world.claim();
            world.settle(&format!("seed {seed}, claims at {at}"));
        }
    }
    for (i, (node, side)) in world.nodes.iter().zip(&world.sides).enumerate() {
        let counts = COUNTED.map(|what| node.count(what));
        let errors = COUNTED.map(|what| node.errors(what));
        assert_eq!((counts, errors), (side.counts, side.errors), "seed {seed}: counters of node {i}");
    }
    assert!(world.pending.is_empty());
    regions.into_iter().for_each(|mr| assert_eq!(close(mr), 0));
}

/// Setting with which peeks find messages at once.
const AT_ONCE: (&str, &str) = ("TOWPATH_LOOK_TWICE", "0");

const SEEDS: u64 = 25;

#[test]
fn everything_is_as_the_model_says_through_slots() {
    if !has_settings(&[AT_ONCE]) {
        return;
    }
    for seed in 0..SEEDS {
        run(seed, &Options::default());
        run(seed, &Options { together: true, av: FI_AV_MAP, ..Options::default() });
    }
}

#[test]
fn everything_is_as_the_model_says_through_the_shared_queue() {
    if has_settings(&[AT_ONCE, ("TOWPATH_RING_AFTER", "4294967295")]) {
        (0..SEEDS).for_each(|seed| run(seed + 1000, &Options::default()));
    }
}

#[test]
fn everything_is_as_the_model_says_with_little_space() {
    let few = [("TOWPATH_RINGS", "1"), ("TOWPATH_UNEXPECTED", "10000"), ("TOWPATH_RING_AFTER", "20")];
    if has_settings(&[&few[..], &[AT_ONCE]].concat()) {
        let options = Options { threading: FI_THREAD_DOMAIN, ..Options::default() };
        (0..SEEDS).for_each(|seed| run(seed + 2000, &options));
    }
}

#[test]
fn everything_is_as_the_model_says_with_direct_copies() {
    let direct = [("TOWPATH_CMA", "1"), ("TOWPATH_CMA_OVERSUBSCRIBED", "1"), ("TOWPATH_EAGER", "200")];
    if has_settings(&[&direct[..], &[AT_ONCE]].concat()) {
        let options = Options { wait: FI_WAIT_FD, ..Options::default() };
        (0..SEEDS).for_each(|seed| run(seed + 3000, &options));
    }
}
