//! Bundles: endpoints that are polled and waited for together.
//!
//! A sequential bundle belongs to one thread. In a parallel one each call has a turn of the bundle
//! (`turn.rs`); a handler has that of the call which runs it.
#![allow(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::ffi::c_int;
use core::ptr::NonNull;
use core::time::Duration;

use towpath_am::{Bundle, Events};

use crate::call::{AM_OK, AmError, OfOneUse, answered, check, of, put, refused, told};
use crate::endpoint::{AmEndpoint, close};
use crate::turn::{BundleTurn, BundleTurns};
use crate::{process, spmd};

/// Bundle of one thread.
pub const AM_SEQ: c_int = 0;
/// Bundle of several threads.
pub const AM_PAR: c_int = 1;

/// No event.
pub const AM_NOEVENTS: c_int = 0;
/// A message can be polled.
pub const AM_NOTEMPTY: c_int = 1;
/// Every mapped destination has space for a request.
pub const AM_CANSEND: c_int = 2;

/// Time for which a waiter in a parallel bundle keeps the turn.
const TURN: Duration = Duration::from_millis(1);
/// Time after which a waiter looks whether the job is to end.
const LOOK: Duration = Duration::from_millis(10);

/// Number of empty polls after which a poller looks whether the job is to end.
const LOOK_EVERY: u32 = 64;

/// Bundle, to which an `eb_t` points.
pub struct AmBundle {
    turns: BundleTurns,
    made_in: u32,
    pub(crate) bundle: Bundle,
    mask: Cell<c_int>,
    /// Number of empty polls.
    idle: Cell<u32>,
    pub(crate) members: RefCell<Vec<*const AmEndpoint>>,
    /// The only member of a sequential bundle: no list, no turn.
    alone: Cell<Option<NonNull<AmEndpoint>>>,
}

impl OfOneUse for AmBundle {
    #[inline(always)]
    fn made_in(&self) -> u32 {
        self.made_in
    }
}

impl AmBundle {
    #[inline(always)]
    pub(crate) fn turn(&self) -> BundleTurn<'_> {
        self.turns.take()
    }

    /// Returns whether it is a parallel one.
    #[inline(always)]
    pub(crate) fn takes_turns(&self) -> bool {
        self.turns.are_taken()
    }

    /// Returns whether it is a sequential one of one endpoint.
    #[inline(always)]
    pub(crate) fn has_one(&self) -> bool {
        self.alone.get().is_some()
    }

    /// Checks that no handler of its endpoints is running: a handler may only reply.
    pub(crate) fn check_idle(&self) -> Result<(), AmError> {
        // SAFETY: the members are freed by `close` only, which takes them out.
        let is_running = |&member: &*const AmEndpoint| unsafe { &*member }.endpoint.is_in_handler();
        if self.members.borrow().iter().any(is_running) {
            return Err(refused(
                AmError::IN_USE,
                "not in a handler, which may reply, and ask (am2.h names the calls)",
            ));
        }
        Ok(())
    }

    /// Checks in a turn that no handler is running.
    fn check_members_idle(&self) -> Result<(), AmError> {
        let _turn = self.turn();
        self.check_idle()
    }

    /// Takes an endpoint.
    pub(crate) fn add(&self, member: &AmEndpoint) {
        self.bundle.add(&member.endpoint);
        self.change_members(|members| members.push(member));
        member.set_bundle(self);
    }

    /// Lets an endpoint go.
    pub(crate) fn remove(&self, member: *const AmEndpoint) {
        self.change_members(|members| members.retain(|&other| other != member));
    }

    fn change_members(&self, change: impl FnOnce(&mut Vec<*const AmEndpoint>)) {
        let mut members = self.members.borrow_mut();
        change(&mut members);
        self.alone.set(match members[..] {
            [member] if !self.takes_turns() => NonNull::new(member.cast_mut()),
            _ => None,
        });
    }

    /// Polls.
    ///
    /// One endpoint of a sequential bundle without a frame for more of them: the atomic
    /// instructions of a message wait for all registers that were stored before.
    #[inline(always)]
    fn poll(&self) {
        match self.alone.get() {
            // SAFETY: a member is freed by `close` only, which takes it out, and not in a handler.
            Some(member) => self.note(unsafe { member.as_ref() }.endpoint.poll()),
            None => self.poll_all(),
        }
    }

    #[inline(never)]
    fn poll_all(&self) {
        let _turn = self.turn();
        self.note(self.bundle.poll());
    }

    /// Looks whether the job is to end, after some polls that delivered nothing.
    #[inline(always)]
    fn note(&self, delivered: usize) {
        if delivered == 0 {
            let idle = self.idle.get().wrapping_add(1);
            self.idle.set(idle);
            if idle.is_multiple_of(LOOK_EVERY) {
                spmd::look();
            }
        }
    }

    fn wait(&self) -> Result<(), AmError> {
        let slice = match (self.takes_turns(), spmd::is_under_way()) {
            (true, _) => Some(TURN),
            (false, true) => Some(LOOK),
            (false, false) => None,
        };
        loop {
            let turn = self.turn();
            self.check_idle()?;
            if self.bundle.wait(slice)? {
                return Ok(());
            }
            drop(turn);
            spmd::look();
            std::thread::yield_now();
        }
    }
}

/// Makes a bundle of one thread (`AM_SEQ`), or of several (`AM_PAR`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_AllocateBundle(kind: c_int, out: *mut *mut AmBundle) -> c_int {
    answered("AM_AllocateBundle", || {
        check()?;
        if kind != AM_SEQ && kind != AM_PAR {
            return Err(refused(AmError::BAD_ARG, "a bundle is AM_SEQ or AM_PAR"));
        }
        // SAFETY: null, or a place for the handle, says the header.
        unsafe { put(out, core::ptr::null_mut()) }?;
        let bundle = process::enter(Box::new(AmBundle {
            turns: BundleTurns::new(kind == AM_PAR),
            made_in: process::present_use(),
            bundle: Bundle::new(),
            mask: Cell::new(AM_NOEVENTS),
            idle: Cell::new(0),
            members: RefCell::default(),
            alone: Cell::default(),
        }))?;
        // SAFETY: null, or a place for the handle, says the header.
        unsafe { put(out, bundle) }
    })
}

/// Frees a bundle and its endpoints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_FreeBundle(bundle: Option<&AmBundle>) -> c_int {
    answered("AM_FreeBundle", || free(core::ptr::from_ref(of(bundle)?).cast_mut()))
}

/// Frees a bundle and its endpoints, unless it is gone.
pub(crate) fn free(bundle: *mut AmBundle) -> Result<(), AmError> {
    // SAFETY: a bundle of this process; its caller says that no other call uses it.
    unsafe { &*bundle }.check_idle()?;
    if !process::take(bundle) {
        return Err(refused(AmError::BAD_ARG, "there is no such bundle (any more)"));
    }
    // SAFETY: made by `Box::into_raw` in `process::enter`, and taken out there just now, once.
    let bundle = unsafe { Box::from_raw(bundle) };
    let members = bundle.members.take();
    for member in members {
        spmd::endpoint_ends(member);
        // SAFETY: made by `Box::into_raw`; a member until now.
        drop(unsafe { Box::from_raw(member.cast_mut()) });
    }
    Ok(())
}

/// Moves an endpoint to another bundle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_MoveEndpoint(
    endpoint: Option<&AmEndpoint>,
    from: Option<&AmBundle>,
    to: Option<&AmBundle>,
) -> c_int {
    answered("AM_MoveEndpoint", || {
        let (endpoint, from, to) = (of(endpoint)?, of(from)?, of(to)?);
        // In one order, so that two moves do not wait for each other.
        let (one, other) = if core::ptr::from_ref(from) < to { (from, to) } else { (to, from) };
        let (_one, _other) = (one.turn(), other.turn());
        if !core::ptr::eq(endpoint.bundle(), from) {
            return Err(refused(AmError::BAD_ARG, "the endpoint is not in that bundle"));
        }
        from.check_idle()?;
        to.check_idle()?;
        from.remove(endpoint);
        to.add(endpoint);
        Ok(())
    })
}

/// Frees an endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_FreeEndpoint(endpoint: Option<&AmEndpoint>) -> c_int {
    answered("AM_FreeEndpoint", || close(of(endpoint)?))
}

/// The events that wake a waiter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetEventMask(bundle: Option<&AmBundle>, mask: *mut c_int) -> c_int {
    answered("AM_GetEventMask", || {
        let bundle = of(bundle)?;
        let _turn = bundle.turn();
        // SAFETY: null, or a place for a number, says the header.
        unsafe { put(mask, bundle.mask.get()) }
    })
}

/// Sets the events that wake a waiter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetEventMask(bundle: Option<&AmBundle>, mask: c_int) -> c_int {
    answered("AM_SetEventMask", || {
        let bundle = of(bundle)?;
        if mask & !(AM_NOTEMPTY | AM_CANSEND) != 0 {
            return Err(refused(AmError::BAD_ARG, "an event is AM_NOTEMPTY or AM_CANSEND"));
        }
        let _turn = bundle.turn();
        bundle.mask.set(mask);
        let events = Events { not_empty: mask & AM_NOTEMPTY != 0, can_send: mask & AM_CANSEND != 0 };
        bundle.bundle.set_events(events);
        Ok(())
    })
}

/// Waits for an event of the mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_WaitSema(bundle: Option<&AmBundle>) -> c_int {
    answered("AM_WaitSema", || {
        let bundle = of(bundle)?;
        bundle.check_members_idle()?;
        if bundle.mask.get() == AM_NOEVENTS || bundle.members.borrow().is_empty() {
            return Err(refused(AmError::BAD_ARG, "no event would end the wait"));
        }
        bundle.wait()
    })
}

/// Handles the messages that have come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_Poll(bundle: Option<&AmBundle>) -> c_int {
    match of(bundle) {
        Ok(bundle) => {
            bundle.poll();
            AM_OK
        }
        Err(refusal) => told("AM_Poll", refusal),
    }
}
