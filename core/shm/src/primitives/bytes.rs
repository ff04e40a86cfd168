//! Plain bytes in a world, by name: arrays of programs in other languages.
//!
//! Zeroed when they are made. Their accesses are the program's: it shares them out, or puts them
//! under a lock.
#![allow(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::{Concurrent, Object};

use crate::directory::hash_of;
use crate::{Error, Shared, World};

/// Number of bytes of a cache line, to which the bytes are aligned.
const LINE: usize = 64;

/// Number of words of a head that hold the begin of its format.
const SHOWN: usize = LINE / 8 - 1;

/// Line before the bytes. Written by their maker, before other processes find them.
#[repr(C, align(64))]
pub(crate) struct BytesHead {
    /// Hash of the format; 0: none.
    format: AtomicU64,
    /// Begin of its text, then zeros.
    text: [AtomicU64; SHOWN],
}

impl BytesHead {
    /// Returns the hash by which formats are compared.
    fn hash(format: &str) -> u64 {
        if format.is_empty() { 0 } else { hash_of(format.bytes()).max(1) }
    }

    fn write(&self, format: &str) {
        let mut bytes = [0; SHOWN * 8];
        let len = format.len().min(bytes.len());
        bytes[..len].copy_from_slice(&format.as_bytes()[..len]);
        // Relaxed, all: the record that makes the object known is stored after them (Release).
        self.format.store(BytesHead::hash(format), Ordering::Relaxed);
        for (n, word) in self.text.iter().enumerate() {
            let part = core::array::from_fn(|byte| bytes[8 * n + byte]);
            word.store(u64::from_le_bytes(part), Ordering::Relaxed);
        }
    }

    /// Returns the begin of the format, if it is known to be another one.
    fn differs(&self, format: &str) -> Option<String> {
        // Relaxed, all: the record was loaded before (Acquire), and nothing is stored later.
        let (is, wanted) = (self.format.load(Ordering::Relaxed), BytesHead::hash(format));
        if is == 0 || wanted == 0 || is == wanted {
            return None;
        }
        let bytes: Vec<u8> =
            self.text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }
}

// SAFETY: `repr(C)` of atomic words alone, of which any bits are a value, all-zero at first.
unsafe impl Concurrent for BytesHead {}

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
        self.bytes_of(name, len, "")
    }

    /// Opens or makes bytes as [`World::bytes`] does, whose format has this text.
    ///
    /// Bytes of another format are refused. Without a text, on one side or the other, nothing is
    /// compared.
    ///
    /// # Errors
    ///
    /// As [`World::bytes`]; [`Error::OtherType`] with the begin of the other format (56 bytes).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let table = world.bytes_of("table", 1000, "1,000 bytes of text")?;
    /// assert!(world.bytes_of("table", 1000, "125 numbers of 64 bits").is_err());
    /// assert!(world.bytes("table", 1000).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bytes_of(&self, name: &str, len: usize, format: &str) -> Result<WorldBytes, Error> {
        let wanted = len as u64;
        let prepare = |head: &Shared<BytesHead>| head.write(format);
        let (head, _) = self.object(name, wanted, |bytes| bytes == wanted, prepare)?;
        match head.differs(format) {
            Some(found) => {
                Err(Error::OtherType { name: name.to_owned(), found, expected: format.to_owned() })
            }
            None => Ok(WorldBytes { head, len }),
        }
    }
}
