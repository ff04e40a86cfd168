//! The children of this process: started ones and adopted orphans.
//!
//! A number found in /proc may belong to any process: /proc may be another pid namespace's. So a
//! signal goes only to a number of which the kernel says that it is a child's that was not waited
//! for (waitid): as long as no thread waits for it, the number stays its own.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpid, kill_process, set_child_subreaper,
    waitid, waitpid,
};

/// The largest pid that Linux gives, plus one.
const PID_LIMIT: u32 = 1 << 22;

/// End of a child: exit code or signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    Code(u8),
    Signal(i32),
}

impl ChildEnd {
    fn of(code: Option<i32>, signal: Option<i32>) -> Option<ChildEnd> {
        code.map(|code| ChildEnd::Code(code as u8)).or(signal.map(ChildEnd::Signal))
    }
}

/// Makes this process adopt the orphans of its descendants from now on.
pub fn adopt_orphans() -> io::Result<()> {
    // The kernel takes any number but 0 for "yes".
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Returns a child that has ended and was not yet waited for. It is not waited for here.
pub fn ended_child() -> Option<u32> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: `info` is a valid place for the result, zeroed, so that it can be read also if no
        // child has ended. (Rustix's `waitid` does not tell the child's number.)
        let (result, ended) = unsafe {
            let result = libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options);
            (result, info.assume_init_ref().si_pid())
        };
        if result == 0 {
            return u32::try_from(ended).ok().filter(|&pid| pid != 0);
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Waits for a child that has ended.
pub fn reap(pid: u32) -> Option<ChildEnd> {
    let (_, status) = waitpid(Some(raw(pid)?), WaitOptions::NOHANG).ok()??;
    ChildEnd::of(status.exit_status(), status.terminating_signal())
}

/// The end of a child that has ended. It is not waited for here.
pub fn end_of(pid: u32) -> Option<ChildEnd> {
    let status = look(WaitId::Pid(raw(pid)?)).ok()??;
    ChildEnd::of(status.exit_status(), status.terminating_signal())
}

/// Returns whether a process is a child of this one that was not waited for.
fn is_child(pid: u32) -> bool {
    raw(pid).is_some_and(|pid| exists(WaitId::Pid(pid)))
}

/// Returns whether there is such a child. None is waited for.
fn exists(child: WaitId<'_>) -> bool {
    look(child).is_ok()
}

/// The end of such a child, if one has ended. None is waited for.
fn look(child: WaitId<'_>) -> rustix::io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(child.clone(), options))
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Sends a signal to a child that was not waited for.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(raw) = raw(pid)
        && is_child(pid)
    {
        let _ = kill_process(raw, signal);
    }
}

/// Ends all children by SIGTERM, after the grace time by SIGKILL, and waits for them.
///
/// Orphans that they leave are ended too, until no child is left. `say` gets the pid of each child
/// that had not ended by itself.
pub fn end_orphans(grace: Duration, mut say: impl FnMut(u32)) {
    let deadline = Instant::now() + grace;
    let mut told: Vec<u32> = Vec::new();
    let mut pause = Duration::from_micros(100);
    loop {
        while let Some(pid) = ended_child() {
            reap(pid);
            told.retain(|&t| t != pid);
        }
        let orphans = all(&told);
        if orphans.is_empty() {
            return;
        }
        let late = Instant::now() >= deadline;
        for pid in orphans {
            if !told.contains(&pid) {
                say(pid);
                told.push(pid);
                signal(pid, Signal::TERM);
                // One that is stopped could not react.
                signal(pid, Signal::CONT);
            }
            if late {
                signal(pid, Signal::KILL);
            }
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(5));
    }
}

/// The children of this process.
///
/// Without a list in /proc these are the `known` ones, as long as there are any.
fn all(known: &[u32]) -> Vec<u32> {
    if !exists(WaitId::All) {
        return Vec::new();
    }
    for candidates in [&listed()[..], known] {
        let found: Vec<u32> = candidates.iter().copied().filter(|&pid| is_child(pid)).collect();
        if !found.is_empty() {
            return found;
        }
    }
    let recent = recent();
    if recent.is_empty() { by_number() } else { recent }
}

/// Children that /proc lists, if it is there.
///
/// The list may lack some, and in another PID namespace the numbers are other processes'.
fn listed() -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    lists
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Children with numbers between this process's and that of a thread made now.
///
/// Linux gives numbers in turn, so these are all, unless it has been round since this process
/// began.
fn recent() -> Vec<u32> {
    let Ok(newest) = thread::Builder::new().spawn(rustix::thread::gettid) else { return Vec::new() };
    let Ok(newest) = newest.join() else { return Vec::new() };
    let (own, newest) = (std::process::id(), newest.as_raw_nonzero().get().unsigned_abs());
    let given = if own < newest { (own..newest).chain(0..0) } else { (own..PID_LIMIT).chain(1..newest) };
    given.filter(|&pid| is_child(pid)).collect()
}

/// Children found by asking for every number that there can be (one or two seconds).
fn by_number() -> Vec<u32> {
    (1..PID_LIMIT).filter(|&pid| is_child(pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_with_and_without_proc() {
        // Other tests of this process have children too.
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(
            is_child(child.id()) && !is_child(std::process::id()) && !is_child(1) && !is_child(PID_LIMIT)
        );
        assert!(all(&[]).contains(&child.id()));
        assert!(by_number().contains(&child.id()) && recent().contains(&child.id()));
        signal(child.id(), Signal::KILL);
        while ended_child() != Some(child.id()) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(reap(child.id()), Some(ChildEnd::Signal(libc::SIGKILL)));
        assert!(!is_child(child.id()));
        // The number is no child's any more: no process gets the signal.
        signal(child.id(), Signal::KILL);
        assert!(child.wait().is_err());
    }
}
