//! From a world's area to queues: the one place of this room that makes references into shared memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use towpath_machine::{Native, OwnLine, Plain};
use towpath_shm::{Area, ParticipantId, World};

use crate::claim::{Any, Locks};
use crate::error::Error;
use crate::layout::{Entry, Layout, WorldConfig};
use crate::packet::{BlockHead, Extra, Slot};
use crate::queue::{Census, Control, Queue};

use core::sync::atomic::Ordering;

// SAFETY: for all four: `repr(C)`, made of atomic words only, so every bit pattern is valid and accesses are atomic; all zero is
// the initial state of each; no `Drop`.
unsafe impl Plain for Slot<Native> {}
// SAFETY: as above.
unsafe impl Plain for Extra<Native> {}
// SAFETY: as above.
unsafe impl Plain for BlockHead<Native> {}
// SAFETY: as above.
unsafe impl Plain for Control<Native> {}
// SAFETY: `repr(C)`, made of locks that are `Plain` themselves.
unsafe impl Plain for Locks<Native> {}

/// A queue and the way to claim in it.
pub(crate) struct Side {
    pub queue: Queue<'static, Native>,
    pub claim: Any<'static, Native>,
    pub locks: &'static Locks<Native>,
}

/// A world's message area, attached.
///
/// The references that it hands out are `'static` in type only: they are valid while it lives. Everything that keeps one keeps an
/// `Arc<Attached>` too (fields of [`Side`] never leave the endpoint that holds both).
pub(crate) struct Attached {
    pub world: World,
    pub config: WorldConfig,
    pub layout: Layout,
    area: Area,
}

impl Attached {
    pub fn new(world: &World) -> Result<Arc<Attached>, Error> {
        let config = WorldConfig::from_params(&world.params())?;
        let layout = Layout::of(&config);
        let area = world.area();
        if area.len() < layout.total {
            return Err(Error::BadWorld(format!(
                "its message area has {} bytes, its parameters call for {}",
                area.len(),
                layout.total
            )));
        }
        Ok(Arc::new(Attached { world: world.clone(), config, layout, area }))
    }

    fn slice<T: Plain>(&self, offset: u64, n: u32) -> Result<&'static [T], Error> {
        let slice = self.area.slice::<T>(offset, n.into())?;
        // SAFETY: the mapping lives as long as `self.area`, and by the contract of this type nobody uses the reference after that.
        Ok(unsafe { core::mem::transmute::<&[T], &'static [T]>(slice) })
    }

    pub fn entry(&self, endpoint: u16) -> Result<&'static Entry, Error> {
        if u32::from(endpoint) >= self.config.endpoints {
            return Err(Error::BadArgument(format!(
                "endpoint {endpoint} does not exist: this world has {}",
                self.config.endpoints
            )));
        }
        let offset = self.layout.directory + u64::from(endpoint) * size_of::<Entry>() as u64;
        Ok(&self.slice(offset, 1)?[0])
    }

    fn block_start(&self, endpoint: u16) -> u64 {
        self.layout.blocks_start + u64::from(endpoint) * self.layout.stride
    }

    pub fn side(&self, endpoint: u16, reply: bool) -> Result<Side, Error> {
        self.entry(endpoint)?;
        let q = &self.layout.queue;
        let start = self.block_start(endpoint) + if reply { self.layout.reply } else { 0 };
        let c = &self.config;
        let locks = &self.slice::<Locks<Native>>(start + q.locks, 1)?[0];
        // SAFETY: no references to the blocks' bytes are ever made (the slices above and below end before them), and the view is used only while
        // this attachment lives.
        let bytes =
            unsafe { self.area.bytes(start + q.bytes, u64::from(c.blocks) * u64::from(c.block_size))? };
        Ok(Side {
            queue: Queue {
                id: u32::from(endpoint) * 2 + u32::from(reply),
                control: &self.slice::<Control<Native>>(start + q.control, 1)?[0],
                slots: self.slice(start + q.slots, c.packets)?,
                extras: self.slice(start + q.extras, c.packets)?,
                blocks: self.slice(start + q.heads, c.blocks)?,
                bytes: Arc::new(bytes),
                block_size: c.block_size as usize,
            },
            claim: locks.choose(c.algorithm),
            locks,
        })
    }

    /// The endpoint's segment in shared memory.
    pub fn segment(&self, endpoint: u16) -> Result<towpath_machine::NativeBytes, Error> {
        self.entry(endpoint)?;
        let start = self.block_start(endpoint) + self.layout.segment;
        // SAFETY: no references to a segment's bytes are ever made, and the view is used only while this attachment lives.
        Ok(unsafe { self.area.bytes(start, self.config.segment_bytes)? })
    }
}

impl Attached {
    /// Whether the entry's present incarnation lives.
    pub fn owner_alive(&self, entry: &Entry) -> bool {
        // Acquire: pairs with the Release when an endpoint is taken or given up.
        let owner = entry.owner.load(Ordering::Acquire);
        owner != 0 && self.world.is_alive(ParticipantId::from_bits(owner))
    }
}

impl Census for Attached {
    fn members(&self) -> usize {
        self.config.endpoints as usize * 2
    }

    fn intent(&self, member: usize) -> u64 {
        let Ok(entry) = self.entry((member / 2) as u16) else { return 0 };
        let OwnLine(intents) = &entry.intents;
        // Acquire: pairs with the Release with which claimers change their intent.
        let intent = intents[member % 2].load(Ordering::Acquire);
        // The intent first, then the question: what the dead intended will not happen any more.
        if intent != 0 && !self.owner_alive(entry) { 0 } else { intent }
    }

    fn alive(&self, endpoint: u16, generation: u16) -> bool {
        let Ok(entry) = self.entry(endpoint) else { return false };
        // Acquire: as above.
        entry.generation.load(Ordering::Acquire) as u16 == generation && self.owner_alive(entry)
    }

    fn holds_block(&self, endpoint: u16, queue: u32) -> bool {
        let Ok(entry) = self.entry(endpoint) else { return false };
        let OwnLine(intents) = &entry.intents;
        // Acquire: pairs with the Release after the publication.
        intents[2..].iter().any(|word| word.load(Ordering::Acquire) == u64::from(queue) + 1)
    }
}

impl Side {
    /// Makes the queue's locks all zero: unlocked.
    pub(crate) fn zero_locks(&self) {
        let bytes = size_of::<Locks<Native>>();
        // SAFETY: the locks are mapped and writable, made of atomics and libc's mutex (interior mutability, `Plain`), all zero is a valid value,
        // and the caller of `reset` is the only one who uses them now.
        unsafe {
            core::ptr::write_bytes(core::ptr::from_ref(self.locks).cast_mut().cast::<u8>(), 0, bytes);
        }
    }
}
