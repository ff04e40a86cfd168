//! `tp_broadcast_*`: rings of messages of any length from one writer to many readers.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::time::Duration;

use towpath_machine::Native;
use towpath_shm::{World, WorldBroadcast, WorldRing};
use towpath_sync::queues::{
    Broadcast, BroadcastMode, BroadcastObject, BroadcastReader, BroadcastWriter, HoldsBack, Lossy,
    TransferError, WordLine,
};

use crate::call::{
    ALONE, Handle, MappingEntry, Out, OutValue, Owned, answering, closing, guarded, of, opening, values,
};
use crate::fault::Fault;

/// A ring of either mode.
trait AnyMode {
    fn writer(&self) -> Result<TpWriter, TransferError>;
    fn reader(&self) -> Result<TpReader, TransferError>;
}

/// Its writer.
trait AnyWriter {
    fn send(&mut self, message: &[u8], ns: u64) -> Result<(), TransferError>;
    fn readers(&self) -> usize;
    fn lost(&mut self) -> bool;
    fn shut(&self);
}

/// Its reader.
trait AnyReader {
    /// The next message, and the number of those that were missed before it.
    fn receive(&mut self, ns: u64) -> Result<(&[u8], u64), TransferError>;
}

impl<M: BroadcastMode> AnyMode for WorldBroadcast<M> {
    fn writer(&self) -> Result<TpWriter, TransferError> {
        Ok(TpWriter(Box::new(WorldBroadcast::writer(self)?)))
    }
    fn reader(&self) -> Result<TpReader, TransferError> {
        Ok(TpReader(Box::new(WorldBroadcast::reader(self)?)))
    }
}

impl<M: BroadcastMode> AnyWriter for BroadcastWriter<WorldRing<M>> {
    fn send(&mut self, message: &[u8], ns: u64) -> Result<(), TransferError> {
        match ns {
            0 => self.try_send(message),
            u64::MAX => BroadcastWriter::send(self, message),
            ns => self.send_timeout(message, Duration::from_nanos(ns)),
        }
    }
    fn readers(&self) -> usize {
        BroadcastWriter::readers(self)
    }
    fn lost(&mut self) -> bool {
        self.lost_reader().is_some()
    }
    fn shut(&self) {
        self.close();
    }
}

impl<M: BroadcastMode> AnyReader for BroadcastReader<WorldRing<M>> {
    fn receive(&mut self, ns: u64) -> Result<(&[u8], u64), TransferError> {
        let missed = match ns {
            0 => self.try_receive(),
            u64::MAX => BroadcastReader::receive(self),
            ns => self.receive_timeout(Duration::from_nanos(ns)),
        }?
        .missed();
        Ok((self.bytes(), missed))
    }
}

/// A process's handle of a broadcast ring.
pub struct TpBroadcast(Box<dyn AnyMode>);

/// The writer of a ring.
pub struct TpWriter(Box<dyn AnyWriter>);

/// A reader of a ring.
pub struct TpReader(Box<dyn AnyReader>);

impl TpBroadcast {
    /// The ring of that name, made if there is none.
    pub(crate) fn of_world(world: &World, name: &str, bytes: usize, lossy: c_int) -> Result<Self, Fault> {
        Ok(TpBroadcast(if lossy == 0 {
            Box::new(world.broadcast(name, bytes)?)
        } else {
            Box::new(world.lossy_broadcast(name, bytes)?)
        }))
    }
}

/// Number of bytes for a ring of at least so many bytes; 0 if that is not possible.
#[unsafe(no_mangle)]
pub extern "C" fn tp_broadcast_size(users: u32, bytes: usize) -> usize {
    if !(1..=Broadcast::<Native>::MOST).contains(&bytes) {
        return 0;
    }
    // Both modes have the same layout.
    const { assert!(size_of::<BroadcastObject<Lossy>>() == size_of::<BroadcastObject<HoldsBack>>()) };
    let lines = Broadcast::<Native>::lines(bytes) * size_of::<WordLine<Native>>();
    World::bytes_in(users, &[(size_of::<BroadcastObject<HoldsBack>>() + lines) as u64])
}

/// Makes a ring in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_broadcast_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    bytes: usize,
    lossy: c_int,
    out: Out<'_, TpBroadcast>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
        let world = unsafe { MappingEntry::Init(users).world(at, room) }?;
        TpBroadcast::of_world(&world, ALONE, bytes, lossy)
    })
}

/// Opens a ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_broadcast_open(
    at: *mut c_void,
    room: usize,
    bytes: usize,
    lossy: c_int,
    out: Out<'_, TpBroadcast>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
        let world = unsafe { MappingEntry::Open.world(at, room) }?;
        TpBroadcast::of_world(&world, ALONE, bytes, lossy)
    })
}

/// Opens a ring, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_broadcast_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    bytes: usize,
    lossy: c_int,
    out: Out<'_, TpBroadcast>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        TpBroadcast::of_world(&world, ALONE, bytes, lossy)
    })
}

/// Ends a handle; writer and readers stay.
#[unsafe(no_mangle)]
pub extern "C" fn tp_broadcast_close(ring: Owned<TpBroadcast>) {
    closing(ring);
}

/// Makes the writer.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_open(ring: Handle<'_, TpBroadcast>, out: Out<'_, TpWriter>) -> c_int {
    opening(out, || Ok(of(ring)?.0.writer()?))
}

/// Sends a message to all readers that are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_writer_send(
    writer: Option<&mut TpWriter>,
    message: *const c_void,
    bytes: usize,
    ns: u64,
) -> c_int {
    guarded(|| {
        let writer = writer.ok_or(Fault::INVALID)?;
        // SAFETY: so many bytes, says the header.
        let message = unsafe { values(message.cast::<u8>(), bytes) }?;
        Ok(writer.0.send(message, ns)?)
    })
}

/// Number of readers.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_readers(writer: Handle<'_, TpWriter>) -> usize {
    writer.map_or(0, |writer| writer.0.readers())
}

/// Asks the kernel which readers live: 1 if one died that was not told yet, 0 if not.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_lost_reader(writer: Option<&mut TpWriter>) -> c_int {
    answering(|| Ok(writer.ok_or(Fault::INVALID)?.0.lost().into()))
}

/// Closes the ring: nothing more can be sent.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_shut(writer: Handle<'_, TpWriter>) -> c_int {
    guarded(|| {
        of(writer)?.0.shut();
        Ok(())
    })
}

/// Ends the writer; readers learn of it.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_close(writer: Owned<TpWriter>) {
    closing(writer);
}

/// Makes a reader, which gets the messages that are sent from now on.
#[unsafe(no_mangle)]
pub extern "C" fn tp_reader_open(ring: Handle<'_, TpBroadcast>, out: Out<'_, TpReader>) -> c_int {
    opening(out, || Ok(of(ring)?.0.reader()?))
}

/// Receives the next message, which stays valid until the reader's next call.
#[unsafe(no_mangle)]
pub extern "C" fn tp_reader_receive(
    reader: Option<&mut TpReader>,
    ns: u64,
    message: OutValue<'_, *const c_void>,
    bytes: OutValue<'_, usize>,
    missed: OutValue<'_, u64>,
) -> c_int {
    guarded(|| {
        let reader = reader.ok_or(Fault::INVALID)?;
        let (to, length) = (message.ok_or(Fault::INVALID)?, bytes.ok_or(Fault::INVALID)?);
        let (found, number) = reader.0.receive(ns)?;
        to.write(found.as_ptr().cast());
        length.write(found.len());
        if let Some(missed) = missed {
            missed.write(number);
        }
        Ok(())
    })
}

/// Ends a reader.
#[unsafe(no_mangle)]
pub extern "C" fn tp_reader_close(reader: Owned<TpReader>) {
    closing(reader);
}
