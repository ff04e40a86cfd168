//! Wait objects with a descriptor (`FI_WAIT_FD`): something to give to `poll` or `epoll`.
//!
//! The descriptor is an epoll set (which can be polled itself) of three kinds of things: the bells
//! of the domain's endpoints, which peers ring ([`bell`](crate::device::bell)); an event of the
//! listener's own, for what another thread of this process has reported to it; and a timer, for
//! what nobody rings for (deaths, space to send). It may become readable in vain. `fi_trywait` arms
//! it all, and says no if there is news already.

use core::ffi::{c_int, c_void};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use crate::device::port::Port;
use crate::device::resource::completion::{CompletionQueue, Counter};

use super::failed;
use super::sys::*;

/// Whether a queue or counter can be waited for as its user wants. `Some(true)`: on a
/// descriptor.
pub fn is_offered(wait: fi_wait_obj) -> Option<bool> {
    match wait {
        FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => Some(false),
        FI_WAIT_FD => Some(true),
        _ => None,
    }
}

/// `fi_control` of a queue or counter: what its users wait on.
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
    /// One that is not readable.
    ///
    /// # Errors
    ///
    /// The system's: mostly that there are too many descriptors.
    pub fn new() -> io::Result<Bit> {
        // SAFETY: no preconditions.
        let event = made(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(Bit { event, is_set: Cell::new(false) })
    }

    /// The descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// From now on it is readable, or not.
    pub fn set(&self, readable: bool) {
        if self.is_set.replace(readable) == readable {
            return;
        }
        let mut count = 1u64;
        let (fd, at) = (self.event.as_raw_fd(), (&raw mut count).cast::<c_void>());
        // SAFETY: eight bytes of a count, here and there.
        unsafe { if readable { libc::write(fd, at, 8) } else { libc::read(fd, at, 8) } };
    }
}

/// What a listener listens for.
pub enum News {
    /// Reports.
    Reports(Rc<CompletionQueue>),
    /// A count that is not the one that was read last: successes, errors.
    Count(Rc<Counter>, Rc<Cell<(u64, u64)>>),
}

impl News {
    /// Whether there are any.
    pub fn has_come(&self) -> bool {
        match self {
            News::Reports(queue) => !queue.is_empty(),
            News::Count(counter, seen) => (counter.value.get(), counter.errors.get()) != seen.get(),
        }
    }
}

/// The descriptor of a queue or a counter.
pub struct Listener {
    set: OwnedFd,
    event: OwnedFd,
    timer: OwnedFd,
    news: News,
    armed: Cell<bool>,
    /// The endpoints whose bells are in the set, by their nonces.
    known: RefCell<Vec<u64>>,
}

/// A new descriptor, or the system's error.
fn made(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Listener {
    /// A new one.
    ///
    /// # Errors
    ///
    /// The system's: mostly that there are too many descriptors.
    pub fn new(news: News) -> io::Result<Rc<Listener>> {
        // SAFETY: no preconditions.
        let set = made(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: no preconditions.
        let event = made(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no preconditions.
        let timer = made(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let (armed, known) = (Cell::new(false), RefCell::default());
        let listener = Listener { set, event, timer, news, armed, known };
        listener.watch(listener.event.as_raw_fd())?;
        listener.watch(listener.timer.as_raw_fd())?;
        Ok(Rc::new(listener))
    }

    /// The descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    fn watch(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event is only read.
        match unsafe { libc::epoll_ctl(self.set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Listens to an endpoint too. (It takes its bell along when it closes.)
    pub fn add(&self, port: &Port) {
        let mut known = self.known.borrow_mut();
        if known.contains(&port.address.nonce) {
            return;
        }
        match port.bell().and_then(|bell| self.watch(bell.inner())) {
            Ok(()) => known.push(port.address.nonce),
            Err(why) => {
                crate::remark!(
                    "towpath: nobody can ring for a wait object ({why}); it looks by itself instead"
                )
            }
        }
    }

    /// Nothing is known any more of what made it readable, but for the bells.
    pub fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: both give at most eight bytes, or nothing.
        unsafe {
            libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len());
            libc::read(self.timer.as_raw_fd(), count.as_mut_ptr().cast(), count.len());
        }
    }

    /// Makes it readable.
    pub fn wake(&self) {
        let once = 1u64;
        // SAFETY: eight bytes of a count.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const once).cast(), 8) };
    }

    fn wake_after(&self, ns: u64) {
        let whole = libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            // Zero would mean never.
            tv_nsec: (ns % 1_000_000_000).max(1) as libc::c_long,
        };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let when = libc::itimerspec { it_interval: never, it_value: whole };
        // SAFETY: `when` is only read; the old value is not asked for.
        unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &when, core::ptr::null_mut()) };
    }
}

/// A domain's listeners. All under its lock.
#[derive(Default)]
pub struct Listeners {
    all: RefCell<Vec<Rc<Listener>>>,
    armed: Cell<usize>,
}

impl Listeners {
    /// A new one.
    pub fn add(&self, listener: &Rc<Listener>) {
        self.all.borrow_mut().push(Rc::clone(listener));
    }

    /// Its queue or counter is closed.
    pub fn remove(&self, listener: &Rc<Listener>) {
        self.disarm(listener);
        self.all.borrow_mut().retain(|other| !Rc::ptr_eq(other, listener));
    }

    /// Whether somebody may be asleep.
    #[inline(always)]
    pub fn are_armed(&self) -> bool {
        self.armed.get() != 0
    }

    /// From now on this one is told of news, at the latest after so many nanoseconds.
    /// `false`: there are some.
    pub fn arm(&self, listener: &Listener, longest: u64) -> bool {
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

    fn disarm(&self, listener: &Listener) {
        if listener.armed.replace(false) {
            self.armed.set(self.armed.get() - 1);
        }
    }

    /// Wakes those for whom there is news.
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
