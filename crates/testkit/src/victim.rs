//! A child that is stepped instruction by instruction.
#![allow(unsafe_code)]

use crate::Child;

/// A child under ptrace, of which we are the tracer. It marks where its act begins and ends ([`mark`]); in between it is stepped.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    /// A step was begun that sleeps in a system call.
    asleep: bool,
}

/// Stops this process, a victim, until its tracer lets it go on.
pub fn mark() {
    // SAFETY: stops this process; the tracer waits for it.
    unsafe { libc::raise(libc::SIGSTOP) };
}

impl Victim {
    /// Forks a victim that does this and ends. An error is printed.
    ///
    /// # Panics
    ///
    /// As [`Child::fork`].
    pub fn fork(act: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) -> Victim {
        let child = Child::fork(|| {
            // SAFETY: asks to be traced by our parent, which waits for our stops.
            unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            if let Err(error) = act() {
                eprintln!("victim: {error}");
            }
        });
        Victim { child, asleep: false }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Waits until it stands at its first mark.
    ///
    /// # Panics
    ///
    /// If it does not get there.
    pub fn reach_mark(&mut self) {
        assert_eq!(self.stop(0), Some(libc::SIGSTOP), "the victim did not get as far as its act");
    }

    /// Lets it run for `steps` instructions from its first mark, or to its second: then `true`.
    ///
    /// `look` is called before each step with the number of steps taken, and once more, with `true`, if the step sleeps in a system call and isn't the last one: whoever the
    /// victim waits for should then do something about it.
    ///
    /// # Panics
    ///
    /// If it stops for another reason, or ends.
    pub fn run(&mut self, steps: u64, mut look: impl FnMut(u64, bool)) -> bool {
        for step in 0..steps {
            look(step, false);
            // SAFETY: the child is stopped and traced by us.
            assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.child.0, 0, 0) }, 0);
            match self.end_of_step(step + 1 == steps, || look(step, true)) {
                None => self.asleep = true,
                Some(libc::SIGTRAP) => {}
                Some(libc::SIGSTOP) => return true,
                Some(other) => panic!("the victim was stopped by signal {other}"),
            }
        }
        false
    }

    /// Lets it go on, as fast as it can, to its next mark.
    ///
    /// # Panics
    ///
    /// If it sleeps in a step, or isn't at a mark or between steps.
    pub fn go_on(&mut self) {
        assert!(!self.asleep, "the victim sleeps in the middle of a step");
        // SAFETY: the child is stopped and traced by us.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_CONT, self.child.0, 0, 0) }, 0);
    }

    /// Whether it stands at a mark again, after [`Victim::go_on`]. Only to be asked until it does.
    ///
    /// # Panics
    ///
    /// If it was stopped by something else, or has ended.
    pub fn at_mark(&mut self) -> bool {
        match self.stop(libc::WNOHANG) {
            None => false,
            Some(libc::SIGSTOP) => true,
            Some(other) => panic!("the victim was stopped by signal {other}"),
        }
    }

    /// Waits for the end of a step; `None` if it is the last one and sleeps.
    fn end_of_step(&self, last: bool, asleep: impl FnOnce()) -> Option<i32> {
        // Looking costs less than sleeping, since the victim runs on our core.
        for look in 0.. {
            if let Some(signal) = self.stop(libc::WNOHANG) {
                return Some(signal);
            }
            if look >= 50 && self.child.is_asleep() {
                if last {
                    return None;
                }
                asleep();
                break;
            }
            match look {
                // SAFETY: sched_yield has no preconditions.
                0..200 => _ = unsafe { libc::sched_yield() },
                _ => std::thread::sleep(std::time::Duration::from_micros(50)),
            }
        }
        self.stop(0)
    }

    /// The signal by which it is stopped; `None` if it isn't yet (only with WNOHANG).
    fn stop(&self, flags: i32) -> Option<i32> {
        let mut status = 0;
        // SAFETY: our own child, not yet waited for; `status` is a place for the result.
        let got = unsafe { libc::waitpid(self.child.0, &mut status, flags) };
        if got == 0 {
            return None;
        }
        assert!(got == self.child.0 && libc::WIFSTOPPED(status), "the victim has ended (status {status:#x})");
        Some(libc::WSTOPSIG(status))
    }

    /// Kills it where it stands, and waits until it is gone.
    pub fn kill(self) {}
}
