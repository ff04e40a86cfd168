//! Kills a process after instruction k of a send or a poll, and looks whether the others go on: nothing lost, nothing
//! twice, nothing leaked, nobody hangs.
//!
//! `cargo test -p towpath-am --test kill_every_step -- every towpath` does it for every k (a minute for each algorithm; without a name, all of them). In the ordinary tests k
//! grows by a sixtieth at a time, so that a case takes a second or two.
//!
//! The victim is a forked child under ptrace; this process is the tracer, the survivors and the judge.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, Bundle, Endpoint, Name, Status, Tag, Token, WorldConfig};
use towpath_shm::{World, WorldSpec};

const RECEIVER: u32 = 0;
const OTHER: u32 = 1;
const VICTIM: u32 = 2;

/// The victim's long payload: three blocks.
const LONG: [u8; 160] = [7; 160];

static CHILD: AtomicI32 = AtomicI32::new(0);
static STEP: AtomicU64 = AtomicU64::new(0);
static CASE: AtomicU64 = AtomicU64::new(0);

/// The watchdog: says where things stood, ends our child, and gives up.
extern "C" fn alarm(_: libc::c_int) {
    let (case, step) = (CASE.load(Ordering::Relaxed), STEP.load(Ordering::Relaxed));
    eprintln!("watchdog: no end in sight in case {case} at step {step}");
    let child = CHILD.load(Ordering::Relaxed);
    // SAFETY: kill and _exit may be called from a signal handler; the child is ours and not yet waited for, or 0.
    unsafe {
        if child > 0 {
            libc::kill(child, libc::SIGKILL);
        }
        libc::_exit(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Short,
    Full,
    Medium,
    Long,
    Stored,
    Poll,
}

/// What has arrived or come back, by number.
type Counts = Arc<Mutex<HashMap<u32, u32>>>;

fn count(counts: &Counts, number: u32) -> u32 {
    counts.lock().unwrap().get(&number).copied().unwrap_or(0)
}

fn counting(counts: &Counts) -> impl Fn(&Token<'_>) + Send + Sync + 'static {
    let counts = counts.clone();
    move |message| {
        if let Some(returned) = message.returned() {
            assert!(matches!(returned.status, Status::Unreachable | Status::Congestion), "{returned:?}");
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
            packets: 8,
            blocks: 4,
            block_size: 64,
            segment_bytes: if what == What::Stored { 4096 } else { 0 },
            ..WorldConfig::new(3)
        };
        let world = World::create(&WorldSpec {
            name: None,
            processes: 3,
            area_bytes: config.area_bytes(),
            params: config.params(),
        })
        .unwrap();
        let enter = |rank| {
            let handle = world.reopen().unwrap();
            handle.enter(Some(rank)).unwrap();
            handle
        };
        let (a, b) = (enter(RECEIVER), enter(OTHER));
        let receiver = match what {
            What::Stored => Endpoint::with_shared_segment(&a),
            _ => Endpoint::with_private_segment(&a, 4096),
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

/// The victim, from its birth to its end. `page[0]`: its name, later 1 when requests are there; `page[1]`: which it has handled.
fn victim(world: &World, receiver: Name, what: What, number: u32, page: &'static [AtomicU64]) -> ! {
    let act = || -> Result<(), Box<dyn std::error::Error>> {
        world.enter(Some(VICTIM))?;
        let endpoint = Endpoint::new(world)?;
        endpoint.map(0, receiver, Tag::ALL)?;
        endpoint.set_handler(1, move |message| {
            page[1].fetch_add(1 << (8 * (message.args()[0] % 2)), Ordering::Relaxed);
        });
        // SAFETY: asks to be traced by our parent, which waits for the stop.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        page[0].store(endpoint.name().to_bits(), Ordering::Release);
        while what == What::Poll && page[0].load(Ordering::Acquire) != 1 {
            std::thread::yield_now();
        }
        let args = [number; 16];
        // SAFETY: stops this process; the tracer lets it go on, step by step.
        unsafe { libc::raise(libc::SIGSTOP) };
        match what {
            What::Short => endpoint.request(0, 1, &args[..1])?,
            What::Full => endpoint.request(0, 1, &args)?,
            What::Medium => endpoint.request_medium(0, 1, &args[..1], &LONG[..40])?,
            What::Long | What::Stored => endpoint.request_long(0, 1, &args[..1], &LONG, 64)?,
            What::Poll => assert_eq!(endpoint.poll(), 2),
        }
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGSTOP) };
        Ok(())
    };
    if let Err(error) = act() {
        eprintln!("victim: {error}");
    }
    // SAFETY: ends the process without running what it inherited.
    unsafe { libc::_exit(1) }
}

/// Waits for the victim's next stop; returns the signal, or `None` if it has ended.
fn stop_of(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: our own child, not yet waited for; `status` is a place for the result.
    let got = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(got, pid);
    libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
}

/// Runs the victim for `steps` instructions of its act and kills it. Returns whether the act was complete.
fn kill_after(scene: &Scene, what: What, number: u32, steps: u64, page: &'static [AtomicU64]) -> bool {
    page[0].store(0, Ordering::Release);
    page[1].store(0, Ordering::Release);
    // SAFETY: this process has one thread, so the child may do what it likes; it never returns.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: takes a signal number.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        victim(&scene.world, scene.receiver.name(), what, number, page);
    }
    CHILD.store(pid, Ordering::Relaxed);
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
    assert_eq!(stop_of(pid), Some(libc::SIGSTOP), "the victim did not get as far as its act");
    let mut complete = false;
    for _ in 0..steps {
        // SAFETY: the child is stopped and traced by us.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) }, 0);
        match stop_of(pid) {
            Some(libc::SIGTRAP) => {}
            Some(libc::SIGSTOP) => {
                complete = true;
                break;
            }
            other => panic!("the victim stopped with {other:?}"),
        }
    }
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    while stop_of(pid).is_some() {}
    CHILD.store(0, Ordering::Relaxed);
    scene.world.process_ended(VICTIM, pid as u32, true);
    complete
}

/// What the survivors found, over all steps.
#[derive(Debug, Default)]
struct Summary {
    steps: u64,
    delivered: u64,
    closed: u64,
}

/// One step of a send: before it a message of the other's is on its way, after it another is sent.
fn after_send(
    scene: &Scene,
    what: What,
    number: u32,
    steps: u64,
    page: &'static [AtomicU64],
    summary: &mut Summary,
) -> (bool, bool) {
    let (before, mine, after) = (number * 3, number * 3 + 1, number * 3 + 2);
    scene.other.request(0, 1, &[before]).unwrap();
    let complete = kill_after(scene, what, mine, steps, page);
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
    summary.delivered += u64::from(delivered);
    summary.closed += u64::from(closed);
    (complete, closed)
}

/// One step of a poll: two requests wait for the victim.
fn after_poll(
    scene: &Scene,
    number: u32,
    steps: u64,
    page: &'static [AtomicU64],
    summary: &mut Summary,
) -> (bool, bool) {
    let complete = kill_after(scene, What::Poll, number, steps, page);
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

fn run(case: u64, algorithm: Algorithm, what: What, every: bool, page: &'static [AtomicU64]) -> Summary {
    CASE.store(case, Ordering::Relaxed);
    let mut summary = Summary::default();
    let mut scene = Scene::new(algorithm, what);
    let mut steps = 0;
    for number in 0.. {
        STEP.store(steps, Ordering::Relaxed);
        let (complete, closed) = match what {
            What::Poll => after_poll(&scene, number, steps, page, &mut summary),
            _ => after_send(&scene, what, number, steps, page, &mut summary),
        };
        steps += if every { 1 } else { 1 + steps / 60 };
        summary.steps += 1;
        if complete {
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
    // SAFETY: a new anonymous mapping; a handler that only calls what a handler may.
    let page: &'static [AtomicU64] = unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        libc::signal(libc::SIGALRM, alarm as extern "C" fn(libc::c_int) as libc::sighandler_t);
        std::slice::from_raw_parts(page.cast(), 2)
    };
    // Tracer and victim on one core: a step then costs two switches, and not the waking of another core.
    // SAFETY: a set of processors is plain data; the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
    let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let every = only.iter().any(|o| o == "every");
    let only: Vec<String> = only.into_iter().filter(|o| o != "every").collect();
    let mut cases = 0;
    println!("{:<24}{:<10}{:>8}{:>12}{:>9}", "algorithm", "act", "killed", "delivered", "closed");
    for algorithm in Algorithm::ALL {
        for what in [What::Short, What::Full, What::Medium, What::Long, What::Stored, What::Poll] {
            if !only.is_empty() && !only.iter().any(|o| o == algorithm.name()) {
                continue;
            }
            // SAFETY: sets this process's timer. Each case has its own.
            unsafe { libc::alarm(150) };
            cases += 1;
            let Summary { steps, delivered, closed } = run(cases, algorithm, what, every, page);
            assert!(steps > 20 && delivered > 0, "{what:?}: {steps} steps, {delivered} delivered");
            let (name, what) = (algorithm.name(), format!("{what:?}"));
            println!("{name:<24}{what:<10}{steps:>8}{delivered:>12}{closed:>9}");
        }
    }
    println!("test result: ok. {cases} passed; 0 failed");
}
