//! Kills a process after instruction k of a send or a poll, and looks whether the others
//! go on: nothing lost, nothing twice, nothing leaked, no process hangs.
//!
//! `cargo test -p towpath-am --test kill_every_step -- every towpath` does it for every k (half a
//! minute for each algorithm; without a name, all of them), except in the middle of a long copy. In
//! the ordinary tests k grows by half of it at a time, so that a case takes less than a second.
//!
//! The victim is a forked child under ptrace; this process is the tracer, the survivors and the
//! judge.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, Bundle, Endpoint, Name, Status, Tag, Token, WorldConfig};
use towpath_shm::World;
use towpath_testkit::{Choice, KnownPath, Victim, mark, share_cases, shared_words, watchdog};

const RECEIVER: u32 = 0;
const OTHER: u32 = 1;
const VICTIM: u32 = 2;

/// The victim's long payload: three blocks.
const LONG: [u8; 160] = [7; 160];
/// Payload that is offered; through blocks it takes two.
static OFFER: [u8; 64 << 10] = [7; 64 << 10];
/// Number of transfers through blocks before the first offer.
const BEFORE_OFFERS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Short,
    Full,
    Medium,
    Long,
    Stored,
    /// A long transfer out of the victim's memory, which the receiver copies at once.
    Offered,
    /// Offer that the receiver does not copy in time: it goes through blocks.
    Withdrawn,
    Poll,
}

impl What {
    fn is_offer(self) -> bool {
        matches!(self, What::Offered | What::Withdrawn)
    }
}

const WHATS: [What; 8] = [
    What::Short,
    What::Full,
    What::Medium,
    What::Long,
    What::Stored,
    What::Offered,
    What::Withdrawn,
    What::Poll,
];

/// Messages that have arrived or come back: how many, by number.
type Counts = Arc<Mutex<HashMap<u32, u32>>>;

fn count(counts: &Counts, number: u32) -> u32 {
    counts.lock().unwrap().get(&number).copied().unwrap_or(0)
}

fn counting(counts: &Counts) -> impl Fn(&Token<'_>) + Send + Sync + 'static {
    let counts = counts.clone();
    move |message| {
        if let Some(returned) = message.returned() {
            assert!(matches!(returned.status, Status::Unreachable | Status::QueueAbandoned), "{returned:?}");
        }
        *counts.lock().unwrap().entry(message.args()[0]).or_default() += 1;
    }
}

/// A world with a receiver and another sender, both ours.
struct Scene {
    world: World,
    bundle: Bundle,
    receiver: Endpoint,
    other: Endpoint,
    arrived: Counts,
    back: Counts,
}

impl Scene {
    fn new(algorithm: Algorithm, what: What) -> Scene {
        let config = WorldConfig {
            algorithm,
            packets: if what.is_offer() { 16 } else { 8 },
            blocks: if what.is_offer() { 12 } else { 4 },
            block_size: if what.is_offer() { 32 << 10 } else { 64 },
            segment_bytes: if what == What::Stored { 4096 } else { 0 },
            ..WorldConfig::new(3)
        };
        let world = World::create(&config.spec(None)).unwrap();
        let enter = |rank| {
            let handle = world.reopen().unwrap();
            handle.enter(Some(rank)).unwrap();
            handle
        };
        let (a, b) = (enter(RECEIVER), enter(OTHER));
        if what.is_offer() {
            // Offers are made where each process has a core: the victim believes that it is alone.
            a.surroundings().asleep(true);
            b.surroundings().asleep(true);
        }
        let receiver = match what {
            What::Stored => Endpoint::with_shared_segment(&a),
            _ => Endpoint::with_private_segment(&a, if what.is_offer() { 64 + OFFER.len() } else { 4096 }),
        }
        .unwrap();
        let other = Endpoint::new(&b).unwrap();
        let (arrived, back) = (Counts::default(), Counts::default());
        receiver.set_handler(1, counting(&arrived));
        other.set_handler(0, counting(&back));
        other.map(0, receiver.name(), Tag::ALL).unwrap();
        let bundle = Bundle::new();
        bundle.add(&receiver);
        bundle.add(&other);
        Scene { world, bundle, receiver, other, arrived, back }
    }

    /// Polls and looks after everything until it has come true. `false`: it does not.
    fn until(&self, mut done: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        while !done() {
            self.bundle.poll();
            self.receiver.recover();
            self.other.recover();
            if start.elapsed() > Duration::from_secs(5) {
                return false;
            }
        }
        true
    }
}

/// Program of the victim. `page[0]`: its name, later 1 when requests are there;
/// `page[1]`: the requests that it has handled.
fn victim(
    world: &World,
    receiver: Name,
    what: What,
    number: u32,
    page: &'static [AtomicU64],
) -> Result<(), Box<dyn std::error::Error>> {
    world.enter(Some(VICTIM))?;
    let endpoint = Endpoint::new(world)?;
    endpoint.map(0, receiver, Tag::ALL)?;
    endpoint.set_handler(1, move |message| {
        page[1].fetch_add(1 << (8 * (message.args()[0] % 2)), Ordering::Relaxed);
    });
    page[0].store(endpoint.name().to_bits(), Ordering::Release);
    while what == What::Poll && page[0].load(Ordering::Acquire) != 1 {
        std::thread::yield_now();
    }
    if what.is_offer() {
        // A sender measures blocks first, and offers then.
        for _ in 0..BEFORE_OFFERS {
            endpoint.request_long(0, 1, &[u32::MAX], &OFFER, 64)?;
        }
    }
    let args = [number; 16];
    mark();
    match what {
        What::Short => endpoint.request(0, 1, &args[..1])?,
        What::Full => endpoint.request(0, 1, &args)?,
        What::Medium => endpoint.request_medium(0, 1, &args[..1], &LONG[..40])?,
        What::Long | What::Stored => endpoint.request_long(0, 1, &args[..1], &LONG, 64)?,
        What::Offered | What::Withdrawn => endpoint.request_long(0, 1, &args[..1], &OFFER, 64)?,
        What::Poll => assert_eq!(endpoint.poll(), 2),
    }
    mark();
    Ok(())
}

/// Runs the victim for `steps` instructions of its act and kills it. Returns whether the
/// act was complete.
fn kill_after(
    scene: &Scene,
    what: What,
    number: u32,
    steps: u64,
    path: &mut KnownPath,
    page: &'static [AtomicU64],
) -> bool {
    page[0].store(0, Ordering::Release);
    page[1].store(0, Ordering::Release);
    let mut victim = Victim::fork(|| victim(&scene.world, scene.receiver.name(), what, number, page));
    if what == What::Poll {
        // Two requests for it to find.
        while page[0].load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        scene.other.map(1, Name::from_bits(page[0].load(Ordering::Acquire)), Tag::ALL).unwrap();
        scene.other.request(1, 1, &[number * 2]).unwrap();
        scene.other.request(1, 1, &[number * 2 + 1]).unwrap();
        page[0].store(1, Ordering::Release);
    }
    victim.reach_mark();
    if what.is_offer() {
        while scene.bundle.poll() > 0 {}
    }
    let complete = match what {
        What::Offered => victim.run(steps, |_, _| {
            scene.bundle.poll();
        }),
        _ => victim.run_along(path, steps),
    };
    let pid = victim.pid();
    victim.kill();
    scene.world.process_ended(VICTIM, pid, true);
    complete
}

/// Findings of the survivors, over all steps.
#[derive(Debug, Default)]
struct Summary {
    steps: u64,
    delivered: u64,
    closed: u64,
}

/// One step of a send: before it a message of the other's is on its way, after it another
/// is sent.
fn after_send(
    scene: &Scene,
    what: What,
    number: u32,
    steps: u64,
    path: &mut KnownPath,
    page: &'static [AtomicU64],
    summary: &mut Summary,
) -> (bool, bool) {
    let (before, mine, after) = (number * 3, number * 3 + 1, number * 3 + 2);
    scene.other.request(0, 1, &[before]).unwrap();
    let complete = kill_after(scene, what, mine, steps, path, page);
    scene.other.request(0, 1, &[after]).unwrap();
    assert!(
        scene.until(|| count(&scene.arrived, after) + count(&scene.back, after) > 0),
        "the other sender hangs"
    );
    let closed = count(&scene.back, after) > 0;
    if !closed {
        let clean = scene.until(|| scene.receiver.audit().is_clean());
        assert!(clean, "leaked: {:?}", scene.receiver.audit());
    }
    assert_eq!(count(&scene.arrived, before), 1, "a message that was on its way");
    assert_eq!(count(&scene.arrived, after) + count(&scene.back, after), 1, "the message after");
    let delivered = count(&scene.arrived, mine);
    assert!(delivered <= 1, "delivered twice");
    assert!(delivered == 1 || !complete || closed, "sent and lost");
    if what == What::Offered && complete {
        assert!(steps < 20_000, "{steps} instructions: the bytes went through blocks");
    }
    if delivered == 1 && what.is_offer() {
        let mut bytes = vec![0; OFFER.len()];
        scene.receiver.segment().read(64, &mut bytes);
        assert!(bytes == OFFER, "the bytes that were offered");
        scene.receiver.segment().write(64, &vec![0; OFFER.len()]);
    }
    summary.delivered += u64::from(delivered);
    summary.closed += u64::from(closed);
    (complete, closed)
}

/// One step of a poll: two requests wait for the victim.
fn after_poll(
    scene: &Scene,
    number: u32,
    steps: u64,
    path: &mut KnownPath,
    page: &'static [AtomicU64],
    summary: &mut Summary,
) -> (bool, bool) {
    let complete = kill_after(scene, What::Poll, number, steps, path, page);
    let handled = |n: u32| page[1].load(Ordering::Acquire) >> (8 * (n % 2)) & 0xff;
    let both = [number * 2, number * 2 + 1];
    assert!(
        scene.until(|| both.iter().all(|&n| handled(n) + u64::from(count(&scene.back, n)) > 0)),
        "a request was neither handled nor returned"
    );
    let mut twice = 0;
    for n in both {
        let back = u64::from(count(&scene.back, n));
        assert!(handled(n) <= 1 && back <= 1, "request {n}: handled {}, came back {back}", handled(n));
        twice += handled(n) * back;
        summary.delivered += handled(n);
    }
    assert!(twice <= 1, "only the one that was being handled may come back too");
    scene.other.unmap(1).unwrap();
    (complete, false)
}

fn run(algorithm: Algorithm, what: What, choice: &Choice, page: &'static [AtomicU64]) -> Summary {
    let mut summary = Summary::default();
    let mut scene = Scene::new(algorithm, what);
    let (mut steps, mut path) = (0, KnownPath::default());
    for number in 0.. {
        watchdog::at(steps);
        let (complete, closed) = match what {
            What::Poll => after_poll(&scene, number, steps, &mut path, page, &mut summary),
            _ => after_send(&scene, what, number, steps, &mut path, page, &mut summary),
        };
        steps = match what {
            // Copying the bytes takes a hundred thousand instructions.
            What::Withdrawn if !choice.every() => steps + 1 + steps / 3,
            What::Withdrawn if steps > 4096 => steps + steps / 50,
            _ => choice.after(steps),
        };
        summary.steps += 1;
        if path.is_done(complete) {
            break;
        }
        if closed {
            assert!(
                algorithm.is_locked() && algorithm != Algorithm::Posix,
                "only a spin lock may close its queue"
            );
            scene = Scene::new(algorithm, what);
        }
    }
    summary
}

fn main() {
    let choice = Choice::from_arguments();
    println!("{:<24}{:<10}{:>8}{:>12}{:>9}", "algorithm", "act", "killed", "delivered", "closed");
    share_cases(|share| {
        let page = shared_words(2);
        for algorithm in Algorithm::ALL {
            for what in WHATS {
                // The others make no offers.
                let exists = !what.is_offer() || algorithm == Algorithm::Towpath;
                if !exists || !choice.includes(&[algorithm.name()]) || !share.takes_next() {
                    continue;
                }
                watchdog::begin(format!("{what:?} under {}", algorithm.name()), 150);
                let Summary { steps, delivered, closed } = run(algorithm, what, &choice, page);
                assert!(steps > 10 && delivered > 0, "{what:?}: {steps} steps, {delivered} delivered");
                let (name, what) = (algorithm.name(), format!("{what:?}"));
                println!("{name:<24}{what:<10}{steps:>8}{delivered:>12}{closed:>9}");
            }
        }
    });
}
