//! The launcher's children: the ranks, and their orphans.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// From now on, orphans of descendants become children of this process.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes a number.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A child that has ended and was not yet waited for. It stays so.
pub fn ended_child() -> Option<u32> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid place for the result, zeroed, so that it can be read also if the call finds nobody;
    // it describes a child if the call succeeds.
    let pid = unsafe {
        if libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) != 0 {
            return None;
        }
        info.assume_init_ref().si_pid()
    };
    u32::try_from(pid).ok().filter(|&pid| pid != 0)
}

/// Waits for a child that has ended.
pub fn reap(pid: u32) {
    if let Some(pid) = raw(pid) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// After all ranks have ended: ends what they left running, with SIGTERM, after the grace time with SIGKILL.
/// Says so if wanted.
pub fn end_orphans(grace: Duration, say: bool) {
    let deadline = Instant::now() + grace;
    let mut told: Vec<u32> = Vec::new();
    loop {
        while let Some(pid) = ended_child() {
            reap(pid);
            told.retain(|&t| t != pid);
        }
        let orphans = children();
        if orphans.is_empty() {
            return;
        }
        let late = Instant::now() >= deadline;
        for pid in orphans {
            // A child that was not waited for: its pid is its own.
            let Some(child) = raw(pid) else { continue };
            if late {
                let _ = kill_process(child, Signal::KILL);
            } else if !told.contains(&pid) {
                if say {
                    eprintln!("towpath: ending process {pid}, which was left running");
                }
                let _ = kill_process(child, Signal::TERM);
                let _ = kill_process(child, Signal::CONT);
                told.push(pid);
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The children of this process.
fn children() -> Vec<u32> {
    let me = std::process::id();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| parent_of(pid) == Some(me))
        .collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may contain anything: state, parent.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
