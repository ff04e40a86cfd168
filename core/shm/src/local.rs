//! A process's memory of its own part in a world, which a fork must not copy.
//!
//! It lies on a page that the kernel clears in a forked child (MADV_WIPEONFORK): the child has the
//! mapping but is not the participant that its parent is, and no call has to ask for the pid to
//! know.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::Error;
use crate::participant::ParticipantId;

/// All zero after a fork.
#[repr(C)]
pub(crate) struct Local {
    /// The participant that this process is, or 0.
    pub me: AtomicU64,
    /// Number of threads of this process that sleep.
    pub sleepers: AtomicU64,
    /// The namespaces of this process; 0 if not looked up yet.
    pub namespace: AtomicU64,
    /// 1 while this process is entering or has entered.
    pub entering: AtomicU64,
    /// 1 while a thread of this process creates a shared object.
    pub creating: AtomicU64,
    /// Open handles on objects that name their users
    /// ([`towpath_machine::Object::NAMES_USERS`]).
    pub handles: AtomicU64,
    /// 1 in the process that opened the world, 0 in its children.
    pub opener: AtomicU64,
    /// Rank that was found last not to have arrived at the barrier.
    pub awaited: AtomicU32,
    /// End of the last slow round of a wait, in nanoseconds (`SlowRounds::last`).
    pub last_slow_round: AtomicU64,
}

const LEN: usize = 4096;

/// Owns the page.
#[derive(Debug)]
pub(crate) struct LocalPage(NonNull<Local>);

// SAFETY: the page may be used from any thread; what lies on it is atomic.
unsafe impl Send for LocalPage {}
// SAFETY: threads that share it access what lies on the page atomically.
unsafe impl Sync for LocalPage {}

impl LocalPage {
    pub fn new() -> Result<Self, Error> {
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe {
            mmap_anonymous(core::ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }
        .map_err(Error::system("mapping a page"))?;
        let page = LocalPage(NonNull::new(page.cast()).ok_or(Error::TooLarge(LEN as u64))?);
        // SAFETY: the range was mapped above, is ours alone, and holds nothing that a child would
        // need.
        unsafe { madvise(page.0.as_ptr().cast(), LEN, Advice::LinuxWipeOnFork) }
            .map_err(Error::system("asking for a page that a fork clears (Linux 4.14 or newer is needed)"))?;
        Ok(page)
    }
}

/// This process as the participant that it was at some time, for quick looks whether it
/// still is.
#[derive(Clone, Copy, Debug)]
pub struct EnteredAs<'a> {
    /// Participant that this process is, or 0.
    now: &'a AtomicU64,
    /// Participant that it was; all ones, which none is: it had not entered.
    then: u64,
    identity: u32,
}

impl<'a> EnteredAs<'a> {
    pub(crate) fn new(local: &'a Local, identity: u32) -> EnteredAs<'a> {
        // Relaxed: written by this process's own calls.
        let then = match local.me.load(Ordering::Relaxed) {
            0 => u64::MAX,
            bits => bits,
        };
        EnteredAs { now: &local.me, then, identity }
    }

    /// The participant, if the process had entered.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(1))?;
    /// assert_eq!(world.entered_as().participant(), world.entered());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub const fn participant(&self) -> Option<ParticipantId> {
        if self.then == u64::MAX { None } else { Some(ParticipantId::from_bits(self.then)) }
    }

    /// The participant's identity among waiters, if the process still is that one.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(1))?;
    /// let entered = world.entered_as();
    /// assert!(entered.still().is_some());
    /// world.leave()?;
    /// assert!(entered.still().is_none());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    pub fn still(&self) -> Option<u32> {
        // Relaxed: written by this process's own calls.
        (self.now.load(Ordering::Relaxed) == self.then).then_some(self.identity)
    }
}

impl core::ops::Deref for LocalPage {
    type Target = Local;
    fn deref(&self) -> &Local {
        // SAFETY: mapped, page-aligned, as large as a `Local` or larger, atomics only, and alive as
        // long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for LocalPage {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `new` and nothing refers to it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LEN) };
    }
}
