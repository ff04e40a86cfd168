//! Named shared objects: a small directory in the segment, with a heap.
//!
//! **Looking up** reads the slots that are ready. **Creating** is done by one participant at a time, the one whose id is in `creating`; whoever finds it dead takes its place. A
//! creator zeroes memory beyond all ready objects, prepares the object there, fills in a slot and sets it ready,
//! last. If it dies before, nothing refers to the slot or the memory, and the next creator uses both. So nothing
//! leaks and nothing has to be repaired.
//!
//! **Progress.** Looking up is wait-free (64 slots); creating is blocking.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_machine::Plain;

use crate::layout::{HEAP, PAGE, Slot};
use crate::participant::ParticipantId;
use crate::segment::check_name;
use crate::world::Inner;
use crate::{Error, World};

/// A named object in a world's segment. Keeps the world mapped.
#[derive(Debug)]
pub struct Shared<T: Plain> {
    _world: World,
    object: NonNull<T>,
}

// SAFETY: a reference to a `Plain` object, which is `Sync`, together with a handle.
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Shared<T> {}

impl<T: Plain> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { _world: self._world.clone(), object: self.object }
    }
}

impl<T: Plain> core::ops::Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: within the heap and aligned (checked by `place`), mapped as long as the world's handle lives, any
        // bits are a `T`.
        unsafe { self.object.as_ref() }
    }
}

type Name = [u64; 4];

fn name_words(name: &str) -> Name {
    let mut bytes = [0u8; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    core::array::from_fn(|i| u64::from_le_bytes(core::array::from_fn(|j| bytes[8 * i + j])))
}

thread_local! {
    static PREPARING: Cell<bool> = const { Cell::new(false) };
}

/// How long to wait for a creator that is alive: it may be stopped, or the segment damaged.
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
        // (2) Release: pairs with the Acquire (1) in `may_create`. Fails only if the segment is damaged.
        let _ = self.word.compare_exchange(self.me, 0, Ordering::Release, Ordering::Relaxed);
        // (6) Release: pairs with the Acquire (5) in `may_create`.
        self.among_threads.store(0, Ordering::Release);
    }
}

impl World {
    /// The shared object of that name, which is created, zeroed, and prepared by `prepare` if it does not exist.
    /// Names are as those of worlds, up to 32 bytes. All objects of a world share
    /// [`WorldSpec::object_bytes`](crate::WorldSpec::object_bytes) and are 64 at most; they live as long as the world.
    ///
    /// # Errors
    ///
    /// [`Error::NotEntered`], [`Error::InvalidName`], [`Error::OtherType`] (another size or alignment), [`Error::DirectoryFull`],
    /// [`Error::NestedPreparation`], [`Error::CreatorBusy`].
    pub fn shared<T: Plain>(&self, name: &str, prepare: impl FnOnce(&T)) -> Result<Shared<T>, Error> {
        check_name(name, 32)?;
        let inner = self.inner();
        let me = inner.me()?;
        let words = name_words(name);
        let (bytes, align) = (size_of::<T>() as u64, align_of::<T>().max(64) as u64);
        let found = |slot: &Slot| {
            let slot_bytes = slot.bytes.load(Ordering::Relaxed);
            if slot_bytes != bytes || slot.align.load(Ordering::Relaxed) != align {
                return Err(Error::OtherType { name: name.to_owned(), found: slot_bytes, expected: bytes });
            }
            self.place::<T>(slot.offset.load(Ordering::Relaxed))
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
        // SAFETY: within the heap (checked by `place`) and mapped; bytes of atomics are plain. Nobody else uses them: no
        // ready slot covers them, and only one participant creates. (If the segment is damaged somebody might:
        // therefore atomically.)
        let raw =
            unsafe { core::slice::from_raw_parts(shared.object.cast::<AtomicU8>().as_ptr(), bytes as usize) };
        for byte in raw {
            // Relaxed: published by (3).
            byte.store(0, Ordering::Relaxed);
        }
        prepare(&shared);
        // Relaxed: published by (3).
        slot.offset.store(offset, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.align.store(align, Ordering::Relaxed);
        for (to, from) in slot.name.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        // (3) Release: pairs with the Acquire (4) in `lookup` and `free_slot`.
        slot.ready.store(1, Ordering::Release);
        drop(creating);
        Ok(shared)
    }

    /// The object at an offset in the heap, whoever says so.
    fn place<T: Plain>(&self, offset: u64) -> Result<Shared<T>, Error> {
        let len = size_of::<T>() as u64;
        let available = self.inner().heap_bytes();
        if offset.checked_add(len).is_none_or(|end| end > available) {
            return Err(Error::OutOfBounds { offset, len, available });
        }
        if align_of::<T>() as u64 > PAGE || !offset.is_multiple_of(align_of::<T>() as u64) {
            return Err(Error::Misaligned { offset, align: align_of::<T>() });
        }
        // SAFETY: the heap lies at `HEAP`, which is page-aligned, within every mapping, and the offset within the
        // heap (just checked).
        let object = unsafe { self.inner().segment.base().add((HEAP + offset) as usize) }.cast();
        Ok(Shared { _world: self.clone(), object })
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
        // First among the threads of this process: then this process's own id in the word can only be a remnant.
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
