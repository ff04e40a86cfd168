//! A child that is stepped instruction by instruction.
#![allow(unsafe_code)]

use crate::Child;
use crate::known_path::{KnownPath, Stop};

/// A child under ptrace, of which we are the tracer. It marks where its act begins and
/// ends ([`mark`]); in between it is stepped.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    /// A step was begun that sleeps in a system call.
    asleep: bool,
    /// A signal that it gets when it comes.
    forwarded: Option<i32>,
    /// Signal that has come, and goes to the victim when that goes on; 0: none.
    pending: i32,
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
        Victim { child, asleep: false, forwarded: None, pending: 0 }
    }

    /// Delivers this signal from now on when it comes, as if the victim were not traced.
    /// (Other signals than the tracer's own are an error.)
    pub fn forward(&mut self, signal: i32) {
        self.forwarded = Some(signal);
    }

    /// Takes a signal that is to be forwarded. `false`: it isn't.
    fn forwards(&mut self, signal: Option<i32>) -> bool {
        let ours = signal.is_some() && signal == self.forwarded;
        if ours {
            self.pending = signal.unwrap_or(0);
        }
        ours
    }

    /// Lets it go on in the given way, with the signal that it is to get.
    fn resume(&mut self, request: libc::c_uint) {
        let signal = std::mem::take(&mut self.pending);
        // SAFETY: the child is stopped and traced by us; the data is the number of a signal, or 0.
        assert_eq!(unsafe { libc::ptrace(request, self.child.raw(), 0, signal) }, 0);
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Returns whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Waits until it stands at its first mark.
    ///
    /// # Panics
    ///
    /// If it does not get there.
    pub fn reach_mark(&mut self) {
        let mut stop = self.stop(0);
        while self.forwards(stop) {
            self.resume(libc::PTRACE_CONT);
            stop = self.stop(0);
        }
        assert_eq!(stop, Some(libc::SIGSTOP), "the victim did not get as far as its act");
    }

    /// Lets it run for `steps` instructions from its first mark, or to its second: then
    /// `true`.
    ///
    /// `look` is called before each step with the number of steps taken, and once more, with
    /// `true`, if the step sleeps in a system call and isn't the last one: the process that the
    /// victim waits for should then end that wait.
    ///
    /// # Panics
    ///
    /// If it stops for another reason, or ends.
    pub fn run(&mut self, steps: u64, mut look: impl FnMut(u64, bool)) -> bool {
        for step in 0..steps {
            look(step, false);
            self.resume(libc::PTRACE_SINGLESTEP);
            match self.end_of_step(step + 1 == steps, || look(step, true)) {
                None => self.asleep = true,
                Some(libc::SIGTRAP) => {}
                Some(libc::SIGSTOP) => return true,
                other if self.forwards(other) => {}
                Some(other) => panic!("the victim was stopped by signal {other}"),
            }
        }
        false
    }

    /// Runs like [`Victim::run`], by the path that earlier victims have taken.
    ///
    /// For acts that sleep in no system call, and of which no step is looked at. `true` also for a
    /// victim that leaves the path and comes to its mark early; [`KnownPath::is_done`] says whether
    /// that ends the case.
    ///
    /// # Panics
    ///
    /// As [`Victim::run`].
    pub fn run_along(&mut self, path: &mut KnownPath, steps: u64) -> bool {
        path.begin();
        assert!(self.forwarded.is_none(), "a signal leads off the path");
        let mut step = 0;
        if let Some(stop) = path.stop_before(steps) {
            if !self.visit(stop) {
                path.stray();
                return true;
            }
            step = stop.step;
        }
        loop {
            if path.ends_before(step) {
                path.push(self.place());
            }
            if step == steps {
                return false;
            }
            if self.run(1, |_, _| {}) {
                if !path.ends_before(step + 1) {
                    path.stray();
                }
                return true;
            }
            step += 1;
        }
    }

    /// Runs at full speed to a breakpoint. `false`: to its mark, without having come by.
    fn visit(&mut self, stop: Stop) -> bool {
        // The breakpoint's instruction is one byte, the lowest of the word.
        const BREAK: libc::c_long = 0xcc;
        let text = self.peek(stop.place);
        let broken = text & !0xff | BREAK;
        for left in (0..stop.visits).rev() {
            self.poke(stop.place, broken);
            self.resume(libc::PTRACE_CONT);
            match self.end_of_step(false, || panic!("the victim sleeps in a system call")) {
                Some(libc::SIGTRAP) => {}
                Some(libc::SIGSTOP) => return false,
                other => panic!("the victim was stopped by signal {other:?}"),
            }
            self.poke(stop.place, text);
            self.stand_at(stop.place);
            if left > 0 && self.run(1, |_, _| {}) {
                return false;
            }
        }
        true
    }

    /// The word of the victim's memory at this address.
    fn peek(&self, at: u64) -> libc::c_long {
        // SAFETY: the child is stopped and traced by us. The library returns the word.
        unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, self.child.raw(), at, 0) }
    }

    /// Changes a word of the victim's memory: its own copy of a page of instructions.
    fn poke(&self, at: u64, word: libc::c_long) {
        // SAFETY: the child is stopped and traced by us; the word is what it is to have.
        let done = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, self.child.raw(), at, word) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Address of the instruction that comes next.
    pub fn place(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the child is stopped and traced by us. The library returns the register.
        return unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.child.raw(), libc::RIP * 8, 0) } as u64;
        #[cfg(not(target_arch = "x86_64"))]
        0
    }

    /// Lets it go on from this address.
    fn stand_at(&self, place: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the child is stopped and traced by us; it stands behind the breakpoint there.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.child.raw(), libc::RIP * 8, place) }, 0);
        #[cfg(not(target_arch = "x86_64"))]
        let _ = place;
    }

    /// Gives it a signal where it stands, and lets it take the first step of its handler
    /// (which it must have).
    ///
    /// # Panics
    ///
    /// As [`Victim::go_on`].
    pub fn interrupt(&mut self, signal: i32) {
        assert!(!self.asleep, "the victim sleeps in the middle of a step");
        // SAFETY: the child is stopped and traced by us; the data is the number of a signal.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.child.raw(), 0, signal) }, 0);
        assert_eq!(self.stop(0), Some(libc::SIGTRAP), "the victim has no handler for signal {signal}");
    }

    /// Stops it where it stands by SIGSTOP, as any process could; [`Victim::go_on`] lets
    /// it go on.
    ///
    /// # Panics
    ///
    /// As [`Victim::go_on`].
    pub fn halt(&mut self) {
        assert!(!self.asleep, "the victim sleeps in the middle of a step");
        // SAFETY: the child is stopped and traced by us; the data is the number of a signal.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_CONT, self.child.raw(), 0, libc::SIGSTOP) }, 0);
        assert_eq!(self.stop(0), Some(libc::SIGSTOP), "the victim did not stop");
    }

    /// The child itself: to see whether it sleeps, or runs.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Lets it go on, as fast as it can, to its next mark.
    ///
    /// # Panics
    ///
    /// If it sleeps in a step, or isn't at a mark or between steps.
    pub fn go_on(&mut self) {
        assert!(!self.asleep, "the victim sleeps in the middle of a step");
        self.resume(libc::PTRACE_CONT);
    }

    /// Returns whether it stands at a mark again, after [`Victim::go_on`]. Only to be
    /// asked until it does.
    ///
    /// # Panics
    ///
    /// If it was stopped by something else, or has ended.
    pub fn at_mark(&mut self) -> bool {
        match self.stop(libc::WNOHANG) {
            None => false,
            Some(libc::SIGSTOP) => true,
            other if self.forwards(other) => {
                self.resume(libc::PTRACE_CONT);
                false
            }
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
        let got = unsafe { libc::waitpid(self.child.raw(), &mut status, flags) };
        if got == 0 {
            return None;
        }
        assert!(
            got == self.child.raw() && libc::WIFSTOPPED(status),
            "the victim has ended (status {status:#x})"
        );
        Some(libc::WSTOPSIG(status))
    }

    /// Kills it where it stands, and waits until it is gone.
    pub fn kill(self) {}
}
