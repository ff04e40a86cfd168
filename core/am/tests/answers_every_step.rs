//! Kills or stops a process after instruction k of a send, an answer or a poll in the
//! line that it shares with a peer, or in a stream, and looks whether the peer goes on: nothing
//! lost, nothing twice, no answer to what came back, and the next incarnation uses the same line or
//! stream again.
//!
//! `cargo test -p towpath-am --test answers_every_step -- every` does it for every k. In the
//! ordinary tests k grows by half of it at a time.
//!
//! The victim is a forked child under ptrace; this process is the tracer, the peer and the judge.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_am::{Endpoint, Name, Payload, Status, Tag, Token, WorldConfig};
use towpath_shm::World;
use towpath_testkit::{Choice, Victim, mark, share_cases, shared_words, watchdog};

/// Handler of a question; then of an answer, of a question before the line is in use, of
/// a message without an answer.
const ASK: u8 = 1;
const ANSWER: u8 = 2;
const WARM: u8 = 3;
const TURN: u8 = 4;

/// Bytes that are stored.
const BYTES: [u8; 24] = [5; 24];

/// Number of requests through a queue before the one that opens a stream.
const BEFORE_STREAM: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// The victim sends a question.
    Ask,
    /// The victim stores bytes, finds an answer, and announces the bytes by a question.
    Store,
    /// The victim polls, and answers the question that it finds.
    Answer,
    /// The victim polls, and answers stored bytes by storing some itself.
    AnswerStore,
    /// The victim polls, and handles a message without an answer.
    Hear,
    /// The victim polls, and finds an answer.
    Take,
    /// The victim sends a question with which it opens a stream.
    Open,
    /// The victim sends a question in a stream.
    Follow,
    /// The victim polls, and handles a message of a stream.
    HearRecord,
}

impl What {
    /// Returns whether the two use a stream, and no line.
    fn in_stream(self) -> bool {
        matches!(self, What::Open | What::Follow | What::HearRecord)
    }
    /// Returns whether the victim sends.
    fn sends(self) -> bool {
        matches!(self, What::Ask | What::Store | What::Open | What::Follow)
    }
    /// Number of questions that the victim has sent in the line before it acts.
    fn asked_before(self) -> usize {
        usize::from(matches!(self, What::Store | What::Take))
    }
    /// Returns whether the victim answers.
    fn answers(self) -> bool {
        matches!(self, What::Answer | What::AnswerStore)
    }
    /// Number of questions of the victim before it acts.
    fn warm(self) -> u32 {
        match self {
            What::Open => BEFORE_STREAM,
            What::Follow => BEFORE_STREAM + 4,
            _ => 16,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Killed,
    Stopped,
}

/// Index of the victim's name in the shared words; then of: it is ready, it may act,
/// number of questions that it has handled, the last one's number, 1 if they came in another order,
/// number of answers that it has got, it shall end.
const NAME: usize = 0;
const READY: usize = 1;
const GO: usize = 2;
const HANDLED: usize = 3;
const LAST: usize = 4;
const DISORDER: usize = 5;
const ANSWERED: usize = 6;
const END: usize = 7;
/// Index of: the victim may act, where it had to do something before.
const AGAIN: usize = 8;

#[derive(Clone, Copy)]
struct Page(&'static [AtomicU64]);

impl Page {
    fn get(self, word: usize) -> u64 {
        self.0[word].load(Ordering::Acquire)
    }
    fn set(self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Release);
    }
    fn add(self, word: usize) {
        self.0[word].fetch_add(1, Ordering::AcqRel);
    }
    fn wait(self, word: usize) {
        while self.get(word) == 0 {
            std::thread::yield_now();
        }
    }
}

/// Answers a question: one that announces stored bytes, which must be there, by others.
fn answer(question: &Token<'_>) {
    // A requester that is gone gets none.
    let _ = match question.payload() {
        Payload::Long { .. } => {
            check_stored(question);
            question.reply_long(ANSWER, question.args(), &BYTES, 32)
        }
        _ => question.reply(ANSWER, question.args()),
    };
}

/// Checks that bytes were stored before they were announced.
fn check_stored(message: &Token<'_>) {
    if let Payload::Long { offset, .. } = message.payload() {
        let mut bytes = [0; BYTES.len()];
        message.segment().read(offset, &mut bytes);
        assert_eq!(bytes, BYTES, "announced first");
        message.segment().write(offset, &[0; BYTES.len()]);
    }
}

/// Program of the victim.
fn victim(
    world: &World,
    rank: u32,
    peer: Name,
    what: What,
    page: Page,
) -> Result<(), Box<dyn std::error::Error>> {
    world.enter(Some(rank))?;
    let endpoint = Endpoint::with_shared_segment(world)?;
    endpoint.map(0, peer, Tag::ALL)?;
    endpoint.set_handler(ASK, move |question| {
        let number = u64::from(question.args()[0]);
        if number <= page.get(LAST) {
            page.set(DISORDER, 1);
        }
        page.set(LAST, number);
        page.add(HANDLED);
        answer(question);
    });
    endpoint.set_handler(ANSWER, move |answer| {
        check_stored(answer);
        page.add(ANSWERED);
    });
    endpoint.set_handler(TURN, move |_| page.add(HANDLED));
    let warm = Arc::new(AtomicU32::new(0));
    let count = warm.clone();
    endpoint.set_handler(WARM, move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    for number in 1..=what.warm() {
        endpoint.request(0, WARM, &[number])?;
        endpoint.poll_until(|| warm.load(Ordering::Relaxed) == number);
    }
    assert_eq!(endpoint.answer_lines() == 0, what.in_stream(), "the two have begun to use the line");
    match what {
        _ if what.asked_before() > 0 => endpoint.request(0, ASK, &[6])?,
        _ if what.sends() => {}
        _ => endpoint.request(0, TURN, &[])?,
    }
    page.set(NAME, endpoint.name().to_bits());
    page.set(READY, 1);
    while page.get(GO) == 0 {
        // The messages that come before the one that counts.
        if what == What::HearRecord {
            endpoint.poll();
        }
        std::thread::yield_now();
    }
    if what == What::HearRecord {
        assert_eq!((endpoint.streams(), page.get(HANDLED)), (1, u64::from(2 * BEFORE_STREAM)));
        page.set(HANDLED, 0);
        page.set(READY, 2);
        page.wait(AGAIN);
    }
    mark();
    match what {
        What::Store => endpoint.request_long(0, ASK, &[7, 8, 9], &BYTES, 0)?,
        _ if what.sends() => endpoint.request(0, ASK, &[7, 8, 9])?,
        // Those that came while it was stopped, too.
        What::HearRecord => assert!(endpoint.poll() >= 1),
        _ => assert_eq!(endpoint.poll(), 1),
    }
    mark();
    while page.get(END) == 0 {
        endpoint.poll();
        std::thread::yield_now();
    }
    while endpoint.poll() > 0 {}
    Ok(())
}

/// Findings of the peer: questions, answers, messages that came back, turns.
#[derive(Default)]
struct Seen {
    asked: Vec<Vec<u32>>,
    answered: Vec<u32>,
    back: Vec<u32>,
    turns: u32,
}

struct Scene {
    world: World,
    peer: Endpoint,
    seen: Arc<Mutex<Seen>>,
    page: Page,
    victims_rank: u32,
}

impl Scene {
    fn new(page: Page, victims_rank: u32, in_stream: bool) -> Scene {
        let (answer_lines, streams) = (!in_stream, u32::from(in_stream));
        let small = WorldConfig { packets: 8, blocks: 2, block_size: 64, ..WorldConfig::new(2) };
        let config = WorldConfig { answer_lines, streams, segment_bytes: 64, ..small };
        let world = World::create(&config.spec(None)).unwrap();
        world.enter(Some(1 - victims_rank)).unwrap();
        let peer = Endpoint::with_shared_segment(&world).unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let on = |act: fn(&mut Seen, &[u32])| {
            let seen = seen.clone();
            move |args: &[u32]| act(&mut seen.lock().unwrap(), args)
        };
        let asked = on(|seen, args| seen.asked.push(args.to_vec()));
        peer.set_handler(ASK, move |question| {
            asked(question.args());
            answer(question);
        });
        let answered = on(|seen, args| seen.answered.push(args[0]));
        peer.set_handler(ANSWER, move |answer| {
            check_stored(answer);
            answered(answer.args());
        });
        let turn = on(|seen, _| seen.turns += 1);
        peer.set_handler(TURN, move |message| turn(message.args()));
        peer.set_handler(WARM, |question| drop(question.reply(WARM, &[])));
        let back = on(|seen, args| seen.back.push(args[0]));
        peer.set_handler(0, move |message| {
            let returned = message.returned().unwrap();
            assert_eq!(returned.status, Status::Unreachable, "{message:?}");
            // An answer to the dead may come back, too.
            if returned.operation.is_request() {
                back(message.args());
            }
        });
        Scene { world, peer, seen, page, victims_rank }
    }

    /// Polls until it has come true, and asks for deaths if `recover`.
    fn until(&self, recover: bool, what: &str, mut done: impl FnMut(&Seen) -> bool) {
        let start = Instant::now();
        while !done(&self.seen.lock().unwrap()) {
            // A death is noticed before what the dead had sent is taken.
            if recover {
                self.peer.recover();
            }
            self.peer.poll();
            // The two share a core.
            std::thread::yield_now();
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        }
    }

    /// Starts a victim and brings it to its act, with the line as the act needs it.
    fn prepare(&self, what: What) -> Victim {
        for word in self.page.0 {
            word.store(0, Ordering::Release);
        }
        *self.seen.lock().unwrap() = Seen::default();
        let (name, page) = (self.peer.name(), self.page);
        let mut started = Victim::fork(|| victim(&self.world, self.victims_rank, name, what, page));
        self.until(false, "the victim does not get ready", |_| page.get(READY) == 1);
        match what {
            What::Ask | What::Open => {}
            What::Follow => assert_eq!(self.peer.streams(), 1, "the victim has opened a stream"),
            What::HearRecord => {
                self.until(false, "no turn", |seen| seen.turns == 1);
                self.peer.map(0, Name::from_bits(page.get(NAME)), Tag::ALL).unwrap();
                for _ in 0..2 * BEFORE_STREAM {
                    self.peer.request(0, TURN, &[7]).unwrap();
                }
                self.until(false, "no turns heard", |_| page.get(HANDLED) == u64::from(2 * BEFORE_STREAM));
                page.set(GO, 1);
                self.until(false, "not ready", |_| page.get(READY) == 2);
                self.peer.request(0, TURN, &[7]).unwrap();
            }
            What::Answer | What::AnswerStore | What::Hear => {
                self.until(false, "no turn", |seen| seen.turns == 1);
                self.peer.map(0, Name::from_bits(page.get(NAME)), Tag::ALL).unwrap();
                let sent = match what {
                    What::AnswerStore => self.peer.request_long(0, ASK, &[7], &BYTES, 0),
                    What::Answer => self.peer.request(0, ASK, &[7]),
                    _ => self.peer.request(0, TURN, &[7]),
                };
                sent.unwrap();
            }
            What::Store | What::Take => self.until(false, "no question", |seen| seen.asked.len() == 1),
        }
        assert_eq!(self.peer.answer_lines() == 0, what.in_stream(), "the two have begun to use the line");
        page.set(GO, 1);
        page.set(AGAIN, 1);
        started.reach_mark();
        started
    }

    fn after_kill(&self, what: What, mut victim: Victim, steps: u64) -> bool {
        let complete = victim.run(steps, |_, _| {});
        let pid = victim.pid();
        victim.kill();
        self.world.process_ended(self.victims_rank, pid, true);
        let page = self.page;
        match what {
            _ if what.sends() => {
                let before = what.asked_before();
                self.until(true, "sent and lost", |seen| !complete || seen.asked.len() > before);
                for _ in 0..3 {
                    // A stream whose opening was not told is found by those that look for it.
                    self.peer.recover();
                    self.peer.poll();
                }
                let seen = self.seen.lock().unwrap();
                let asked = &seen.asked[before..];
                assert!(asked.len() <= 1 && seen.back.is_empty(), "{asked:?}");
                assert!(asked.iter().all(|args| args == &[7, 8, 9]), "{asked:?}");
            }
            What::Take => {
                for _ in 0..3 {
                    self.peer.recover();
                    self.peer.poll();
                }
                let seen = self.seen.lock().unwrap();
                assert!(seen.back.is_empty() && page.get(ANSWERED) <= 1);
                assert!(!complete || page.get(ANSWERED) == 1);
            }
            _ => {
                self.until(true, "a question was neither handled nor returned", |seen| {
                    page.get(HANDLED) as usize + seen.back.len() > 0
                });
                for _ in 0..3 {
                    self.peer.recover();
                    self.peer.poll();
                }
                let seen = self.seen.lock().unwrap();
                assert!(seen.answered.len() + seen.back.len() <= 1, "answered, and came back");
                assert!(page.get(HANDLED) <= 1 && page.get(HANDLED) >= seen.answered.len() as u64);
                assert!(seen.back.is_empty() || seen.back == [7], "{:?}", seen.back);
                let answers = usize::from(what.answers());
                assert!(!complete || seen.answered.len() == answers, "answered, and lost");
                assert!(!complete || seen.back.is_empty(), "handled, and came back");
            }
        }
        assert!(self.peer.audit().is_clean(), "{:?}", self.peer.audit());
        complete
    }

    fn after_stop(&self, what: What, mut victim: Victim, steps: u64) -> bool {
        let page = self.page;
        let complete = victim.run(steps, |_, _| {});
        // The peer is not held up: what finds the line taken goes through the queue.
        self.peer.map(0, Name::from_bits(page.get(NAME)), Tag::ALL).unwrap();
        for number in 8..11 {
            self.peer.try_request(0, ASK, &[number]).expect("space in the victim's queue");
            self.peer.poll();
        }
        victim.go_on();
        if !complete {
            let start = Instant::now();
            while !victim.at_mark() {
                self.peer.poll();
                assert!(start.elapsed() < Duration::from_secs(20), "the victim does not finish");
            }
            victim.go_on();
        }
        let (questions, answers) = match what {
            What::Store => (3, 2),
            _ if what.sends() || what == What::Take => (3, 1),
            _ if what.answers() => (4, 0),
            _ => (3, 0),
        };
        let handled = questions as u64 + u64::from(matches!(what, What::Hear | What::HearRecord));
        self.until(false, "a message was lost", |seen| {
            seen.answered.len() >= questions && page.get(ANSWERED) >= answers
        });
        page.set(END, 1);
        let seen = self.seen.lock().unwrap();
        let expected: Vec<u32> = (11 - questions as u32..11).collect();
        let mut answered = seen.answered.clone();
        answered.sort_unstable();
        assert_eq!(answered, expected, "answers");
        assert_eq!((page.get(HANDLED), page.get(DISORDER)), (handled, 0), "questions");
        assert_eq!((page.get(ANSWERED), seen.back.len()), (answers, 0));
        assert_eq!(seen.asked.len(), answers as usize);
        drop(seen);
        let pid = victim.pid();
        let start = Instant::now();
        while !victim.has_ended() {
            self.peer.poll();
            // The two share a core.
            std::thread::yield_now();
            assert!(start.elapsed() < Duration::from_secs(20), "the victim does not end");
        }
        self.world.process_ended(self.victims_rank, pid, false);
        self.peer.recover();
        complete
    }
}

/// All acts.
const WHATS: [What; 9] = [
    What::Ask,
    What::Store,
    What::Answer,
    What::AnswerStore,
    What::Hear,
    What::Take,
    What::Open,
    What::Follow,
    What::HearRecord,
];

fn main() {
    let choice = Choice::from_arguments();
    println!("{:<12}{:<10}{:>6}{:>8}", "act", "victim", "rank", "steps");
    share_cases(|share| {
        let page = Page(shared_words(9));
        for what in WHATS {
            for how in [How::Killed, How::Stopped] {
                for rank in [0, 1] {
                    let chosen = choice.includes(&[&format!("{what:?}"), &format!("{how:?}")]);
                    if !chosen || !share.takes_next() {
                        continue;
                    }
                    watchdog::begin(format!("{what:?}, {how:?}, rank {rank}"), 150);
                    let scene = Scene::new(page, rank, what.in_stream());
                    let (mut steps, mut count) = (0, 0);
                    loop {
                        watchdog::at(steps);
                        let victim = scene.prepare(what);
                        let complete = match how {
                            How::Killed => scene.after_kill(what, victim, steps),
                            How::Stopped => scene.after_stop(what, victim, steps),
                        };
                        count += 1;
                        if complete {
                            break;
                        }
                        steps = choice.after(steps);
                    }
                    if what == What::Open {
                        // None of the dead has left a stream that is not free.
                        scene.prepare(What::Follow).kill();
                    }
                    assert!(steps > 20, "{what:?}: {steps} steps");
                    println!("{:<12}{:<10}{rank:>6}{count:>8}", format!("{what:?}"), format!("{how:?}"));
                }
            }
        }
    });
}
