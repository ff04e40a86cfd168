//! Four processes update structures that they share; in each, two timers, at five and at
//! one kilohertz, interrupt whatever it does (the second one the first one's handler, too), and the
//! handlers update the same structures. In the end: what was put in and not taken out is there,
//! every descriptor is somewhere, and no process has waited for another.
//!
//! `TOWPATH_TIMERS` says for how many seconds (by default two, for all structures together).
#![allow(unsafe_code)]

#[path = "nonblocking/models.rs"]
#[allow(dead_code, reason = "shared with the tests of that name")]
mod models;
#[path = "nonblocking/subjects.rs"]
#[allow(dead_code, unused_macros, reason = "shared with the tests of that name")]
mod subjects;

use std::mem::size_of;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use towpath_machine::{Concurrent, Native, OwnLine, Random};
use towpath_structures::InPlace;
use towpath_structures::dcas::{Actor, Guerraoui, Harris};
use towpath_structures::nonblocking::{
    Fifo, HarrisMichaelList, HashMap, List, PriorityQueue, StableError, Stack,
};
use towpath_sync::Spinning;
use towpath_testkit::{Child, shared_words, watchdog};

use models::Op;
use subjects::Subject;

const PROCESSES: usize = 4;
/// The parent's number.
const PARENT: usize = PROCESSES;
/// Room for 59 values.
type Room = InPlace<60, { PROCESSES + 1 }>;
type Dcas = Guerraoui<Native, Room>;

const KEYS: u64 = 24;

/// Fate of a value that is put in where there is one.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Both are there.
    Bag,
    /// The new one is left out.
    Keeps,
    /// The former one is out.
    Replaces,
}

/// Account of one process, in its handlers and otherwise.
#[repr(C)]
#[derive(Default)]
struct Account {
    /// The sums of the values that it has put in, and taken out.
    put: AtomicU64,
    took: AtomicU64,
    done: AtomicU64,
    /// Number of handlers that have run: of the first timer, and of the second.
    handled: [AtomicU64; 2],
}

#[repr(C)]
struct Shared<T> {
    subject: T,
    kind: AtomicU64,
    accounts: [OwnLine<Account>; PROCESSES],
    end: AtomicU64,
    /// Error of an operation that failed.
    failed: AtomicU64,
}

impl<T: Subject<Native>> Shared<T> {
    fn perform(&self, me: usize, turn: u64) {
        let cpu = Native::with_id(me as u32);
        let actor = Actor { cpu: &cpu, wait: &Spinning, me };
        let mut random = Random::new(turn << 8 | me as u64);
        let (key, value, account) = (random.below(KEYS), turn % 1_000 + 1, &self.accounts[me]);
        let value_of = |answer: u64| answer & 0xffff_ffff;
        let done = match random.below(4) {
            0 | 1 => self.subject.act(&actor, Op::Put(key, value)).map(|there| {
                match (self.kind.load(SeqCst), there) {
                    (1, Some(_)) => return,
                    (_, Some(former)) => _ = account.took.fetch_add(former, SeqCst),
                    (_, None) => {}
                }
                account.put.fetch_add(value, SeqCst);
            }),
            _ => self.subject.act(&actor, Op::Take(key)).map(|taken| {
                account.took.fetch_add(taken.map_or(0, value_of), SeqCst);
            }),
        };
        match done {
            Ok(()) | Err(StableError::Exhausted) => {}
            Err(error) => self.failed.store(error as u64 + 1, SeqCst),
        }
        account.done.fetch_add(1, SeqCst);
    }

    /// Sum of the values that are left, taken out by the parent.
    fn drain(&self, kind: Kind) -> u64 {
        let cpu = Native::with_id(PARENT as u32);
        let actor = Actor { cpu: &cpu, wait: &Spinning, me: PARENT };
        let take = |key| self.subject.act(&actor, Op::Take(key)).expect("no operation is in the way");
        match kind {
            Kind::Bag => std::iter::from_fn(|| take(0)).map(|answer| answer & 0xffff_ffff).sum(),
            _ => (0..KEYS).filter_map(take).sum(),
        }
    }
}

/// Memory that the handlers work on, in a child.
static WORK: AtomicPtr<()> = AtomicPtr::new(null_mut());
static NUMBER: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler<T: Subject<Native>>(signal: libc::c_int) {
    // SAFETY: set before the handler was installed, to a mapping of this type that is never
    // unmapped.
    let shared = unsafe { &*WORK.load(SeqCst).cast::<Shared<T>>() };
    let me = NUMBER.load(SeqCst) as usize;
    let which = (signal - libc::SIGRTMIN()) as usize;
    let turn = shared.accounts[me].handled[which].fetch_add(1, SeqCst);
    for i in 0..3 {
        shared.perform(me, turn * 7 + i + which as u64);
    }
}

/// A timer of the calling process that sends it a signal so often.
fn start_timer(signal: i32, every: Duration) {
    // SAFETY: events and times are plain data, all-zero is valid for both; the calls fill in and
    // read what they are given.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        let mut timer: libc::timer_t = null_mut();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0, "no timer");
        let period = libc::timespec { tv_sec: 0, tv_nsec: every.as_nanos() as i64 };
        let time = libc::itimerspec { it_interval: period, it_value: period };
        assert_eq!(libc::timer_settime(timer, 0, &time, null_mut()), 0, "the timer does not start");
    }
}

fn live<T: Subject<Native>>(shared: &'static Shared<T>, me: usize) {
    WORK.store(from_ref(shared).cast_mut().cast(), SeqCst);
    NUMBER.store(me as u64, SeqCst);
    for (which, every) in [(0, 200), (1, 1_000)] {
        let signal = libc::SIGRTMIN() + which;
        // SAFETY: the action is all zero but for the handler, which is of the right type and calls
        // only what may be called in a handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler::<T> as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, null_mut());
        }
        start_timer(signal, Duration::from_micros(every));
    }
    let mut turn = 0;
    while shared.end.load(SeqCst) == 0 {
        shared.perform(me, turn);
        turn += 1;
    }
    // The timers end with the process: what has begun is ended first. SAFETY: a set of signals is
    // plain data, which the calls fill in and read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, null_mut());
    }
}

fn case<T: Subject<Native> + Concurrent>(kind: Kind, time: Duration) {
    watchdog::begin(format!("{}: four processes with timers", T::name()), 60 + time.as_secs() as u32);
    let words = shared_words(size_of::<Shared<T>>().div_ceil(8));
    // SAFETY: mapped, zeroed, aligned to a page, long enough and never unmapped; all-zero bytes are
    // valid for plain types and atomics.
    let shared: &'static Shared<T> = unsafe { &*words.as_ptr().cast::<Shared<T>>() };
    shared.kind.store(kind as u64, SeqCst);
    let children: Vec<Child> = (0..PROCESSES).map(|me| Child::fork(|| live(shared, me))).collect();
    let start = Instant::now();
    let handled = |me: usize| [0, 1].map(|which| shared.accounts[me].handled[which].load(SeqCst));
    // However slow the machine: every process is interrupted some hundred times.
    while start.elapsed() < time || (0..PROCESSES).any(|me| handled(me)[0] < 100 || handled(me)[1] < 20) {
        assert_eq!(shared.failed.load(SeqCst), 0, "{}: an operation failed", T::name());
        std::thread::sleep(Duration::from_millis(5));
    }
    let elapsed = start.elapsed().as_secs_f64();
    shared.end.store(1, SeqCst);
    while !children.iter().all(Child::has_ended) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(children.iter().all(Child::has_ended_well), "{}: a child has failed", T::name());
    assert_eq!(shared.failed.load(SeqCst), 0, "{}: an operation failed", T::name());
    let cpu = Native::with_id(PARENT as u32);
    let inventory =
        shared.subject.inventory(&Actor { cpu: &cpu, wait: &Spinning, me: PARENT }).expect("readable");
    assert_eq!(inventory.free + inventory.reachable, inventory.all, "{}: {inventory:?}", T::name());
    let sum = |of: fn(&Account) -> &AtomicU64| -> u64 {
        shared.accounts.iter().map(|account| of(account).load(SeqCst)).sum()
    };
    let (put, took, left) = (sum(|a| &a.put), sum(|a| &a.took), shared.drain(kind));
    assert_eq!(put, took + left, "{}: {put} put in, {took} taken out, {left} left", T::name());
    assert!(put > 0 && took > 0);
    let rate = |which: usize| -> f64 {
        (0..PROCESSES).map(|me| handled(me)[which]).sum::<u64>() as f64 / elapsed / PROCESSES as f64
    };
    let done = sum(|a| &a.done);
    println!("{:<28}{done:>12}{:>16.0}{:>16.0}", T::name(), rate(0), rate(1));
}

fn main() {
    let seconds: f64 = std::env::var("TOWPATH_TIMERS").ok().and_then(|n| n.parse().ok()).unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds / 7.0);
    let _ = Native::pause_ps(); // Measured before there are children.
    println!("{:<28}{:>12}{:>16}{:>16}", "structure", "operations", "signals/s each", "second timer's");
    case::<Stack<Native, Dcas, Room>>(Kind::Bag, time);
    case::<Fifo<Native, Dcas, Room>>(Kind::Bag, time);
    case::<PriorityQueue<Native, Dcas, Room>>(Kind::Bag, time);
    case::<List<Native, Dcas, Room>>(Kind::Keeps, time);
    case::<HashMap<Native, Dcas, Room>>(Kind::Replaces, time);
    case::<HashMap<Native, Harris<Native, Room>, Room>>(Kind::Replaces, time);
    case::<HarrisMichaelList<Native, Room>>(Kind::Keeps, time);
    println!("test result: ok. 7 passed; 0 failed");
}
