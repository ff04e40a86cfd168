//! Named shared objects: a small directory in the segment, with a heap.
//!
//! **Looking up** reads the slots that are ready. **Creating** is done by one participant at a
//! time, the one whose id is in `creating`; whoever finds it dead takes its place. A creator zeroes
//! memory beyond all ready objects, prepares the object there, fills in a slot and sets it ready,
//! last. If it dies before, nothing refers to the slot or the memory, and the next creator uses
//! both. So nothing leaks and nothing has to be repaired.
//!
//! **Identity.** A slot holds the text of the object's type ([`Object::describe`]) and a hash of
//! all of it, its size and its alignment. An object is opened only as the type that it was created
//! as.
//!
//! **Progress.** Looking up is wait-free (64 slots); creating is blocking.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::fmt;
use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use towpath_machine::{Native, Object, Plain, TypeText};
use towpath_sync::{Exclusive, Guard, Lock, LockError, Mutex, Policy, Wait};

use crate::layout::{HEAP, PAGE, Slot, TYPE_WORDS};
use crate::participant::ParticipantId;
use crate::segment::check_name;
use crate::world::Inner;
use crate::{Error, World};

/// A named object in a world's segment. Keeps the world mapped.
///
/// Dereferences to the object if that is [`Plain`]. A [`Mutex`] is locked by [`Shared::lock`]; an
/// element of an array is [`Shared::at`].
pub struct Shared<T: Object> {
    world: World,
    object: NonNull<T>,
}

// SAFETY: a reference to an object that is `Sync` (`Object`), together with a handle.
unsafe impl<T: Object> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Shared<T> {}

impl<T: Object> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("type", &format_args!("{}", TypeText::<T>::default()))
            .finish_non_exhaustive()
    }
}

impl<T: Object> Shared<T> {
    fn new(world: World, object: NonNull<T>) -> Self {
        if T::NAMES_USERS {
            // Relaxed, with a fence (7) SeqCst between this and the loads of `me` in `World::lock`:
            // either they see that the process has left, or the fence's partner (8) in
            // `World::leave` sees this handle.
            world.inner().local.handles.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        Shared { world, object }
    }

    /// The world in which the object lies.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The object itself, for the rooms that know how to use one that is not [`Plain`].
    pub fn as_ptr(&self) -> NonNull<T> {
        self.object
    }
}

impl<T: Object> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared::new(self.world.clone(), self.object)
    }
}

impl<T: Object> Drop for Shared<T> {
    fn drop(&mut self) {
        if T::NAMES_USERS {
            let handles = &self.world.inner().local.handles;
            // Release: what was done by this handle comes before the leaving that it no longer
            // prevents; pairs with the fence (8). A fork clears the count: the child's copies are
            // not counted.
            let _ = handles.fetch_update(Ordering::Release, Ordering::Relaxed, |n| n.checked_sub(1));
        }
    }
}

impl<T: Object + Plain> core::ops::Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: within the heap and aligned (checked by `place`), mapped as long as the world's
        // handle lives, any bits are a `T`.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Object, const N: usize> Shared<[T; N]> {
    /// An element of the array.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`.
    pub fn at(&self, index: usize) -> Shared<T> {
        assert!(index < N, "element {index} of an array of {N}");
        // SAFETY: within the array (just checked), which lies within the mapping.
        let element = unsafe { self.object.cast::<T>().add(index) };
        Shared::new(self.world.clone(), element)
    }
}

impl<T: Plain + Object + Send, L: Lock<Native> + Exclusive + Plain + Object> Shared<Mutex<T, L>> {
    /// Acquires the mutex as this process, a participant of the world. Waits as
    /// [`Policy::Adaptive`] does.
    ///
    /// If the last owner died while it held the mutex, the guard says so ([`Guard::owner_died`]).
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`]; [`LockError::Poisoned`]; under a lock that does not know its
    /// owner [`LockError::Abandoned`] if a process died that held it or may have been about to, and
    /// [`LockError::Capacity`].
    pub fn lock(&self) -> Result<Guard<'_, T, L>, LockError> {
        // SAFETY: aligned and mapped as long as the handle lives (as in `deref`); any bits are a
        // mutex.
        let mutex = unsafe { self.object.as_ref() };
        // SAFETY: the mutex lies in this world; other programs reach it through the same function
        // only, since its type is a part of its identity and not `Plain`; the handle is counted.
        unsafe { self.world.lock(mutex) }
    }
}

impl World {
    /// Acquires a mutex that lies in this world's memory, as [`Shared::lock`]. For the
    /// rooms that have mutexes within objects of their own.
    ///
    /// # Errors
    ///
    /// As [`Shared::lock`].
    ///
    /// # Safety
    ///
    /// * The mutex lies in this world's segment, and all processes lock it by this function only.
    /// * This process does not leave the world while the guard lives: it has a [`Shared`] of a type
    ///   with [`Object::NAMES_USERS`] open that long.
    pub unsafe fn lock<'a, T, L: Lock<Native> + Exclusive>(
        &'a self,
        mutex: &'a Mutex<T, L>,
    ) -> Result<Guard<'a, T, L>, LockError> {
        let me = self.entered().ok_or(LockError::NotEntered)?;
        let wait = Wait { policy: Policy::Adaptive, around: self.surroundings(), budget: self.switch_cost() };
        // SAFETY: a participant's identity is its own (rank and generation), and it counts as dead
        // only when its process has ended or has left, which it does not do while it has handles;
        // the thread's number is its own.
        unsafe { mutex.lock_between(Native::of_participant(me.index), wait) }
    }
}

type Name = [u64; 4];

fn name_words(name: &str) -> Name {
    let mut bytes = [0u8; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    core::array::from_fn(|i| u64::from_le_bytes(core::array::from_fn(|j| bytes[8 * i + j])))
}

fn text_words(text: &str) -> [u64; TYPE_WORDS] {
    let byte = |i| text.as_bytes().get(i).copied().unwrap_or(0);
    core::array::from_fn(|i| u64::from_le_bytes(core::array::from_fn(|j| byte(8 * i + j))))
}

/// A slot's type, as far as it fits there. Another process may have written anything.
fn type_text(slot: &Slot) -> String {
    // Relaxed: as in `shared`.
    let mut bytes: Vec<u8> =
        slot.type_text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let full = bytes.last() != Some(&0);
    bytes.truncate(bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len()));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if full { text + " …" } else { text }
}

/// FNV-1a, of which only that it is the same in all programs matters.
fn hash_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

thread_local! {
    static PREPARING: Cell<bool> = const { Cell::new(false) };
}

/// How long to wait for a creator that is alive: it may be stopped, or the segment
/// damaged.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to sleep between two looks.
const NAP: Duration = Duration::from_micros(100);

/// The permission to create. Given back when dropped, also by a panic in `prepare`.
struct Creating<'a> {
    word: &'a AtomicU64,
    among_threads: &'a AtomicU64,
    me: u64,
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        PREPARING.set(false);
        // (2) Release: pairs with the Acquire (1) in `may_create`. Fails only if the segment is
        // damaged.
        let _ = self.word.compare_exchange(self.me, 0, Ordering::Release, Ordering::Relaxed);
        // (6) Release: pairs with the Acquire (5) in `may_create`.
        self.among_threads.store(0, Ordering::Release);
    }
}

impl World {
    /// The shared object of that name, which is created, zeroed, and prepared by
    /// `prepare` if it does not exist. Names are as those of worlds, up to 32 bytes. All objects of
    /// a world share [`WorldSpec::object_bytes`](crate::WorldSpec::object_bytes) and are 64 at
    /// most; they live as long as the world.
    ///
    /// # Errors
    ///
    /// [`Error::NotEntered`], [`Error::InvalidName`], [`Error::OtherType`] (another kind, version,
    /// parameter, size or alignment), [`Error::DirectoryFull`], [`Error::NestedPreparation`],
    /// [`Error::CreatorBusy`].
    pub fn shared<T: Object>(&self, name: &str, prepare: impl FnOnce(&T)) -> Result<Shared<T>, Error> {
        check_name(name, 32)?;
        let inner = self.inner();
        let me = inner.me()?;
        let words = name_words(name);
        let (bytes, align) = (size_of::<T>() as u64, align_of::<T>().max(64) as u64);
        let text = TypeText::<T>::default().to_string();
        let hash = hash_of(text.as_bytes());
        let found = |slot: &Slot| {
            // Relaxed, all: written before the slot was ready (3), which was read with Acquire (4).
            let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let is = (get(&slot.bytes), get(&slot.align));
            if is != (bytes, align) || get(&slot.type_hash) != hash {
                let full =
                    |text: &str, (bytes, align)| format!("{text} of {bytes} bytes, aligned to {align}");
                return Err(Error::OtherType {
                    name: name.to_owned(),
                    found: full(&type_text(slot), is),
                    expected: full(&text, (bytes, align)),
                });
            }
            self.place::<T>(get(&slot.offset))
        };
        if let Some(slot) = inner.lookup(&words) {
            return found(slot);
        }
        if PREPARING.get() {
            return Err(Error::NestedPreparation { name: name.to_owned() });
        }
        let creating =
            inner.may_create(me).map_err(|rank| Error::CreatorBusy { name: name.to_owned(), rank })?;
        // Somebody else may have been faster.
        if let Some(slot) = inner.lookup(&words) {
            return found(slot);
        }
        let full = |why| Error::DirectoryFull { name: name.to_owned(), why };
        let (slot, used) = inner.free_slot().ok_or_else(|| full("a world has at most 64 shared objects"))?;
        let offset = used.next_multiple_of(align);
        if align > PAGE || offset.checked_add(bytes).is_none_or(|end| end > inner.heap_bytes()) {
            return Err(full(
                "all shared objects of a world together have what it was made with: 64 KiB, if nobody has asked for more (towpath run --objects, WorldConfig::object_bytes)",
            ));
        }
        let shared = self.place::<T>(offset)?;
        // SAFETY: within the heap (checked by `place`) and mapped; bytes of atomics are plain.
        // Nobody else uses them: no ready slot covers them, and only one participant creates. (If
        // the segment is damaged somebody might: therefore atomically.)
        let raw =
            unsafe { core::slice::from_raw_parts(shared.object.cast::<AtomicU8>().as_ptr(), bytes as usize) };
        for byte in raw {
            // Relaxed: published by (3).
            byte.store(0, Ordering::Relaxed);
        }
        // SAFETY: placed, aligned and mapped (checked by `place`); any bits are a `T`. Nobody else
        // knows the object yet.
        prepare(unsafe { shared.object.as_ref() });
        // Relaxed: published by (3).
        slot.offset.store(offset, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.align.store(align, Ordering::Relaxed);
        slot.type_hash.store(hash, Ordering::Relaxed);
        for (to, from) in slot.name.iter().zip(words).chain(slot.type_text.iter().zip(text_words(&text))) {
            to.store(from, Ordering::Relaxed);
        }
        // (3) Release: pairs with the Acquire (4) in `lookup` and `free_slot`.
        slot.ready.store(1, Ordering::Release);
        drop(creating);
        Ok(shared)
    }

    /// The object at an offset in the heap, whoever says so.
    fn place<T: Object>(&self, offset: u64) -> Result<Shared<T>, Error> {
        let len = size_of::<T>() as u64;
        let available = self.inner().heap_bytes();
        if offset.checked_add(len).is_none_or(|end| end > available) {
            return Err(Error::OutOfBounds { offset, len, available });
        }
        if align_of::<T>() as u64 > PAGE || !offset.is_multiple_of(align_of::<T>() as u64) {
            return Err(Error::Misaligned { offset, align: align_of::<T>() });
        }
        // SAFETY: the heap lies at `HEAP`, which is page-aligned, within every mapping, and the
        // offset within the heap (just checked).
        let object = unsafe { self.inner().segment.base().add((HEAP + offset) as usize) }.cast();
        Ok(Shared::new(self.clone(), object))
    }
}

impl Inner {
    fn heap_bytes(&self) -> u64 {
        self.area_offset - HEAP
    }

    fn lookup(&self, name: &Name) -> Option<&Slot> {
        self.control().directory.slots.iter().find(|slot| {
            // (4) Acquire: pairs with the Release (3) in `shared`.
            slot.ready.load(Ordering::Acquire) == 1
                && slot.name.iter().zip(name).all(|(word, &wanted)| word.load(Ordering::Relaxed) == wanted)
        })
    }

    /// A slot that is not in use, and how much of the heap the others use.
    fn free_slot(&self) -> Option<(&Slot, u64)> {
        let mut free = None;
        let mut used = 0u64;
        for slot in &self.control().directory.slots {
            // (4) Acquire: as above.
            if slot.ready.load(Ordering::Acquire) == 1 {
                let end =
                    slot.offset.load(Ordering::Relaxed).saturating_add(slot.bytes.load(Ordering::Relaxed));
                // Damaged: the heap then counts as full.
                used = used.max(end.min(self.heap_bytes()));
            } else {
                free = free.or(Some(slot));
            }
        }
        free.map(|slot| (slot, used))
    }

    fn may_create(&self, me: ParticipantId) -> Result<Creating<'_>, u32> {
        let word = &self.control().directory.creating;
        let among_threads = &self.local.creating;
        let since = Instant::now();
        // First among the threads of this process: then this process's own id in the word can only
        // be a remnant.
        // (5) Acquire: pairs with the Release (6) in `Creating::drop`.
        while among_threads.swap(1, Ordering::Acquire) != 0 {
            if since.elapsed() > PATIENCE {
                return Err(me.index);
            }
            std::thread::sleep(NAP);
        }
        let mut expected = 0;
        loop {
            // (1) Acquire: pairs with the Release (2) in `Creating::drop`.
            match word.compare_exchange(expected, me.to_bits(), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    PREPARING.set(true);
                    return Ok(Creating { word, among_threads, me: me.to_bits() });
                }
                Err(0) => expected = 0,
                Err(other) => {
                    let creator = ParticipantId::from_bits(other);
                    if creator == me || !self.is_alive(creator) {
                        // Dead, or there never was one: takes its place, unless it has changed.
                        expected = other;
                    } else if since.elapsed() > PATIENCE {
                        // (6) Release: as above.
                        among_threads.store(0, Ordering::Release);
                        return Err(creator.index);
                    } else {
                        expected = 0;
                        std::thread::sleep(NAP);
                    }
                }
            }
        }
    }
}
