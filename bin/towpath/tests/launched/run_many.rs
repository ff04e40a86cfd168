//! `towpath run` with hundreds of ranks, 1,024 in a longer form.
//!
//! Also with more pipes than the soft limit of open files.

use std::process::Command;
use std::time::Duration;

use crate::launching::common::{Directory, Member, Watchdog};
use crate::launching::{with_default_signals, with_member};

/// `towpath run` under a limit of open files, which a shell sets.
fn limited(dog: &Watchdog, directory: &Directory, limit: &str, arguments: &[&str]) -> Member {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_towpath")]);
    command.arg("run").args(arguments).env("TOWPATH_SHM_DIR", &directory.0);
    dog.spawn(with_default_signals(command))
}

/// The reason why this user can't start so many processes, if there is one.
fn forbidden(many: u64) -> Option<String> {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let own = rustix::process::getrlimit(rustix::process::Resource::Nproc).current;
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    let limits = [
        ("ulimit -u", own.filter(|_| !rustix::process::geteuid().is_root())),
        ("/proc/sys/kernel/pid_max", number("/proc/sys/kernel/pid_max")),
        ("pids.max", number(&format!("/sys/fs/cgroup{group}/pids.max"))),
    ];
    let tight = limits.into_iter().find(|(_, limit)| limit.is_some_and(|limit| limit < many + 500));
    tight.map(|(what, limit)| format!("{what} is {limit:?}, too few for {many} processes"))
}

fn meet(many: u32, name: &'static str) {
    if let Some(why) = forbidden(many.into()) {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let dog = Watchdog::with(name, Duration::from_secs(400));
    let directory = Directory::new();
    let (status, output, errors) =
        with_member(&dog, &directory, &["-n", &many.to_string()], &["hello"]).finish();
    assert!(status.success(), "{errors}");
    let all = format!(" of {many} met {many}");
    let mut ranks: Vec<u32> = output
        .lines()
        .map(|line| {
            let rank = line.strip_prefix("rank ").and_then(|l| l.strip_suffix(&all));
            rank.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
        })
        .collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..many).collect::<Vec<_>>());
}

#[test]
fn hundreds_of_ranks_meet() {
    meet(320, "hundreds_of_ranks_meet");
}

#[test]
#[ignore = "ten seconds of both cores"]
fn thousand_ranks_meet() {
    meet(1024, "thousand_ranks_meet");
}

#[test]
fn soft_limit_of_files_is_raised_and_put_back() {
    let dog = Watchdog::new("soft_limit_of_files_is_raised_and_put_back");
    let directory = Directory::new();
    let arguments = ["-n", "150", "--label", "sh", "-c", "ulimit -Sn"];
    let (status, output, errors) = limited(&dog, &directory, "-Sn 200", &arguments).finish();
    assert!(status.success(), "{errors}");
    assert_eq!(output.lines().count(), 150);
    assert!(output.lines().all(|line| line.ends_with("] 200")), "{output}");
}

#[test]
fn hard_limit_of_files_that_is_too_low_is_named() {
    let dog = Watchdog::new("hard_limit_of_files_that_is_too_low_is_named");
    let directory = Directory::new();
    let arguments = ["-n", "150", "--label", "true"];
    let (status, _, errors) = limited(&dog, &directory, "-n 200", &arguments).finish();
    assert_eq!(status.code(), Some(125), "{errors}");
    assert!(errors.contains("364 open files") && errors.contains("limit is 200"), "{errors}");
    for remedy in ["ulimit -Hn", "LimitNOFILE", "--label"] {
        assert!(errors.contains(remedy), "{errors}");
    }
    // Without labels there are no pipes.
    let (status, _, errors) = limited(&dog, &directory, "-n 200", &["-n", "150", "true"]).finish();
    assert!(status.success(), "{errors}");
}
