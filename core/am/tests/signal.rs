//! An endpoint that is polled by a real-time signal: a process that never polls answers
//! requests from the handler, on the table that it is updating itself; what is not safe there
//! waits, and the order is kept; no space for a reply holds up no endpoint; and wherever a call of
//! the endpoint is interrupted, nothing is lost and nothing is done twice.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, Bundle, Endpoint, Error, SignalEndpoint, Tag, WorldConfig};
use towpath_machine::Native;
use towpath_shm::World;
use towpath_structures::InPlace;
use towpath_structures::dcas::{Actor, Guerraoui};
use towpath_structures::nonblocking::HashMap;
use towpath_sync::Spinning;
use towpath_testkit::{Child, Choice, Victim, mark, pin, shared_words, two_cores, watchdog};

const JUDGE: u32 = 0;
const AWAY: u32 = 1;
const VICTIM: u32 = 2;

const INSERT: u8 = 1;
const INSERTED: u8 = 2;
const ORDINARY: u8 = 3;
/// Does nothing.
const HINT: u8 = 4;

type Room = InPlace<4096, 2>;
type Table = HashMap<Native, Guerraoui<Native, Room>, Room>;
/// First key of the rank that is away.
const OWN: u64 = 1 << 32;

/// Memory that the two share beside their endpoints.
#[repr(C)]
struct Page {
    table: Table,
    /// Order to the rank that is away, and its answer: see its loop.
    order: AtomicU64,
    done: AtomicU64,
    /// Number of requests that were handled, and of those out of order.
    handled: AtomicU32,
    disorder: AtomicU32,
    signals: AtomicU64,
    updates: AtomicU64,
}

const COMPUTE: u64 = 1;
const POLL: u64 = 2;
const END: u64 = 3;

fn page() -> &'static Page {
    // SAFETY: mapped, zeroed, aligned to a page, long enough and never unmapped; all-zero bytes are
    // valid: plain types and atomics.
    unsafe { &*shared_words(size_of::<Page>() / 8).as_ptr().cast::<Page>() }
}

fn insert(table: &Table, key: u64, value: u64) {
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    table.insert(&actor, key, value).expect("there is room, and a handler may insert");
}

struct Scene {
    world: World,
    endpoint: Endpoint,
    answers: Arc<Mutex<Vec<u32>>>,
    page: &'static Page,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(Algorithm::Towpath, 2)
    }

    fn with(algorithm: Algorithm, processes: u32) -> Scene {
        let config =
            WorldConfig { algorithm, packets: 8, blocks: 4, block_size: 64, ..WorldConfig::new(processes) };
        let world = World::create(&config.spec(None)).unwrap();
        let mine = world.reopen().unwrap();
        mine.enter(Some(JUDGE)).unwrap();
        let endpoint = Endpoint::new(&mine).unwrap();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let list = answers.clone();
        endpoint.set_handler(INSERTED, move |reply| list.lock().unwrap().push(reply.args()[0]));
        Scene { world, endpoint, answers, page: page() }
    }

    /// Makes the endpoint of the rank that is away, ready.
    fn away(&self) -> Result<SignalEndpoint, Error> {
        self.world.enter(Some(AWAY))?;
        let endpoint = Endpoint::new(&self.world)?;
        endpoint.map_world()?;
        let endpoint = SignalEndpoint::new(endpoint, 2)?;
        let page = self.page;
        let handle = move |number: u32| {
            page.disorder.fetch_add(u32::from(page.handled.fetch_add(1, SeqCst) != number), SeqCst);
            insert(&page.table, number.into(), u64::from(number) * 3);
        };
        // SAFETY: atomics, a table that is made for handlers, and a reply.
        unsafe {
            endpoint.set_signal_handler(INSERT, move |request| {
                handle(request.args()[0]);
                request.reply(INSERTED, request.args()).expect("the first reply");
            });
        }
        // SAFETY: it does nothing.
        unsafe { endpoint.set_signal_handler(HINT, |_| ()) };
        endpoint.with(|endpoint| {
            endpoint.set_handler(ORDINARY, move |request| {
                handle(request.args()[0]);
                // Allocates, as no signal handler may.
                let text = format!("{request:?}");
                assert!(!text.is_empty());
                request.reply(INSERTED, request.args()).expect("the first reply");
            });
        });
        Ok(endpoint)
    }

    fn child(&self) -> Child {
        let child = Child::fork(|| {
            let endpoint = self.away().expect("a place, and a signal");
            let page = self.page;
            let mut turn = 0;
            loop {
                match page.order.load(SeqCst) {
                    COMPUTE => {
                        insert(&page.table, OWN + turn % 1000, turn);
                        turn += 1;
                    }
                    POLL => _ = endpoint.poll(),
                    END => break,
                    _ => {}
                }
                page.updates.store(turn, SeqCst);
                page.signals.store(endpoint.signals(), SeqCst);
                page.done.store(page.order.load(SeqCst), SeqCst);
            }
        });
        self.endpoint.map_world().unwrap();
        child
    }

    fn answered(&self) -> usize {
        self.answers.lock().unwrap().len()
    }

    /// Polls until so many answers have come.
    fn await_answers(&self, count: usize) {
        while self.answered() < count {
            self.endpoint.poll();
        }
    }

    /// Waits until the child has computed on, outside of its handlers.
    fn await_update(&self) {
        let before = self.page.updates.load(SeqCst);
        while self.page.updates.load(SeqCst) == before {
            std::thread::yield_now();
        }
    }

    fn order(&self, order: u64) {
        self.page.order.store(order, SeqCst);
        while order != END && self.page.done.load(SeqCst) != order {
            std::thread::yield_now();
        }
    }

    fn request(&self, handler: u8, number: u32) {
        self.endpoint.request(AWAY as usize, handler, &[number]).unwrap();
    }

    /// Everything was handled once, in order, and is in the table.
    fn check(&self, count: u32) {
        let answers = self.answers.lock().unwrap();
        assert!(answers.iter().copied().eq(0..count), "{answers:?}");
        assert_eq!((self.page.handled.load(SeqCst), self.page.disorder.load(SeqCst)), (count, 0));
        let cpu = Native::with_id(1);
        let actor = Actor { cpu: &cpu, wait: &Spinning, me: 1 };
        for number in 0..u64::from(count) {
            assert_eq!(self.page.table.get(&actor, number), Ok(Some(number * 3)), "key {number}");
        }
    }

    fn end(&self, child: &Child) {
        self.order(END);
        while !child.has_ended() {
            std::thread::yield_now();
        }
        assert!(child.has_ended_well());
    }
}

/// Lets a rank that never polls answer: one request at a time, and many.
fn answers_while_computing() {
    let scene = Scene::new();
    let child = scene.child();
    scene.order(COMPUTE);
    for number in 0..200 {
        // The signal before would take this request along while its handler polls.
        scene.await_update();
        scene.request(INSERT, number);
        scene.await_answers(number as usize + 1);
    }
    for number in 200..1_000 {
        scene.request(INSERT, number);
    }
    scene.await_answers(1_000);
    let (signals, updates) = (scene.page.signals.load(SeqCst), scene.page.updates.load(SeqCst));
    scene.end(&child);
    scene.check(1_000);
    assert!(updates > 0, "it did nothing else");
    assert!(signals >= 200, "{signals} signals: what told it?");
    println!("{signals} signals for 1000 requests, {updates} updates of its own");
}

/// The first message for a handler that is not safe stops the signal's poll; the order is
/// kept.
fn others_wait_for_a_poll() {
    let scene = Scene::new();
    let child = scene.child();
    scene.order(COMPUTE);
    for (number, handler) in [INSERT, INSERT, ORDINARY, INSERT, INSERT].into_iter().enumerate() {
        scene.request(handler, number as u32);
    }
    scene.await_answers(2);
    let start = Instant::now();
    // Some ticks of the timer.
    while start.elapsed() < Duration::from_millis(120) {
        scene.endpoint.poll();
    }
    assert_eq!(scene.answered(), 2, "handled in a signal, out of its turn");
    scene.order(POLL);
    scene.await_answers(5);
    scene.order(COMPUTE);
    scene.request(INSERT, 5);
    scene.await_answers(6);
    scene.end(&child);
    scene.check(6);
}

/// The requester does not poll, so that there is no space for replies: one is kept, and
/// all come in order when there is.
fn replies_without_space_are_kept() {
    let scene = Scene::new();
    let child = scene.child();
    scene.order(COMPUTE);
    let mut sent = 0;
    // Its reply queue has 8 places; it handles one request more, and the others are in the request
    // queue, which has 8.
    let mut full = None;
    while full.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(120)) {
        sent += u32::from(scene.endpoint.try_request(AWAY as usize, INSERT, &[sent]).is_ok());
        let now = (scene.page.handled.load(SeqCst), sent);
        assert!(now.0 <= 9 && now.1 <= 17, "{now:?}: there is no space for so many");
        if full.is_none() && now == (9, 17) {
            full = Some(Instant::now());
        }
    }
    scene.await_update();
    scene.await_answers(17);
    scene.end(&child);
    scene.check(17);
}

/// Refusals under other claim algorithms, and where others would poll it, too.
fn what_would_wait_is_refused() {
    for algorithm in Algorithm::ALL.into_iter().filter(|a| *a != Algorithm::Towpath) {
        let refused = SignalEndpoint::new(Scene::with(algorithm, 2).endpoint, 2);
        assert!(matches!(refused, Err(Error::BadArgument(why)) if why.contains("towpath")), "{algorithm:?}");
    }
    let (scene, bundle) = (Scene::new(), Bundle::new());
    bundle.add(&scene.endpoint);
    let refused = SignalEndpoint::new(scene.endpoint, 2);
    assert!(matches!(refused, Err(Error::BadArgument(why)) if why.contains("bundle")));
}

/// Kills a sender after each (some) instruction of a request to the rank that is away:
/// the other's requests are answered, at the latest when that rank has polled.
fn senders_die(choice: &Choice) {
    let (mut steps, mut rounds, mut polled) = (0, 0, 0);
    loop {
        watchdog::at(steps);
        let scene = Scene::with(Algorithm::Towpath, 3);
        let mut victim = Victim::fork(|| {
            scene.world.enter(Some(VICTIM))?;
            let endpoint = Endpoint::new(&scene.world)?;
            endpoint.map_world()?;
            mark();
            endpoint.request(AWAY as usize, HINT, &[])?;
            mark();
            Ok(())
        });
        let child = scene.child();
        scene.order(COMPUTE);
        victim.reach_mark();
        let complete = victim.run(steps, |_, _| {});
        let pid = victim.pid();
        victim.kill();
        scene.world.process_ended(VICTIM, pid, true);
        scene.request(INSERT, 0);
        let start = Instant::now();
        while scene.answered() == 0 && start.elapsed() < Duration::from_millis(120) {
            scene.endpoint.poll();
        }
        if scene.answered() == 0 {
            scene.order(POLL);
            polled += 1;
        }
        scene.await_answers(1);
        scene.order(COMPUTE);
        scene.request(INSERT, 1);
        scene.await_answers(2);
        scene.end(&child);
        scene.check(2);
        rounds += 1;
        if complete {
            break;
        }
        steps = if choice.every() { steps + 1 } else { steps + 1 + steps / 4 };
    }
    println!("a sender killed at {rounds} places: at {polled} of them the receiver had to poll");
    // Only between the claim and the publication.
    assert!(rounds > 15 && polled < rounds / 2, "{polled} of {rounds}");
}

/// Lets a request come after each (some) instruction of the calls of the rank that is
/// away.
fn calls_are_interrupted(choice: &Choice) {
    let mut steps = 0;
    loop {
        watchdog::at(steps);
        let scene = Scene::new();
        let page = scene.page;
        let mut victim = Victim::fork(|| {
            let endpoint = scene.away()?;
            endpoint.with(|endpoint| endpoint.map(5, endpoint.name(), Tag::ALL))?;
            page.done.store(COMPUTE, SeqCst);
            while page.order.load(SeqCst) == 0 {
                std::hint::spin_loop();
            }
            mark();
            endpoint.poll();
            endpoint.with(|endpoint| endpoint.request(5, INSERTED, &[0]))?;
            endpoint.poll();
            mark();
            // Away: what has not been handled is handled in the signal now.
            while page.order.load(SeqCst) != END {
                std::hint::spin_loop();
            }
            mark();
            loop {
                std::hint::spin_loop();
            }
        });
        victim.forward(libc::SIGRTMIN() + 2);
        scene.endpoint.map_world().unwrap();
        while page.done.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        scene.request(ORDINARY, 0);
        page.order.store(COMPUTE, SeqCst);
        victim.reach_mark();
        let complete = victim.run(steps, |_, _| {});
        scene.request(INSERT, 1);
        victim.go_on();
        let mut marks = u64::from(complete);
        // Its signals come by us.
        let mut until = |answers, all: u64| {
            while scene.answered() < answers || marks < all {
                scene.endpoint.poll();
                if victim.at_mark() {
                    marks += 1;
                    victim.go_on();
                }
            }
        };
        until(2, 1);
        // Once more, to a peer that is away.
        scene.request(INSERT, 2);
        until(3, 1);
        page.order.store(END, SeqCst);
        until(3, 2);
        victim.kill();
        scene.check(3);
        if complete {
            break;
        }
        steps = if choice.every() { steps + 1 } else { steps + 1 + steps / 2 };
    }
    println!("a call interrupted after each of (some of) {steps} instructions");
    assert!(steps > 500);
}

/// A case, and the name by which users choose it.
type Case = (&'static str, fn());

fn main() {
    let choice = Choice::from_arguments();
    let mut cases = 0;
    let all: [Case; 4] = [
        ("computing", answers_while_computing),
        ("others", others_wait_for_a_poll),
        ("kept", replies_without_space_are_kept),
        ("refused", what_would_wait_is_refused),
    ];
    for (name, case) in all.into_iter().filter(|(name, _)| choice.includes(&[name])) {
        watchdog::begin(name.into(), 60);
        case();
        cases += 1;
    }
    if choice.includes(&["senders"]) {
        watchdog::begin("senders die".into(), if choice.every() { 1_800 } else { 60 });
        senders_die(&choice);
        cases += 1;
    }
    if choice.includes(&["interrupted"]) {
        watchdog::begin("interrupted".into(), if choice.every() { 1_800 } else { 60 });
        pin(two_cores()[0]);
        calls_are_interrupted(&choice);
        cases += 1;
    }
    println!("test result: ok. {cases} passed; 0 failed");
}
