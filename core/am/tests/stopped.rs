//! Stops a process after instruction k of a send, and leaves it stopped (not dead): finds
//! the processes that it holds up, and lets it go on.
//!
//! * Under `towpath` and `lock-free`: no other process. Another sender goes round the ring five
//!   times meanwhile, and all of it arrives.
//! * Under the locks: every other process, while it has the lock or a packet, or stands in a FIFO
//!   queue; the others go on as soon as it does.
//!
//! In any case its own message arrives exactly once, before the one that it sends next, nothing is
//! lost, and nothing stays in use. `docs/crashes.md` has the table.
//!
//! `cargo test -p towpath-am --test stopped -- every towpath` stops after every instruction. The
//! victim is a forked child under ptrace; another child sends; this process is the tracer, the
//! receiver and the judge.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, Endpoint, Error, Name, Payload, Status, Tag, Token, WorldConfig};
use towpath_shm::World;
use towpath_sync::Policy;
use towpath_testkit::{Child, Choice, KnownPath, Victim, mark, pin, shared_words, two_cores, watchdog};

const RECEIVER: u32 = 0;
const OTHER: u32 = 1;
const VICTIM: u32 = 2;
const WAITER: u32 = 3;

const PACKETS: u64 = 8;
/// Five times round the ring.
const BATCH: u64 = 5 * PACKETS;
/// The numbers of the victim's messages begin here, those of the waiter's there; the
/// other's count from 0.
const VICTIMS: u32 = 1 << 30;
const WAITERS: u32 = 1 << 31;
/// Time for which a waiter stays stopped. The others look whether it holds them up about
/// every millisecond.
const PATIENTLY: Duration = Duration::from_millis(300);
/// Time for which a process must try, running, without progress, until it counts as held
/// up.
const IN_VAIN: Duration = Duration::from_millis(3);

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Short,
    Full,
    Medium,
    Long,
    Stored,
}

impl What {
    /// Returns the payload beside the number: it follows from that.
    fn payload(self, number: u32) -> Vec<u8> {
        let len = match self {
            What::Short | What::Full => 0,
            What::Medium => 40,
            // Three blocks.
            What::Long | What::Stored => 160,
        };
        bytes(number, len)
    }

    /// Sends the message of that number.
    fn send(self, endpoint: &Endpoint, number: u32, payload: &[u8]) -> Result<(), Error> {
        let args = [number; 16];
        match self {
            What::Short => endpoint.request(0, 1, &args[..1]),
            What::Full => endpoint.request(0, 1, &args),
            What::Medium => endpoint.request_medium(0, 1, &args[..1], payload),
            What::Long | What::Stored => {
                // The other's don't touch the victim's, and there are more places than packets.
                let at = if number < VICTIMS { 512 + 160 * (number % 20) } else { 64 };
                endpoint.request_long(0, 1, &args[..1], payload, at.into())
            }
        }
    }
}

fn bytes(number: u32, len: u64) -> Vec<u8> {
    (0..len).map(|i| (u64::from(number) * 31 + i) as u8).collect()
}

/// Memory that this process shares with its children.
#[derive(Clone, Copy)]
struct Page(&'static [AtomicU64]);

/// Index of the number of messages that the other shall have sent; then of those that it
/// has begun to send, has sent, and got back.
const ASKED: usize = 0;
const BEGUN: usize = 1;
const SENT: usize = 2;
const BACK: usize = 3;
/// Index of the waiter's progress: 1 when it has begun to send, 2 when it has sent. Then
/// of whether its message came back.
const WAITING: usize = 4;
const RETURNED: usize = 5;

impl Page {
    fn get(self, word: usize) -> u64 {
        self.0[word].load(Ordering::Acquire)
    }
    fn set(self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Release);
    }
}

/// An endpoint of a rank that has the receiver as its entry 0.
fn sender(world: &World, rank: u32, receiver: Name) -> Endpoint {
    world.enter(Some(rank)).expect("the rank is free");
    let endpoint = Endpoint::new(world).expect("an endpoint is free");
    endpoint.map(0, receiver, Tag::ALL).expect("the receiver is there");
    endpoint
}

fn counting_returned(page: Page, word: usize) -> impl Fn(&Token<'_>) + Send + Sync + 'static {
    move |message| {
        assert_eq!(message.returned().map(|r| r.status), Some(Status::QueueAbandoned), "{message:?}");
        page.0[word].fetch_add(1, Ordering::Release);
    }
}

/// The other sender: sends as many as it is asked for, of all forms.
fn other(world: &World, receiver: Name, stored: bool, page: Page) {
    let endpoint = sender(world, OTHER, receiver);
    endpoint.set_handler(0, counting_returned(page, BACK));
    let long = if stored { What::Stored } else { What::Long };
    loop {
        while page.get(SENT) < page.get(ASKED) {
            let n = page.get(SENT);
            let what = [What::Short, What::Medium, long];
            page.set(BEGUN, n + 1);
            // Each batch begins with a short one.
            let what = what[(n % BATCH % 3) as usize];
            what.send(&endpoint, n as u32, &what.payload(n as u32)).expect("a request");
            page.set(SENT, n + 1);
        }
        endpoint.poll();
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// The victim: the act, and another message.
fn victim(world: &World, receiver: Name, what: What, number: u32) -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = sender(world, VICTIM, receiver);
    let payload = what.payload(number);
    mark();
    what.send(&endpoint, number, &payload)?;
    mark();
    What::Short.send(&endpoint, number + 1, &[])?;
    mark();
    Ok(())
}

/// Sender that waits for the lock.
fn waiter(world: &World, receiver: Name, number: u32, page: Page) {
    let endpoint = sender(world, WAITER, receiver);
    endpoint.set_handler(0, counting_returned(page, RETURNED));
    page.set(WAITING, 1);
    What::Short.send(&endpoint, number, &[]).expect("a request");
    page.set(WAITING, 2);
    loop {
        endpoint.poll();
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// A world with a receiver, which is ours, and another sender.
struct Scene {
    world: World,
    receiver: Endpoint,
    other: Child,
    page: Page,
    /// Number of the other's messages that have arrived (each in its turn, or the handler
    /// says so).
    others: Arc<AtomicU64>,
    /// Messages of the victim's and the waiter's that have arrived.
    victims: Arc<Mutex<Vec<u32>>>,
}

impl Scene {
    fn new(algorithm: Algorithm, what: What, page: Page, cores: [usize; 2]) -> Scene {
        let config = WorldConfig {
            algorithm,
            // A waiter for a lock then spins and yields, and does not sleep (except for `posix`).
            waiting: if algorithm.is_locked() { Policy::SpinThenYield } else { Policy::Adaptive },
            packets: PACKETS as u32,
            blocks: 4,
            block_size: 64,
            segment_bytes: if what == What::Stored { 4096 } else { 0 },
            ..WorldConfig::new(4)
        };
        let world = World::create(&config.spec(None)).unwrap();
        let handle = world.reopen().unwrap();
        handle.enter(Some(RECEIVER)).unwrap();
        let receiver = match what {
            What::Stored => Endpoint::with_shared_segment(&handle),
            _ => Endpoint::with_private_segment(&handle, 4096),
        }
        .unwrap();
        let (others, victims) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, listed) = (others.clone(), victims.clone());
        receiver.set_handler(1, move |message| {
            let number = message.args()[0];
            assert!(message.args().iter().all(|&a| a == number), "{message:?}");
            let seen = match message.payload() {
                Payload::None => Vec::new(),
                Payload::Medium(seen) => seen.to_vec(),
                Payload::Long { offset, len } => {
                    let mut seen = vec![0; len as usize];
                    message.segment().read(offset, &mut seen);
                    seen
                }
            };
            assert_eq!(seen, bytes(number, seen.len() as u64), "the contents of message {number}");
            if number < VICTIMS {
                // Relaxed, both: this thread only.
                assert_eq!(u64::from(number), counted.load(Ordering::Relaxed), "the other's, in order");
                counted.fetch_add(1, Ordering::Relaxed);
            } else {
                listed.lock().unwrap().push(number);
            }
        });
        for word in page.0 {
            word.store(0, Ordering::Release);
        }
        let name = receiver.name();
        let other = Child::fork(|| {
            pin(cores[1]);
            other(&world, name, what == What::Stored, page);
        });
        Scene { world, receiver, other, page, others, victims }
    }

    fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }

    /// Polls until it has come true. That it never does, only the watchdog can say.
    fn until(&self, mut done: impl FnMut() -> bool) {
        while !done() {
            self.receiver.poll();
            assert!(!self.other.has_ended(), "the other sender has failed");
        }
    }

    /// Lets the other send a batch.
    fn ask(&self) {
        self.page.set(ASKED, self.page.get(ASKED) + BATCH);
    }

    /// Waits until all that the other was asked for is here. `false`: it tries in vain.
    fn goes_on(&self) -> bool {
        let mut vain = Vain::default();
        loop {
            self.receiver.poll();
            if self.others() == self.page.get(ASKED) {
                return true;
            }
            let trying = self.page.get(BEGUN) > self.page.get(SENT);
            if vain.tries(&self.other, trying.then_some(self.page.get(SENT) + self.others())) {
                return false;
            }
        }
    }

    fn victim(&self, what: What, number: u32) -> Victim {
        let name = self.receiver.name();
        let mut victim = Victim::fork(|| victim(&self.world, name, what, number));
        victim.reach_mark();
        victim
    }

    /// Lets the victim go on to its next mark. At first the receiver does not poll, so
    /// that the victim's next message is there, too, before it looks.
    fn let_go(&self, victim: &mut Victim) {
        victim.go_on();
        let start = Instant::now();
        while !victim.at_mark() {
            if start.elapsed() > Duration::from_millis(2) {
                self.receiver.poll();
            }
        }
    }

    /// Everything is through: nothing is missing, twice, out of order, or in use.
    fn settle(&self, due: &[u32]) {
        self.until(|| {
            self.others() == self.page.get(ASKED) && self.victims.lock().unwrap().len() >= due.len()
        });
        self.until(|| {
            self.receiver.recover();
            self.receiver.audit().is_clean()
        });
        assert_eq!(*self.victims.lock().unwrap(), due, "the victim's messages");
        self.victims.lock().unwrap().clear();
    }

    /// Waits for the end of a victim that has sent all its messages.
    fn end(&self, victim: Victim) {
        let pid = victim.pid();
        victim.kill();
        self.world.process_ended(VICTIM, pid, true);
    }
}

/// Detector of a process that tries and makes no progress: it has run for a while, or
/// slept in the kernel, and no count has moved.
#[derive(Default)]
struct Vain {
    moved: Option<u64>,
    looked: Duration,
    in_vain: Duration,
    asleep: u32,
}

impl Vain {
    /// `progress`: anything that changes when it gets on; `None` if it isn't trying.
    /// Before each look we have polled.
    fn tries(&mut self, child: &Child, progress: Option<u64>) -> bool {
        let ran = child.time_on_processor();
        // If we were off our processor since the last look, it may have run for long with a ring
        // that only we can empty: that is not in vain.
        let since = (ran - self.looked).min(IN_VAIN / 30);
        self.looked = ran;
        if progress.is_none() || progress != self.moved {
            (self.moved, self.in_vain, self.asleep) = (progress, Duration::ZERO, 0);
            return false;
        }
        self.in_vain += since;
        if child.is_asleep() {
            std::thread::sleep(IN_VAIN / 10);
            self.asleep += 1;
        }
        self.asleep > 10 || self.in_vain > IN_VAIN
    }
}

/// Findings, over all steps.
#[derive(Default)]
struct Summary {
    steps: u64,
    held_up: u64,
    /// The first step at which the other could not even claim.
    locked: Option<u64>,
}

/// Progress of the other sender beside a victim that is stopped.
#[derive(Clone, Copy, PartialEq)]
enum Progress {
    /// All of its batch.
    Whole,
    /// A claim, after which it was held up.
    Claims,
    /// No claim.
    None,
}

/// Stops victim `number` after `steps` steps, and lets it go on in the end.
///
/// Returns the other's progress meanwhile, and whether the victim had sent its message before.
fn stop_after(
    scene: &Scene,
    (algorithm, what): (Algorithm, What),
    number: u32,
    path: &mut KnownPath,
    steps: u64,
) -> (Progress, bool) {
    watchdog::at(steps);
    let mut victim = scene.victim(what, number);
    let complete = victim.run_along(path, steps);
    let before = scene.page.get(SENT);
    scene.ask();
    let progress = if !algorithm.is_locked() || steps == 0 || complete {
        // All of it, although the victim stays where it is.
        scene.until(|| scene.others() == scene.page.get(ASKED));
        Progress::Whole
    } else if scene.goes_on() {
        Progress::Whole
    } else if scene.page.get(SENT) > before {
        Progress::Claims
    } else {
        Progress::None
    };
    if !complete {
        scene.let_go(&mut victim);
    }
    scene.let_go(&mut victim);
    scene.settle(&[number, number + 1]);
    scene.end(victim);
    (progress, complete)
}

/// Stops the victim after each step in turn.
fn run(scene: &Scene, algorithm: Algorithm, what: What, choice: &Choice) -> Summary {
    let mut summary = Summary::default();
    let (mut steps, mut path) = (0, KnownPath::default());
    let mut numbers = (VICTIMS..).step_by(2);
    let mut stop = |path: &mut KnownPath, steps: u64| {
        stop_after(scene, (algorithm, what), numbers.next().expect("numbers for all"), path, steps)
    };
    // Steps between which the lock is taken: the first at which the other was held up, and the one
    // before it.
    let (mut free, mut taken) = (0, 0);
    loop {
        let (progress, complete) = stop(&mut path, steps);
        if summary.held_up == 0 {
            (free, taken) = (taken, steps);
        }
        if progress != Progress::Whole {
            summary.held_up += 1;
        }
        if progress == Progress::None {
            summary.locked.get_or_insert(steps);
        }
        summary.steps += 1;
        if path.is_done(complete) {
            break;
        }
        steps += match (choice.every(), algorithm.is_locked()) {
            (true, _) => 1,
            // Each one that holds another process up takes a while to be seen.
            (false, true) => 1 + steps / 6,
            (false, false) => 1 + steps / 10,
        };
    }
    // A lock that is held for fewer steps than lie between two stops.
    let is_taken = what == What::Short && summary.held_up > 0;
    while is_taken && summary.locked.is_none() && taken > free + 1 {
        let middle = free.midpoint(taken);
        match stop(&mut path, middle).0 {
            Progress::Whole => free = middle,
            Progress::Claims => taken = middle,
            Progress::None => summary.locked = Some(middle),
        }
    }
    summary
}

/// Stops a waiter for the lock, and lets the holder release it. Returns whether the other
/// is held up, and lets all go on.
///
/// `step`: at which the holder has the lock. With `patient`, the waiter stays stopped for hundreds
/// of the other's looks: nothing may come back, since it lives.
fn stop_waiter(scene: &Scene, step: u64, patient: bool) -> bool {
    let name = scene.receiver.name();
    let mut holder = scene.victim(What::Short, VICTIMS);
    assert!(!holder.run(step, |_, _| {}), "the holder has sent already");
    let (page, world) = (scene.page, &scene.world);
    let waiter = Child::fork(|| waiter(world, name, WAITERS, page));
    scene.until(|| page.get(WAITING) > 0);
    let mut vain = Vain::default();
    scene.until(|| {
        assert_eq!(page.get(WAITING), 1, "the lock has no holder");
        // It gives way to us on our core.
        std::thread::sleep(IN_VAIN / 30);
        vain.tries(&waiter, Some(0))
    });
    waiter.stop();
    scene.let_go(&mut holder);
    scene.ask();
    let held_up = !scene.goes_on();
    if patient {
        let since = Instant::now();
        scene.until(|| since.elapsed() > PATIENTLY);
        assert_eq!((page.get(BACK), page.get(RETURNED)), (0, 0), "a stopped waiter was taken for dead");
    }
    waiter.go_on();
    scene.until(|| page.get(WAITING) == 2);
    scene.until(|| scene.others() == page.get(ASKED));
    scene.until(|| scene.victims.lock().unwrap().contains(&WAITERS));
    scene.let_go(&mut holder);
    scene.settle(&[VICTIMS, WAITERS, VICTIMS + 1]);
    let pid = waiter.pid();
    waiter.kill();
    scene.world.process_ended(WAITER, pid, true);
    scene.end(holder);
    held_up
}

fn main() {
    let page = Page(shared_words(8));
    let cores = two_cores();
    pin(cores[0]);
    let choice = Choice::from_arguments();
    let mut cases = 0;
    println!("{:<24}{:<10}{:>8}{:>9}", "algorithm", "act", "stopped", "held up");
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        if !choice.includes(&[name]) {
            continue;
        }
        let mut locked = None;
        // A claim under a lock has the same steps in all forms, except for the block.
        let acts: &[What] = match algorithm {
            Algorithm::Towpath | Algorithm::LockFree => {
                &[What::Short, What::Full, What::Medium, What::Long, What::Stored]
            }
            // A transfer that is stored has no block.
            Algorithm::TestAndSet => &[What::Short, What::Long, What::Stored],
            _ if choice.every() => &[What::Short, What::Long, What::Stored],
            _ => &[What::Short, What::Long],
        };
        for &what in acts {
            watchdog::begin(format!("{what:?} under {name}"), if choice.every() { 600 } else { 100 });
            let scene = Scene::new(algorithm, what, page, cores);
            let summary = run(&scene, algorithm, what, &choice);
            println!("{name:<24}{:<10}{:>8}{:>9}", format!("{what:?}"), summary.steps, summary.held_up);
            assert!(summary.steps > 20, "{} steps", summary.steps);
            assert_eq!(summary.held_up > 0, algorithm.is_locked(), "the lock's holder holds all others up");
            if what == What::Short {
                locked = summary.locked;
            }
            cases += 1;
        }
        if algorithm.is_locked() {
            watchdog::begin(format!("a waiter under {name}"), 100);
            let step = locked.expect("a step at which the victim has the lock");
            for patient in [false, true] {
                let scene = Scene::new(algorithm, What::Short, page, cores);
                let held_up = stop_waiter(&scene, step, patient);
                assert_eq!(held_up, algorithm.is_fifo(), "a waiter in a FIFO queue holds up later ones");
                println!("{name:<24}{:<10}{:>8}{:>9}", "waiting", 1, u64::from(held_up));
                cases += 1;
            }
        }
    }
    println!("test result: ok. {cases} passed; 0 failed");
}
