//! The loom machine: the same algorithms under a model checker, on shrunk sizes.
//!
//! Use it only inside `loom::model`. Cells and bytes are race-checked: an access that words do not
//! order fails the model.

use core::panic::Location;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Condvar, Mutex};

use crate::capabilities::{FetchOp, KernelMutex, LlSc, LockOutcome, Park, Prefetch, Scheduling};
use crate::link::Link;
use crate::processor::{Arena, Place, Processor};
use crate::weaken;

/// A word, with the queue of those parked on it.
#[derive(Debug)]
pub struct LoomWord {
    value: AtomicU64,
    // Only words that a waiter may park on need the queue, and loom explores every object: made by
    // `LoomArena::parking`.
    parked: Option<(Mutex<u64>, Condvar)>,
}

/// A datum whose accesses loom checks for races.
#[derive(Debug)]
pub struct LoomCell(UnsafeCell<u64>);

/// Bytes whose accesses loom checks for races, as a whole.
#[derive(Debug)]
pub struct LoomBytes(UnsafeCell<Vec<u8>>);

// SAFETY: loom checks that accesses do not race and fails the model if they do.
unsafe impl Send for LoomCell {}
// SAFETY: loom fails a model in which accesses race.
unsafe impl Sync for LoomCell {}
// SAFETY: loom fails a model in which accesses race.
unsafe impl Send for LoomBytes {}
// SAFETY: loom fails a model in which accesses race.
unsafe impl Sync for LoomBytes {}

/// A thread of the model, with its number.
#[derive(Clone, Copy, Debug)]
pub struct LoomProcessor {
    /// See [`Processor::id`].
    pub id: usize,
}

/// Makes words. With `parking`, processors may park on them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoomArena {
    /// True if words get a queue for parked threads.
    pub parking: bool,
}

impl Arena<LoomProcessor> for LoomArena {
    fn word(&self, _place: Place, value: u64) -> LoomWord {
        LoomWord {
            value: AtomicU64::new(value),
            parked: self.parking.then(|| (Mutex::new(0), Condvar::new())),
        }
    }
    fn cell(&self, _place: Place, value: u64) -> LoomCell {
        LoomCell(UnsafeCell::new(value))
    }
    fn bytes(&self, len: usize) -> LoomBytes {
        LoomBytes(UnsafeCell::new(vec![0; len]))
    }
}

/// loom 0.7 keeps a single order of fences, but not of accesses: a sequentially
/// consistent access is one with a fence beside it. That orders more of the other accesses than C11
/// promises, and nothing less.
fn fence_if_seq_cst(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(order);
    }
}

impl Processor for LoomProcessor {
    type Word = LoomWord;
    type Cell = LoomCell;
    type Bytes = LoomBytes;

    fn id(&self) -> usize {
        self.id
    }
    #[track_caller]
    fn load(&self, word: &LoomWord, order: Ordering) -> u64 {
        let order = weaken::access(Location::caller(), order);
        fence_if_seq_cst(order);
        word.value.load(order)
    }
    #[track_caller]
    fn store(&self, word: &LoomWord, value: u64, order: Ordering) {
        if weaken::leaves_out(Location::caller()) {
            return;
        }
        let order = weaken::access(Location::caller(), order);
        word.value.store(value, order);
        fence_if_seq_cst(order);
    }
    #[track_caller]
    fn swap(&self, word: &LoomWord, value: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return word.value.load(Ordering::Relaxed); // As if it had been made.
        }
        let order = weaken::access(Location::caller(), order);
        fence_if_seq_cst(order);
        let old = word.value.swap(value, order);
        fence_if_seq_cst(order);
        old
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        word: &LoomWord,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        if weaken::leaves_out(Location::caller()) {
            let found = word.value.load(failure);
            return if found == old { Ok(found) } else { Err(found) };
        }
        let (success, failure) = weaken::exchange(Location::caller(), (success, failure));
        word.value.compare_exchange(old, new, success, failure)
    }
    #[track_caller]
    fn fetch_add(&self, word: &LoomWord, delta: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return word.value.load(Ordering::Relaxed); // As if it had been made.
        }
        let order = weaken::access(Location::caller(), order);
        word.value.fetch_add(delta, order)
    }
    #[track_caller]
    fn fetch_or(&self, word: &LoomWord, bits: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return word.value.load(Ordering::Relaxed); // As if it had been made.
        }
        let order = weaken::access(Location::caller(), order);
        word.value.fetch_or(bits, order)
    }
    #[track_caller]
    fn fetch_and(&self, word: &LoomWord, mask: u64, order: Ordering) -> u64 {
        if weaken::leaves_out(Location::caller()) {
            return word.value.load(Ordering::Relaxed); // As if it had been made.
        }
        let order = weaken::access(Location::caller(), order);
        word.value.fetch_and(mask, order)
    }
    #[track_caller]
    fn fence(&self, order: Ordering) {
        let Some(order) = weaken::fence(Location::caller(), order) else { return };
        fence(order);
    }
    fn read(&self, cell: &LoomCell) -> u64 {
        // SAFETY: loom hands out the pointer for the length of the closure and has checked that no
        // thread writes.
        cell.0.with(|p| unsafe { *p })
    }
    fn write(&self, cell: &LoomCell, value: u64) {
        // SAFETY: loom hands out the pointer for the length of the closure and has checked that no
        // other thread uses it.
        cell.0.with_mut(|p| unsafe { *p = value });
    }
    fn copy_in(&self, to: &LoomBytes, at: usize, from: &[u8]) {
        // SAFETY: loom hands out the pointer for the length of the closure and has checked that no
        // other thread uses it.
        to.0.with_mut(|p| unsafe { (&mut *p)[at..at + from.len()].copy_from_slice(from) });
    }
    fn copy_out(&self, from: &LoomBytes, at: usize, to: &mut [u8]) {
        // SAFETY: loom hands out the pointer for the length of the closure and has checked that no
        // thread writes.
        from.0.with(|p| unsafe { to.copy_from_slice(&(&*p)[at..at + to.len()]) });
    }

    /// Probes once with no budget; otherwise until accepted, letting the other threads
    /// run between probes (loom has no time: a budget never runs out).
    #[track_caller]
    fn spin_until(
        &self,
        word: &LoomWord,
        order: Ordering,
        budget: u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let order = weaken::access(Location::caller(), order);
        loop {
            let value = word.value.load(order);
            if done(value) {
                return Ok(value);
            }
            if budget == 0 {
                return Err(value);
            }
            loom::thread::yield_now();
        }
    }

    fn delay(&self, _ns: u64) {
        loom::thread::yield_now();
    }
    fn work(&self, _ns: u64) {}
    fn now(&self) -> u64 {
        0
    }
}

impl Park for LoomProcessor {
    /// Park that never times out, so that a lost wake-up is a deadlock that loom reports.
    fn park(&self, word: &LoomWord, expected: u64, _timeout_ns: u64) {
        let (mutex, condvar) = word.parked.as_ref().expect("make words to park on with LoomArena::parking");
        let mut guard = mutex.lock().expect("loom mutexes are not poisoned");
        // (K1) SeqCst, as in the kernel: in one total order with the change of the word, which
        // comes before its `wake`.
        if word.value.load(Ordering::SeqCst) as u32 == expected as u32 {
            *guard += 1;
            drop(condvar.wait(guard).expect("loom mutexes are not poisoned"));
        }
    }
    fn wake(&self, word: &LoomWord, count: u32) -> u32 {
        let (mutex, condvar) = word.parked.as_ref().expect("make words to park on with LoomArena::parking");
        let mut guard = mutex.lock().expect("loom mutexes are not poisoned");
        let woken = (*guard).min(u64::from(count));
        *guard -= woken;
        for _ in 0..woken {
            condvar.notify_one();
        }
        woken as u32
    }
    fn yield_now(&self) {
        loom::thread::yield_now();
    }
}

impl FetchOp for LoomProcessor {}

loom::thread_local! {
    /// Word that this thread of the model linked last.
    static LINKED: std::cell::Cell<Link> = std::cell::Cell::new(Link::NONE);
}

/// Emulated as natively.
impl LlSc for LoomProcessor {
    fn load_linked(&self, word: &LoomWord) -> u64 {
        let link = Link::to(self, word);
        LINKED.with(|l| l.set(link));
        link.value()
    }
    fn store_conditional(&self, word: &LoomWord, value: u64) -> bool {
        LINKED.with(|l| l.replace(Link::NONE)).store(self, word, value)
    }
    fn validate(&self, word: &LoomWord) -> bool {
        LINKED.with(std::cell::Cell::get).stands(self, word)
    }
}

/// Nothing is known of other threads: they may run at any time.
impl Scheduling for LoomProcessor {
    fn is_preempted(&self, _id: usize) -> bool {
        false
    }
}

impl Prefetch for LoomProcessor {
    fn prefetch_exclusive(&self, _word: &LoomWord) {}
    fn prefetch_shared(&self, _word: &LoomWord) {}
}

/// Mutex of the operating system: correct by assumption, so that the data under it can be
/// checked. No thread dies here.
#[derive(Debug, Default)]
pub struct LoomMutex {
    held: Mutex<bool>,
    free: Condvar,
}

impl KernelMutex for LoomProcessor {
    type Mutex = LoomMutex;
    fn mutex_lock(&self, mutex: &LoomMutex) -> LockOutcome {
        let mut held = mutex.held.lock().expect("loom mutexes are not poisoned");
        while *held {
            held = mutex.free.wait(held).expect("loom mutexes are not poisoned");
        }
        *held = true;
        LockOutcome::Acquired
    }
    fn mutex_try_lock(&self, mutex: &LoomMutex) -> LockOutcome {
        let mut held = mutex.held.lock().expect("loom mutexes are not poisoned");
        if core::mem::replace(&mut *held, true) { LockOutcome::Busy } else { LockOutcome::Acquired }
    }
    fn mutex_make_consistent(&self, _mutex: &LoomMutex) {}
    fn mutex_unlock(&self, mutex: &LoomMutex) {
        *mutex.held.lock().expect("loom mutexes are not poisoned") = false;
        mutex.free.notify_one();
    }
}
