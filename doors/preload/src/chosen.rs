//! Locks of `towpath_sync` that can take the place of the usual one in a mutex.
//!
//! `compact/handing` lies in the mutex, as the usual one does. The others are aligned to a line:
//! the mutex has the address of a slot, which it gets when it is first used and gives back when it
//! is destroyed. The holder's state, of a word at most, lies in the mutex.
//!
//! A mutex is not usual ([`MutexWords::is_usual`]) while another lock is chosen: the usual one's
//! way asks nothing more.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use towpath_machine::Native;
use towpath_sync::locks::{Compact, TestAndSet, TestAndTestAndSet, Ticket};
use towpath_sync::{Deadline, Init, Lock};

use crate::layout::MutexWords;
use crate::waiting::{CPU, wait};

/// Index of the lock in [`NAMES`]; 0: the usual one.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Names of the locks.
const NAMES: [&str; 5] = [
    <Compact<Native> as Lock<Native>>::NAME,
    <Compact<Native, 0> as Lock<Native>>::NAME,
    <TestAndSet<Native> as Lock<Native>>::NAME,
    <TestAndTestAndSet<Native> as Lock<Native>>::NAME,
    <Ticket<Native> as Lock<Native>>::NAME,
];

/// Chooses a lock by its name, before the program begins. Others than these are refused
/// by the command.
pub fn choose(name: &str) {
    let index = NAMES.iter().position(|known| *known == name).unwrap_or(0);
    if index > 0 {
        // Relaxed: before the program begins.
        CHOSEN.store(index as u8, Ordering::Relaxed);
        MutexWords::show_every_use();
    }
}

/// Calls one of the functions below with the chosen lock, if it is not the usual one.
macro_rules! with_chosen {
    ($call:ident($($argument:expr),*)) => {
        // Relaxed: chosen before the program begins.
        match CHOSEN.load(Ordering::Relaxed) {
            0 => None,
            1 => Some($call::<Compact<Native, 0>>($($argument),*)),
            2 => Some($call::<TestAndSet<Native>>($($argument),*)),
            3 => Some($call::<TestAndTestAndSet<Native>>($($argument),*)),
            _ => Some($call::<Ticket<Native>>($($argument),*)),
        }
    };
}

/// Length of a slot, in bytes.
const SLOT: usize = 128;
/// Number of slots that are mapped at one time.
const SLOTS: usize = 4096;

/// Slots that no mutex has.
struct FreeSlots {
    lock: Compact<Native>,
    /// Address of one that was given back; its first word has the next one's, or 0.
    returned: AtomicU64,
    /// Address of the first one that was never used.
    fresh: AtomicU64,
    /// Number of those.
    left: AtomicU64,
}

static FREE: FreeSlots = FreeSlots {
    lock: <Compact<Native> as Init>::UNLOCKED,
    returned: AtomicU64::new(0),
    fresh: AtomicU64::new(0),
    left: AtomicU64::new(0),
};

/// A slot of zeros: an unlocked lock.
fn new_slot() -> u64 {
    // It waits for ever, and is never poisoned.
    let _ = FREE.lock.lock(&CPU, &wait());
    // Relaxed, here and in `give_back`: under the lock.
    let returned = FREE.returned.load(Ordering::Relaxed);
    let slot = if returned == 0 { fresh_slot() } else { returned };
    let words = core::ptr::with_exposed_provenance_mut::<u64>(slot as usize);
    // SAFETY: mapped, long enough, and of no mutex.
    unsafe {
        if returned != 0 {
            FREE.returned.store(words.read(), Ordering::Relaxed);
        }
        words.write_bytes(0, SLOT / 8);
    }
    FREE.lock.unlock(&CPU, &wait(), ());
    slot
}

fn fresh_slot() -> u64 {
    if FREE.left.load(Ordering::Relaxed) == 0 {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of the kernel's choice, never unmapped.
        let mapped = unsafe { libc::mmap(core::ptr::null_mut(), SLOT * SLOTS, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            crate::text::give_up(c"memory for locks of another kind");
        }
        FREE.fresh.store(mapped.expose_provenance() as u64, Ordering::Relaxed);
        FREE.left.store(SLOTS as u64, Ordering::Relaxed);
    }
    FREE.left.fetch_sub(1, Ordering::Relaxed);
    FREE.fresh.fetch_add(SLOT as u64, Ordering::Relaxed)
}

fn give_back(slot: u64) {
    // As in `new_slot`.
    let _ = FREE.lock.lock(&CPU, &wait());
    // SAFETY: a slot of a mutex that no thread uses any more.
    unsafe {
        core::ptr::with_exposed_provenance_mut::<u64>(slot as usize)
            .write(FREE.returned.load(Ordering::Relaxed));
    }
    FREE.returned.store(slot, Ordering::Relaxed);
    FREE.lock.unlock(&CPU, &wait(), ());
}

/// Returns whether a lock lies in the mutex itself.
const fn fits<L>() -> bool {
    size_of::<L>() <= size_of::<Compact<Native>>() && align_of::<L>() <= align_of::<Compact<Native>>()
}

/// First word of the mutex: the address of its slot, or 0.
fn slot_of(words: &MutexWords) -> &AtomicU64 {
    // SAFETY: the word of a lock that is not used while another one is chosen.
    unsafe { &*core::ptr::from_ref(&words.lock).cast::<AtomicU64>() }
}

/// The mutex's lock, of another kind than the usual one.
fn as_lock<L: Lock<Native>>(words: &MutexWords) -> &L {
    const {
        assert!(size_of::<L>() <= SLOT && align_of::<L>() <= SLOT);
        assert!(size_of::<L::Held>() <= 8 && align_of::<L::Held>() <= 8);
        assert!(!core::mem::needs_drop::<L::Held>());
    }
    if fits::<L>() {
        // SAFETY: long enough and aligned (see above); words that a machine's accesses may touch,
        // and whose zeros are an unlocked lock. All uses of the mutex come through here.
        return unsafe { &*core::ptr::from_ref(&words.lock).cast::<L>() };
    }
    let place = slot_of(words);
    // (1) Acquire: pairs with the Release (2), so that the slot's zeros are seen.
    let mut slot = place.load(Ordering::Acquire);
    if slot == 0 {
        let new = new_slot();
        // (2) Release: publishes the slot's zeros; pairs with the Acquire (1), (2).
        slot = match place.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(others) => {
                give_back(new);
                others
            }
        };
    }
    // SAFETY: mapped, long enough and aligned to a slot's length; the mutex's own until it is
    // destroyed; zeros are an unlocked lock, and all uses of the mutex come through here.
    unsafe { &*core::ptr::with_exposed_provenance::<L>(slot as usize) }
}

/// The mutex is destroyed.
pub fn forget(words: &MutexWords) {
    // Relaxed: no thread uses it any more.
    if CHOSEN.load(Ordering::Relaxed) > 1 {
        match slot_of(words).swap(0, Ordering::Relaxed) {
            0 => {}
            slot => give_back(slot),
        }
    }
}

/// The place of the holder's state.
fn held_at<L: Lock<Native>>(words: &MutexWords) -> *mut MaybeUninit<L::Held> {
    words.held.as_ptr().cast()
}

fn keep<L: Lock<Native>>(words: &MutexWords, held: Option<L::Held>) -> bool {
    let has_it = held.is_some();
    if let Some(held) = held {
        // SAFETY: long enough and aligned (`as_lock`); only the holder touches it.
        unsafe { held_at::<L>(words).write(MaybeUninit::new(held)) };
    }
    has_it
}

fn try_it<L: Lock<Native>>(words: &MutexWords) -> bool {
    keep::<L>(words, as_lock::<L>(words).try_lock(&CPU))
}

fn take_it<L: Lock<Native>>(words: &MutexWords, deadline: Deadline) -> bool {
    keep::<L>(words, as_lock::<L>(words).lock_until(&CPU, &wait(), deadline).ok())
}

fn release_it<L: Lock<Native>>(words: &MutexWords) {
    // SAFETY: the holder has written it, and reads it once.
    let held = unsafe { held_at::<L>(words).read().assume_init() };
    as_lock::<L>(words).unlock(&CPU, &wait(), held);
}

fn probe_it<L: Lock<Native>>(words: &MutexWords) -> bool {
    let is_free = try_it::<L>(words);
    if is_free {
        release_it::<L>(words);
    }
    !is_free
}

/// Takes the lock if it is free; `None`: the usual one is chosen, here and below.
pub fn try_lock(words: &MutexWords) -> Option<bool> {
    with_chosen!(try_it(words))
}

/// Takes the lock, waiting until the deadline.
pub fn lock_until(words: &MutexWords, deadline: Deadline) -> Option<bool> {
    with_chosen!(take_it(words, deadline))
}

/// Releases the lock.
pub fn unlock(words: &MutexWords) -> Option<()> {
    with_chosen!(release_it(words))
}

/// Returns whether it is held.
pub fn is_held(words: &MutexWords) -> Option<bool> {
    with_chosen!(probe_it(words))
}
