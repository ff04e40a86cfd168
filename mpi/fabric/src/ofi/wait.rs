//! Wait objects with a descriptor (`FI_WAIT_FD`): something to give to `poll` or `epoll`.
//!
//! The descriptor is an epoll set (which can be polled itself) of three kinds of things: the wake
//! pipes of the domain's endpoints ([`wake_pipe`](crate::device::wake_pipe)); an event of the
//! listener's own, for what another thread of this process has reported to it; and a timer, for
//! events without a wake-up (deaths, space to send). It may become readable without events.
//! `fi_trywait` arms it all, and says no if there is news already.

use core::ffi::{c_int, c_void};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::device::port::Port;
use crate::device::resource::completion::{CompletionCounter, CompletionQueue};

use super::failed;
use super::sys::*;

/// Returns whether a queue or counter can be waited for as its user wants. `Some(true)`:
/// on a descriptor.
pub fn is_offered(wait: fi_wait_obj) -> Option<bool> {
    match wait {
        FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => Some(false),
        FI_WAIT_FD => Some(true),
        _ => None,
    }
}

/// Wait object of a queue or counter, for `fi_control`.
///
/// # Safety
///
/// The argument is what the command says.
pub unsafe fn wait_object(descriptor: Option<RawFd>, command: c_int, arg: *mut c_void) -> c_int {
    match (command as u32, descriptor) {
        (FI_GETWAIT | FI_GETWAITOBJ, _) if arg.is_null() => failed(FI_EINVAL),
        (FI_GETWAIT, Some(descriptor)) => {
            // SAFETY: the caller's promise: a place for a descriptor.
            unsafe { arg.cast::<c_int>().write(descriptor) };
            0
        }
        (FI_GETWAITOBJ, descriptor) => {
            let what = if descriptor.is_some() { FI_WAIT_FD } else { FI_WAIT_NONE };
            // SAFETY: the caller's promise: a place for a kind of wait object.
            unsafe { arg.cast::<fi_wait_obj>().write(what) };
            0
        }
        _ => failed(FI_ENOSYS),
    }
}

/// A descriptor that is readable or not, as is wished.
pub struct Bit {
    event: OwnedFd,
    is_set: Cell<bool>,
}

// SAFETY: its owner calls `set` under a lock.
unsafe impl Sync for Bit {}

impl Bit {
    /// Makes a bit that is not readable.
    ///
    /// # Errors
    ///
    /// The system's: mostly that there are too many descriptors.
    pub fn new() -> io::Result<Bit> {
        Ok(Bit { event: event()?, is_set: Cell::new(false) })
    }

    /// The descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Makes it readable, or not.
    pub fn set(&self, readable: bool) {
        if self.is_set.replace(readable) == readable {
            return;
        }
        if readable { ring(&self.event) } else { clear(&self.event) }
    }
}

/// A new eventfd, not readable.
fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes an eventfd readable. (It is already, if that fails.)
fn ring(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Makes an eventfd or a timerfd unreadable. (It is already, if that fails.)
fn clear(fd: &OwnedFd) {
    let _ = rustix::io::read(fd, &mut [0u8; 8]);
}

/// Events that a listener listens for.
pub enum AwaitedEvents {
    /// Reports.
    Reports(Rc<CompletionQueue>),
    /// A count that is not the one that was read last: successes, errors.
    Count(Rc<CompletionCounter>, Rc<Cell<(u64, u64)>>),
}

impl AwaitedEvents {
    /// Returns whether there are any.
    pub fn has_come(&self) -> bool {
        match self {
            AwaitedEvents::Reports(queue) => !queue.is_empty(),
            AwaitedEvents::Count(counter, seen) => (counter.value.get(), counter.errors.get()) != seen.get(),
        }
    }
}

/// The descriptor of a queue or a counter.
pub struct WaitDescriptor {
    set: OwnedFd,
    event: OwnedFd,
    timer: OwnedFd,
    news: AwaitedEvents,
    armed: Cell<bool>,
    /// The endpoints whose wake pipes are in the set, by their nonces.
    known: RefCell<Vec<u64>>,
}

impl WaitDescriptor {
    /// Makes a new descriptor.
    ///
    /// # Errors
    ///
    /// The system's: mostly that there are too many descriptors.
    pub fn new(news: AwaitedEvents) -> io::Result<Rc<WaitDescriptor>> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let (event, timer) = (event()?, timerfd_create(TimerfdClockId::Monotonic, flags)?);
        let (armed, known) = (Cell::new(false), RefCell::default());
        let listener = WaitDescriptor { set, event, timer, news, armed, known };
        listener.watch(listener.event.as_fd())?;
        listener.watch(listener.timer.as_fd())?;
        Ok(Rc::new(listener))
    }

    /// The descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
    }

    /// Listens to an endpoint too. (It takes its wake pipe along when it closes.)
    pub fn add(&self, port: &Port) {
        let mut known = self.known.borrow_mut();
        if known.contains(&port.address.nonce) {
            return;
        }
        match port.wake_pipe().and_then(|pipe| self.watch(pipe.ends()[0])) {
            Ok(()) => known.push(port.address.nonce),
            Err(why) => {
                crate::remark!("towpath: peers can't wake a wait object ({why}); it looks by itself instead")
            }
        }
    }

    /// Makes the descriptor unreadable, but for the wake pipes.
    pub fn silence(&self) {
        clear(&self.event);
        clear(&self.timer);
    }

    /// Makes it readable.
    pub fn wake(&self) {
        ring(&self.event);
    }

    fn wake_after(&self, ns: u64) {
        let it_value = Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            // Zero would mean never.
            tv_nsec: (ns % 1_000_000_000).max(1) as _,
        };
        let when = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // A timer of ours takes every time; without one the waiter would sleep until it is woken.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &when);
    }
}

/// A domain's listeners. All under its lock.
#[derive(Default)]
pub struct Listeners {
    all: RefCell<Vec<Rc<WaitDescriptor>>>,
    armed: Cell<usize>,
}

impl Listeners {
    /// Adds a new listener.
    pub fn add(&self, listener: &Rc<WaitDescriptor>) {
        self.all.borrow_mut().push(Rc::clone(listener));
    }

    /// Its queue or counter is closed.
    pub fn remove(&self, listener: &Rc<WaitDescriptor>) {
        self.disarm(listener);
        self.all.borrow_mut().retain(|other| !Rc::ptr_eq(other, listener));
    }

    /// Returns whether a listener is armed.
    #[inline(always)]
    pub fn are_armed(&self) -> bool {
        self.armed.get() != 0
    }

    /// Announces a waiter, which is told of news, after `longest` nanoseconds at the
    /// latest. Returns false if there is some already.
    pub fn arm(&self, listener: &WaitDescriptor, longest: u64) -> bool {
        if listener.news.has_come() {
            self.disarm(listener);
            return false;
        }
        if !listener.armed.replace(true) {
            self.armed.set(self.armed.get() + 1);
        }
        listener.wake_after(longest);
        true
    }

    fn disarm(&self, listener: &WaitDescriptor) {
        if listener.armed.replace(false) {
            self.armed.set(self.armed.get() - 1);
        }
    }

    /// Wakes the listeners for which there is news.
    #[cold]
    pub fn tell(&self) {
        for listener in self.all.borrow().iter() {
            if listener.armed.get() && listener.news.has_come() {
                self.disarm(listener);
                listener.wake();
            }
        }
    }
}
