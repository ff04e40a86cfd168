//! The area: the part of a segment that belongs to the rooms above.
#![allow(unsafe_code)]

use core::mem::{align_of, size_of};
use core::ptr::NonNull;

use towpath_machine::{Concurrent, NativeBytes};

use crate::Error;
use crate::world::World;

/// The area of a world. Keeps the world mapped.
#[derive(Clone, Debug)]
pub struct Area {
    world: World,
}

impl World {
    /// The area. Its users give it a meaning.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// println!("{} bytes", world.area().len());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn area(&self) -> Area {
        Area { world: self.clone() }
    }
}

impl Area {
    /// Its length in bytes.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(world.area().len() > 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.world.inner().segment.geometry().area_bytes()
    }

    /// Returns whether it has no bytes.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(!world.area().is_empty());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of its first byte: a multiple of 4,096. Different in every process.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// println!("mapped at {:?}", world.area().base());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn base(&self) -> NonNull<u8> {
        let inner = self.world.inner();
        // SAFETY: the area starts there, within the mapping (checked when the world was opened).
        unsafe { inner.segment.base().add(inner.segment.geometry().area() as usize) }
    }

    /// The world that it is part of.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.area().world().rank(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn world(&self) -> &World {
        &self.world
    }

    /// `n` values of a type from an offset on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::sync::atomic::AtomicU64;
    ///
    /// let area = world.area();
    /// assert_eq!(area.slice::<AtomicU64>(64, 8)?.len(), 8);
    /// assert!(area.slice::<AtomicU64>(1, 8).is_err(), "misaligned");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn slice<T: Concurrent>(&self, offset: u64, n: u64) -> Result<&[T], Error> {
        let len = (size_of::<T>() as u64).saturating_mul(n);
        let at = self.check(offset, len, align_of::<T>())?;
        // SAFETY: in bounds and aligned (just checked); mapped for as long as `self` lives; every
        // bit pattern is a `T` and accesses through shared references are atomic (`Concurrent`).
        Ok(unsafe { core::slice::from_raw_parts(at.cast::<T>().as_ptr(), n as usize) })
    }

    /// One value of a type at an offset.
    ///
    /// # Errors
    ///
    /// As [`Area::slice`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::sync::atomic::AtomicU64;
    ///
    /// let area = world.area();
    /// let _word: &AtomicU64 = area.get(64)?;
    /// assert!(area.get::<AtomicU64>(area.len()).is_err(), "out of bounds");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn get<T: Concurrent>(&self, offset: u64) -> Result<&T, Error> {
        Ok(&self.slice(offset, 1)?[0])
    }

    /// A view of payload bytes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    ///
    /// # Safety
    ///
    /// * The view is not used after the last handle of this world (this area, the world, or a clone
    ///   of either) is dropped.
    /// * No reference from [`Area::slice`] or [`Area::get`] to these bytes exists while the view is
    ///   used.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let area = world.area();
    /// // SAFETY: not used after `area` is dropped; nothing refers to these bytes.
    /// let _bytes = unsafe { area.bytes(4096, 100) }?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub unsafe fn bytes(&self, offset: u64, len: u64) -> Result<NativeBytes, Error> {
        let at = self.check(offset, len, 1)?;
        // SAFETY: stays mapped while the world does, and without references: the caller's
        // obligations, in this order.
        Ok(unsafe { NativeBytes::from_raw(at, len as usize) })
    }

    fn check(&self, offset: u64, len: u64, align: usize) -> Result<NonNull<u8>, Error> {
        crate::memory::within(self.len(), offset, len, align)?;
        // SAFETY: at most `len()` bytes into the area (just checked), hence within the mapping.
        Ok(unsafe { self.base().add(offset as usize) })
    }
}
