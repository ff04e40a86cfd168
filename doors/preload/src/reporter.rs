//! Reporter: a process beside the program that writes its report if the program can't.
//!
//! A program that a signal ends, or that ends past libc (`_exit`, one in Go), calls none of the
//! functions that were to write. The reporter shares the program's memory (clone(2), `CLONE_VM`)
//! and outlives it, so that all that the report needs is still there. It sleeps until the kernel
//! says that the program has ended (a pidfd), writes, and ends.
//!
//! Until then it has the thread-local storage of the program's first thread. So it calls only the
//! kernel; a call that fails would write `errno` there, so that only its first steps may fail,
//! during which the first thread waits for it.
//!
//! It is in a session of its own, without signals, and has two descriptors. Waits for children do
//! not see it, since its end sends no signal, except those for all kinds (`__WALL`, `__WCLONE`). A
//! program that executes another one leaves it to that one's library, which ends it.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::report;
use crate::start::number;

/// Size of the reporter's stack, in bytes.
const STACK: usize = 256 << 10;
/// Seconds for which it writes at most: a thread may have ended with a lock of the
/// loader's.
const LONGEST: c_uint = 10;
/// Variable with the reporter's number, for a program that this one executes.
const VARIABLE: &CStr = c"TOWPATH_PRELOAD_REPORTER";
/// Number of digits that `towpath preload` has put there.
const DIGITS: usize = 10;

/// Number of the reporter; 0: there is none.
static REPORTER: AtomicI32 = AtomicI32::new(0);
/// Number of the program's process. Forked children have copies of this memory.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Descriptors that the reporter keeps, the lower one first; one is the program's pidfd.
static KEPT: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
static PIDFD: AtomicI32 = AtomicI32::new(0);
/// True when the reporter needs nothing of the first thread any more.
static IS_READY: AtomicBool = AtomicBool::new(false);
/// Process for which the reporter writes; 0: this is none, or it sleeps.
static WRITES_FOR: AtomicU64 = AtomicU64::new(0);

/// Number of the process whose report is written by this one in its place.
pub fn writes_for() -> Option<u64> {
    // Relaxed: by the reporter alone, when the program has ended.
    Some(WRITES_FOR.load(Ordering::Relaxed)).filter(|program| *program != 0)
}

/// Starts a reporter for this process, with this descriptor of standard error.
///
/// Called once, before the program begins. Where there are no pidfds (Linux before 5.3), or
/// where the system refuses another process, there is none.
pub fn start(error: c_int) {
    end_earlier();
    // SAFETY: no preconditions.
    let (program, pidfd) = unsafe {
        let program = libc::getpid();
        (program, libc::syscall(libc::SYS_pidfd_open, program, 0) as c_int)
    };
    if pidfd < 0 {
        return;
    }
    // Relaxed, all: the call that makes the reporter orders them.
    PROGRAM.store(program, Ordering::Relaxed);
    PIDFD.store(pidfd, Ordering::Relaxed);
    KEPT[0].store(pidfd.min(error), Ordering::Relaxed);
    KEPT[1].store(pidfd.max(error), Ordering::Relaxed);
    let reporter = clone_process();
    // (RP1) Acquire: an `errno` of the reporter's first steps is older than what comes; pairs with
    // (RP2) in `run`. A filter of system calls may have ended it.
    while is_running(reporter) && !IS_READY.load(Ordering::Acquire) {
        // SAFETY: no preconditions.
        unsafe { libc::sched_yield() };
    }
    // SAFETY: this function's own descriptor; a function that stays until the end.
    unsafe {
        libc::close(pidfd);
        if is_running(reporter) {
            REPORTER.store(reporter, Ordering::Relaxed);
            libc::atexit(end);
            set_variable(reporter);
        }
    }
}

/// Makes the process. Returns its number; none is positive if there is none.
fn clone_process() -> c_int {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: memory of its own, the end of which is the stack's beginning and which stays as long
    // as the process; a function that returns to libc, which ends the process. The sets are filled
    // in before they are read. Signals are blocked meanwhile, thus in the reporter for ever.
    unsafe {
        let stack = libc::mmap(ptr::null_mut(), STACK, protection, kind, -1, 0);
        if stack == libc::MAP_FAILED {
            return -1;
        }
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        let reporter = libc::clone(run, stack.byte_add(STACK), libc::CLONE_VM, ptr::null_mut());
        libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        reporter
    }
}

/// The reporter.
extern "C" fn run(_: *mut c_void) -> c_int {
    // SAFETY: a name that ends with zero; descriptors of this process, which has its own table and
    // uses two; room for one answer. The first thread waits until `IS_READY`.
    let ended = unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"towpath-report".as_ptr());
        close_others();
        let mut awaited =
            libc::pollfd { fd: PIDFD.load(Ordering::Relaxed), events: libc::POLLIN, revents: 0 };
        // (RP2) Release: the first steps are over; pairs with the Acquire (RP1) in `start`.
        IS_READY.store(true, Ordering::Release);
        let no_time = ptr::null::<libc::timespec>();
        libc::syscall(libc::SYS_ppoll, &raw mut awaited, 1, no_time, ptr::null::<libc::sigset_t>(), 0)
    };
    if ended == 1 {
        // Relaxed: no other process has this memory any more, or it is the copy of before an
        // execution.
        WRITES_FOR.store(PROGRAM.load(Ordering::Relaxed) as u64, Ordering::Relaxed);
        end_in_time();
        report::write_all();
    }
    0
}

/// Closes all descriptors of this process but those that it keeps.
///
/// # Safety
///
/// No other code of this process uses them.
unsafe fn close_others() {
    let [low, high] = KEPT.each_ref().map(|kept| kept.load(Ordering::Relaxed));
    for (first, last) in [(0, low - 1), (low + 1, high - 1), (high + 1, c_int::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: the caller's promise.
        unsafe {
            if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
                // Linux before 5.9.
                (first..=last.min(1023)).for_each(|descriptor| _ = libc::close(descriptor));
            }
        }
    }
}

/// Has the kernel end this process soon.
fn end_in_time() {
    let mut alarm = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a set that is filled in before it is read; the signal's usual action.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::sigemptyset(alarm.as_mut_ptr());
        libc::sigaddset(alarm.as_mut_ptr(), libc::SIGALRM);
        libc::sigprocmask(libc::SIG_UNBLOCK, alarm.as_ptr(), ptr::null_mut());
        libc::alarm(LONGEST);
    }
}

/// Returns whether this is a child that sends no signal at its end, and has not ended.
fn is_running(child: c_int) -> bool {
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WCLONE;
    // SAFETY: a place for the answer, zeroed, so that it can be read if no child has ended.
    child > 0
        && unsafe {
            libc::waitid(libc::P_PID, child as libc::id_t, found.as_mut_ptr(), options) == 0
                && found.assume_init_ref().si_pid() == 0
        }
}

/// Ends a reporter, if this is one of this process.
fn end_process(reporter: c_int) {
    if is_running(reporter) {
        // SAFETY: the kernel says that the number is this process's child, and it stays that until
        // it is waited for.
        unsafe {
            libc::kill(reporter, libc::SIGKILL);
            libc::waitpid(reporter, ptr::null_mut(), libc::__WCLONE);
        }
    }
}

/// The program ends by itself, and has written.
extern "C" fn end() {
    // SAFETY: no preconditions.
    if unsafe { libc::getpid() } == PROGRAM.load(Ordering::Relaxed) {
        end_process(REPORTER.load(Ordering::Relaxed));
    }
}

/// Ends the reporter of the program that has executed this one.
fn end_earlier() {
    if let Some(reporter) = number(VARIABLE).and_then(|number| c_int::try_from(number).ok()) {
        end_process(reporter);
    }
}

/// Writes the number over the variable's digits: a program may look at its environment as
/// the kernel has made it, where a new variable would not be.
fn set_variable(reporter: c_int) {
    // SAFETY: a name that ends with zero; a text that does, too, in memory of this process that it
    // may write to. The program has not begun: no other thread reads its environment.
    unsafe {
        let digits = libc::getenv(VARIABLE.as_ptr());
        if digits.is_null() || libc::strlen(digits) != DIGITS {
            return;
        }
        let mut rest = reporter.unsigned_abs();
        for place in (0..DIGITS).rev() {
            digits.add(place).write(b'0' as libc::c_char + (rest % 10) as libc::c_char);
            rest /= 10;
        }
    }
}
