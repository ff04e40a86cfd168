//! Endpoints: name, tag, segment, and the numbers of their tables.
#![allow(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use towpath_am::{Endpoint, Name, Status, Tag};

use crate::bundle::AmBundle;
use crate::call::{AmError, OfOneUse, answered, of, put, refused};
use crate::get::Gets;
use crate::handler::{Callbacks, HANDLERS, HandlerFunction, set_default};
use crate::statistics::EndpointCounters;
use crate::translation::Translations;
use crate::turn::BundleTurn;
use crate::{process, spmd};

/// Bits of names that only a world of a process alone has: in another world, and in a
/// later one of the process, they lead nowhere. 0 under a launcher: Rust programs of the
/// world know names by the number of [`Name::to_bits`].
static MARK_OF_WORLD: AtomicU64 = AtomicU64::new(0);
/// Number of a name's bits below the mark. Generations are smaller.
const BELOW_MARK: u32 = 40;

/// Marks the names of the world, which is one of this process alone.
pub(crate) fn mark_names(is_alone: bool) {
    let mark = if is_alone { process::random_number() << BELOW_MARK } else { 0 };
    // Relaxed: as handles, names reach other threads by the program's own means.
    MARK_OF_WORLD.store(mark, Relaxed);
}

/// Name of an endpoint: `en_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmName {
    /// The number of [`Name::to_bits`], with the mark of the world.
    pub number: u64,
}

impl From<Name> for AmName {
    fn from(name: Name) -> AmName {
        // Relaxed: see `mark_names`.
        AmName { number: name.to_bits() ^ MARK_OF_WORLD.load(Relaxed) }
    }
}

impl From<AmName> for Name {
    fn from(name: AmName) -> Name {
        // Relaxed: see `mark_names`.
        Name::from_bits(name.number ^ MARK_OF_WORLD.load(Relaxed))
    }
}

/// Endpoint, to which an `ep_t` points.
pub struct AmEndpoint {
    pub(crate) endpoint: Endpoint,
    made_in: u32,
    /// The bundle that it is in.
    bundle: AtomicPtr<AmBundle>,
    pub(crate) table: RefCell<Translations>,
    /// Functions of the handlers that are set.
    pub(crate) functions: RefCell<[HandlerFunction; HANDLERS]>,
    pub(crate) gets: Gets,
    /// Address and length of the segment.
    segment: Cell<(*mut c_void, usize)>,
    pub(crate) counters: EndpointCounters,
    pub(crate) callbacks: Callbacks,
}

impl OfOneUse for AmEndpoint {
    #[inline(always)]
    fn made_in(&self) -> u32 {
        self.made_in
    }
}

impl AmEndpoint {
    pub(crate) fn bundle(&self) -> *const AmBundle {
        // Relaxed: it is looked at again within the bundle's turn.
        self.bundle.load(Relaxed)
    }

    pub(crate) fn set_bundle(&self, bundle: &AmBundle) {
        // Relaxed: see `bundle`.
        self.bundle.store(core::ptr::from_ref(bundle).cast_mut(), Relaxed);
    }

    /// Returns whether it is the only endpoint of a sequential bundle: no turns, and no
    /// handlers but its own.
    #[inline(always)]
    pub(crate) fn is_alone(&self) -> bool {
        // SAFETY: an endpoint's bundle is there as long as the endpoint.
        unsafe { &*self.bundle() }.has_one()
    }

    /// Checks that no handler of its bundle's other endpoints is running: of its own the
    /// layer below does.
    #[inline(always)]
    pub(crate) fn check_others_idle(&self) -> Result<(), AmError> {
        if self.is_alone() { Ok(()) } else { self.check_idle() }
    }

    /// A turn of its bundle.
    #[inline(always)]
    pub(crate) fn turn(&self) -> BundleTurn<'_> {
        loop {
            let bundle = self.bundle();
            // SAFETY: an endpoint's bundle is there as long as the endpoint.
            let turn = unsafe { &*bundle }.turn();
            if !turn.is_held() || core::ptr::eq(self.bundle(), bundle) {
                return turn;
            }
        }
    }

    /// Address of a byte of the segment.
    #[inline]
    pub(crate) fn address(&self, offset: u64) -> *mut c_void {
        self.segment.get().0.cast::<u8>().wrapping_add(offset as usize).cast()
    }

    /// Returns the address of a range of the segment, which is not null if it has bytes.
    pub(crate) fn range(&self, offset: u64, bytes: usize) -> Result<*const u8, Status> {
        let (_, size) = self.segment.get();
        let Some(left) = (size as u64).checked_sub(offset) else { return Err(Status::BadSegmentOffset) };
        let first: *const u8 = self.address(offset).cast();
        match bytes as u64 {
            0 => Ok(first),
            _ if left == 0 || first.is_null() => Err(Status::BadSegmentOffset),
            bytes if bytes > left => Err(Status::BadLength),
            _ => Ok(first),
        }
    }

    /// Checks that no handler is running.
    pub(crate) fn check_idle(&self) -> Result<(), AmError> {
        // SAFETY: an endpoint's bundle is there as long as the endpoint.
        unsafe { &*self.bundle() }.check_idle()
    }
}

/// Runs a call on an endpoint, in a turn of its bundle.
pub(crate) fn answered_in_turn(
    call: &str,
    endpoint: Option<&AmEndpoint>,
    act: impl FnOnce(&AmEndpoint) -> Result<(), AmError>,
) -> c_int {
    answered(call, || {
        let endpoint = of(endpoint)?;
        let _turn = endpoint.turn();
        act(endpoint)
    })
}

/// Runs a call on an endpoint that no handler may make.
pub(crate) fn answered_when_idle(
    call: &str,
    endpoint: Option<&AmEndpoint>,
    act: impl FnOnce(&AmEndpoint) -> Result<(), AmError>,
) -> c_int {
    answered_in_turn(call, endpoint, |endpoint| {
        endpoint.check_idle()?;
        act(endpoint)
    })
}

/// Makes an endpoint in a bundle. Its tag is `AM_NONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_AllocateEndpoint(
    bundle: Option<&AmBundle>,
    out: *mut *mut AmEndpoint,
    name: *mut AmName,
) -> c_int {
    answered("AM_AllocateEndpoint", || {
        let bundle = of(bundle)?;
        let _turn = bundle.turn();
        bundle.check_idle()?;
        // SAFETY: null, or places for the handle and the name, says the header.
        unsafe {
            put(out, core::ptr::null_mut())?;
            put(name, AmName { number: 0 })?;
        }
        let endpoint = process::ask(|world, _| Endpoint::with_private_segment(world, 0))??;
        endpoint.set_tag(Tag::NONE);
        endpoint.pause_after_messages();
        let own_name = endpoint.name();
        let made = Box::new(AmEndpoint {
            endpoint,
            made_in: process::present_use(),
            bundle: AtomicPtr::default(),
            table: RefCell::default(),
            functions: RefCell::new([None; HANDLERS]),
            gets: Gets::default(),
            segment: Cell::new((core::ptr::null_mut(), 0)),
            counters: EndpointCounters::default(),
            callbacks: Callbacks::default(),
        });
        let made = Box::into_raw(made);
        // SAFETY: just made; null, or places for the handle and the name, says the header.
        unsafe {
            set_default(&*made);
            bundle.add(&*made);
            put(out, made)?;
            put(name, own_name.into())
        }
    })
}

/// Frees an endpoint.
pub(crate) fn close(endpoint: &AmEndpoint) -> Result<(), AmError> {
    // SAFETY: an endpoint's bundle is there as long as the endpoint.
    let bundle = unsafe { &*endpoint.bundle() };
    let _turn = bundle.turn();
    bundle.check_idle()?;
    spmd::endpoint_ends(endpoint);
    bundle.remove(endpoint);
    // SAFETY: made by `Box::into_raw`; the caller says that no other call uses it.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(endpoint).cast_mut()) });
    Ok(())
}

/// The endpoint's segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetSeg(
    endpoint: Option<&AmEndpoint>,
    address: *mut *mut c_void,
    bytes: *mut usize,
) -> c_int {
    answered_in_turn("AM_GetSeg", endpoint, |endpoint| {
        let (at, len) = endpoint.segment.get();
        // SAFETY: null, or places for the values, says the header.
        unsafe {
            put(address, at)?;
            put(bytes, len)
        }
    })
}

/// Sets the endpoint's segment: memory of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetSeg(
    endpoint: Option<&AmEndpoint>,
    address: *mut c_void,
    bytes: usize,
) -> c_int {
    answered_when_idle("AM_SetSeg", endpoint, |endpoint| {
        endpoint.gets.check_none()?;
        // SAFETY: the caller's obligations, in the header, are those of `Endpoint::lend_segment`.
        unsafe { endpoint.endpoint.lend_segment(address.cast(), bytes as u64) }?;
        endpoint.segment.set((address, bytes));
        Ok(())
    })
}

/// Maximum length of a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_MaxSegLength(bytes: *mut usize) -> c_int {
    // SAFETY: null, or a place for a number, says the header.
    answered("AM_MaxSegLength", || unsafe { put(bytes, usize::MAX) })
}

/// The endpoint's tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetTag(endpoint: Option<&AmEndpoint>, tag: *mut u64) -> c_int {
    answered_in_turn("AM_GetTag", endpoint, |endpoint| {
        // SAFETY: null, or a place for a tag, says the header.
        unsafe { put(tag, endpoint.endpoint.tag().0) }
    })
}

/// Sets the endpoint's tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetTag(endpoint: Option<&AmEndpoint>, tag: u64) -> c_int {
    answered_in_turn("AM_SetTag", endpoint, |endpoint| {
        endpoint.endpoint.set_tag(Tag(tag));
        Ok(())
    })
}

/// Announces how many endpoints and outstanding requests are expected. The queues are
/// made for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetExpectedResources(
    endpoint: Option<&AmEndpoint>,
    endpoints: c_int,
    outstanding: c_int,
) -> c_int {
    answered("AM_SetExpectedResources", || {
        of(endpoint)?;
        if endpoints < 0 || outstanding < 0 {
            let why = format!("{endpoints} endpoints and {outstanding} requests: a number is negative");
            return Err(refused(AmError::BAD_ARG, &why));
        }
        Ok(())
    })
}
