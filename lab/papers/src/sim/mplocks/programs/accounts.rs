//! Accounts of a program's time, in the classes of paper K's figures.
//!
//! `U-instr` and `U-lclmem` are one class here: computation. The time of a node's kernel, by
//! system calls and interrupts, belongs to `Kern` whatever the thread did meanwhile.

use std::cell::Cell;

use towpath_sim::Sim;

/// Class of a thread's time, beside its kernel's (`Kern`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeClass {
    /// Computation (`U-instr`, `U-lclmem`).
    Instructions,
    /// Accesses to shared data (`U-shmem`).
    Shared,
    /// Waiting at barriers.
    Barrier,
    /// Acquiring and releasing locks.
    Lock,
}

/// Number of classes.
const CLASSES: usize = 4;

/// Times of all threads together, in picoseconds.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    times: [Cell<u64>; CLASSES],
}

impl Accounts {
    /// Does something, and notes its time, less the kernel's.
    pub fn time<R>(&self, cpu: &Sim, class: TimeClass, act: impl FnOnce() -> R) -> R {
        let (start, kernel) = (cpu.clock(), cpu.kernel_time());
        let result = act();
        let kernel = cpu.kernel_time() - kernel;
        let time = &self.times[class as usize];
        time.set(time.get() + (cpu.clock() - start).saturating_sub(kernel));
        result
    }

    /// Forgets all that was noted.
    pub fn reset(&self) {
        self.times.iter().for_each(|time| time.set(0));
    }

    /// Returns the time of a class.
    pub fn of(&self, class: TimeClass) -> u64 {
        self.times[class as usize].get()
    }
}
