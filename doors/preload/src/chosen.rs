//! Locks of `towpath_sync` that can take the place of the usual one in a mutex.
//!
//! `compact/handing` lies in the mutex, as the usual one does. The others are aligned to a line:
//! the mutex has the address of a slot, which it gets when it is first used and gives back when it
//! is destroyed. The holder's state, of a word at most, lies in the mutex.
//!
//! Programs copy mutexes that they have used, and many never destroy theirs (`std::mutex` does
//! not): so the mutex has its own address beside the slot's, by which a copy is told, and slots are
//! found by the address of their mutex, so that the next mutex there gets the slot of the one
//! before.
//!
//! A mutex is not usual ([`MutexWords::is_usual`]) while another lock is chosen: the usual one's
//! way asks nothing more.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
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
        // Registered before those of the program, these come last before a fork, and first after
        // it.
        // SAFETY: functions that stay until the end.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
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

/// Length of a lock in a slot, in bytes.
const SLOT_LOCK: usize = 128;
/// Number of slots that are mapped at one time.
const SLOTS: usize = 4096;
/// Number of lists of slots.
const LISTS: usize = 1 << 16;

/// A lock of a mutex, in memory that is never unmapped.
#[repr(C, align(128))]
struct LockSlot {
    lock: UnsafeCell<[u64; SLOT_LOCK / 8]>,
    /// Address of the mutex.
    owner: AtomicU64,
    /// Address of the next slot of its list, or of the next free one; 0: none.
    next: AtomicU64,
}

/// All slots. Each word is read and written under the lock.
struct LockSlots {
    lock: Compact<Native>,
    /// Address of one that was given back.
    returned: AtomicU64,
    /// Address of the first one that was never used.
    fresh: AtomicU64,
    /// Number of those.
    left: AtomicU64,
    /// Address of the first slot of each list, by their mutexes' addresses.
    lists: [AtomicU64; LISTS],
}

static SLOTS_OF_MUTEXES: LockSlots = LockSlots {
    lock: <Compact<Native> as Init>::UNLOCKED,
    returned: AtomicU64::new(0),
    fresh: AtomicU64::new(0),
    left: AtomicU64::new(0),
    lists: [const { AtomicU64::new(0) }; LISTS],
};

/// The slot at an address; 0: none.
fn slot_at(address: u64) -> Option<&'static LockSlot> {
    // SAFETY: 0, or a slot's address: mapped, aligned, and never unmapped.
    unsafe { core::ptr::with_exposed_provenance::<LockSlot>(address as usize).as_ref() }
}

impl LockSlots {
    /// Calls `part` under the lock.
    fn locked<T>(&self, part: impl FnOnce() -> T) -> T {
        // It waits for ever, and is never poisoned.
        let _ = self.lock.lock(&CPU, &wait());
        let result = part();
        self.lock.unlock(&CPU, &wait(), ());
        result
    }

    /// The list of a mutex's slot.
    fn list_of(&self, owner: u64) -> &AtomicU64 {
        let index = (owner >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        &self.lists[index as usize % LISTS]
    }

    // Relaxed, all that follows: under the lock.

    /// The place that has the address of a mutex's slot, or that of none.
    fn place_of(&self, owner: u64) -> &AtomicU64 {
        let mut place = self.list_of(owner);
        while let Some(slot) = slot_at(place.load(Ordering::Relaxed)) {
            if slot.owner.load(Ordering::Relaxed) == owner {
                break;
            }
            place = &slot.next;
        }
        place
    }

    /// The slot of a mutex, with an unlocked lock: all zeros.
    fn begin(&self, owner: u64) -> u64 {
        let place = self.place_of(owner);
        let slot = match place.load(Ordering::Relaxed) {
            0 => self.free(),
            known => known,
        };
        if let Some(slot) = slot_at(slot) {
            // SAFETY: under the lock; no thread uses it, since no mutex is there any more, or none
            // has had it.
            unsafe { slot.lock.get().write_bytes(0, 1) };
            if slot.owner.swap(owner, Ordering::Relaxed) != owner {
                slot.next.store(0, Ordering::Relaxed);
            }
        }
        place.store(slot, Ordering::Relaxed);
        slot
    }

    /// Takes the slot of a mutex back, if it has one.
    fn end(&self, owner: u64) {
        let place = self.place_of(owner);
        let address = place.load(Ordering::Relaxed);
        if let Some(slot) = slot_at(address) {
            place.store(slot.next.load(Ordering::Relaxed), Ordering::Relaxed);
            slot.owner.store(0, Ordering::Relaxed);
            slot.next.store(self.returned.load(Ordering::Relaxed), Ordering::Relaxed);
            self.returned.store(address, Ordering::Relaxed);
        }
    }

    /// A slot of no mutex.
    fn free(&self) -> u64 {
        let returned = self.returned.load(Ordering::Relaxed);
        if let Some(slot) = slot_at(returned) {
            self.returned.store(slot.next.load(Ordering::Relaxed), Ordering::Relaxed);
            return returned;
        }
        if self.left.load(Ordering::Relaxed) == 0 {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let length = size_of::<LockSlot>() * SLOTS;
            // SAFETY: a new mapping of the kernel's choice, never unmapped.
            let mapped = unsafe { libc::mmap(core::ptr::null_mut(), length, access, kind, -1, 0) };
            if mapped == libc::MAP_FAILED {
                crate::text::give_up(c"memory for locks of another kind");
            }
            self.fresh.store(mapped.expose_provenance() as u64, Ordering::Relaxed);
            self.left.store(SLOTS as u64, Ordering::Relaxed);
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        self.fresh.fetch_add(size_of::<LockSlot>() as u64, Ordering::Relaxed)
    }
}

/// No other thread has the slots' lock at a fork: the child would wait for ever for it.
unsafe extern "C" fn before_fork() {
    // It waits for ever, and is never poisoned.
    let _ = SLOTS_OF_MUTEXES.lock.lock(&CPU, &wait());
}

unsafe extern "C" fn after_fork() {
    SLOTS_OF_MUTEXES.lock.unlock(&CPU, &wait(), ());
}

// SAFETY: the lock is a lock's words, which its functions access as a machine's.
unsafe impl Sync for LockSlot {}

/// Returns whether a lock lies in the mutex itself.
const fn fits<L>() -> bool {
    size_of::<L>() <= size_of::<Compact<Native>>() && align_of::<L>() <= align_of::<Compact<Native>>()
}

/// Words of a mutex that has a slot.
#[repr(C)]
struct SlottedMutex {
    /// Address of the slot.
    slot: AtomicU64,
    /// Address of the mutex itself: otherwise it has no slot yet, or is a copy.
    own: AtomicU64,
}

const _: () = assert!(size_of::<SlottedMutex>() <= size_of::<Compact<Native>>());

fn slot_words(words: &MutexWords) -> &SlottedMutex {
    // SAFETY: the words of a lock that is not used while another one is chosen.
    unsafe { &*core::ptr::from_ref(&words.lock).cast::<SlottedMutex>() }
}

/// Address of a mutex.
fn address_of(words: &MutexWords) -> u64 {
    core::ptr::from_ref(words).addr() as u64
}

/// Gives a mutex a slot, if it has none yet.
#[cold]
fn begin(words: &MutexWords) {
    let (slots, own) = (slot_words(words), address_of(words));
    SLOTS_OF_MUTEXES.locked(|| {
        // Relaxed, both: under the lock. The Release (2) publishes the slot.
        if slots.own.load(Ordering::Relaxed) != own {
            slots.slot.store(SLOTS_OF_MUTEXES.begin(own), Ordering::Relaxed);
            // (2) Release: publishes the slot's address and zeros; pairs with the Acquire (1).
            slots.own.store(own, Ordering::Release);
        }
    });
}

/// The mutex's lock, of another kind than the usual one.
fn as_lock<L: Lock<Native>>(words: &MutexWords) -> &L {
    const {
        assert!(size_of::<L>() <= SLOT_LOCK && align_of::<L>() <= align_of::<LockSlot>());
        assert!(size_of::<L::Held>() <= 8 && align_of::<L::Held>() <= 8);
        assert!(!core::mem::needs_drop::<L::Held>());
    }
    if fits::<L>() {
        // SAFETY: long enough and aligned (see above); words that a machine's accesses may touch,
        // and whose zeros are an unlocked lock. All uses of the mutex come through here.
        return unsafe { &*core::ptr::from_ref(&words.lock).cast::<L>() };
    }
    let slots = slot_words(words);
    // (1) Acquire: pairs with the Release (2), so that the slot's address and zeros are seen.
    if slots.own.load(Ordering::Acquire) != address_of(words) {
        begin(words);
    }
    // Relaxed: written before the address, which was seen, or by this thread.
    let slot = slots.slot.load(Ordering::Relaxed);
    // SAFETY: mapped, long enough and aligned to a slot's lock; the mutex's own until it is
    // destroyed; zeros are an unlocked lock, and all uses of the mutex come through here.
    unsafe { &*core::ptr::with_exposed_provenance::<L>(slot as usize) }
}

/// The mutex is destroyed.
pub fn forget(words: &MutexWords) {
    // Relaxed: no thread uses it any more.
    if CHOSEN.load(Ordering::Relaxed) > 1 {
        let own = address_of(words);
        if slot_words(words).own.swap(0, Ordering::Relaxed) == own {
            SLOTS_OF_MUTEXES.locked(|| SLOTS_OF_MUTEXES.end(own));
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
