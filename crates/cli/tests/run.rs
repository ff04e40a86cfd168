//! `towpath run`, with shell scripts and with the example `member` of shm.

#[path = "../../shm/tests/common/mod.rs"]
mod common;

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use common::{Directory, Member, Watchdog, member};

/// `towpath run` with options, then the program and its arguments. It starts with no signal ignored or blocked, however these tests were started (`nohup`, a script's `&`).
fn towpath(dog: &Watchdog, directory: &Directory, arguments: &[&str]) -> Member {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("run").args(arguments).env("TOWPATH_SHM_DIR", &directory.0);
    let with_default_signals = || {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set before it is used; both calls take valid arguments and no handlers.
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
    unsafe { command.pre_exec(with_default_signals) };
    dog.spawn(command)
}

/// With the member as the program.
fn with_member(dog: &Watchdog, directory: &Directory, options: &[&str], what: &[&str]) -> Member {
    let member = member().to_str().unwrap();
    let arguments: Vec<&str> = options.iter().copied().chain([member]).chain(what.iter().copied()).collect();
    towpath(dog, directory, &arguments)
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn is_gone(pid: u32) -> bool {
    // A zombie that nobody waits for is as good as gone.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
        || !Path::new(&format!("/proc/{pid}")).exists()
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: a process of this test's own, not yet waited for.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

#[test]
fn ranks_find_each_other() {
    let dog = Watchdog::new("ranks_find_each_other");
    let directory = Directory::new();
    for (options, waiting) in [(&["-n", "5"][..], "adaptive"), (&["-n", "5", "--world", "hello"], "park")] {
        let options = [options, &["--waiting", waiting, "--algorithm", "ticket"]].concat();
        let (status, output, errors) = with_member(&dog, &directory, &options, &["hello"]).finish();
        assert!(status.success(), "{errors}");
        let expected: Vec<String> = (0..5).map(|rank| format!("rank {rank} of 5 met 5")).collect();
        assert_eq!(lines(&output), expected);
        assert_eq!(directory.files(), [""; 0], "nothing is left behind");
    }
}

#[test]
fn without_a_launcher_the_error_says_what_to_do() {
    let dog = Watchdog::new("without_a_launcher_the_error_says_what_to_do");
    let directory = Directory::new();
    let (status, _, errors) = dog.start(&directory.0, &["hello"]).finish();
    assert_eq!(status.code(), Some(70));
    assert!(errors.contains("towpath run"), "{errors}");
}

#[test]
fn exit_codes_are_passed_on() {
    let dog = Watchdog::new("exit_codes_are_passed_on");
    let directory = Directory::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 5", 5),
        ("exit $TOWPATH_RANK", 1),
        ("[ $TOWPATH_RANK = 2 ] && exit 9; exit 0", 9),
        ("[ $TOWPATH_RANK = 0 ] && sleep 0.1; exit $((7 - TOWPATH_RANK))", 7),
        ("[ $TOWPATH_SIZE = 3 ]", 0),
    ] {
        let (status, _, errors) = towpath(&dog, &directory, &["-n", "3", "sh", "-c", script]).finish();
        assert_eq!(status.code(), Some(code), "{script}: {errors}");
        assert_eq!(errors, "", "{script}: a code is no crash");
    }
}

#[test]
fn programs_that_cannot_be_started() {
    let dog = Watchdog::new("programs_that_cannot_be_started");
    let directory = Directory::new();
    let no_program = directory.0.join("no-program");
    std::fs::write(&no_program, "no program\n").unwrap();
    let place = directory.0.to_str().unwrap();
    for (program, code, says) in [
        ("towpath-no-such-program", 127, "not found"),
        ("./no/such/program", 127, "not found"),
        (no_program.to_str().unwrap(), 126, "not executable"),
        (place, 126, "not executable"),
    ] {
        let (status, output, errors) = towpath(&dog, &directory, &["-n", "3", program]).finish();
        assert_eq!(status.code(), Some(code), "{program}: {errors}");
        assert!(errors.contains(program) && errors.contains(says), "{errors}");
        assert_eq!(output, "");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    let dog = Watchdog::new("wrong_arguments_are_explained");
    let directory = Directory::new();
    for (arguments, code, says) in [
        (&["-n", "0", "true"][..], 2, "1..=64"),
        (&["-n", "65", "true"], 2, "1..=64"),
        (&["-n", "2"], 2, "PROGRAM"),
        (&["-n", "2", "--waiting", "sleep", "true"], 2, "adaptive"),
        (&["-n", "2", "--algorithm", "best", "true"], 2, "lock-free"),
        (&["-n", "2", "--size", "1T", "true"], 2, "K, M or G"),
        (&["-n", "2", "--size", "1K", "true"], 125, "at least"),
        (&["-n", "2", "--world", "a/b", "true"], 125, "a/b"),
        (&["-n", "2", "--size", "8191G", "true"], 125, "--size"),
    ] {
        let (status, _, errors) = towpath(&dog, &directory, arguments).finish();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(says), "{arguments:?}: {errors}");
    }
}

#[test]
fn labels_stand_before_whole_lines() {
    let dog = Watchdog::new("labels_stand_before_whole_lines");
    let directory = Directory::new();
    let (status, output, errors) =
        with_member(&dog, &directory, &["-n", "12", "--label"], &["lines", "50"]).finish();
    assert!(status.success(), "{errors}");
    let mut expected = Vec::new();
    for rank in 0..12 {
        expected.extend((0..50).map(|i| format!("[{rank:>2}] line {i} of {rank}")));
    }
    let mut on_errors = expected.clone();
    on_errors.sort_unstable();
    assert_eq!(lines(&errors), on_errors);
    // The last line of the output has no end of its own.
    expected.extend((0..12).map(|rank| format!("[{rank:>2}] end of {rank}")));
    expected.sort_unstable();
    assert_eq!(lines(&output), expected);
}

#[test]
fn standard_input_goes_to_rank_0() {
    let dog = Watchdog::new("standard_input_goes_to_rank_0");
    let directory = Directory::new();
    let script = "while read line; do echo $TOWPATH_RANK got $line; done";
    let mut run = towpath(&dog, &directory, &["-n", "3", "sh", "-c", script]);
    run.stdin.as_mut().unwrap().write_all(b"a\nb\n").unwrap();
    let (status, output, _) = run.finish();
    assert!(status.success());
    assert_eq!(output, "0 got a\n0 got b\n");
}

#[test]
fn signals_reach_all_ranks() {
    let dog = Watchdog::new("signals_reach_all_ranks");
    let directory = Directory::new();
    for (name, number) in [
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("INT", libc::SIGINT),
        ("TERM", libc::SIGTERM),
        ("HUP", libc::SIGHUP),
    ] {
        let script = format!("trap 'echo caught; exit 4' {name}; echo ready; while :; do sleep 0.02; done");
        let mut run = towpath(&dog, &directory, &["-n", "3", "sh", "-c", &script]);
        for _ in 0..3 {
            assert_eq!(run.line(), "ready");
        }
        signal(run.pid(), number);
        let (status, output, errors) = run.finish();
        assert_eq!(output, "caught\n".repeat(3), "{name}: {errors}");
        assert_eq!(status.code(), Some(4), "{name}");
    }
}

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
    assert_eq!(errors.lines().filter(|l| l.contains("rank")).count(), 1, "only the crash is news: {errors}");
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
    ] {
        let options = ["-n", "4", "--on-death", "report"];
        let (status, output, errors) = with_member(&dog, &directory, &options, &["crash", "2", how]).finish();
        assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{how}: {errors}");
        assert_eq!(status.code(), Some(code), "{how}: {errors}");
        assert!(errors.contains("rank 2 (") && errors.contains(says), "{how}: {errors}");
    }
    // Whoever leaves first and then fails has harmed nobody.
    let (status, output, errors) =
        with_member(&dog, &directory, &["-n", "4"], &["crash", "2", "leave"]).finish();
    assert_eq!(lines(&output), ["rank 0 lost nobody", "rank 1 lost nobody", "rank 3 lost nobody"]);
    assert_eq!((status.code(), errors.as_str()), (Some(3), ""));
}

#[test]
fn one_that_never_comes_is_a_crash_once_somebody_waits() {
    let dog = Watchdog::new("one_that_never_comes_is_a_crash_once_somebody_waits");
    let directory = Directory::new();
    let wait = member().to_str().unwrap();
    let script = format!("[ $TOWPATH_RANK = 1 ] && exit 6; sleep 0.3; exec {wait} wait");
    let (status, _, errors) = towpath(&dog, &directory, &["-n", "3", "sh", "-c", &script]).finish();
    assert_eq!(status.code(), Some(6), "{errors}");
    assert!(errors.contains("rank 1 (sh, process ") && errors.contains("without having entered"), "{errors}");
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

#[test]
fn closed_and_reused_descriptors_do_not_matter() {
    let dog = Watchdog::new("closed_and_reused_descriptors_do_not_matter");
    let directory = Directory::new();
    for what in ["kept", "closed", "reused"] {
        let (status, output, errors) =
            with_member(&dog, &directory, &["-n", "3"], &["descriptor", what]).finish();
        assert!(status.success(), "{what}: {errors}");
        assert_eq!(lines(&output), ["rank 0 of 3 met 3", "rank 1 of 3 met 3", "rank 2 of 3 met 3"], "{what}");
    }
    let (status, output, errors) =
        with_member(&dog, &directory, &["-n", "1"], &["descriptor", "alone"]).finish();
    assert!(status.success(), "{errors}");
    assert!(output.contains("is `towpath run` still there?"), "{output}");
}

#[test]
fn others_can_open_a_named_world_while_it_runs() {
    let dog = Watchdog::new("others_can_open_a_named_world_while_it_runs");
    let directory = Directory::new();
    // Rank 3 stays free: it ends well without ever having come.
    let wait = member().to_str().unwrap();
    let script = format!("[ $TOWPATH_RANK = 3 ] && exit 0; exec {wait} wait");
    let mut run = towpath(&dog, &directory, &["-n", "4", "--world", "open", "sh", "-c", &script]);
    for _ in 0..3 {
        assert!(run.line().contains("is ready"));
    }
    let mut guest = dog.start(&directory.0, &["stay", "open"]);
    assert_eq!(guest.line(), "entered as 3");
    // A second world of the same name can't be.
    let (status, _, errors) =
        with_member(&dog, &directory, &["-n", "1", "--world", "open"], &["hello"]).finish();
    assert_eq!(status.code(), Some(125));
    assert!(errors.contains("open") && errors.contains("in use"), "{errors}");
    assert!(guest.finish().0.success());
    signal(run.pid(), libc::SIGTERM);
    assert_eq!(run.finish().0.code(), Some(128 + libc::SIGTERM));
    assert_eq!(directory.files(), [""; 0]);
}

#[test]
fn inherited_signal_settings_do_not_confuse() {
    let dog = Watchdog::new("inherited_signal_settings_do_not_confuse");
    let directory = Directory::new();
    let towpath = env!("CARGO_BIN_EXE_towpath");
    // Python starts its children with SIGCHLD as it finds it; some parents ignore it.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("trap '' CHLD HUP; exec {towpath} run -n 2 sh -c 'echo ready; read x; exit 3'"),
    ]);
    command.env("TOWPATH_SHM_DIR", &directory.0);
    let mut run = dog.spawn(command);
    for _ in 0..2 {
        assert_eq!(run.line(), "ready");
    }
    // Ignored from the beginning, as under nohup.
    signal(run.pid(), libc::SIGHUP);
    run.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    let (status, _, errors) = run.finish();
    assert_eq!((status.code(), errors.as_str()), (Some(3), ""));
}

#[test]
fn a_closed_output_does_not_hang_the_launcher() {
    let dog = Watchdog::new("a_closed_output_does_not_hang_the_launcher");
    let directory = Directory::new();
    let towpath = env!("CARGO_BIN_EXE_towpath");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{towpath} run -n 2 --label yes | head -n 3")]);
    command.env("TOWPATH_SHM_DIR", &directory.0);
    let (status, output, _) = dog.spawn(command).finish();
    assert!(status.success());
    assert_eq!(output.lines().count(), 3);
}
