//! Kills or stops a process after instruction k of a send, an answer or a poll in the
//! line that it shares with a peer, and looks whether the peer goes on: nothing lost, nothing
//! twice, no answer to what came back, and the next incarnation uses the same line again.
//!
//! `cargo test -p towpath-am --test answers_every_step -- every` does it for every k. In the
//! ordinary tests k grows by a thirtieth at a time.
//!
//! The victim is a forked child under ptrace; this process is the tracer, the peer and the judge.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_am::{Endpoint, Name, Operation, Status, Tag, WorldConfig};
use towpath_shm::World;
use towpath_testkit::{Choice, Victim, mark, pin, shared_words, two_cores, watchdog};

/// Handler of a question; then of an answer, of a question before the line is in use, of
/// a message without an answer.
const ASK: u8 = 1;
const ANSWER: u8 = 2;
const WARM: u8 = 3;
const TURN: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// The victim sends a question.
    Ask,
    /// The victim polls, and answers the question that it finds.
    Answer,
    /// The victim polls, and handles a message without an answer.
    Hear,
    /// The victim polls, and finds an answer.
    Take,
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

/// Program of the victim.
fn victim(
    world: &World,
    rank: u32,
    peer: Name,
    what: What,
    page: Page,
) -> Result<(), Box<dyn std::error::Error>> {
    world.enter(Some(rank))?;
    let endpoint = Endpoint::new(world)?;
    endpoint.map(0, peer, Tag::ALL)?;
    endpoint.set_handler(ASK, move |question| {
        let number = u64::from(question.args()[0]);
        if number <= page.get(LAST) {
            page.set(DISORDER, 1);
        }
        page.set(LAST, number);
        page.add(HANDLED);
        let _ = question.reply(ANSWER, question.args());
    });
    endpoint.set_handler(ANSWER, move |_| page.add(ANSWERED));
    endpoint.set_handler(TURN, move |_| page.add(HANDLED));
    let warm = Arc::new(AtomicU32::new(0));
    let count = warm.clone();
    endpoint.set_handler(WARM, move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    for number in 1..=16 {
        endpoint.request(0, WARM, &[number])?;
        endpoint.poll_until(|| warm.load(Ordering::Relaxed) == number);
    }
    assert_eq!(endpoint.answer_lines(), 1, "the two have begun to use the line");
    match what {
        What::Ask => {}
        What::Answer | What::Hear => endpoint.request(0, TURN, &[])?,
        What::Take => endpoint.request(0, ASK, &[7])?,
    }
    page.set(NAME, endpoint.name().to_bits());
    page.set(READY, 1);
    page.wait(GO);
    mark();
    match what {
        What::Ask => endpoint.request(0, ASK, &[7, 8, 9])?,
        What::Answer | What::Hear | What::Take => assert_eq!(endpoint.poll(), 1),
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
    fn new(page: Page, victims_rank: u32) -> Scene {
        let config = WorldConfig { packets: 8, blocks: 2, block_size: 64, ..WorldConfig::new(2) };
        let world = World::create(&config.spec(None)).unwrap();
        world.enter(Some(1 - victims_rank)).unwrap();
        let peer = Endpoint::new(&world).unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let on = |act: fn(&mut Seen, &[u32])| {
            let seen = seen.clone();
            move |args: &[u32]| act(&mut seen.lock().unwrap(), args)
        };
        let asked = on(|seen, args| seen.asked.push(args.to_vec()));
        peer.set_handler(ASK, move |question| {
            asked(question.args());
            let _ = question.reply(ANSWER, question.args());
        });
        let answered = on(|seen, args| seen.answered.push(args[0]));
        peer.set_handler(ANSWER, move |answer| answered(answer.args()));
        let turn = on(|seen, _| seen.turns += 1);
        peer.set_handler(TURN, move |message| turn(message.args()));
        peer.set_handler(WARM, |question| drop(question.reply(WARM, &[])));
        let back = on(|seen, args| seen.back.push(args[0]));
        peer.set_handler(0, move |message| {
            let returned = message.returned().unwrap();
            assert_eq!(returned.status, Status::Unreachable, "{message:?}");
            // An answer to the dead may come back, too.
            if returned.operation == Operation::RequestShort {
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
            What::Ask => {}
            What::Answer | What::Hear => {
                self.until(false, "no turn", |seen| seen.turns == 1);
                self.peer.map(0, Name::from_bits(page.get(NAME)), Tag::ALL).unwrap();
                self.peer.request(0, if what == What::Hear { TURN } else { ASK }, &[7]).unwrap();
            }
            What::Take => self.until(false, "no question", |seen| seen.asked.len() == 1),
        }
        assert_eq!(self.peer.answer_lines(), 1, "the two have begun to use the line");
        page.set(GO, 1);
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
            What::Ask => {
                self.until(true, "sent and lost", |seen| !complete || !seen.asked.is_empty());
                for _ in 0..3 {
                    self.peer.poll();
                }
                let seen = self.seen.lock().unwrap();
                assert!(seen.asked.len() <= 1 && seen.back.is_empty(), "{:?}", seen.asked);
                assert!(seen.asked.iter().all(|args| args == &[7, 8, 9]), "{:?}", seen.asked);
            }
            What::Answer | What::Hear => {
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
                let answers = usize::from(what == What::Answer);
                assert!(!complete || seen.answered.len() == answers, "answered, and lost");
                assert!(!complete || seen.back.is_empty(), "handled, and came back");
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
            What::Ask | What::Take => (3, 1),
            What::Answer => (4, 0),
            What::Hear => (3, 0),
        };
        let handled = questions as u64 + u64::from(what == What::Hear);
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
            assert!(start.elapsed() < Duration::from_secs(20), "the victim does not end");
        }
        self.world.process_ended(self.victims_rank, pid, false);
        self.peer.recover();
        complete
    }
}

fn main() {
    let page = Page(shared_words(8));
    pin(two_cores()[0]);
    let choice = Choice::from_arguments();
    let mut cases = 0;
    println!("{:<8}{:<10}{:>6}{:>8}", "act", "victim", "rank", "steps");
    for what in [What::Ask, What::Answer, What::Hear, What::Take] {
        for how in [How::Killed, How::Stopped] {
            for rank in [0, 1] {
                if !choice.includes(&[&format!("{what:?}"), &format!("{how:?}")]) {
                    continue;
                }
                watchdog::begin(format!("{what:?}, {how:?}, rank {rank}"), 150);
                cases += 1;
                let scene = Scene::new(page, rank);
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
                assert!(steps > 20, "{what:?}: {steps} steps");
                println!("{:<8}{:<10}{rank:>6}{count:>8}", format!("{what:?}"), format!("{how:?}"));
            }
        }
    }
    println!("test result: ok. {cases} passed; 0 failed");
}
