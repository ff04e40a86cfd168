//! `tp_world_*`: worlds, whose objects C programs and Rust programs share by name.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};

use towpath_shm::{World, WorldBytes, WorldSpec};
use towpath_sync::Policy;

use crate::barrier::TpBarrier;
use crate::broadcast::TpBroadcast;
use crate::call::{Handle, MappingEntry, Out, Owned, any_text, closing, guarded, of, opening, text};
use crate::condition::TpCond;
use crate::event::TpEvent;
use crate::fault::Fault;
use crate::messages::TpMessages;
use crate::mutex::TpMutex;
use crate::queue::TpQueue;
use crate::rw_lock::TpRwlock;
use crate::semaphore::TpSem;

/// A process's handle of a world.
pub struct TpWorld(World);

impl TpWorld {
    pub(crate) fn world(&self) -> &World {
        &self.0
    }
}

fn entered(world: World) -> Result<TpWorld, Fault> {
    world.enter(None)?;
    Ok(TpWorld(world))
}

/// Joins the world for which `towpath run` started this process.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_join(out: Out<'_, TpWorld>) -> c_int {
    opening(out, || Ok(TpWorld(World::join()?)))
}

/// Makes a world and enters it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_create(
    name: *const c_char,
    processes: u32,
    object_bytes: u64,
    out: Out<'_, TpWorld>,
) -> c_int {
    opening(out, || {
        // SAFETY: none, or a text that ends with a zero, says the header.
        let name = unsafe { any_text(name) }?.map(str::to_owned);
        let object_bytes = object_bytes.max(towpath_shm::OBJECT_BYTES);
        let spec = WorldSpec { name, processes, area_bytes: 0, object_bytes, params: [0; 16] };
        entered(World::create(&spec)?)
    })
}

/// Makes a world whose ranks have endpoints, and enters it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_create_with_endpoints(
    name: *const c_char,
    processes: u32,
    segment_bytes: u64,
    object_bytes: u64,
    out: Out<'_, TpWorld>,
) -> c_int {
    opening(out, || {
        // SAFETY: none, or a text that ends with a zero, says the header.
        let name = unsafe { any_text(name) }?;
        let object_bytes = object_bytes.max(towpath_shm::OBJECT_BYTES);
        let config =
            towpath::WorldConfig { segment_bytes, object_bytes, ..towpath::WorldConfig::new(processes) };
        entered(towpath::create(name, &config)?)
    })
}

/// Opens a world by name and enters it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_open(name: *const c_char, out: Out<'_, TpWorld>) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    opening(out, || entered(World::open(unsafe { text(name) }?)?))
}

/// Number of bytes for a world in the caller's memory.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_size_in(processes: u32, object_bytes: u64) -> usize {
    World::bytes_in(processes, &[object_bytes])
}

/// Makes a world in the caller's memory and enters it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_init_in(
    at: *mut c_void,
    room: usize,
    processes: u32,
    out: Out<'_, TpWorld>,
) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
    opening(out, || Ok(TpWorld(unsafe { MappingEntry::Init(processes).world(at, room) }?)))
}

/// Opens a world in the caller's memory and enters it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_open_in(at: *mut c_void, room: usize, out: Out<'_, TpWorld>) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
    opening(out, || Ok(TpWorld(unsafe { MappingEntry::Open.world(at, room) }?)))
}

/// Opens a world in the caller's memory, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_open_or_init_in(
    at: *mut c_void,
    room: usize,
    processes: u32,
    out: Out<'_, TpWorld>,
) -> c_int {
    // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
    opening(out, || Ok(TpWorld(unsafe { MappingEntry::OpenOrInit(processes).world(at, room) }?)))
}

/// Enters the same world with this handle in a forked child, as another rank.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_enter(world: Handle<'_, TpWorld>) -> c_int {
    guarded(|| Ok(of(world)?.0.enter(None)?))
}

/// Ends a handle. The process leaves when the handles of the world's objects are closed,
/// too.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_close(world: Owned<TpWorld>) {
    closing(world);
}

/// This process's rank.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_rank(world: Handle<'_, TpWorld>) -> c_int {
    let Some(world) = world else { return Fault::INVALID.number() };
    world.0.entered().map_or(Fault::NOTENTERED.number(), |me| me.index.cast_signed())
}

/// Number of ranks.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_size(world: Handle<'_, TpWorld>) -> u32 {
    world.map_or(0, |world| world.0.size())
}

/// Returns whether a rank is there and alive: 1, or 0. Asks the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_is_alive(world: Handle<'_, TpWorld>, rank: u32) -> c_int {
    let alive = |world: &World| world.participant(rank).is_some_and(|id| world.is_alive(id));
    world.map_or(Fault::INVALID.number(), |world| alive(&world.0).into())
}

/// Asks after the others; number of deaths so far.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_deaths(world: Handle<'_, TpWorld>) -> u64 {
    world.map_or(0, |world| world.0.check_deaths())
}

/// Waits for all ranks.
#[unsafe(no_mangle)]
pub extern "C" fn tp_world_barrier(world: Handle<'_, TpWorld>) -> c_int {
    guarded(|| Ok(of(world)?.0.barrier(Policy::default())?))
}

/// Opens an object by name.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn named<T>(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    out: Out<'_, T>,
    open: impl FnOnce(&World, &str) -> Result<T, Fault>,
) -> c_int {
    // SAFETY: the caller's obligations are the same.
    opening(out, || open(&of(world)?.0, unsafe { text(name) }?))
}

/// Opens the mutex of that name, or makes it with this value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_mutex(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    value: u64,
    out: Out<'_, TpMutex>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| Ok(TpMutex::new(world.mutex(name, value)?))) }
}

/// Opens the readers-writer lock of that name, or makes it with this value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_rwlock(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    value: u64,
    out: Out<'_, TpRwlock>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| Ok(TpRwlock::new(world.rw_lock(name, value)?))) }
}

/// Opens the condition of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_cond(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    out: Out<'_, TpCond>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, TpCond::beside) }
}

/// Opens the semaphore of that name, or makes it with so many permits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_sem(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    permits: u64,
    out: Out<'_, TpSem>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| Ok(TpSem::new(world.semaphore(name, permits)?))) }
}

/// Opens the barrier of that name, or makes it for so many participants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_barrier_of(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    participants: usize,
    out: Out<'_, TpBarrier>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| Ok(TpBarrier(world.barrier_of(name, participants)?))) }
}

/// Opens the event of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_event(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    out: Out<'_, TpEvent>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| Ok(TpEvent::new(world.event(name)?))) }
}

/// Opens the queue of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_queue(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    kind: c_int,
    message: usize,
    capacity: usize,
    out: Out<'_, TpQueue>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| TpQueue::of_world(world, name, kind, message, capacity)) }
}

/// Opens the queue of messages of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_messages(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    capacity: usize,
    buffers: usize,
    buffer_bytes: usize,
    out: Out<'_, TpMessages>,
) -> c_int {
    let open = |world: &World, name: &str| TpMessages::of_world(world, name, capacity, buffers, buffer_bytes);
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, open) }
}

/// Opens the broadcast ring of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_broadcast(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    bytes: usize,
    lossy: c_int,
    out: Out<'_, TpBroadcast>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| TpBroadcast::of_world(world, name, bytes, lossy)) }
}

/// A process's handle of bytes in a world.
pub struct TpBytes(WorldBytes);

/// Opens the bytes of that name, or makes so many, zeroed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_bytes(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    bytes: usize,
    out: Out<'_, TpBytes>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| Ok(TpBytes(world.bytes(name, bytes)?))) }
}

/// Address of the first byte.
#[unsafe(no_mangle)]
pub extern "C" fn tp_bytes_at(bytes: Handle<'_, TpBytes>) -> *mut c_void {
    bytes.map_or(core::ptr::null_mut(), |bytes| bytes.0.as_ptr().as_ptr().cast())
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_bytes_close(bytes: Owned<TpBytes>) {
    closing(bytes);
}
