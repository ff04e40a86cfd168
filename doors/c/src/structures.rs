//! `tp_fifo_*`, `tp_stack_*`, `tp_map_*`: non-blocking structures of a world, by name.
//!
//! A handle is one participant of the structure: one thread at a time uses it.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int};

use towpath::structures::nonblocking::{Handle as Placed, StableError, in_world, open};
use towpath_shm::World;

use crate::call::{Callers, Handle, Out, OutValue, Owned, answering, closing, guarded, of};
use crate::fault::Fault;
use crate::world::{TpWorld, named};

/// A structure of each size.
enum OfSize<A, B> {
    /// 256 descriptors, 8 participants.
    Small(A),
    /// 16,384 descriptors, 64 participants.
    Large(B),
}

macro_rules! each {
    ($of:expr, $one:ident => $act:expr) => {
        match $of {
            OfSize::Small($one) => $act,
            OfSize::Large($one) => $act,
        }
    };
}

macro_rules! structures {
    ($($handle:ident $structure:ident $what:literal;)*) => {$(
        #[doc = concat!("A participant's handle of a ", $what, ".")]
        #[allow(clippy::type_complexity, reason = "the two sizes")]
        pub struct $handle {
            of_size: OfSize<
                Placed<in_world::$structure<256, 8>>,
                Placed<in_world::$structure<16384, 64>>,
            >,
            callers: Callers,
        }

        impl $handle {
            fn of_world(world: &World, name: &str, size: c_int) -> Result<Self, Fault> {
                let of_size = match size {
                    0 => OfSize::Small(open(world, name)?),
                    1 => OfSize::Large(open(world, name)?),
                    _ => return Err(Fault::RANGE),
                };
                // SAFETY: used only as long as the structure's handle, which has one of the world.
                Ok($handle { of_size, callers: unsafe { Callers::of(world) } })
            }

            /// The structure, unless this process is a child of the participant.
            #[inline(always)]
            fn as_participant(
                &self,
            ) -> Result<
                &OfSize<
                    Placed<in_world::$structure<256, 8>>,
                    Placed<in_world::$structure<16384, 64>>,
                >,
                Fault,
            > {
                if self.callers.are_as_before() { Ok(&self.of_size) } else { Err(Fault::NOTENTERED) }
            }
        }
    )*};
}

structures! {
    TpFifo Fifo "queue";
    TpStack Stack "stack";
    TpMap HashMap "map";
}

fn found(value: Result<Option<u64>, StableError>, out: OutValue<'_, u64>) -> Result<bool, Fault> {
    Ok(match (value?, out) {
        (Some(value), Some(out)) => {
            out.write(value);
            true
        }
        (value, _) => value.is_some(),
    })
}

/// Answer of a call: 1, 0, or an error.
fn yes_or_no(act: impl FnOnce() -> Result<bool, Fault>) -> c_int {
    answering(|| act().map(c_int::from))
}

/// Opens the first-in, first-out queue of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_fifo(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    size: c_int,
    out: Out<'_, TpFifo>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| TpFifo::of_world(world, name, size)) }
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fifo_close(fifo: Owned<TpFifo>) {
    closing(fifo);
}

/// Puts a value at the end.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fifo_push(fifo: Handle<'_, TpFifo>, value: u64) -> c_int {
    guarded(|| Ok(each!(of(fifo)?.as_participant()?, one => one.push(value))?))
}

/// Takes the first value: 1, or 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fifo_pop(fifo: Handle<'_, TpFifo>, value: OutValue<'_, u64>) -> c_int {
    yes_or_no(|| found(each!(of(fifo)?.as_participant()?, one => one.pop()), value))
}

/// Frees the descriptors of the dead.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fifo_recover(fifo: Handle<'_, TpFifo>) -> c_int {
    yes_or_no(|| Ok(each!(of(fifo)?.as_participant()?, one => one.recover())?.pending > 0))
}

/// Opens the stack of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_stack(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    size: c_int,
    out: Out<'_, TpStack>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| TpStack::of_world(world, name, size)) }
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_stack_close(stack: Owned<TpStack>) {
    closing(stack);
}

/// Puts a value on top.
#[unsafe(no_mangle)]
pub extern "C" fn tp_stack_push(stack: Handle<'_, TpStack>, value: u64) -> c_int {
    guarded(|| Ok(each!(of(stack)?.as_participant()?, one => one.push(value))?))
}

/// Takes the value on top: 1, or 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn tp_stack_pop(stack: Handle<'_, TpStack>, value: OutValue<'_, u64>) -> c_int {
    yes_or_no(|| found(each!(of(stack)?.as_participant()?, one => one.pop()), value))
}

/// Frees the descriptors of the dead.
#[unsafe(no_mangle)]
pub extern "C" fn tp_stack_recover(stack: Handle<'_, TpStack>) -> c_int {
    yes_or_no(|| Ok(each!(of(stack)?.as_participant()?, one => one.recover())?.pending > 0))
}

/// Opens the map of that name, or makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_world_map(
    world: Handle<'_, TpWorld>,
    name: *const c_char,
    size: c_int,
    out: Out<'_, TpMap>,
) -> c_int {
    // SAFETY: a text that ends with a zero, says the header.
    unsafe { named(world, name, out, |world, name| TpMap::of_world(world, name, size)) }
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tp_map_close(map: Owned<TpMap>) {
    closing(map);
}

/// Sets the value of a key: 1 if there was one before, which `old` gets, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn tp_map_insert(
    map: Handle<'_, TpMap>,
    key: u64,
    value: u64,
    old: OutValue<'_, u64>,
) -> c_int {
    yes_or_no(|| found(each!(of(map)?.as_participant()?, one => one.insert(key, value)), old))
}

/// Looks a key up: 1, or 0 if it is not there.
#[unsafe(no_mangle)]
pub extern "C" fn tp_map_get(map: Handle<'_, TpMap>, key: u64, value: OutValue<'_, u64>) -> c_int {
    yes_or_no(|| found(each!(of(map)?.as_participant()?, one => one.get(key)), value))
}

/// Removes a key: 1, or 0 if it was not there.
#[unsafe(no_mangle)]
pub extern "C" fn tp_map_remove(map: Handle<'_, TpMap>, key: u64, value: OutValue<'_, u64>) -> c_int {
    yes_or_no(|| found(each!(of(map)?.as_participant()?, one => one.remove(key)), value))
}

/// Frees the descriptors of the dead.
#[unsafe(no_mangle)]
pub extern "C" fn tp_map_recover(map: Handle<'_, TpMap>) -> c_int {
    yes_or_no(|| Ok(each!(of(map)?.as_participant()?, one => one.recover())?.pending > 0))
}
