//! The watchdog: if a case takes too long, it says where things stand, ends our children,
//! and gives up.
#![allow(unsafe_code)]

use std::io::Write;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, Once};

/// Our children. Relaxed throughout: this process has one thread.
static CHILDREN: [AtomicI32; 1100] = [const { AtomicI32::new(0) }; 1100];
/// Number of children of which the watchdog says where they stand.
const SHOWN: usize = 8;
static STEP: AtomicU64 = AtomicU64::new(0);
static CASE: Mutex<String> = Mutex::new(String::new());

/// Begins a new case, which has this much time. If it panics, the message names the
/// case and the step.
pub fn begin(case: String, seconds: u32) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            say_where("failed");
            usual(panic);
        }));
    });
    *CASE.lock().unwrap_or_else(|e| e.into_inner()) = case;
    // SAFETY: the handler ends the process and calls, besides printing, only what a handler may;
    // the timer is this process's.
    unsafe {
        libc::signal(libc::SIGALRM, alarm as extern "C" fn(libc::c_int) as libc::sighandler_t);
        libc::alarm(seconds);
    }
}

/// Writes down the step that the case has reached.
pub fn at(step: u64) {
    STEP.store(step, Ordering::Relaxed);
}

pub(crate) fn add(pid: i32) {
    let taken =
        CHILDREN.iter().any(|c| c.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).is_ok());
    assert!(taken, "more than {} children", CHILDREN.len());
}

pub(crate) fn remove(pid: i32) {
    for child in &CHILDREN {
        let _ = child.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn say_where(what: &str) {
    let step = STEP.load(Ordering::Relaxed);
    match CASE.try_lock() {
        Ok(case) => eprintln!("{what}: {case}, step {step}"),
        Err(_) => eprintln!("{what}: step {step}"),
    }
}

/// Prints without allocating: the signal may have come in the middle of an allocation.
extern "C" fn alarm(_: libc::c_int) {
    say_where("watchdog: no end in sight");
    for (number, child) in CHILDREN.iter().enumerate() {
        let pid = child.load(Ordering::Relaxed);
        if pid > 0 {
            for file in ["stat", "syscall"].into_iter().filter(|_| number < SHOWN) {
                say(pid, file);
            }
            // SAFETY: kill may be called from a signal handler; the child is ours and not yet
            // waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
    // SAFETY: _exit may be called from a signal handler.
    unsafe { libc::_exit(1) }
}

/// Prints the beginning of a file in /proc/PID.
fn say(pid: i32, file: &str) {
    let (mut path, mut text) = ([0u8; 64], [0u8; 100]);
    let _ = write!(&mut path[..63], "/proc/{pid}/{file}");
    // SAFETY: the path ends with a zero; the buffer is as long as said; the descriptor is checked.
    // All three may be called from a signal handler.
    let length = unsafe {
        let fd = libc::open(path.as_ptr().cast(), libc::O_RDONLY);
        if fd < 0 {
            return;
        }
        let length = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        length.max(0) as usize
    };
    let text = std::str::from_utf8(&text[..length]).unwrap_or("?");
    eprintln!("watchdog: process {pid}: {file}: {}", text.trim_end());
}
