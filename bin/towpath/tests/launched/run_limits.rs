//! `towpath run` where the user may start few processes, or a process has little address
//! space.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use crate::launching::common::{Directory, Watchdog};

/// The launcher with these options and the program `true`, as a user that may have this
/// many processes.
fn with_processes(
    dog: &Watchdog,
    directory: &Directory,
    most: u32,
    options: &[&str],
) -> (Option<i32>, String) {
    // A user that has no processes and may perhaps not look into the folder of the launcher: it
    // gets a descriptor.
    let file = File::open(env!("CARGO_BIN_EXE_towpath")).unwrap();
    let descriptor = file.as_raw_fd();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "64123", "--regid", "64123", "--clear-groups"]);
    command.arg(format!("/proc/self/fd/{descriptor}")).arg("run").args(options).arg("true");
    command.env("TOWPATH_SHM_DIR", &directory.0).current_dir("/");
    let prepare = move || {
        let limit = libc::rlimit { rlim_cur: most.into(), rlim_max: most.into() };
        // SAFETY: takes an open descriptor and numbers; the limit outlives the call.
        unsafe {
            libc::fcntl(descriptor, libc::F_SETFD, 0);
            libc::setrlimit(libc::RLIMIT_NPROC, &limit);
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(prepare) };
    let (status, _, errors) = dog.spawn(command).finish();
    (status.code(), errors)
}

#[test]
fn too_few_processes_are_an_error_with_a_remedy() {
    let dog = Watchdog::new("too_few_processes_are_an_error_with_a_remedy");
    let directory = Directory::new();
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("SKIPPED: becoming another user needs root and setpriv; the limit does not hold for root");
        return;
    }
    for (most, options, code, says) in [
        // Not even a supervisor.
        (1, &["-n", "1"][..], 125, "starting a process"),
        // A supervisor, and one rank or the other.
        (
            2,
            &["-n", "1"],
            125,
            "true can't be started: too many processes of this user: raise the limit (`ulimit -u`)",
        ),
        (3, &["-n", "2"], 125, "ulimit -u"),
        (3, &["-n", "1"], 0, ""),
        (4, &["-n", "2"], 0, ""),
        // Labels need two threads more.
        (3, &["-n", "1", "--label"], 125, "ulimit -u"),
        (5, &["-n", "1", "--label"], 0, ""),
    ] {
        let (found, errors) = with_processes(&dog, &directory, most, options);
        assert_eq!(found, Some(code), "{most} {options:?}: {errors}");
        assert!(errors.contains(says) && !errors.contains("panicked"), "{most} {options:?}: {errors}");
    }
}

#[test]
fn too_little_address_space_is_an_error() {
    let dog = Watchdog::new("too_little_address_space_is_an_error");
    let directory = Directory::new();
    let with_limit = |kilobytes: u64, arguments: &str| {
        let mut command = Command::new("sh");
        let towpath = env!("CARGO_BIN_EXE_towpath");
        command.args(["-c", &format!("ulimit -v {kilobytes}; exec {towpath} {arguments}")]);
        command.env("TOWPATH_SHM_DIR", &directory.0);
        // Rust's library waits for itself for ever where it finds no memory for a backtrace.
        command.env_remove("RUST_BACKTRACE");
        let (status, _, errors) = dog.spawn(command).finish();
        // As a shell has it.
        (status.code().or_else(|| status.signal().map(|signal| 128 + signal)), errors)
    };
    // The least with which the program can be loaded at all, to 256 KiB.
    let (mut too_little, mut enough) = (1 << 10, 1 << 22);
    while enough - too_little > 256 {
        let middle = (enough + too_little) / 2;
        let loads = with_limit(middle, "--version").0 == Some(0);
        *(if loads { &mut enough } else { &mut too_little }) = middle;
    }
    let mut codes = Vec::new();
    for more in (0..16 << 10).step_by(1 << 10) {
        for options in ["", "--label"] {
            let (code, errors) = with_limit(enough + more, &format!("run -n 2 {options} true"));
            // The C library and Rust's give up by themselves where a new thread finds no memory at
            // all.
            let by_itself = errors.contains("failed to allocate an alternative stack");
            assert!(by_itself || !errors.contains("panicked"), "{more} KiB more: {errors}");
            let gave_up = code == Some(134) && errors.contains("memory");
            assert!(matches!(code, Some(0 | 125)) || gave_up, "{more} KiB more: {code:?}: {errors}");
            codes.push(code);
        }
    }
    assert!(codes.contains(&Some(125)) && codes.contains(&Some(0)), "{codes:?}");
}
