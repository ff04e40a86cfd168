//! Frame of every call: handles, results, memory, names and time.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use towpath_machine::{Native, Object};
use towpath_shm::{EnteredAs, Shared, World};
use towpath_sync::{Deadline, Wait};

use crate::fault::{Fault, note, noted};
use crate::thread_number::{before_first, processor, processor_at_once};

/// A handle that C lends.
pub type Handle<'a, T> = Option<&'a T>;
/// A handle that C gives back for good.
pub type Owned<T> = Option<Box<T>>;
/// Place for a new handle.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<*mut T>>;
/// Place for a value.
pub type OutValue<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Name of the object that lies alone in a mapping: that of `towpath_shm::InMapping`.
pub(crate) const ALONE: &str = "object";

/// Runs a call. Nothing unwinds into C.
#[inline]
pub fn guarded(act: impl FnOnce() -> Result<(), Fault>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => 0,
        Ok(Err(fault)) => fault.number(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            note(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text"));
            // Its drop might panic, too.
            core::mem::forget(panic);
            Fault::PANIC.number()
        }
    }
}

/// Runs a call whose answer is a number from 0 on.
pub(crate) fn answering(act: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    let mut answer = 0;
    match guarded(|| {
        answer = act()?;
        Ok(())
    }) {
        0 => answer,
        error => error,
    }
}

/// Runs a call that makes a handle.
pub(crate) fn opening<T>(out: Out<'_, T>, open: impl FnOnce() -> Result<T, Fault>) -> c_int {
    guarded(|| {
        noted(|| {
            let out = out.ok_or(Fault::INVALID)?;
            out.write(core::ptr::null_mut());
            out.write(Box::into_raw(Box::new(open()?)));
            Ok(())
        })
    })
}

/// Runs a call that ends a handle; the null pointer is none.
pub(crate) fn closing<T>(handle: Owned<T>) {
    guarded(|| {
        drop(handle);
        Ok(())
    });
}

/// The handle, unless it is null.
#[inline]
pub(crate) fn of<T>(handle: Handle<'_, T>) -> Result<&T, Fault> {
    handle.ok_or(Fault::INVALID)
}

/// The caller's memory.
pub(crate) fn memory(at: *mut c_void, room: usize) -> Result<NonNull<[u8]>, Fault> {
    let at = NonNull::new(at.cast::<u8>()).ok_or(Fault::INVALID)?;
    Ok(NonNull::slice_from_raw_parts(at, room))
}

/// Values at an address, so many of them, which may be null for none.
///
/// # Safety
///
/// It is null, or so many can be read there as long as the result is used.
pub(crate) unsafe fn values<'a, T>(at: *const T, count: usize) -> Result<&'a [T], Fault> {
    match (count, at.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Fault::INVALID),
        // SAFETY: not null; the rest are the caller's obligations.
        _ => Ok(unsafe { core::slice::from_raw_parts(at, count) }),
    }
}

/// The text of a name.
///
/// # Safety
///
/// It is null, or ends with a zero, and stays as it is while it is used.
pub(crate) unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, Fault> {
    if name.is_null() {
        return Err(Fault::INVALID);
    }
    // SAFETY: not null; the rest are the caller's obligations.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Fault::INVALID)
}

/// The text of a name, or none for a null pointer.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn any_text<'a>(name: *const c_char) -> Result<Option<&'a str>, Fault> {
    // SAFETY: the caller's obligations are the same.
    (!name.is_null()).then(|| unsafe { text(name) }).transpose()
}

/// The calling thread, among those of this process that live: its thread pointer. One
/// instruction, where a variable of the thread in a shared library takes a call.
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the thread pointer, which the ABI keeps for the thread's whole life.
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the thread pointer, which the ABI keeps for the thread's whole life.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}

/// The threads of this process as callers in a world.
#[derive(Clone, Copy)]
pub(crate) struct Callers {
    entered: EnteredAs<'static>,
    /// Number before this process's first processor.
    before_first: u32,
    /// Way in which they wait.
    pub wait: Wait<'static>,
}

impl Callers {
    /// # Safety
    ///
    /// They are used only while this handle of the world, or a clone, exists.
    pub unsafe fn of(world: &World) -> Callers {
        let wait = Wait::adaptive(world.surroundings());
        let entered = world.entered_as();
        let before_first = before_first(entered.participant().map_or(0, |me| me.index));
        // SAFETY: what both refer to lies where it is as long as the world has a handle (the
        // caller's promise).
        unsafe {
            Callers {
                entered: core::mem::transmute::<EnteredAs<'_>, EnteredAs<'static>>(entered),
                before_first,
                wait: core::mem::transmute::<Wait<'_>, Wait<'static>>(wait),
            }
        }
    }

    /// Processor and identity of the calling thread in the usual case, without a call.
    #[inline(always)]
    pub fn at_once(&self) -> Option<(Native, u32)> {
        let identity = self.entered.still()?;
        Some((processor_at_once(self.before_first)?, identity))
    }

    /// Returns whether the process still is the participant that had entered.
    #[inline(always)]
    pub fn are_as_before(&self) -> bool {
        self.entered.still().is_some()
    }

    /// Returns `Ok` if the process is in the world; a forked child is not, at first.
    #[inline(always)]
    pub fn check(&self, world: &World) -> Result<(), Fault> {
        match self.are_as_before() || world.entered().is_some() {
            true => Ok(()),
            false => Err(Fault::NOTENTERED),
        }
    }
}

/// A process's handle of an object, and its threads as callers.
pub(crate) struct WaitingHandle<T: Object> {
    pub object: Shared<T>,
    pub callers: Callers,
}

impl<T: Object> WaitingHandle<T> {
    pub fn new(object: Shared<T>) -> WaitingHandle<T> {
        // SAFETY: used only as long as `object` exists, which has a handle of the world.
        let callers = unsafe { Callers::of(object.world()) };
        WaitingHandle { object, callers }
    }

    #[inline(always)]
    pub fn object(&self) -> &T {
        // SAFETY: aligned and mapped as long as the handle lives; any bits are one, whose words are
        // atomic (`Object`).
        unsafe { self.object.as_ptr().as_ref() }
    }

    #[inline(always)]
    pub fn caller(&self) -> Result<Native, Fault> {
        let me = self.object.world().entered().ok_or(Fault::NOTENTERED)?;
        Ok(processor(me.index))
    }
}

/// The end of a wait of so many nanoseconds; all ones: never.
#[inline]
pub(crate) fn deadline(ns: u64) -> Deadline {
    match ns {
        u64::MAX => Deadline::NEVER,
        0 => Deadline::PAST,
        ns => Deadline::within(Duration::from_nanos(ns)),
    }
}

/// Way in which a mapping is entered.
#[derive(Clone, Copy)]
pub(crate) enum MappingEntry {
    /// Makes it anew.
    Init(u32),
    /// Opens it.
    Open,
    /// Opens it, or makes it in zeroed memory.
    OpenOrInit(u32),
}

impl MappingEntry {
    /// The world in the caller's memory.
    ///
    /// # Safety
    ///
    /// As for the function of [`World`] of that name.
    pub(crate) unsafe fn world(self, at: *mut c_void, room: usize) -> Result<World, Fault> {
        let memory = memory(at, room)?;
        // SAFETY: the caller's obligations are those of these functions.
        Ok(unsafe {
            match self {
                MappingEntry::Init(users) => World::init_in(memory, users),
                MappingEntry::Open => World::open_in(memory),
                MappingEntry::OpenOrInit(users) => World::open_or_init_in(memory, users),
            }
        }?)
    }
}
