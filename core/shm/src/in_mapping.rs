//! Objects that lie alone in memory that the caller has mapped.
//!
//! Each has a world of its own there (`world_in_mapping.rs`): no file, no name, no launcher.
#![allow(unsafe_code)]

use core::ptr::NonNull;

use towpath_machine::{Object, Plain};
use towpath_sync::robust::{Barrier, Condvar, Event, Once, Semaphore};
use towpath_sync::{Mutex, RwLock};

use crate::{Error, Shared, World};

/// Name of an object that lies alone in a mapping.
const ALONE: &str = "object";

/// An error of too little memory, with the number of bytes that the object takes in all;
/// others as they are.
fn with_all_bytes(error: Error, wanted: usize, memory: NonNull<[u8]>) -> Error {
    match error {
        Error::NoRoom { .. } | Error::DirectoryFull { .. } => {
            Error::NoRoom { wanted: wanted as u64, room: memory.len() as u64 }
        }
        other => other,
    }
}

/// Object that can lie alone in memory that the caller has mapped.
///
/// It needs no world by name, and no file. The processes that use it are registered beside it, so
/// that deaths are seen.
///
/// A handle registers its process, or its thread, when it is made, and withdraws it when the last
/// clone is dropped. After a fork the child opens the object itself.
pub trait InMapping: Object + Sized {
    /// Value, or number, of a new one.
    type Initial;

    /// The object of this name in a world, made if there is none.
    ///
    /// # Errors
    ///
    /// As [`World::shared`].
    ///
    /// ```
    /// use towpath::{InMapping, Semaphore, WorldConfig};
    ///
    /// let world = towpath::create(None, &WorldConfig::new(1))?;
    /// world.enter(None)?;
    /// let permits = Semaphore::by_name(&world, "permits", 3)?; // as World::semaphore
    /// assert_eq!(permits.available(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn by_name(world: &World, name: &str, initial: Self::Initial) -> Result<Shared<Self>, Error>;

    /// Number of bytes that it takes, for so many processes, or threads that open it.
    ///
    /// ```
    /// use towpath::{InMapping, Mutex};
    ///
    /// assert!(Mutex::<u64>::bytes_in(8) < 12_000);
    /// ```
    fn bytes_in(processes: u32) -> usize {
        World::bytes_in(processes, &[size_of::<Self>() as u64])
    }

    /// Makes the object in this memory, whatever was there.
    ///
    /// # Errors
    ///
    /// As [`World::init_in`] and [`World::shared`].
    ///
    /// # Safety
    ///
    /// As for [`World::init_in`].
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use towpath::{InMapping, Mutex};
    ///
    /// let memory = Box::leak(vec![0u8; Mutex::<u64>::bytes_in(8)].into_boxed_slice());
    /// let balance = unsafe { Mutex::init_in(NonNull::from(memory), 8, 100u64)? };
    /// *balance.lock()? -= 30;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    unsafe fn init_in(
        memory: NonNull<[u8]>,
        processes: u32,
        initial: Self::Initial,
    ) -> Result<Shared<Self>, Error> {
        // SAFETY: the caller's obligations are the same.
        let world = unsafe { World::init_in(memory, processes) };
        world
            .and_then(|world| Self::by_name(&world, ALONE, initial))
            .map_err(|error| with_all_bytes(error, Self::bytes_in(processes), memory))
    }

    /// Opens the object that was made in this memory.
    ///
    /// # Errors
    ///
    /// As [`World::open_in`] and [`World::find`].
    ///
    /// # Safety
    ///
    /// As for [`World::open_in`].
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use towpath::{InMapping, Mutex};
    /// # let memory = Box::leak(vec![0u8; Mutex::<u64>::bytes_in(8)].into_boxed_slice());
    /// # let memory = NonNull::from(memory);
    /// # let made = unsafe { Mutex::init_in(memory, 8, 100u64)? };
    /// let balance = unsafe { Mutex::<u64>::open_in(memory)? }; // in another process
    /// assert_eq!(*balance.lock()?, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    unsafe fn open_in(memory: NonNull<[u8]>) -> Result<Shared<Self>, Error> {
        // SAFETY: the caller's obligations are the same.
        unsafe { World::open_in(memory) }?.find(ALONE)
    }

    /// Opens the object in this memory, or makes it, as [`World::open_or_init_in`].
    ///
    /// # Errors
    ///
    /// As [`World::open_or_init_in`] and [`World::shared`].
    ///
    /// # Safety
    ///
    /// As for [`World::open_or_init_in`].
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// use towpath::{InMapping, Semaphore};
    ///
    /// # let memory = Box::leak(vec![0u8; Semaphore::bytes_in(8)].into_boxed_slice());
    /// # let memory = NonNull::from(memory);
    /// let connections = unsafe { Semaphore::open_or_init_in(memory, 8, 2)? }; // in each process
    /// let permit = connections.acquire()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    unsafe fn open_or_init_in(
        memory: NonNull<[u8]>,
        processes: u32,
        initial: Self::Initial,
    ) -> Result<Shared<Self>, Error> {
        // SAFETY: the caller's obligations are the same.
        let world = unsafe { World::open_or_init_in(memory, processes) };
        world
            .and_then(|world| Self::by_name(&world, ALONE, initial))
            .map_err(|error| with_all_bytes(error, Self::bytes_in(processes), memory))
    }
}

impl<T: Plain> InMapping for Mutex<T> {
    type Initial = T;
    fn by_name(world: &World, name: &str, initial: T) -> Result<Shared<Self>, Error> {
        world.mutex(name, initial)
    }
}

impl<T: Plain> InMapping for RwLock<T> {
    type Initial = T;
    fn by_name(world: &World, name: &str, initial: T) -> Result<Shared<Self>, Error> {
        world.rw_lock(name, initial)
    }
}

impl InMapping for Condvar {
    type Initial = ();
    fn by_name(world: &World, name: &str, (): ()) -> Result<Shared<Self>, Error> {
        world.condvar(name)
    }
}

impl InMapping for Semaphore {
    /// Number of permits.
    type Initial = u64;
    fn by_name(world: &World, name: &str, permits: u64) -> Result<Shared<Self>, Error> {
        world.semaphore(name, permits)
    }
}

impl InMapping for Barrier {
    /// Number of participants.
    type Initial = usize;
    fn by_name(world: &World, name: &str, participants: usize) -> Result<Shared<Self>, Error> {
        world.barrier_of(name, participants)
    }
}

impl InMapping for Event {
    type Initial = ();
    fn by_name(world: &World, name: &str, (): ()) -> Result<Shared<Self>, Error> {
        world.event(name)
    }
}

impl InMapping for Once {
    type Initial = ();
    fn by_name(world: &World, name: &str, (): ()) -> Result<Shared<Self>, Error> {
        world.once(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world_in_mapping::tests::memory;

    #[test]
    fn primitives_lie_alone() {
        let room = [Semaphore::bytes_in(2), Barrier::bytes_in(2), Condvar::bytes_in(2), Event::bytes_in(2)];
        let memory = memory(room.into_iter().max().unwrap().max(RwLock::<[u64; 8]>::bytes_in(2)));
        // SAFETY: mapped for good; each is gone before the next is made.
        unsafe {
            assert_eq!(Semaphore::init_in(memory, 2, 2).unwrap().available(), 2);
            assert_eq!(Semaphore::open_in(memory).unwrap().available(), 2);
            assert!(matches!(Event::open_in(memory), Err(Error::OtherType { .. })));
            drop(Barrier::init_in(memory, 2, 2).unwrap());
            let other = Barrier::open_or_init_in(memory, 2, 3);
            assert!(matches!(other, Err(Error::OtherType { .. })), "for 2, not 3");
            drop(Barrier::open_or_init_in(memory, 2, 2).unwrap());
            drop(Condvar::init_in(memory, 2, ()).unwrap());
            Event::init_in(memory, 2, ()).unwrap().set();
            assert!(Once::init_in(memory, 2, ()).unwrap().call(|_| ()).is_ok());
            assert_eq!(RwLock::init_in(memory, 2, [7u64; 8]).unwrap().read().unwrap()[3], 7);
        }
    }

    #[test]
    fn too_little_memory_is_answered_with_all_bytes_of_the_object() {
        let memory = memory(40_000);
        let wanted = Mutex::<u64>::bytes_in(8) as u64;
        // Too little for a world, and too little for the object in it.
        for bytes in [100, World::bytes_in(8, &[]) + 64] {
            let short = NonNull::slice_from_raw_parts(memory.cast(), bytes);
            // SAFETY: mapped for good, and used by these objects only.
            let error = unsafe { Mutex::init_in(short, 8, 1u64) }.unwrap_err();
            let room = bytes as u64;
            assert_eq!(error.to_string(), Error::NoRoom { wanted, room }.to_string());
        }
        // SAFETY: mapped for good; no other object is there.
        unsafe {
            let enough = NonNull::slice_from_raw_parts(memory.cast(), wanted as usize);
            assert!(Mutex::init_in(enough, 8, 1u64).is_ok());
            let number = Mutex::init_in(enough, 0, 1u64);
            assert!(matches!(number, Err(Error::InvalidProcesses { .. })));
        }
    }
}
