//! Broadcast rings in a world, by name.
#![allow(unsafe_code)]

use towpath_derive::OpaqueDebug;
use towpath_machine::Native;
use towpath_sync::queues::{
    Broadcast, BroadcastMode, BroadcastObject, BroadcastReader, BroadcastVenue, BroadcastWriter, CALLER,
    HoldsBack, Lossy, TransferError, WordLine,
};
use towpath_sync::{LateWait, Wait};

use super::{LINE, check_maker};
use crate::inner::Inner;
use crate::participant::ParticipantId;
use crate::{Error, Shared, World};

/// Broadcast ring in a world: makes its writer and readers.
#[derive(OpaqueDebug)]
pub struct WorldBroadcast<M: BroadcastMode>(WorldRing<M>);

/// Place of a broadcast ring in a world.
#[derive(OpaqueDebug)]
pub struct WorldRing<M: BroadcastMode> {
    object: Shared<BroadcastObject<M>>,
    lines: usize,
    /// Participant that has made the end.
    maker: u64,
}

impl<M: BroadcastMode> Clone for WorldRing<M> {
    fn clone(&self) -> Self {
        WorldRing { object: self.object.clone(), lines: self.lines, maker: self.maker }
    }
}

// SAFETY: the object and the lines behind it lie in the world's segment, which stays mapped where
// it is as long as a handle of the object lives.
unsafe impl<M: BroadcastMode> BroadcastVenue for WorldRing<M> {
    type Mode = M;
    type Late = LateWait<Inner>;

    #[inline(always)]
    fn late(&self) -> Result<(Broadcast<'_, Native>, &LateWait<Inner>), TransferError> {
        let world = self.object.world();
        let me = world.entered().ok_or(TransferError::NotEntered)?;
        check_maker(Some(self.maker), me)?;
        let object = self.object.as_ptr();
        // SAFETY: the object and the lines behind it, as many as it was found to have, are mapped
        // as long as the handle lives (`World::object` checked them), and aligned, since the
        // object's size is a multiple of its alignment, a line's; any bits are both, whose words
        // are atomic.
        let (head, ring) = unsafe {
            let lines = object.add(1).cast::<WordLine<Native>>();
            (&(*object.as_ptr()).head, core::slice::from_raw_parts(lines.as_ptr(), self.lines))
        };
        Ok((Broadcast::of(head, ring, M::LOSSY), LateWait::of(world.inner())))
    }

    #[inline]
    fn call<R>(
        &self,
        act: impl FnOnce(Broadcast<'_, Native>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        act(self.late()?.0, CALLER, &self.object.world().adaptive_wait())
    }
}

impl<M: BroadcastMode> WorldRing<M> {
    /// The place of an end that this process makes.
    fn of_caller(&self) -> Self {
        let maker = self.object.world().entered().map_or(0, ParticipantId::to_bits);
        WorldRing { maker, ..self.clone() }
    }
}

impl<M: BroadcastMode> WorldBroadcast<M> {
    /// Makes the writer. When it is dropped, or dies, readers learn of it.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`]; [`TransferError::Taken`] while there is another one. The ends
    /// of a parent refuse its forked child with that, when the child has entered: it makes its own.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let weights = world.broadcast("weights", 1 << 16)?;
    /// let mut writer = weights.writer()?;
    /// assert!(weights.writer().is_err(), "one only");
    /// writer.send(b"first layer")?; // to all readers that are there: none
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn writer(&self) -> Result<BroadcastWriter<WorldRing<M>>, TransferError> {
        BroadcastWriter::new(self.0.of_caller())
    }

    /// Makes a reader, which gets the messages that are sent from now on. When it dies,
    /// the writer learns of it ([`BroadcastWriter::lost_reader`]).
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`]; [`TransferError::Capacity`] if there are 64 of them.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let weights = world.broadcast("weights", 1 << 16)?;
    /// let mut reader = weights.reader()?;
    /// assert!(reader.try_receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reader(&self) -> Result<BroadcastReader<WorldRing<M>>, TransferError> {
        BroadcastReader::new(self.0.of_caller())
    }

    /// Number of bytes of the ring: messages, and 16 beside each.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(world.broadcast("weights", 1 << 16)?.capacity() >= 1 << 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.0.lines * LINE as usize
    }

    /// The world in which the ring lies.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.broadcast("weights", 1 << 16)?.world().rank(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn world(&self) -> &World {
        self.0.object.world()
    }
}

impl World {
    /// Opens the broadcast ring of that name, from one writer to up to 64 readers, which
    /// hold the writer back if they are slow; makes it with at least so many bytes if there is
    /// none ([`WorldBroadcast::capacity`]).
    ///
    /// # Errors
    ///
    /// [`Error::NumberOutOfRange`]; as [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let weights = world.broadcast("weights", 1 << 16)?;
    /// let mut reader = weights.reader()?; // usually in another process
    /// weights.writer()?.send(b"first layer")?;
    /// assert_eq!(*reader.receive()?, *b"first layer");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn broadcast(&self, name: &str, bytes: usize) -> Result<WorldBroadcast<HoldsBack>, Error> {
        self.ring(name, bytes)
    }

    /// Opens the broadcast ring of that name whose writer never waits: slow readers are
    /// told how many messages they missed. Makes it as [`World::broadcast`] if there is none.
    ///
    /// # Errors
    ///
    /// As [`World::broadcast`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let frames = world.lossy_broadcast("frames", 1 << 10)?;
    /// let (mut writer, mut reader) = (frames.writer()?, frames.reader()?);
    /// for number in 0..1000u32 {
    ///     writer.send(&number.to_le_bytes())?;
    /// }
    /// let frame = reader.receive()?;
    /// assert_eq!(u64::from(u32::from_le_bytes(frame[..4].try_into()?)), frame.missed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lossy_broadcast(&self, name: &str, bytes: usize) -> Result<WorldBroadcast<Lossy>, Error> {
        self.ring(name, bytes)
    }

    fn ring<M: BroadcastMode>(&self, name: &str, bytes: usize) -> Result<WorldBroadcast<M>, Error> {
        let most = Broadcast::<Native>::MOST;
        if !(1..=most).contains(&bytes) {
            return Err(Error::NumberOutOfRange {
                of: "bytes of a broadcast ring",
                wanted: bytes as u64,
                least: 1,
                most: most as u64,
            });
        }
        let lines = Broadcast::<Native>::lines(bytes);
        let fits = |bytes: u64| bytes.is_multiple_of(LINE) && (bytes / LINE).is_power_of_two();
        let (object, bytes) =
            self.object(name, lines as u64 * LINE, fits, |_: &Shared<BroadcastObject<M>>| ())?;
        // As many as were found to fit: the segment holds them, so they are less than 2⁶³.
        let lines = usize::try_from(bytes / LINE).unwrap_or(lines);
        Ok(WorldBroadcast(WorldRing { object, lines, maker: 0 }))
    }
}
