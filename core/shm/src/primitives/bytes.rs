//! Plain bytes in a world, by name: arrays of programs in other languages.
//!
//! Zeroed when they are made. Their accesses are the program's: it shares them out, or puts them
//! under a lock.
#![allow(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

use towpath_machine::Object;

use crate::{Error, Shared, World};

/// Number of bytes of a cache line, to which the bytes are aligned.
const LINE: usize = 64;

/// Line before the bytes.
#[repr(C, align(64))]
pub(crate) struct BytesHead {
    unused: [AtomicU64; LINE / 8],
}

// SAFETY: eight atomic words, of which any bits are a value, all-zero at first; the text names the
// layout's version.
unsafe impl Object for BytesHead {
    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes 1")
    }
}

/// Bytes in a world. Keeps the world mapped.
#[derive(Clone, Debug)]
pub struct WorldBytes {
    head: Shared<BytesHead>,
    len: usize,
}

impl WorldBytes {
    /// Address of the first byte: a multiple of 64. Different in every process.
    ///
    /// Mapped as long as the handle lives. Other processes may write the bytes at any time: they
    /// are reached by raw pointers or atomically.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let (one, other) = (world.bytes("table", 1000)?, world.bytes("table", 1000)?);
    /// let word = |table: &towpath::WorldBytes| table.as_ptr().cast::<AtomicU64>();
    /// // SAFETY: aligned words of the table, which every process accesses atomically.
    /// let (first, second) = unsafe { (word(&one).as_ref(), word(&other).as_ref()) };
    /// first.store(7, Ordering::Relaxed);
    /// assert_eq!(second.load(Ordering::Relaxed), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_ptr(&self) -> NonNull<u8> {
        // SAFETY: the bytes follow their head, within the heap (`World::object`).
        unsafe { self.head.as_ptr().add(1).cast() }
    }

    /// Number of bytes.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.bytes("table", 1000)?.len(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(!world.bytes("table", 1000)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The world in which they lie.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.bytes("table", 1000)?.world().rank(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn world(&self) -> &World {
        self.head.world()
    }
}

impl World {
    /// Opens the bytes of that name; makes so many, all zero, if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::OtherType`] also if there are more or fewer of them; as [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let table = world.bytes("table", 1000)?;
    /// assert_eq!((table.len(), table.as_ptr().addr().get() % 64), (1000, 0));
    /// assert!(world.bytes("table", 1001).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bytes(&self, name: &str, len: usize) -> Result<WorldBytes, Error> {
        let wanted = len as u64;
        let (head, _) = self.object(name, wanted, |bytes| bytes == wanted, |_: &Shared<BytesHead>| ())?;
        Ok(WorldBytes { head, len })
    }
}
