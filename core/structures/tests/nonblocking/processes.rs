//! Tests between processes: some are killed at any instruction, some are stopped, some
//! are interrupted by timers whose handlers use the same structure. Nothing is lost, and no process
//! waits.
//!
//! `TOWPATH_KILLS` says how many are killed per structure (by default few).

use std::mem::size_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use towpath_machine::{Concurrent, Native, OwnLine, Processor, Random};
use towpath_process::Child;
use towpath_structures::InPlace;
use towpath_structures::dcas::{Actor, Guerraoui, Harris};
use towpath_structures::nonblocking::{
    ArrayFifo, Fifo, HarrisMichaelList, HashMap, List, PriorityQueue, StableError, Stack,
};
use towpath_sync::Spinning;

use crate::models::Op;
use crate::subjects::{SmallPageMap, Subject};

const CHILDREN: usize = 3;
/// The parent's number.
const PARENT: usize = CHILDREN;
const ALL: usize = CHILDREN + 1;
/// Time without progress after which the test gives up and says where each process
/// stands.
const PATIENCE: u64 = 60_000_000_000;

type Room = InPlace<40, ALL>;
type Dcas = Guerraoui<Native, Room>;

#[repr(C)]
struct Shared<T> {
    subject: T,
    /// Number of operations of each participant; `handled`: of these, in handlers.
    done: [OwnLine<AtomicU64>; ALL],
    handled: [OwnLine<AtomicU64>; ALL],
    /// 1 when all shall end.
    end: AtomicU64,
    /// Line of the error of a child; 0: none.
    failed: AtomicU64,
}

/// A zeroed mapping that child processes share. Never unmapped.
fn shared<T: Concurrent>() -> &'static Shared<T> {
    // SAFETY: a new anonymous mapping; no address is asked for.
    let memory = unsafe {
        libc::mmap(
            null_mut(),
            size_of::<Shared<T>>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED, "no memory to share");
    // SAFETY: mapped, zeroed and aligned to a page; all-zero bytes are a valid value of
    // `Concurrent` types and atomics; never unmapped.
    unsafe { &*memory.cast::<Shared<T>>() }
}

/// Children, one of each number. Killed when dropped.
type Children = [Child; CHILDREN];

/// Forks a child that runs `run`.
///
/// `run` allocates nothing: a thread of this process may hold a lock of the allocator.
fn fork(run: impl FnOnce()) -> Child {
    let ends = || {
        run();
        0
    };
    Child::fork(ends).expect("no process")
}

/// The `turn`-th operation of participant `me`.
fn operation(me: usize, turn: u64) -> Op {
    let mut random = Random::new(turn << 8 | me as u64);
    let key = random.below(6);
    match random.below(8) {
        0..=3 => Op::Put(key, turn % 1000 + 1),
        4..=6 => Op::Take(key),
        _ => Op::Get(key % 2),
    }
}

fn perform<T: Subject<Native>>(shared: &Shared<T>, me: usize, turn: u64) {
    let cpu = Native::with_id(me as u32);
    match shared.subject.act(&Actor { cpu: &cpu, wait: &Spinning, me }, operation(me, turn)) {
        Ok(_) | Err(StableError::Exhausted) => {}
        Err(error) => shared.failed.store(error as u64 + 1, Ordering::Relaxed),
    }
}

/// A child's life. It allocates nothing: its process was forked from one with threads.
fn live<T: Subject<Native>>(shared: &Shared<T>, me: usize) {
    let cpu = Native::with_id(me as u32);
    // A successor ends what the one before it has begun.
    let actor = Actor { cpu: &cpu, wait: &Spinning, me };
    if shared.subject.recover(&actor, |p| p == me).is_err() {
        shared.failed.store(100, Ordering::Relaxed);
    }
    while shared.end.load(Ordering::Relaxed) == 0 {
        let turn = shared.done[me].fetch_add(1, Ordering::Relaxed);
        perform(shared, me, turn);
    }
}

fn now() -> u64 {
    Native::with_id(0).now()
}

impl<T: Subject<Native>> Shared<T> {
    fn stand(&self) -> String {
        let of =
            |all: &[OwnLine<AtomicU64>]| all.iter().map(|n| n.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let failed = self.failed.load(Ordering::Relaxed);
        format!(
            "{}: done {:?}, in handlers {:?}, failure {failed}",
            T::name(),
            of(&self.done),
            of(&self.handled)
        )
    }

    /// Waits until these have got on by so many operations.
    fn wait_for(&self, members: impl Iterator<Item = usize> + Clone, count: u64, of: &[OwnLine<AtomicU64>]) {
        let start = now();
        let at = |me: usize| of[me].load(Ordering::Relaxed);
        let from: Vec<u64> = (0..ALL).map(at).collect();
        while members.clone().any(|me| at(me) < from[me] + count) {
            assert!(now() - start < PATIENCE, "no process gets on: {}", self.stand());
            assert_eq!(self.failed.load(Ordering::Relaxed), 0, "{}", self.stand());
            std::thread::yield_now();
        }
    }

    /// All end; then every descriptor is there.
    fn end(&self, mut children: Children) {
        self.end.store(1, Ordering::Relaxed);
        let start = now();
        for child in &mut children {
            while child.try_wait().expect("a child that was not waited for").is_none() {
                assert!(now() - start < PATIENCE, "{} does not end: {}", child.pid(), self.stand());
                std::thread::yield_now();
            }
        }
        assert_eq!(self.failed.load(Ordering::Relaxed), 0, "{}", self.stand());
        let cpu = Native::with_id(PARENT as u32);
        let inventory = self.subject.inventory(&Actor { cpu: &cpu, wait: &Spinning, me: PARENT });
        let inventory = inventory.unwrap_or_else(|error| panic!("{error}: {}", self.stand()));
        assert_eq!(inventory.free + inventory.reachable, inventory.all, "{inventory:?}: {}", self.stand());
    }
}

fn kills() -> u64 {
    std::env::var("TOWPATH_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

fn killed<T: Subject<Native> + Concurrent>() {
    let shared = shared::<T>();
    let _ = Native::pause_ps(); // Measured before there are children.
    let mut children: Children = std::array::from_fn(|me| fork(|| live(shared, me)));
    let cpu = Native::with_id(PARENT as u32);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: PARENT };
    let mut freed = 0;
    for kill in 0..kills() {
        let victim = kill as usize % CHILDREN;
        shared.wait_for(std::iter::once(victim), 5 + kill * 37 % 50, &shared.done);
        children[victim].kill();
        let end = std::time::Instant::now() + std::time::Duration::from_nanos(PATIENCE);
        assert!(children[victim].wait(end).expect("a child").is_some(), "{victim} does not die");
        let start = now();
        loop {
            let audit = shared.subject.recover(&actor, |p| p == victim);
            let audit = audit.unwrap_or_else(|error| panic!("{error}: {}", shared.stand()));
            freed += audit.freed;
            if audit.pending == 0 {
                break;
            }
            assert!(now() - start < PATIENCE, "{audit:?} pending: {}", shared.stand());
            std::thread::yield_now();
        }
        perform(shared, PARENT, kill);
        children[victim] = fork(|| live(shared, victim));
    }
    shared.end(children);
    eprintln!("{}: {} killed, {freed} descriptors recovered", T::name(), kills());
}

#[test]
fn the_killed_leave_nothing_behind() {
    killed::<Stack<Native, Dcas, Room>>();
    killed::<Fifo<Native, Dcas, Room>>();
    killed::<ArrayFifo<Native, Dcas, Room>>();
    killed::<List<Native, Dcas, Room>>();
    killed::<HashMap<Native, Dcas, Room>>();
    killed::<PriorityQueue<Native, Dcas, Room>>();
    killed::<SmallPageMap<Native, Dcas, Room>>();
    killed::<HashMap<Native, Harris<Native, Room>, Room>>();
    killed::<HarrisMichaelList<Native, Room>>();
}

fn stopped<T: Subject<Native> + Concurrent>() {
    let shared = shared::<T>();
    let _ = Native::pause_ps();
    let children: Children = std::array::from_fn(|me| fork(|| live(shared, me)));
    for victim in (0..CHILDREN).cycle().take(6) {
        shared.wait_for(0..CHILDREN, 20, &shared.done);
        assert!(children[victim].stop().expect("a child"), "{victim} has ended: {}", shared.stand());
        shared.wait_for((0..CHILDREN).filter(|me| *me != victim), 200, &shared.done);
        children[victim].go_on();
    }
    shared.end(children);
}

#[test]
fn the_stopped_stop_no_other() {
    stopped::<Stack<Native, Dcas, Room>>();
    stopped::<List<Native, Dcas, Room>>();
    stopped::<HashMap<Native, Harris<Native, Room>, Room>>();
}

type Subjected = HashMap<Native, Dcas, Room>;

/// Memory that the handler works on, in a child that has one.
static WORK: AtomicPtr<Shared<Subjected>> = AtomicPtr::new(null_mut());
static NUMBER: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_signal: libc::c_int) {
    // SAFETY: set before the handler was installed, to a mapping that is never unmapped.
    let shared = unsafe { &*WORK.load(Ordering::Relaxed) };
    let me = NUMBER.load(Ordering::Relaxed) as usize;
    let turn = shared.handled[me].fetch_add(1, Ordering::Relaxed);
    for i in 0..3 {
        perform(shared, me, turn * 7 + i);
    }
}

/// A child whose timer interrupts it, and whose handler uses the same map under the same
/// number.
fn live_with_handler(shared: &'static Shared<Subjected>, me: usize) {
    WORK.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Relaxed);
    NUMBER.store(me as u64, Ordering::Relaxed);
    let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the action is all zero but for the handler, which is of the right type and calls only
    // what may be called in a handler; the timer is plain data.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGALRM, &action, null_mut());
        libc::setitimer(libc::ITIMER_REAL, &timer, null_mut());
    }
    live(shared, me);
    // SAFETY: the timer is plain data; no more signals after this.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &std::mem::zeroed(), null_mut()) };
}

#[test]
fn handlers_use_what_they_interrupt() {
    let shared = shared::<Subjected>();
    let _ = Native::pause_ps();
    let children: Children = std::array::from_fn(|me| fork(|| live_with_handler(shared, me)));
    shared.wait_for(0..CHILDREN, 300, &shared.handled);
    shared.end(children);
}
