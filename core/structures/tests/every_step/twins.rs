//! Twin of the list under a lock: a handler that comes while its own process holds the
//! lock waits for what it has interrupted, for ever (claim G20 of the paper). Without the lock it
//! never does: that is what the other cases show.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use towpath_machine::{Concurrent, Native};
use towpath_structures::dcas::{Actor, Guerraoui};
use towpath_structures::nonblocking::List;
use towpath_sync::locks::{Robust, TestAndTestAndSet};
use towpath_sync::{Alone, Deadline, Exclusive, Lock, Mutex, Policy, Spinning, Wait};
use towpath_testkit::{Choice, Victim, mark, shared_words, watchdog};

use crate::acts::Room;

type TheList = List<Native, Guerraoui<Native, Room>, Room>;

/// A list under a lock.
trait Twin: 'static {
    const NAME: &'static str;
    fn locked(&self, act: impl FnOnce(&TheList));
}

/// Twin under one of our locks, spinning or sleeping.
#[repr(transparent)]
struct Ours<L, const PARKS: bool>(Mutex<TheList, L>);

impl<L: Lock<Native> + Exclusive + Concurrent, const PARKS: bool> Twin for Ours<L, PARKS> {
    const NAME: &'static str = if PARKS { "Mutex" } else { "spin lock" };
    fn locked(&self, act: impl FnOnce(&TheList)) {
        let policy = if PARKS { Policy::SpinThenPark } else { Policy::Spin };
        let wait = Wait { policy, around: &Alone, budget: 1_000 };
        // SAFETY: all that lock it do so by this call; no process is taken for dead, and each
        // contender, a thread or a forked process, has a number of its own.
        act(&unsafe { self.0.lock_between(Native::current(), wait, Deadline::NEVER) }
            .expect("no process dies"));
    }
}

/// List under the standard library's mutex. All-zero bytes are an unlocked one on Linux,
/// which is checked before it is used.
#[repr(transparent)]
struct Standard(std::sync::Mutex<TheList>);

impl Twin for Standard {
    const NAME: &'static str = "std::sync::Mutex";
    fn locked(&self, act: impl FnOnce(&TheList)) {
        act(&self.0.lock().expect("no thread panics"));
    }
}

#[repr(C)]
struct Shared<T> {
    /// Number of handlers that have begun; `ended`: that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// 1 while the victim is at the list.
    inside: AtomicU64,
    twin: T,
}

/// Twin that the handler works on, in the victim.
static WORK: AtomicPtr<()> = AtomicPtr::new(null_mut());

extern "C" fn handler<T: Twin>(_signal: libc::c_int) {
    // SAFETY: set before the handler was installed, to a mapping of this type that is never
    // unmapped.
    let shared = unsafe { &*WORK.load(SeqCst).cast::<Shared<T>>() };
    shared.begun.fetch_add(1, SeqCst);
    shared.twin.locked(look);
    shared.ended.fetch_add(1, SeqCst);
}

fn look(list: &TheList) {
    let cpu = Native::with_id(0);
    let _ = list.get(&Actor { cpu: &cpu, wait: &Spinning, me: 0 }, 1);
}

fn live<T: Twin>(shared: &'static Shared<T>) -> Result<(), Box<dyn std::error::Error>> {
    WORK.store(std::ptr::from_ref(shared).cast_mut().cast(), SeqCst);
    // SAFETY: the action is all zero but for the handler, which is of the right type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler::<T> as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &action, null_mut());
    }
    mark();
    let cpu = Native::with_id(0);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me: 0 };
    shared.twin.locked(|list| {
        shared.inside.store(1, SeqCst);
        let _ = list.insert(&actor, 1, 7);
        shared.inside.store(0, SeqCst);
    });
    loop {
        mark();
    }
}

/// Returns whether the victim gets to its mark: if not, it sleeps without a process to
/// wake it, or burns its time.
fn gets_on(victim: &mut Victim) -> bool {
    let before = victim.child().time_on_processor();
    let mut asleep = 0;
    while asleep < 30 && victim.child().time_on_processor() - before < Duration::from_millis(40) {
        if victim.at_mark() {
            return true;
        }
        // One that has only just begun to sleep may be about to be woken.
        asleep = if victim.child().is_asleep() { asleep + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

fn twin<T: Twin>(choice: &Choice) -> u64 {
    if !choice.includes(&["twins", T::NAME]) {
        return 0;
    }
    watchdog::begin(format!("list under {}", T::NAME), 900);
    // SAFETY: mapped, zeroed, aligned to a page, long enough and never unmapped; all-zero bytes are
    // an unlocked lock over an empty list.
    let new = || unsafe { &*shared_words(size_of::<Shared<T>>().div_ceil(8)).as_ptr().cast::<Shared<T>>() };
    let start = || {
        let shared: &'static Shared<T> = new();
        let mut victim = Victim::fork(|| live(shared));
        victim.reach_mark();
        (shared, victim)
    };
    let (shared, mut victim) = start();
    let mut inside = Vec::new();
    victim.run(u64::MAX, |step, _| {
        inside.extend((shared.inside.load(SeqCst) == 1).then_some(step));
    });
    let &[first, .., last] = &inside[..] else { panic!("it was never inside") };
    let samples = if choice.every() { 40 } else { 4 };
    // Before it has the lock, and while it has it (which may be a few instructions later than the
    // first time: it looks at the clock).
    let before = (0..2).map(|turn| turn * 8);
    let during = (1..=samples).map(|turn| first + turn * (last - first) / (samples + 1));
    let mut stood = 0;
    for k in before.chain(during) {
        watchdog::at(k);
        let (shared, mut victim) = start();
        victim.run(k, |_, _| {});
        let held = shared.inside.load(SeqCst) == 1;
        victim.interrupt(libc::SIGUSR1);
        victim.go_on();
        let got_on = gets_on(&mut victim);
        victim.kill();
        let (begun, ended) = (shared.begun.load(SeqCst), shared.ended.load(SeqCst));
        assert_eq!((begun, ended), (1, u64::from(got_on)), "under {} after {k} instructions", T::NAME);
        assert!(
            !(held && got_on),
            "a handler got {}, which its own process holds: after {k} instructions",
            T::NAME
        );
        assert!(got_on || k >= first / 2, "no process holds {} after {k} instructions", T::NAME);
        stood += u64::from(!got_on);
    }
    assert!(stood > 0, "no handler came while its process held {}", T::NAME);
    println!("{:<28}{stood:>8} handlers stand still", format!("list under {}", T::NAME));
    1
}

/// All of them.
pub fn stand_still(choice: &Choice) -> u64 {
    twin::<Ours<TestAndTestAndSet<Native>, false>>(choice)
        + twin::<Ours<Robust<Native>, true>>(choice)
        + twin::<Standard>(choice)
}
