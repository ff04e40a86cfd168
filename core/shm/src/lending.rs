//! Worlds in the hands of programs in other languages.
//!
//! They pass them on by descriptor, and leave them at the end of a process whose handles are never
//! dropped.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::segment::Segment;
use crate::{Error, World};

impl World {
    /// Opens the world of a descriptor, which another process has passed on.
    ///
    /// # Errors
    ///
    /// It is not to be trusted, it was made by another version, it is damaged.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// let passed_on = world.descriptor()?.try_clone_to_owned()?;
    /// let same = towpath::World::from_descriptor(passed_on)?;
    /// assert_eq!(same.size(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_descriptor(file: OwnedFd) -> Result<World, Error> {
        World::adopt(Segment::from_descriptor(file)?, None, None)
    }

    /// Descriptor of the world's segment, to be passed on.
    ///
    /// # Errors
    ///
    /// [`Error::NotAFile`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let descriptor = world.descriptor()?.try_clone_to_owned()?; // for another process
    /// assert_eq!(towpath::World::from_descriptor(descriptor)?.size(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        self.file()
    }

    /// Leaves the world although handles of its objects are open.
    ///
    /// Removes its name if no process is left. The process counts as dead for locks that it holds.
    ///
    /// For runtimes that end a process without dropping its handles.
    ///
    /// # Safety
    ///
    /// No guard of a lock of this world is used afterwards by this process, other than to be
    /// forgotten, unless it has entered again and acquired the lock again.
    ///
    /// ```
    /// let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// world.enter(Some(0))?;
    /// let count = world.mutex("count", 0u64)?;
    /// // SAFETY: there is no guard.
    /// unsafe { world.end() };
    /// assert!(count.lock().is_err(), "it has left");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn end(&self) {
        let inner = self.inner();
        inner.leave();
        if let Some((_, path)) = &inner.name
            // Relaxed: written when the world was opened; a fork clears it.
            && inner.local.opener.load(Ordering::Relaxed) == 1
            && !inner.is_inhabited()
        {
            inner.segment.unlink_if_last(path);
        }
    }
}
