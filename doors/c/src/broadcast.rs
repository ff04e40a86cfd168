//! `tp_broadcast_*`: rings of messages of any length from one writer to many readers.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use towpath_machine::Native;
use towpath_shm::{World, WorldBroadcast, WorldRing};
use towpath_sync::queues::{
    Broadcast, BroadcastObject, BroadcastReader, BroadcastWriter, HoldsBack, Lossy, WordLine,
};

use crate::call::{
    ALONE, Handle, MappingEntry, Out, OutValue, Owned, answering, closing, deadline, guarded, of, opening,
    values,
};
use crate::fault::Fault;

/// A ring, or an end of one, of either mode: `H` holds the writer back, `L` is lossy.
enum OfMode<H, L> {
    HoldsBack(H),
    Lossy(L),
}

/// Value of an expression about either mode's.
macro_rules! of_mode {
    ($of:expr, $it:ident => $act:expr) => {
        match $of {
            OfMode::HoldsBack($it) => $act,
            OfMode::Lossy($it) => $act,
        }
    };
}

/// Value of an expression about either mode's, as one of that mode.
macro_rules! with_mode {
    ($of:expr, $it:ident => $act:expr) => {
        match $of {
            OfMode::HoldsBack($it) => OfMode::HoldsBack($act),
            OfMode::Lossy($it) => OfMode::Lossy($act),
        }
    };
}

/// A process's handle of a broadcast ring.
pub struct TpBroadcast(OfMode<WorldBroadcast<HoldsBack>, WorldBroadcast<Lossy>>);

/// The writer of a ring.
pub struct TpWriter(OfMode<BroadcastWriter<WorldRing<HoldsBack>>, BroadcastWriter<WorldRing<Lossy>>>);

/// A reader of a ring.
pub struct TpReader(OfMode<BroadcastReader<WorldRing<HoldsBack>>, BroadcastReader<WorldRing<Lossy>>>);

impl TpBroadcast {
    /// The ring of that name, made if there is none.
    pub(crate) fn of_world(world: &World, name: &str, bytes: usize, lossy: c_int) -> Result<Self, Fault> {
        Ok(TpBroadcast(if lossy == 0 {
            OfMode::HoldsBack(world.broadcast(name, bytes)?)
        } else {
            OfMode::Lossy(world.lossy_broadcast(name, bytes)?)
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
    opening(out, || Ok(TpWriter(with_mode!(&of(ring)?.0, ring => ring.writer()?))))
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
        Ok(of_mode!(&mut writer.0, writer => writer.send_before(message, deadline(ns)))?)
    })
}

/// Number of readers.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_readers(writer: Handle<'_, TpWriter>) -> usize {
    writer.map_or(0, |writer| of_mode!(&writer.0, writer => writer.readers()))
}

/// Asks the kernel which readers live: 1 if one died that was not told yet, 0 if not.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_lost_reader(writer: Option<&mut TpWriter>) -> c_int {
    answering(|| {
        let writer = &mut writer.ok_or(Fault::INVALID)?.0;
        Ok(of_mode!(writer, writer => writer.lost_reader()).is_some().into())
    })
}

/// Closes the ring: nothing more can be sent.
#[unsafe(no_mangle)]
pub extern "C" fn tp_writer_shut(writer: Handle<'_, TpWriter>) -> c_int {
    guarded(|| {
        of_mode!(&of(writer)?.0, writer => writer.close());
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
    opening(out, || Ok(TpReader(with_mode!(&of(ring)?.0, ring => ring.reader()?))))
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
        let found = of_mode!(&mut reader.0, reader => reader.receive_before(deadline(ns)))?;
        to.write(found.as_ptr().cast());
        length.write(found.len());
        if let Some(missed) = missed {
            missed.write(found.missed());
        }
        Ok(())
    })
}

/// Ends a reader.
#[unsafe(no_mangle)]
pub extern "C" fn tp_reader_close(reader: Owned<TpReader>) {
    closing(reader);
}
