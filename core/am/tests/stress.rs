//! All forms × all algorithms × all waiting policies, between real processes, three times
//! as many as cores, over queues that are full nearly always: every message arrives exactly once,
//! in its sender's order, with its contents, and in the end nothing is in use.
//!
//! Form, arguments, bytes and place of the n-th message from one rank to another follow from
//! (request or reply, from, to, n). So the receiver knows what must come next from each rank, and
//! compares. Besides, both ends count and add up what they sent and saw, in a page that the parent
//! compares when all have ended.
//!
//! `cargo test -p towpath-am --test stress -- lock-free park` runs only the cases of those names;
//! `every` before them sends thirty times as many messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, Endpoint, Error, Name, Payload, Token, WorldConfig};
use towpath_machine::Random;
use towpath_shm::World;
use towpath_sync::Policy;
use towpath_testkit::{Child, Choice, pin_to, shared_words, two_cores, watchdog};

/// Three times the cores that they run on.
const RANKS: usize = 6;
/// The longest long message: three blocks. Odd, so that neighbours in a segment share
/// words.
const LONGEST: u64 = 701;
const BLOCK: u64 = 256;
/// Time-out of a case; the usual ones take a second or two.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Request,
    Reply,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Short,
    Medium,
    Long,
}

/// The handlers of requests are these, those of replies four further on.
const FORMS: [(Form, u8); 3] = [(Form::Short, 1), (Form::Medium, 2), (Form::Long, 3)];

/// One message: all of it follows from its sender, its receiver and its number.
#[derive(Debug, PartialEq)]
struct Message {
    form: Form,
    args: Vec<u32>,
    bytes: Vec<u8>,
    /// Long: where it goes.
    offset: u64,
}

/// Returns whether a rank's segment is shared. A sender may store into such a one at any
/// time: there each message has a place of its own. A private one keeps a message until the next of
/// the same pair and kind.
fn has_shared_segment(rank: usize) -> bool {
    rank % 2 == 1
}

impl Message {
    fn new(kind: Kind, from: usize, to: usize, n: u64) -> Message {
        let pair = ((kind as usize) * RANKS + from) as u64;
        let mut random = Random::new(n << 16 | pair << 8 | to as u64);
        // A request's form goes round in threes, and what it is answered with in fours: nothing, or
        // a reply of each form.
        let form = match kind {
            Kind::Request => FORMS[(n % 3) as usize].0,
            Kind::Reply => FORMS[(n % 4 - 1) as usize].0,
        };
        let count = (n as usize * 7 + from) % 17;
        let args = (0..count).map(|i| if i == 0 { n as u32 } else { random.word() as u32 }).collect();
        let len = match form {
            Form::Short => 0,
            Form::Medium => random.below(BLOCK + 1),
            Form::Long => random.below(LONGEST + 1),
        };
        let bytes = (0..len).map(|_| random.word() as u8).collect();
        let offset = match form {
            Form::Long if has_shared_segment(to) => LONGEST * (2 * RANKS as u64 * (n / 3) + pair),
            Form::Long => LONGEST * pair,
            _ => 0,
        };
        Message { form, args, bytes, offset }
    }

    fn seen(message: &Token<'_>) -> Message {
        let (form, bytes, offset) = match message.payload() {
            Payload::None => (Form::Short, Vec::new(), 0),
            Payload::Medium(bytes) => (Form::Medium, bytes.to_vec(), 0),
            Payload::Long { offset, len } => {
                let mut bytes = vec![0; len as usize];
                message.segment().read(offset, &mut bytes);
                (Form::Long, bytes, offset)
            }
        };
        Message { form, args: message.args().to_vec(), bytes, offset }
    }

    /// A number that changes if anything in it changes (FNV-1a).
    fn digest(&self) -> u64 {
        let args = self.args.iter().flat_map(|a| a.to_le_bytes());
        let numbers = [self.form as u64, self.args.len() as u64, self.offset];
        numbers
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .chain(args)
            .chain(self.bytes.iter().copied())
            .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// Progress and counts of a process: its part of the page. Written by it alone.
struct Tally(&'static [AtomicU64]);

impl Clone for Tally {
    fn clone(&self) -> Tally {
        Tally(self.0)
    }
}

const STAGES: [&str; 7] =
    ["starting", "sending", "expecting the rest", "all arrived", "auditing", "clean", "through"];
/// The words of a rank: its stage, two spare ones, and for each other rank a count and a
/// sum of what went out and what came in, requests and replies.
const TALLY: usize = 3 + 8 * RANKS;

impl Tally {
    fn stage(&self) -> usize {
        self.0[0].load(Ordering::Acquire) as usize
    }
    fn reached(&self, stage: usize) {
        self.0[0].store(stage as u64, Ordering::Release);
    }
    /// The count, and after it the sum, of messages of a kind to or from a rank.
    fn words(&self, kind: Kind, incoming: bool, peer: usize) -> &[AtomicU64] {
        let which = 2 * (kind as usize) + usize::from(incoming);
        &self.0[3 + 2 * (which * RANKS + peer)..][..2]
    }
    fn count(&self, kind: Kind, incoming: bool, peer: usize) -> u64 {
        self.words(kind, incoming, peer)[0].load(Ordering::Acquire)
    }
    fn add(&self, kind: Kind, incoming: bool, peer: usize, message: &Message) {
        let words = self.words(kind, incoming, peer);
        words[1].fetch_add(message.digest(), Ordering::Relaxed);
        words[0].fetch_add(1, Ordering::Release);
    }
    fn total(&self, kind: Kind, incoming: bool) -> u64 {
        (0..RANKS).map(|peer| self.count(kind, incoming, peer)).sum()
    }
}

/// The number of the request that the k-th reply (from 0) answers: those divisible by
/// four get none.
fn answered(k: u64) -> u64 {
    k + k / 3 + 1
}

/// Returns the number of the first `count` requests that get an answer.
fn answers(count: u64) -> u64 {
    count - count.div_ceil(4)
}

/// A handler of messages of one kind and form: compares, counts, and replies.
fn checking(
    kind: Kind,
    form: Form,
    me: usize,
    mine: &Tally,
    names: &[Name],
) -> impl Fn(&Token<'_>) + Send + Sync + 'static {
    let (mine, names) = (mine.clone(), names.to_vec());
    move |token| {
        let from = names.iter().position(|name| *name == token.source()).expect("from a rank");
        let k = mine.count(kind, true, from);
        let n = if kind == Kind::Reply { answered(k) } else { k };
        let (due, seen) = (Message::new(kind, from, me, n), Message::seen(token));
        assert!(
            due == seen && form == seen.form && token.is_request() == (kind == Kind::Request),
            "rank {me}: {kind:?} {n} from rank {from}: came as {seen:?}\nbut should be {due:?}"
        );
        mine.add(kind, true, from, &seen);
        if kind == Kind::Request && n % 4 != 0 {
            let reply = Message::new(Kind::Reply, me, from, n);
            let Message { form, args, bytes, offset } = &reply;
            let handler = FORMS[*form as usize].1 + 4;
            match form {
                Form::Short => token.reply(handler, args),
                Form::Medium => token.reply_medium(handler, args, bytes),
                Form::Long => token.reply_long(handler, args, bytes, *offset),
            }
            .expect("a reply");
            mine.add(Kind::Reply, false, from, &reply);
        }
    }
}

fn send(endpoint: &Endpoint, to: usize, message: &Message, try_first: bool) -> Result<(), Error> {
    let Message { form, args, bytes, offset } = message;
    let handler = FORMS[*form as usize].1;
    match form {
        Form::Short => endpoint.request(to, handler, args),
        Form::Medium => endpoint.request_medium(to, handler, args, bytes),
        Form::Long if !try_first => endpoint.request_long(to, handler, args, bytes, *offset),
        Form::Long => loop {
            match endpoint.request_long_async(to, handler, args, bytes, *offset) {
                Err(Error::NotSent) => _ = endpoint.wait(Some(Duration::from_micros(100))),
                other => break other,
            }
            endpoint.poll();
        },
    }
}

/// One process.
fn member(world: &World, me: usize, count: u64, tallies: &[Tally]) {
    world.enter(Some(me as u32)).expect("its rank");
    let endpoint = match has_shared_segment(me) {
        true => Endpoint::with_shared_segment(world),
        false => Endpoint::with_private_segment(world, (2 * RANKS as u64 * LONGEST) as usize),
    }
    .expect("an endpoint");
    let mine = &tallies[me];
    endpoint.map_world().expect("every rank has an endpoint");
    let names: Vec<Name> = (0..RANKS).map(|rank| endpoint.mapping(rank).expect("mapped").0).collect();
    endpoint.set_handler(0, |message| panic!("came back: {message:?}"));
    for (form, handler) in FORMS {
        endpoint.set_handler(handler, checking(Kind::Request, form, me, mine, &names));
        endpoint.set_handler(handler + 4, checking(Kind::Reply, form, me, mine, &names));
    }
    mine.reached(1);
    let others = || (1..RANKS).map(move |step| (me + step) % RANKS);
    let mut random = Random::new(me as u64);
    for n in 0..count {
        for to in others() {
            let message = Message::new(Kind::Request, me, to, n);
            send(&endpoint, to, &message, n % 2 == 1).expect("a request");
            mine.add(Kind::Request, false, to, &message);
        }
        match random.word() % 8 {
            0 => std::thread::sleep(Duration::from_micros(200)),
            1..4 => _ = endpoint.poll(),
            _ => {}
        }
    }
    mine.reached(2);
    let poll = |done: &dyn Fn() -> bool| {
        while !done() {
            if endpoint.poll() == 0 && !done() {
                endpoint.wait(Some(Duration::from_millis(1)));
            }
        }
    };
    poll(&|| {
        others().all(|peer| {
            mine.count(Kind::Request, true, peer) >= count
                && mine.count(Kind::Reply, true, peer) >= answers(count)
        })
    });
    mine.reached(3);
    // A message that comes twice comes now.
    poll(&|| tallies.iter().all(|t| t.stage() >= 3));
    mine.reached(4);
    while !endpoint.audit().is_clean() {
        let audit = endpoint.audit();
        mine.0[1].store(audit.request_packets << 32 | audit.request_blocks, Ordering::Relaxed);
        mine.0[2].store(audit.reply_packets << 32 | audit.reply_blocks, Ordering::Relaxed);
        endpoint.poll();
        endpoint.recover();
    }
    mine.reached(5);
    poll(&|| tallies.iter().all(|t| t.stage() >= 5));
    mine.reached(6);
}

/// Returns the progress of all processes, as text.
fn report(what: &str, tallies: &[Tally]) -> String {
    let mut text = format!("{what}; requests and replies out, and in:");
    for (rank, tally) in tallies.iter().enumerate() {
        let total = |kind, incoming| tally.total(kind, incoming);
        text += &format!(
            "\n  rank {rank}: {}: {} + {} out, {} + {} in",
            STAGES[tally.stage()],
            total(Kind::Request, false),
            total(Kind::Reply, false),
            total(Kind::Request, true),
            total(Kind::Reply, true),
        );
        if tally.stage() == 4 {
            let word = |i: usize| tally.0[i].load(Ordering::Relaxed);
            text += &format!("; in use (packets << 32 | blocks): {:#x} and {:#x}", word(1), word(2));
        }
    }
    text
}

/// One case: six processes, `count` requests from each to each.
fn run(name: &str, algorithm: Algorithm, waiting: Policy, count: u64, limit: Duration) {
    // Reused from case to case: forking is over when it is cleared.
    let page = shared_words(RANKS * TALLY);
    let tallies: Vec<Tally> = page.chunks(TALLY).map(Tally).collect();
    let longs = count / 3 + 1;
    let config = WorldConfig {
        algorithm,
        waiting,
        packets: 8,
        blocks: 3,
        block_size: BLOCK as u32,
        segment_bytes: (2 * RANKS as u64 * longs * LONGEST).next_multiple_of(4096),
        ..WorldConfig::new(RANKS as u32)
    };
    let world = World::create(&config.spec(None)).expect("a world of a few megabytes");
    let start = Instant::now();
    let children: Vec<Child> =
        (0..RANKS).map(|rank| Child::fork(|| member(&world, rank, count, &tallies))).collect();
    while !children.iter().all(Child::has_ended) {
        std::thread::sleep(Duration::from_millis(1));
        let failed = children.iter().zip(&tallies).any(|(child, t)| child.has_ended() && t.stage() < 6);
        // Dropping the children ends them.
        assert!(!failed, "{}", report(&format!("{name}: a process failed"), &tallies));
        assert!(start.elapsed() < limit, "{}", report(&format!("{name}: no end in sight"), &tallies));
    }
    for (from, sender) in tallies.iter().enumerate() {
        for (to, receiver) in tallies.iter().enumerate().filter(|(to, _)| *to != from) {
            for (kind, due) in [(Kind::Request, count), (Kind::Reply, answers(count))] {
                let both = [sender.words(kind, false, to), receiver.words(kind, true, from)]
                    .map(|words| [0, 1].map(|i| words[i].load(Ordering::Acquire)));
                assert!(both[0] == both[1] && both[0][0] == due, "{name}: {kind:?} {from} → {to}: {both:?}");
            }
        }
    }
}

/// Returns the number of requests from each process to each. A process that only spins
/// uses its time slice up in each wait, and a FIFO lock is then handed round at the pace of the
/// scheduler: a request costs a millisecond there, not twenty microseconds. Sleeping costs a tenth
/// of that.
fn count(waiting: Policy) -> u64 {
    match waiting {
        Policy::Spin => 18,
        Policy::SpinThenYield => 240,
        _ => 120,
    }
}

fn main() {
    pin_to(&two_cores());
    let choice = Choice::from_arguments();
    let (times, mut cases) = (if choice.every() { 30 } else { 1 }, 0);
    println!("{:<24}{:<18}{:>10}{:>10}", "algorithm", "waiting", "requests", "seconds");
    for (number, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        for (place, (waiting, policy)) in Policy::ALL.into_iter().enumerate() {
            // Each lock waits alike: under each of them three policies, in turn.
            let is_one = !algorithm.is_locked() || choice.every() || !(number + place).is_multiple_of(2);
            if !is_one || !choice.includes(&[algorithm.name(), policy]) {
                continue;
            }
            let name = format!("{} with {policy}", algorithm.name());
            // In case that this process hangs too.
            let limit = LIMIT * times;
            watchdog::begin(name.clone(), 2 * limit.as_secs() as u32);
            let count = count(waiting) * u64::from(times);
            let start = Instant::now();
            run(&name, algorithm, waiting, count, limit);
            let requests = count * (RANKS * (RANKS - 1)) as u64;
            let seconds = start.elapsed().as_secs_f64();
            println!("{:<24}{policy:<18}{requests:>10}{seconds:>10.2}", algorithm.name());
            cases += 1;
        }
    }
    println!("test result: ok. {cases} passed; 0 failed");
}
