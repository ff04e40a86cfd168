//! Pseudo-terminals for the tests.
//!
//! The near end is the terminal, the far end the program's.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

/// Opens a pseudo-terminal and returns its near and its far end.
///
/// Both are closed in programs that are started meanwhile: a program that inherited the near end
/// would keep the terminal from hanging up, and block once the terminal is full.
pub fn open() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let near = openpt(flags).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let far = ioctl_tiocgptpeer(&near, flags).unwrap();
    (near.into(), far)
}

/// Time that a child may take. The slowest takes three seconds in a debug build.
const PATIENCE: Duration = Duration::from_secs(200);

/// Kills a child that takes too long, and says which.
///
/// Its test then fails by the child's status.
pub struct Watchdog(#[expect(dead_code, reason = "its end ends the watch")] Sender<()>);

impl Watchdog {
    /// Watches this child until the watchdog is dropped.
    pub fn of(child: &Child, arguments: &str) -> Watchdog {
        let (end, ended) = channel::<()>();
        let (pid, arguments) = (Pid::from_child(child), arguments.to_string());
        std::thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("killed after {} s: {arguments}", PATIENCE.as_secs());
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Watchdog(end)
    }
}
