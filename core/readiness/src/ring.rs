//! Futex waits of the kernel's `io_uring`: the descriptor is readable when one has ended.
#![allow(unsafe_code)]

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{IoUring, Probe, opcode, squeue, types};
use towpath_machine::Native;
use towpath_sync::Asleep;

use crate::sleepers::word_of;

/// Number of entries: a wait, the order to give up another one, a timer, and some more.
const ENTRIES: u32 = 8;
/// Bits by which a wake-up and a wait must agree: any.
const ANY: u64 = u32::MAX as u64;
/// The futex has 32 bits, and other processes may wake it.
const SHARED_U32: u32 = 2;
/// Name of the timer.
const TIMER: u64 = 0;
/// Name of cancellations.
const IGNORED: u64 = 1;
/// Name of the first sleep.
const FIRST: u64 = 2;

/// One sleep at a time, for which the kernel waits.
pub struct KernelWait {
    ring: IoUring,
    /// The last sleep; each has a number of its own.
    number: u64,
    /// Word of the sleep, until that has ended.
    asleep: Option<Asleep>,
    /// True while the timer runs.
    ///
    /// It is not stopped with the sleep for which it was set: one that ends early costs a look,
    /// and one for each sleep would cost as much as the sleep.
    timed: bool,
}

impl KernelWait {
    /// Asks the kernel for it.
    ///
    /// # Errors
    ///
    /// The system's: `io_uring` is forbidden or missing. `Unsupported`: it is older than its futex
    /// waits.
    pub fn new() -> io::Result<KernelWait> {
        let ring = IoUring::new(ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::FutexWait::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(KernelWait { ring, number: FIRST, asleep: None, timed: false })
    }

    /// Takes note of ended waits: the descriptor is not readable any more.
    pub fn drain(&mut self) {
        for entry in self.ring.completion() {
            match entry.user_data() {
                TIMER => self.timed = false,
                number if number == self.number => self.asleep = None,
                _ => {}
            }
        }
    }

    /// Makes the descriptor readable when the word differs or is woken, and after about
    /// that time at the latest.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn sleep(&mut self, asleep: Asleep, turn: Duration) -> io::Result<()> {
        let time = types::Timespec::from(turn);
        if !self.timed {
            let timer = opcode::Timeout::new(&time).build().user_data(TIMER);
            self.push(&timer)?;
        }
        if self.asleep != Some(asleep) {
            if self.asleep.is_some() {
                let cancel = opcode::AsyncCancel::new(self.number).build().user_data(IGNORED);
                self.push(&cancel)?;
            }
            self.number += 1;
            let address = Native::futex_of(word_of(asleep)).cast_const();
            let wait = opcode::FutexWait::new(address, u64::from(asleep.expected), ANY, SHARED_U32);
            self.push(&wait.build().user_data(self.number))?;
        }
        self.ring.submit()?;
        self.timed = true;
        self.asleep = Some(asleep);
        Ok(())
    }

    /// Puts an entry into the ring, to be submitted while its memory is there.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: a wait's word is read by the kernel itself, when it is submitted, and an address
        // that is not mapped is refused; a timer's time is read then, too, and lives until after
        // `submit` in `sleep`; a cancellation names no memory.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))
    }
}

impl AsFd for KernelWait {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring lives, which outlives the
        // result.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
