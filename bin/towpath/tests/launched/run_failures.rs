//! `towpath run`: ranks that fail, signals that end them, and orphans.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use crate::launching::common::{Directory, Member, Watchdog, member};
use crate::launching::{is_gone, lines, signal, towpath, until, with_default_signals, with_member};

#[test]
fn a_signal_that_ends_the_ranks_is_no_crash() {
    let dog = Watchdog::new("a_signal_that_ends_the_ranks_is_no_crash");
    let directory = Directory::new();
    let mut run = with_member(&dog, &directory, &["-n", "3", "--world", "ended"], &["wait"]);
    for _ in 0..3 {
        assert!(run.line().contains("is ready"));
    }
    assert_eq!(directory.files().len(), 1);
    signal(run.pid(), libc::SIGTERM);
    let (status, _, errors) = run.finish();
    assert_eq!((status.code(), errors.as_str()), (Some(128 + libc::SIGTERM), ""));
    assert_eq!(directory.files(), [""; 0], "nothing is left behind");
}

#[test]
fn a_crash_is_reported_and_the_others_are_stopped() {
    let dog = Watchdog::new("a_crash_is_reported_and_the_others_are_stopped");
    let directory = Directory::new();
    let wait = member().to_str().unwrap();
    let script = format!(
        "case $TOWPATH_RANK in
           1) sleep 0.1; kill -ABRT $$;;
           2) trap '' TERM; echo stubborn $$; while :; do sleep 0.05; done;;
           *) exec {wait} wait;;
         esac"
    );
    let (status, output, errors) = towpath(&dog, &directory, &["-n", "4", "sh", "-c", &script]).finish();
    assert_eq!(status.code(), Some(128 + libc::SIGABRT), "{errors}");
    for part in ["rank 1 (sh, process ", "killed by SIGABRT (signal 6", "stopping the others"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert_eq!(
        errors.lines().filter(|l| l.contains("process ")).count(),
        1,
        "only the crash is news: {errors}"
    );
    let stubborn = output.lines().find_map(|l| l.strip_prefix("stubborn ")).unwrap();
    assert!(is_gone(stubborn.parse().unwrap()));
}

#[test]
fn survivors_learn_of_a_death_and_may_go_on() {
    let dog = Watchdog::new("survivors_learn_of_a_death_and_may_go_on");
    let directory = Directory::new();
    for (how, code, says) in [
        ("kill", 128 + libc::SIGKILL, "was killed by SIGKILL"),
        ("abort", 128 + libc::SIGABRT, "was killed by SIGABRT"),
        ("exit", 7, "ended with code 7 without having left the world"),
        ("before", 9, "ended with code 9 without having entered the world"),
        ("leave", 3, "ended with code 3 after it had left the world"),
        ("error", 70, "ended with code 70 after it had left the world"),
        ("panic", 101, "ended with code 101"),
    ] {
        let options = ["-n", "4", "--on-death", "report"];
        let (status, output, errors) = with_member(&dog, &directory, &options, &["crash", "2", how]).finish();
        assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{how}: {errors}");
        assert_eq!(status.code(), Some(code), "{how}: {errors}");
        assert!(errors.contains("rank 2 (") && errors.contains(says), "{how}: {errors}");
    }
}

#[test]
fn failure_of_a_rank_stops_the_others() {
    let dog = Watchdog::new("failure_of_a_rank_stops_the_others");
    let directory = Directory::new();
    // The others wait for ever for one that is not there any more, or was never.
    for (how, code, circumstances) in [
        ("before", 9, " without having entered the world"),
        ("exit", 7, " without having left the world"),
        ("leave", 3, " after it had left the world"),
        ("error", 70, " after it had left the world"),
        ("panic", 101, ""),
    ] {
        let (status, output, errors) =
            with_member(&dog, &directory, &["-n", "4"], &["crash", "2", how, "wait"]).finish();
        assert_eq!((status.code(), output.as_str()), (Some(code), ""), "{how}: {errors}");
        let said = format!("ended with code {code}{circumstances}");
        assert!(errors.contains("rank 2 (") && errors.contains(&said), "{how}: {errors}");
        // The very last lines; a panic has its own before.
        assert!(errors.ends_with("; stopping the others\n"), "{how}: {errors}");
    }
}

#[test]
fn failure_without_a_world_stops_the_others() {
    let dog = Watchdog::new("failure_without_a_world_stops_the_others");
    let directory = Directory::new();
    let script = "[ $TOWPATH_RANK = 1 ] && exit 6; exec sleep 1000";
    let (status, _, errors) = towpath(&dog, &directory, &["-n", "3", "sh", "-c", script]).finish();
    assert_eq!(status.code(), Some(6), "{errors}");
    assert!(
        errors.contains("rank 1 (sh, process ") && errors.contains("ended with code 6; stopping"),
        "{errors}"
    );
    // Each is said where the others go on.
    let script = "exit $((TOWPATH_RANK + 1))";
    let (status, _, errors) =
        towpath(&dog, &directory, &["-n", "3", "--on-death", "report", "sh", "-c", script]).finish();
    assert!((1..=3).contains(&status.code().unwrap()), "{errors}");
    for rank in 0..3 {
        let said =
            |l: &str| l.contains(&format!("rank {rank} (")) && l.contains(&format!("code {}", rank + 1));
        assert_eq!(errors.lines().filter(|l| said(l)).count(), 1, "{errors}");
    }
}

#[test]
fn code_after_a_kill_does_not_hide_the_kill() {
    let dog = Watchdog::new("code_after_a_kill_does_not_hide_the_kill");
    let directory = Directory::new();
    // The launcher sees both ends at one look: it is stopped until rank 1 was killed, and then
    // rank 0 has ended with a code.
    let script = "
        cd $TOWPATH_SHM_DIR
        is() { state=$(sed 's/.*) //' /proc/$1/stat); [ \"${state%% *}\" = $2 ]; }
        [ $TOWPATH_RANK = 1 ] && { echo $$ >pid.new; mv pid.new pid; exec sleep 1000; }
        until [ -e pid ]; do sleep 0.01; done
        ( until is $$ Z; do sleep 0.01; done; kill -CONT $PPID ) &
        kill -STOP $PPID
        until is $PPID T; do sleep 0.01; done
        kill -KILL $(cat pid)
        until is $(cat pid) Z; do sleep 0.01; done
        exit 7";
    let (status, _, errors) =
        towpath(&dog, &directory, &["-n", "2", "--on-death", "report", "sh", "-c", script]).finish();
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{errors}");
    assert!(errors.contains("rank 0 (") && errors.contains("rank 1 ("), "both are said: {errors}");
}

#[test]
fn failure_that_closed_output_causes_ends_the_run() {
    let dog = Watchdog::new("failure_that_closed_output_causes_ends_the_run");
    let directory = Directory::new();
    let (towpath, member) = (env!("CARGO_BIN_EXE_towpath"), member().display());
    // Each rank prints after the last barrier but one; `println!` panics if it can't.
    for redirection in ["> /dev/full", "| true"] {
        let script =
            format!("{towpath} run -n 4 {member} print-and-meet {redirection}; echo ${{PIPESTATUS[0]}}");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("TOWPATH_SHM_DIR", &directory.0);
        let (_, output, errors) = dog.spawn(command).finish();
        assert!(output.ends_with("101\n"), "{redirection}: {output} {errors}");
        assert!(errors.contains("; stopping the others"), "{redirection}: {errors}");
    }
}

#[test]
fn ranks_do_not_outlive_the_launcher() {
    let dog = Watchdog::new("ranks_do_not_outlive_the_launcher");
    let directory = Directory::new();
    let mut run = with_member(&dog, &directory, &["-n", "3"], &["wait"]);
    let pids: HashSet<u32> =
        (0..3).map(|_| run.line().rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    run.kill();
    assert_eq!(run.wait().signal(), Some(libc::SIGKILL));
    until(|| pids.iter().all(|&pid| is_gone(pid)));
}

/// Ranks that have started a process each; the pids of all.
fn with_grandchildren(dog: &Watchdog, directory: &Directory, options: &[&str]) -> (Member, Vec<u32>) {
    // The second ignores what it can, in a session of its own.
    let script = "sleep 1000 & echo $!; setsid sh -c 'trap \"\" TERM HUP INT; echo $$; while :; do sleep 1; done' & echo $$; wait";
    let mut run = towpath(dog, directory, &[options, &["-n", "2", "sh", "-c", script]].concat());
    let pids = (0..6).map(|_| run.line().parse().unwrap()).collect();
    (run, pids)
}

#[test]
fn nothing_outlives_a_killed_launcher() {
    let dog = Watchdog::new("nothing_outlives_a_killed_launcher");
    let directory = Directory::new();
    let (mut run, pids) = with_grandchildren(&dog, &directory, &["--world", "killed"]);
    run.kill();
    assert_eq!(run.wait().signal(), Some(libc::SIGKILL));
    until(|| pids.iter().all(|&pid| is_gone(pid)));
    until(|| directory.files().is_empty());
}

#[test]
fn nothing_outlives_a_killed_supervisor() {
    let dog = Watchdog::new("nothing_outlives_a_killed_supervisor");
    let directory = Directory::new();
    // A rank kills its parent: the supervisor, as long as the rank lives.
    let script =
        "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; [ $TOWPATH_RANK = 1 ] && kill -KILL $PPID; wait";
    let (status, output, errors) = towpath(&dog, &directory, &["-n", "2", "sh", "-c", script]).finish();
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{errors}");
    assert!(errors.contains("supervisor"), "{errors}");
    let pids: Vec<u32> = output.lines().map(|l| l.parse().unwrap()).collect();
    assert!(pids.len() >= 2 && pids.iter().all(|&pid| is_gone(pid)), "{errors}");
}

#[test]
fn stopped_ranks_end_on_sigterm() {
    let dog = Watchdog::new("stopped_ranks_end_on_sigterm");
    let directory = Directory::new();
    for (name, number) in [("TERM", libc::SIGTERM), ("HUP", libc::SIGHUP), ("INT", libc::SIGINT)] {
        let script = format!(
            "trap 'echo caught; exit 4' {name}; echo $$; kill -STOP $$; while :; do sleep 0.02; done"
        );
        let mut run = towpath(&dog, &directory, &["-n", "2", "--grace", "1e19", "sh", "-c", &script]);
        let pids: Vec<u32> = (0..2).map(|_| run.line().parse().unwrap()).collect();
        let is_stopped =
            |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
        until(|| pids.iter().all(|&pid| is_stopped(pid)));
        signal(run.pid(), number);
        let (status, output, errors) = run.finish();
        assert_eq!((status.code(), output.as_str()), (Some(4), "caught\ncaught\n"), "{name}: {errors}");
    }
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let dog = Watchdog::new("ranks_that_ignore_sigterm_are_killed");
    let directory = Directory::new();
    let script = "[ $TOWPATH_RANK = 1 ] && trap '' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = towpath(&dog, &directory, &["-n", "2", "--grace", "0.3", "sh", "-c", script]);
    let pids: Vec<u32> = (0..2).map(|_| run.line().parse().unwrap()).collect();
    signal(run.pid(), libc::SIGTERM);
    let (status, _, errors) = run.finish();
    assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{errors}");
    assert!(errors.contains("within 0.3 s of SIGTERM: rank 1\n"), "{errors}");
    assert!(pids.iter().all(|&pid| is_gone(pid)));
    // Other signals are the ranks' to ignore.
    let script = "trap '' INT; trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done";
    let mut run = towpath(&dog, &directory, &["-n", "1", "--grace", "0.1", "sh", "-c", script]);
    assert_eq!(run.line(), "ready");
    signal(run.pid(), libc::SIGINT);
    std::thread::sleep(Duration::from_millis(400));
    signal(run.pid(), libc::SIGUSR1);
    assert_eq!(run.finish().0.code(), Some(5));
}

#[test]
fn nothing_is_left_running() {
    let dog = Watchdog::new("nothing_is_left_running");
    let directory = Directory::new();
    let script = "(trap '' TERM; sleep 1000) & echo $!; sleep 1000 & echo $!";
    let (status, output, errors) = towpath(&dog, &directory, &["-n", "2", "sh", "-c", script]).finish();
    assert!(status.success());
    let pids: Vec<u32> = output.lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|&pid| is_gone(pid)), "{errors}");
    assert!(errors.contains("left running"), "{errors}");
}

/// A signal to the whole process group, as `timeout`, shells and batch systems send it.
///
/// The command, its supervisor and the ranks each get the signal themselves. Several rounds, since
/// the outcome depends on which of them is first.
#[test]
fn sigterm_to_the_process_group_is_not_lost() {
    let dog = Watchdog::new("sigterm_to_the_process_group_is_not_lost");
    let directory = Directory::new();
    let script = "trap '' TERM; echo ready; while :; do sleep 0.02; done";
    let rounds: Vec<_> = (0..12)
        .map(|round| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
            // In every other round the ranks end by the signal, which is no failure of theirs.
            let script = if round % 2 == 0 { script } else { "echo ready; while :; do sleep 0.02; done" };
            command.args(["run", "-n", "2", "--grace", "0.3", "sh", "-c", script]).process_group(0);
            command.env("TOWPATH_SHM_DIR", &directory.0);
            (round, dog.spawn(with_default_signals(command)))
        })
        .collect();
    for (round, mut run) in rounds {
        assert_eq!([run.line(), run.line()], ["ready", "ready"]);
        // SAFETY: the group of a child of this test's own, not yet waited for.
        assert_eq!(unsafe { libc::kill(-(run.pid() as i32), libc::SIGTERM) }, 0);
        let (status, _, errors) = run.finish();
        if round % 2 == 0 {
            assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{errors}");
            assert!(errors.contains("within 0.3 s of SIGTERM: rank 0, 1\n"), "{errors}");
        } else {
            assert_eq!((status.code(), errors.as_str()), (Some(128 + libc::SIGTERM), ""));
        }
    }
}
