//! Helpers of the tests of the launchers.
#![allow(dead_code)]

#[path = "../../../../core/shm/tests/common/mod.rs"]
pub mod common;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{Directory, Member, Watchdog, is_fresh, member};

/// A command of `towpath` in a directory of its own: its exit code, output and errors.
pub fn command(dog: &Watchdog, directory: &Directory, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.args(arguments).env("TOWPATH_SHM_DIR", &directory.0).env("TOWPATH_MPICH_DIR", &directory.0);
    let (status, output, errors) = dog.spawn(command).finish();
    (status.code().unwrap(), output, errors)
}

/// Folder of the façade's examples, which are built first.
///
/// They belong to another package, so cargo builds them only when that is tested too. It would
/// build them again where it did, with the features that they need alone.
pub fn examples() -> &'static PathBuf {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        let profile = Path::new(env!("CARGO_BIN_EXE_towpath")).parent().unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/towpath/examples");
        let mut names = std::fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path());
        if names.all(|name| is_fresh(&profile.join("examples").join(name.file_stem().unwrap()))) {
            return profile.join("examples");
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "towpath", "--examples"]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        assert!(cargo.status().unwrap().success(), "building the examples");
        profile.join("examples")
    })
}

/// Address of this program's own, at which no other test listens.
pub fn own_address() -> String {
    let pid = std::process::id();
    format!("127.{}.{}.{}", 1 + (pid >> 16) % 250, (pid >> 8) % 256, 1 + pid % 250)
}

/// `towpath run` with options, then the program and its arguments.
pub fn towpath(dog: &Watchdog, directory: &Directory, arguments: &[&str]) -> Member {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("run").args(arguments).env("TOWPATH_SHM_DIR", &directory.0);
    dog.spawn(with_default_signals(command))
}

/// A command that starts with no signal ignored or blocked, however these tests were
/// started (`nohup`, a script's `&`).
pub fn with_default_signals(mut command: Command) -> Command {
    let prepare = || {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set before it is used; both calls take valid
        // arguments and no handlers.
        unsafe {
            for signal in 1..32 {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command
}

/// `towpath run` with the member as the program.
pub fn with_member(dog: &Watchdog, directory: &Directory, options: &[&str], what: &[&str]) -> Member {
    let member = member().to_str().unwrap();
    let arguments: Vec<&str> = options.iter().copied().chain([member]).chain(what.iter().copied()).collect();
    towpath(dog, directory, &arguments)
}

/// Script after which frames that leave at `$LINK` come late, or not at all.
///
/// `percent` of a hundred are lost. Without netem they queue behind each other at that rate, beyond
/// a burst of bytes, and a filter draws those that it drops: it loads a random number, and returns
/// TC_ACT_SHOT if that is small.
pub fn delay_and_lose(percent: u32, rate: &str, burst: u32) -> String {
    let small = u32::MAX / 100 * percent;
    format!(
        "tc qdisc add dev $LINK root netem delay 2ms 1ms loss {percent}% 2>/dev/null || {{
            tc qdisc add dev $LINK root tbf rate {rate} burst {burst} latency 50ms &&
            tc qdisc add dev $LINK clsact && tc filter add dev $LINK egress bpf da bytecode \
                '4,32 0 0 4294963256,53 1 0 {small},6 0 0 2,6 0 0 0'; }}"
    )
}

pub fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

pub fn is_gone(pid: u32) -> bool {
    // A zombie that no process waits for is as good as gone.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
        || !Path::new(&format!("/proc/{pid}")).exists()
}

pub fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

pub fn signal(pid: u32, signal: i32) {
    // SAFETY: a process of this test's own, not yet waited for.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}
