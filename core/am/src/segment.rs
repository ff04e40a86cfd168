//! Segment of an endpoint: the memory that long transfers are stored in.

use core::cell::RefCell;

use towpath_machine::Processor;

use crate::domain::Stored;
use crate::lent_memory::LentMemory;
use crate::shared_memory::SharedSegment;

/// The memory that long transfers to an endpoint are stored in: none, private to its
/// process, or shared.
///
/// Into a private segment the receiver stores when it polls, out of the blocks of its bulk queue or
/// (from 64 KiB on, where the system permits it) out of the sender's memory;
/// what the handler finds there is exactly its own message's bytes. Into a shared one the *sender*
/// stores directly, at any time before the handler runs: one copy instead of two, and until the
/// handler runs the destination's contents are unspecified.
#[derive(Debug)]
pub enum Segment<S = SharedSegment> {
    /// No long transfers.
    None,
    /// Memory of this process.
    Private(PrivateSegment),
    /// This endpoint's part of the world (see `WorldConfig::segment_bytes`).
    Shared(S),
}

/// Kind of segment that a new endpoint is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// No segment.
    None,
    /// Segment of this many bytes in its process's memory.
    Private(usize),
    /// Its part of the domain's memory, as long as the world was made for.
    Shared,
}

/// Segment in private memory: of its own, or lent by the program.
pub struct PrivateSegment {
    memory: RefCell<SegmentMemory>,
}

/// Memory of a private segment.
enum SegmentMemory {
    Own(Box<[u8]>),
    Lent(LentMemory),
}

impl SegmentMemory {
    fn len(&self) -> u64 {
        match self {
            SegmentMemory::Own(bytes) => bytes.len() as u64,
            SegmentMemory::Lent(lent) => lent.len(),
        }
    }

    /// The bytes of a range, if they are there.
    fn range(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        match self {
            SegmentMemory::Own(bytes) => {
                let at = usize::try_from(at).ok()?;
                bytes.get_mut(at..at.checked_add(len)?)
            }
            SegmentMemory::Lent(lent) => lent.range(at, len),
        }
    }
}

impl core::fmt::Debug for PrivateSegment {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PrivateSegment").field("len", &self.len()).finish()
    }
}

impl PrivateSegment {
    pub(crate) fn new(len: usize) -> Self {
        PrivateSegment { memory: RefCell::new(SegmentMemory::Own(vec![0; len].into_boxed_slice())) }
    }

    fn len(&self) -> u64 {
        self.memory.borrow().len()
    }

    /// Takes other memory for its own.
    pub(crate) fn lend(&self, lent: LentMemory) {
        *self.memory.borrow_mut() = SegmentMemory::Lent(lent);
    }

    /// Has a range filled, which is there. Returns whether `fill` did it.
    pub(crate) fn fill(&self, at: u64, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        self.memory.borrow_mut().range(at, len).is_some_and(fill)
    }
}

impl<S: Stored> Segment<S> {
    /// Returns its length in bytes.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// assert_eq!(endpoint.segment().len(), 4096);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        match self {
            Segment::None => 0,
            Segment::Private(s) => s.len(),
            Segment::Shared(s) => s.len(),
        }
    }

    /// Returns whether it has no bytes.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert!(endpoint.segment().is_empty());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn range(&self, offset: u64, len: usize) -> usize {
        assert!(
            offset.checked_add(len as u64).is_some_and(|end| end <= self.len()),
            "range {offset}+{len} is not in a segment of {} bytes",
            self.len()
        );
        offset as usize
    }

    /// Copies bytes out. Panics if the range is not in the segment.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// # endpoint.map_world()?;
    /// let mut bytes = [1; 4];
    /// endpoint.segment().read(8, &mut bytes);
    /// assert_eq!(bytes, [0; 4]);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        let at = self.range(offset, to.len());
        match self {
            Segment::None => {}
            Segment::Private(s) => {
                let len = to.len();
                s.fill(at as u64, len, |bytes| {
                    to.copy_from_slice(bytes);
                    true
                });
            }
            Segment::Shared(s) => s.read(at, to),
        }
    }

    /// Copies bytes in. Panics if the range is not in the segment.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// # endpoint.map_world()?;
    /// endpoint.segment().write(8, b"data");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn write(&self, offset: u64, from: &[u8]) {
        let at = self.range(offset, from.len());
        match self {
            Segment::None => {}
            Segment::Private(s) => {
                s.fill(at as u64, from.len(), |bytes| {
                    bytes.copy_from_slice(from);
                    true
                });
            }
            Segment::Shared(s) => s.write(at, from),
        }
    }

    /// Stores a block of a bulk queue. Returns `false` if the range is not in the
    /// segment.
    pub(crate) fn store<P: Processor>(
        &self,
        cpu: &P,
        offset: u64,
        from: &P::Bytes,
        at: usize,
        len: usize,
    ) -> bool {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            return false;
        }
        match self {
            Segment::None => {}
            Segment::Private(s) => {
                return s.fill(offset, len, |bytes| {
                    cpu.copy_out(from, at, bytes);
                    true
                });
            }
            Segment::Shared(s) => {
                let mut piece = [0u8; 4096];
                for start in (0..len).step_by(piece.len()) {
                    let piece = &mut piece[..(len - start).min(4096)];
                    cpu.copy_out(from, at + start, piece);
                    s.write(offset as usize + start, piece);
                }
            }
        }
        true
    }
}
