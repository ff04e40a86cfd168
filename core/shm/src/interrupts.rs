//! Interrupts: a real-time signal by which a member of a world gets the attention of
//! another one's thread.
//!
//! A thread that can be interrupted has an *address*: its number and which signal it expects. It
//! gives the address to the others in a word of shared memory; a participant that finds it there
//! interrupts it with [`World::interrupt`]. The thread then runs a function that was given
//! beforehand; it runs in the signal handler, on that thread.
//!
//! **Permission.** Signals go to processes of the same user, in the same pid namespace; to any
//! other nothing is sent. An address is checked: it can name no thread but one of the participant's
//! own process.
//!
//! **Crashes.** A sender that dies before its signal leaves the thread uninterrupted: so there is a
//! timer that interrupts it now and then ([`Interrupts::tick`]). A thread that dies is interrupted
//! no more. The handler of a signal stays when its [`Interrupts`] are gone: a signal that is late
//! does nothing then (without a handler it would end the process).
//!
//! **Memory.** Three words per real-time signal and process.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;

use towpath_machine::Native;

use crate::{Error, ParticipantId, World, words};

/// Maximum number of real-time signals.
const SIGNALS: usize = 32;
/// Part of an address: there is one. The signal's number counts from `SIGRTMIN` and is in
/// bits 32 to 39, the thread's in the lower half.
const VALID: u64 = 1 << 40;

/// A signal's thread, and its action.
struct SignalTarget {
    /// The thread that expects it; 0: none ([`words::take_signal`]).
    thread: AtomicU64,
    run: AtomicPtr<()>,
    data: AtomicPtr<()>,
}

/// Targets of this process. Only the thread that has a place looks at its `run` and
/// `data`.
static TARGETS: [SignalTarget; SIGNALS] = [const {
    SignalTarget {
        thread: AtomicU64::new(0),
        run: AtomicPtr::new(null_mut()),
        data: AtomicPtr::new(null_mut()),
    }
}; SIGNALS];

extern "C" fn handler(signal: libc::c_int) {
    let Some(target) = TARGETS.get((signal - libc::SIGRTMIN()) as usize) else { return };
    // SAFETY: the address of this thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    // Relaxed: this thread's own, if it has the signal. Another thread's is left alone: it may just
    // be giving it up.
    if target.thread.load(Ordering::Relaxed) == me as u64 {
        // Relaxed, twice: this thread's own.
        let run = target.run.load(Ordering::Relaxed);
        let data = target.data.load(Ordering::Relaxed);
        // SAFETY: stored by `install`, from a function of this type; and the caller of `install`
        // has said that it may be called with this data at any instruction of this thread.
        unsafe { core::mem::transmute::<*mut (), unsafe fn(*const ())>(run)(data) };
    }
    // SAFETY: the address of this thread's own `errno`, valid as long as the thread lives.
    unsafe { *libc::__errno_location() = errno };
}

/// The calling thread can be interrupted while this lives.
#[derive(Debug)]
pub struct Interrupts {
    place: usize,
    thread: i32,
    timer: libc::timer_t,
    /// Keeps it in the thread that made it.
    own: PhantomData<*const ()>,
}

fn refused(what: &'static str) -> Error {
    Error::System { what, source: std::io::Error::last_os_error() }
}

impl Interrupts {
    /// Makes `SIGRTMIN + number` interrupt the calling thread, to run `run(data)`.
    /// One thread of a process can have a signal at a time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::System`] if there is no such signal, if another thread (or other code)
    /// has it, or if there is no timer left.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, `run(data)` may be called at any instruction of the calling
    /// thread: it must do only what a signal handler may (no allocation, no lock, nothing that the
    /// interrupted code may be in the middle of), and must not unwind.
    pub unsafe fn install(
        world: &World,
        number: u8,
        run: unsafe fn(*const ()),
        data: *const (),
    ) -> Result<Interrupts, Error> {
        let place = usize::from(number);
        let signal = libc::SIGRTMIN() + i32::from(number);
        if place >= SIGNALS || signal > libc::SIGRTMAX() {
            return Err(Error::System {
                what: "there are fewer real-time signals: use a smaller number",
                source: std::io::ErrorKind::InvalidInput.into(),
            });
        }
        // Looked up now, since it takes more than a handler may do.
        let _ = world.inner().namespace();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let target = &TARGETS[place];
        let cpu = Native::with_id(0);
        if !words::take_signal(&cpu, &target.thread) {
            return Err(Error::System {
                what: "this real-time signal is in use in this process: use another number",
                source: std::io::ErrorKind::ResourceBusy.into(),
            });
        }
        // Relaxed, twice: published by `thread`.
        target.run.store(run as *mut (), Ordering::Relaxed);
        target.data.store(data.cast_mut(), Ordering::Relaxed);
        let timer =
            Self::prepare(signal, thread).inspect_err(|_| words::leave_signal(&cpu, &target.thread))?;
        words::give_signal(&cpu, &target.thread, thread as u64);
        Ok(Interrupts { place, thread, timer, own: PhantomData })
    }

    /// The handler, and a timer.
    fn prepare(signal: i32, thread: i32) -> Result<libc::timer_t, Error> {
        // SAFETY: actions, sets and events are plain data, for which all-zero is valid; the calls
        // read and fill in what they are given; the handler is of the right type.
        unsafe {
            let mut former: libc::sigaction = zeroed();
            if libc::sigaction(signal, core::ptr::null(), &mut former) != 0 {
                return Err(refused("asking for the handler of a real-time signal"));
            }
            let ours = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
            if former.sa_sigaction != libc::SIG_DFL && former.sa_sigaction != ours {
                return Err(Error::System {
                    what: "the program has a handler for this real-time signal already: use another number",
                    source: std::io::ErrorKind::ResourceBusy.into(),
                });
            }
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = ours;
            // On the thread's own stack: the alternate one, which the standard library makes for
            // overflows, has room for little.
            action.sa_flags = libc::SA_RESTART;
            if libc::sigaction(signal, &action, null_mut()) != 0 {
                return Err(refused("handling a real-time signal"));
            }
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = thread;
            let mut timer: libc::timer_t = null_mut();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) != 0 {
                return Err(refused("making a timer"));
            }
            Ok(timer)
        }
    }

    /// The thread's address, for [`World::interrupt`]. Never 0.
    pub fn address(&self) -> u64 {
        VALID | (self.place as u64) << 32 | u64::from(self.thread as u32)
    }

    /// Its timer, for the handler.
    pub fn ticker(&self) -> Ticker {
        Ticker(self.timer)
    }
}

/// The timer of [`Interrupts`], which is of no use when they are gone.
#[derive(Clone, Copy, Debug)]
pub struct Ticker(libc::timer_t);

impl Ticker {
    /// Lets the timer interrupt the thread after `first`, and then every so often (never,
    /// if both are 0). May be called in the handler.
    pub fn tick(&self, first: Duration, every: Duration) {
        let time = |time: Duration| libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        let times = libc::itimerspec { it_interval: time(every), it_value: time(first) };
        // SAFETY: a timer's number, which the kernel checks; the times are plain data.
        unsafe { libc::timer_settime(self.0, 0, &times, null_mut()) };
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // SAFETY: our own timer, not used any more.
        unsafe { libc::timer_delete(self.timer) };
        // A signal that comes late finds no thread.
        words::leave_signal(&Native::with_id(0), &TARGETS[self.place].thread);
    }
}

impl World {
    /// Interrupts a participant's thread, by the address that it has given
    /// ([`Interrupts::address`]). An address of a participant that is gone, or can't be reached by
    /// signals from here, has no effect. May be called in a signal handler.
    ///
    /// Between finding the participant's pid and sending the signal, no more time passes than a few
    /// instructions take; that the pid *and* the thread's number belong to another process by then
    /// is as unlikely as for `kill(1)`. Ask [`World::is_alive`] before, where that may be asked.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let me = world.entered().expect("entered above");
    /// world.interrupt(me, 0); // no thread has that address
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn interrupt(&self, id: ParticipantId, address: u64) {
        let (thread, place) = (address as u32 as i32, (address >> 32 & 0xff) as i32);
        let signal = libc::SIGRTMIN() + place;
        if address & VALID == 0 || thread <= 0 || signal > libc::SIGRTMAX() {
            return;
        }
        let Some(pid) = self.pid_of(id).and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0) else {
            return;
        };
        // Relaxed: written before the word that says that it has entered.
        let namespace = self.inner().entry(id.index).namespace.load(Ordering::Relaxed);
        // Namespaces that are unknown may be different ones, and the number another process's.
        if namespace != self.inner().namespace() || namespace == 0 {
            return;
        }
        // SAFETY: takes three numbers; a thread of this process only, or of none.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, signal) };
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use core::time::Duration;

    use super::Interrupts;
    use crate::{World, WorldSpec};

    fn world() -> World {
        let spec = WorldSpec { name: None, processes: 1, area_bytes: 4096, object_bytes: 0, params: [0; 16] };
        let world = World::create(&spec).unwrap();
        world.enter(Some(0)).unwrap();
        world
    }

    unsafe fn count(data: *const ()) {
        // SAFETY: the tests give a counter that outlives their interrupts.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn thread_is_interrupted_until_interrupts_are_dropped() {
        let world = world();
        let counter = AtomicU32::new(0);
        let seen = || counter.load(Ordering::SeqCst);
        // SAFETY: counts, and does nothing else; the counter lives longer.
        let interrupts =
            unsafe { Interrupts::install(&world, 3, count, (&raw const counter).cast()) }.unwrap();
        let address = interrupts.address();
        world.interrupt(world.me(), address);
        assert_eq!(seen(), 1); // To one's own thread, a signal has come when the call returns.
        interrupts.ticker().tick(Duration::from_micros(100), Duration::from_millis(1));
        while seen() < 4 {
            std::thread::yield_now();
        }
        // Another number is no participant's address here.
        let before = seen();
        interrupts.ticker().tick(Duration::ZERO, Duration::ZERO);
        for nonsense in [0, address & !(1 << 40), address | 0xff << 32, (1 << 40) | (3 << 32)] {
            world.interrupt(world.me(), nonsense);
        }
        assert!(seen() <= before + 1); // A tick may have been on its way.
        // SAFETY: counts, and does nothing else; the counter lives longer.
        let again = unsafe { Interrupts::install(&world, 3, count, (&raw const counter).cast()) };
        assert!(again.unwrap_err().to_string().contains("another number"));
        drop(interrupts);
        let last = seen();
        world.interrupt(world.me(), address);
        assert_eq!(seen(), last);
    }

    #[test]
    fn there_are_not_so_many_signals() {
        let world = world();
        // SAFETY: refused, so that `count` is never called.
        let refused = unsafe { Interrupts::install(&world, 40, count, core::ptr::null()) };
        assert!(refused.unwrap_err().to_string().contains("smaller number"));
    }
}
