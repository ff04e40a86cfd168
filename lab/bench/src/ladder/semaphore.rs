//! System V semaphores as locks (Gropp & Lusk 1997, Section 2): every entry and every
//! exit is a system call.
//!
//! # Safety
//!
//! The calls get valid pointers to values that outlive them. A set belongs to the process that made
//! it and is removed when it is dropped there.
#![allow(unsafe_code)]

use std::io;

use towpath_machine::Native;
use towpath_sync::Waiting;

use towpath_host::Error;
use towpath_papers::ladder::LadderLock;

/// A set of semaphores, all free at first.
#[derive(Debug)]
pub struct Semaphores {
    id: i32,
    owner: u32,
}

impl Semaphores {
    /// Makes `count` semaphores, all free.
    ///
    /// # Errors
    ///
    /// The system's: too many sets, or semaphores, for its limits.
    pub fn new(count: usize) -> Result<Semaphores, Error> {
        // SAFETY: semget takes numbers only.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, count as i32, 0o600 | libc::IPC_CREAT) };
        if id < 0 {
            let what = "making a set of System V semaphores (see `ipcs -ls`, and /proc/sys/kernel/sem)";
            return Err(Error::system(what, io::Error::last_os_error()));
        }
        let set = Semaphores { id, owner: std::process::id() };
        for n in 0..count {
            // A new semaphore's value is not specified by POSIX, and 0 on Linux.
            set.change(n, 1);
        }
        Ok(set)
    }

    /// The semaphore of this number, as a lock.
    pub fn lock(&self, n: usize) -> SemaphoreLock<'_> {
        SemaphoreLock { set: self, n }
    }

    fn change(&self, n: usize, by: i16) {
        let mut operation = libc::sembuf { sem_num: n as u16, sem_op: by, sem_flg: 0 };
        // SAFETY: one valid operation, which outlives the call.
        while unsafe { libc::semop(self.id, &mut operation, 1) } != 0 {
            let error = io::Error::last_os_error();
            // The set is there as long as its maker, which ends us when it ends.
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "semop: {error}");
        }
    }
}

impl Drop for Semaphores {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // SAFETY: IPC_RMID takes no argument; the set is ours.
            unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) };
        }
    }
}

/// One semaphore of a set.
#[derive(Clone, Copy, Debug)]
pub struct SemaphoreLock<'a> {
    set: &'a Semaphores,
    n: usize,
}

impl LadderLock<Native> for SemaphoreLock<'_> {
    fn enter<W: Waiting<Native>>(&self, _cpu: &Native, _wait: &W) {
        self.set.change(self.n, -1);
    }
    fn leave<W: Waiting<Native>>(&self, _cpu: &Native, _wait: &W) {
        self.set.change(self.n, 1);
    }
}
