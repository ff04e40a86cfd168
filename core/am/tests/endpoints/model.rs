//! Random operations on three endpoints, against a model of the promises of Active
//! Messages II.
//!
//! The model (`model/reference.rs`) and the endpoints do the same, and after every operation
//! everything that handlers saw is compared, in its order, and how full every queue is; at the end,
//! the segments.
//!
//! The model leaves messages to oneself to `semantics.rs`.

mod reference;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Watchdog, members, tiny};
use proptest::collection::vec;
use proptest::prelude::*;
use reference::{
    BLOCK, End, Form, HANDLERS, Model, NO_NAME, Outgoing, REPLIES, REQUESTS, SEGMENT, Seen, answer, pattern,
};
use towpath_am::{
    Algorithm, Audit, Bundle, Endpoint, Error, Name, Payload, Segment, Tag, Token, WorldConfig,
};
use towpath_shm::World;

const ENDS: usize = 3;
// ---- What is done ----

/// Operation of the model; `from` and so on are endpoints. Tried is always a long
/// transfer.
#[derive(Clone, Debug)]
enum Op {
    Send { from: usize, entry: usize, out: Outgoing },
    Try { from: usize, entry: usize, out: Outgoing },
    Map { at: usize, entry: usize, to: usize, tag: Tag, stale: bool },
    Unmap { at: usize, entry: usize },
    SetTag { at: usize, tag: Tag },
    SetHandler { at: usize, handler: u8, exists: bool },
    Poll { at: usize },
    PollBundle,
    Settle,
    Wait { at: usize },
    Replace { at: usize, noticed: bool, polled: bool },
}

fn outgoing() -> impl Strategy<Value = Outgoing> {
    let form = prop_oneof![4 => Just(Form::Short), 2 => Just(Form::Medium), 3 => Just(Form::Long)];
    // The parts of answers come first: handler, length, offset.
    let said = (0..HANDLERS as u32 + 2, 0..=BLOCK as u32, 0..SEGMENT as u32 + 9);
    let rest = vec(any::<u32>(), 0..=13);
    let args = prop_oneof![
        9 => (said, rest).prop_map(|((a, b, c), rest)| [vec![a, b, c], rest].concat()),
        1 => vec(0..3u32, 0..3),
        1 => Just(vec![1; 17]),
    ];
    let len = prop_oneof![4 => 0..=BLOCK, 4 => 0..4 * BLOCK, 1 => SEGMENT..SEGMENT + 300];
    let size = SEGMENT as u64;
    let offset = prop_oneof![4 => 0..size / 4, 2 => 0..size, 1 => size..size + 3, 1 => Just(1 << 48)];
    (form, 0..HANDLERS + 2, args, len, offset).prop_map(|(form, handler, args, len, offset)| Outgoing {
        form,
        handler,
        bytes: pattern(args.first().map_or(7, |a| a + offset as u32 + len as u32), len),
        args,
        offset,
    })
}

fn tag() -> impl Strategy<Value = Tag> {
    prop_oneof![4 => Just(Tag::ALL), 1 => Just(Tag::NONE), 3 => (5..7u64).prop_map(Tag)]
}

fn op() -> impl Strategy<Value = Op> {
    let end = || 0..ENDS;
    // Entry 3 is never mapped: its number is too large.
    let entry = || prop_oneof![9 => 0..3usize, 1 => Just(3)];
    prop_oneof![
        24 => (end(), entry(), outgoing()).prop_map(|(from, entry, out)| Op::Send { from, entry, out }),
        4 => (end(), entry(), outgoing()).prop_map(|(from, entry, out)| Op::Try { from, entry, out: Outgoing { form: Form::Long, ..out } }),
        4 => (end(), entry(), end(), tag(), prop::bool::weighted(0.1))
            .prop_map(|(at, entry, to, tag, stale)| Op::Map { at, entry, to, tag, stale }),
        1 => (end(), entry()).prop_map(|(at, entry)| Op::Unmap { at, entry }),
        2 => (end(), tag()).prop_map(|(at, tag)| Op::SetTag { at, tag }),
        3 => (end(), 0..HANDLERS, prop::bool::weighted(0.6))
            .prop_map(|(at, handler, exists)| Op::SetHandler { at, handler, exists }),
        3 => end().prop_map(|at| Op::Poll { at }),
        1 => Just(Op::PollBundle),
        1 => Just(Op::Settle),
        1 => end().prop_map(|at| Op::Wait { at }),
        2 => (end(), any::<bool>(), any::<bool>())
            .prop_map(|(at, noticed, polled)| Op::Replace { at, noticed, polled }),
    ]
}

// ---- Both side by side ----

type Log = Arc<Mutex<Vec<Seen>>>;

/// A handler: as [`Model::run`] says.
fn handler(number: u8, log: Log) -> impl Fn(&Token<'_>) + Send + Sync + 'static {
    move |message| {
        let bytes = match message.payload() {
            Payload::None => vec![],
            Payload::Medium(bytes) => bytes.to_vec(),
            Payload::Long { offset, len } => {
                let mut bytes = vec![0; len as usize];
                message.segment().read(offset, &mut bytes);
                bytes
            }
        };
        log.lock().unwrap().push(Seen {
            handler: number,
            source: message.source(),
            tag: message.tag(),
            args: message.args().to_vec(),
            bytes,
            request: message.is_request(),
            returned: message.returned(),
        });
        let (to, bytes, offset) = answer(message.args());
        let replied = match number {
            2 => message.reply(to, message.args()),
            3 => message.reply_medium(to, message.args(), &bytes),
            4 => message.reply_long(to, message.args(), &bytes, offset),
            _ => return,
        };
        assert_eq!(replied.is_ok(), message.is_request(), "{replied:?}");
    }
}

fn kind(result: Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(Error::NotInitialised(_)) => "not initialised",
        Err(Error::BadArgument(_)) => "bad argument",
        Err(Error::NotSent) => "not sent",
        Err(_) => "another error",
    }
}

struct Both {
    model: Model,
    bundle: Bundle,
    /// `None` only while one is replaced.
    ends: Vec<Option<Endpoint>>,
    logs: Vec<Log>,
    /// The last endpoint's name, where there was one.
    before: Vec<Option<Name>>,
    worlds: Vec<World>,
}

fn index(entry: usize) -> usize {
    [0, 1, 300, 70_000][entry]
}

impl Both {
    fn new(algorithm: Algorithm, shared: [bool; ENDS]) -> Both {
        // The model knows queues; what goes through lines is `answers.rs`, `stress.rs`.
        let config = WorldConfig {
            segment_bytes: SEGMENT as u64,
            answer_lines: false,
            ..tiny(ENDS as u32, algorithm)
        };
        let worlds = members(&config);
        let (ends, logs) = (vec![], (0..ENDS).map(|_| Log::default()).collect());
        let mut both = Both {
            model: Model::default(),
            bundle: Bundle::new(),
            ends,
            logs,
            before: vec![None; ENDS],
            worlds,
        };
        for (i, shared) in shared.into_iter().enumerate() {
            let endpoint = both.open(i, shared);
            both.model.ends.push(End::new(endpoint.name(), shared, vec![0; SEGMENT]));
            both.model.order.push(i);
            both.ends.push(Some(endpoint));
        }
        // Entry 0 leads to the next, entry 1 to the one before.
        for (i, entry) in (0..ENDS).flat_map(|i| [(i, 0), (i, 1)]) {
            let to = (i + 1 + entry) % ENDS;
            both.apply(&Op::Map { at: i, entry, to, tag: Tag::ALL, stale: false });
        }
        both
    }

    fn open(&self, i: usize, shared: bool) -> Endpoint {
        let endpoint = match shared {
            true => Endpoint::with_shared_segment(&self.worlds[i]).unwrap(),
            false => Endpoint::with_private_segment(&self.worlds[i], SEGMENT).unwrap(),
        };
        for number in 0..HANDLERS {
            endpoint.set_handler(number, handler(number, self.logs[i].clone()));
        }
        self.bundle.add(&endpoint);
        endpoint
    }

    fn end(&self, i: usize) -> &Endpoint {
        self.ends[i].as_ref().expect("only while it is replaced")
    }

    fn settle(&mut self) {
        while self.bundle.poll() > 0 {}
        while self.model.poll_bundle() > 0 {}
    }

    fn send(&mut self, from: usize, entry: usize, out: &Outgoing, wait: bool) {
        let too_large = match out.form {
            Form::Short => false,
            Form::Medium => out.bytes.len() > BLOCK,
            Form::Long => out.offset >= 1 << 48,
        };
        let expected = match self.model.ends[from].table.get(entry).copied().flatten() {
            None => "not initialised",
            Some(_) if too_large || out.args.len() > 16 => "bad argument",
            Some((to, tag)) => match self.model.send(from, to, tag, REQUESTS, out, wait) {
                Ok(()) => "ok",
                Err(()) => "not sent",
            },
        };
        let (end, entry) = (self.end(from), index(entry));
        let Outgoing { handler, args, bytes, offset, .. } = out;
        let result = match out.form {
            Form::Short => end.request(entry, *handler, args),
            Form::Medium => end.request_medium(entry, *handler, args, bytes),
            Form::Long if wait => end.request_long(entry, *handler, args, bytes, *offset),
            Form::Long => end.request_long_async(entry, *handler, args, bytes, *offset),
        };
        assert_eq!(kind(result), expected);
        if expected == "not sent" {
            // A block that was claimed in vain is free again, but not the next in turn: until the
            // others are free too, some algorithms wait for one more.
            self.settle();
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Send { from, entry, out } => self.send(*from, *entry, out, true),
            Op::Try { from, entry, out } => self.send(*from, *entry, out, false),
            &Op::Map { at, entry, to, tag, stale } => {
                let to = if at == to { (to + 1) % ENDS } else { to };
                let name = self.before[to].filter(|_| stale);
                let result = self.end(at).map(index(entry), name.unwrap_or(self.end(to).name()), tag);
                let good = name.is_none() && entry < 3;
                if good {
                    self.model.ends[at].table[entry] = Some((self.model.ends[to].name, tag));
                }
                assert_eq!(kind(result), if good { "ok" } else { "bad argument" });
            }
            &Op::Unmap { at, entry } => {
                let was = self.model.ends[at].table.get_mut(entry).and_then(Option::take);
                let result = self.end(at).unmap(index(entry));
                assert_eq!(kind(result), if was.is_some() { "ok" } else { "not initialised" });
            }
            &Op::SetTag { at, tag } => {
                self.model.ends[at].tag = tag;
                self.end(at).set_tag(tag);
            }
            &Op::SetHandler { at, handler: number, exists } => {
                self.model.ends[at].handlers[usize::from(number)] = exists;
                match exists {
                    true => self.end(at).set_handler(number, handler(number, self.logs[at].clone())),
                    false => self.end(at).clear_handler(number),
                }
            }
            &Op::Poll { at } => assert_eq!(self.end(at).poll(), self.model.poll(at)),
            Op::PollBundle => assert_eq!(self.bundle.poll(), self.model.poll_bundle()),
            Op::Settle => self.settle(),
            &Op::Wait { at } => {
                let end = &self.model.ends[at];
                let something = !end.returns.is_empty() || end.queues.iter().any(|q| !q.is_empty());
                assert_eq!(self.end(at).wait(Some(Duration::ZERO)), something);
                if !something {
                    self.model.return_owed(at);
                }
            }
            &Op::Replace { at, noticed, polled } => self.replace(at, noticed, polled),
        }
    }

    fn replace(&mut self, at: usize, noticed: bool, polled: bool) {
        let others = [(at + 1) % ENDS, (at + 2) % ENDS];
        self.ends[at] = None;
        self.model.order.retain(|i| *i != at);
        let end = &mut self.model.ends[at];
        let (before, shared) = (std::mem::replace(&mut end.name, NO_NAME), end.shared);
        self.model.closed = (before, std::mem::take(&mut end.queues[REQUESTS]));
        if noticed {
            for i in others {
                self.end(i).recover();
                self.model.notice(i);
                self.model.return_owed(i);
            }
        }
        if polled || !noticed {
            self.settle();
        }
        let endpoint = self.open(at, shared);
        // Shared memory is as the last endpoint left it.
        let segment = if shared { self.model.ends[at].segment.clone() } else { vec![0; SEGMENT] };
        self.model.ends[at] = End::new(endpoint.name(), shared, segment);
        self.model.order.push(at);
        if !noticed {
            self.model.succeed();
        }
        self.before[at] = Some(before);
        self.ends[at] = Some(endpoint);
        self.logs[at].lock().unwrap().clear();
    }

    /// Compares all that was seen since the last comparison, and the lengths of the
    /// queues.
    fn compare(&mut self) {
        for i in 0..ENDS {
            let seen = std::mem::take(&mut *self.logs[i].lock().unwrap());
            assert_eq!(seen, std::mem::take(&mut self.model.ends[i].seen), "endpoint {i}");
            let end = &self.model.ends[i];
            let used = |queue: usize| (end.queues[queue].len() as u64, end.blocks(queue) as u64);
            let ((request_packets, request_blocks), (reply_packets, reply_blocks)) =
                (used(REQUESTS), used(REPLIES));
            let expected = Audit { request_packets, request_blocks, reply_packets, reply_blocks };
            assert_eq!(self.end(i).audit(), expected, "endpoint {i}");
        }
    }

    fn finish(&mut self) {
        self.settle();
        self.compare();
        for i in 0..ENDS {
            assert!(self.end(i).audit().is_clean());
            let mut bytes = vec![0; SEGMENT];
            let segment: &Segment = self.end(i).segment();
            segment.read(0, &mut bytes);
            assert!(bytes == self.model.ends[i].segment, "the segment of endpoint {i}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn endpoints_do_what_the_model_says(
        algorithm in prop::sample::select(&Algorithm::ALL[..]),
        shared in any::<[bool; ENDS]>(),
        ops in vec(op(), 1..120),
    ) {
        let said = format!("{algorithm:?} {shared:?} {ops:?}");
        let _watchdog = Watchdog::new(Duration::from_secs(60), move || said.clone());
        let mut both = Both::new(algorithm, shared);
        for op in &ops {
            both.apply(op);
            both.compare();
        }
        both.finish();
    }
}

/// An operation of a story that is told here.
fn sends(from: usize, entry: usize, form: Form, handler: u8) -> Op {
    let args = vec![1, 1, 0];
    Op::Send { from, entry, out: Outgoing { form, handler, args, bytes: pattern(9, 100), offset: 0 } }
}

fn story(shared: bool, ops: &[Op]) {
    for algorithm in Algorithm::ALL {
        let _watchdog = Watchdog::new(Duration::from_secs(60), move || format!("{algorithm:?}"));
        let mut both = Both::new(algorithm, [shared; ENDS]);
        for op in ops {
            both.apply(op);
            both.compare();
        }
        both.finish();
    }
}

/// More replies than the requester's queue takes, of endpoints that one thread polls:
/// once they waited for each other for ever.
#[test]
fn a_reply_that_waits_polls_the_replies_of_the_whole_bundle() {
    let requests = [0, 1].map(|entry| vec![sends(0, entry, Form::Short, 2); 8]).concat();
    story(false, &[requests, vec![Op::PollBundle]].concat());
}

/// The transfer comes back. Once its bytes were in the successor's segment all the same.
#[test]
fn transfer_to_a_closed_endpoint_spares_the_successors_segment() {
    let replaced = Op::Replace { at: 1, noticed: false, polled: false };
    story(true, &[replaced, sends(0, 0, Form::Long, 1)]);
}
