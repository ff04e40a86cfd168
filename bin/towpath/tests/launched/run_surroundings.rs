//! `towpath run` where other programs stand between it and the ranks: another launcher,
//! shells, a tracer.

use std::process::Command;

use crate::launching::common::{Directory, Watchdog, member};
use crate::launching::{is_gone, lines, signal, towpath, until};

#[test]
fn nested_runs_have_worlds_of_their_own() {
    let dog = Watchdog::new("nested_runs_have_worlds_of_their_own");
    let directory = Directory::new();
    let (inner, member) = (env!("CARGO_BIN_EXE_towpath"), member().to_str().unwrap());
    for name in [&[][..], &["--world", "outer"]] {
        let arguments = [name, &["-n", "2", inner, "run", "-n", "3", member, "hello"]].concat();
        let (status, output, errors) = towpath(&dog, &directory, &arguments).finish();
        assert!(status.success(), "{errors}");
        let expected: Vec<String> =
            (0..3).flat_map(|rank| [0; 2].map(|_| format!("rank {rank} of 3 met 3"))).collect();
        assert_eq!(lines(&output), expected);
    }
    // The inner failure is the outer rank's.
    let script =
        format!("[ $TOWPATH_RANK = 1 ] || exec sleep 1000; exec {inner} run -n 2 {member} crash 1 exit wait");
    let (status, _, errors) = towpath(&dog, &directory, &["-n", "2", "sh", "-c", &script]).finish();
    assert_eq!(status.code(), Some(7), "{errors}");
    assert_eq!(errors.matches("; stopping the others").count(), 2, "{errors}");
}

#[test]
fn killed_outer_run_ends_the_inner_one() {
    let dog = Watchdog::new("killed_outer_run_ends_the_inner_one");
    let directory = Directory::new();
    let inner = env!("CARGO_BIN_EXE_towpath");
    for number in [libc::SIGKILL, libc::SIGTERM] {
        let script = "sleep 1000 & echo $!; echo $$; wait";
        let mut run = towpath(&dog, &directory, &["-n", "1", inner, "run", "-n", "2", "sh", "-c", script]);
        let pids: Vec<u32> = (0..4).map(|_| run.line().parse().unwrap()).collect();
        signal(run.pid(), number);
        run.wait();
        until(|| pids.iter().all(|&pid| is_gone(pid)));
    }
}

#[test]
fn ranks_are_found_behind_chains_of_programs() {
    let dog = Watchdog::new("ranks_are_found_behind_chains_of_programs");
    let directory = Directory::new();
    let member = member().display();
    // By exec, and as children of shells that wait for them.
    for chain in [
        format!("exec env A=1 nohup sh -c 'exec {member} $0 $1 $2' \"$@\""),
        format!("sh -c '{member} $0 $1 $2; exit $?' \"$@\"; exit $?"),
    ] {
        let run = |options: &[&str], what: &[&str]| {
            let arguments = [options, &["sh", "-c", &chain, "sh"], what].concat();
            towpath(&dog, &directory, &arguments).finish()
        };
        let (status, output, errors) = run(&["-n", "3"], &["hello"]);
        assert!(status.success() && output.lines().count() == 3, "{chain}: {output} {errors}");
        let (status, output, errors) = run(&["-n", "4", "--on-death", "report"], &["crash", "2", "exit"]);
        assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{chain}: {errors}");
        assert_eq!(status.code(), Some(7), "{chain}: {errors}");
    }
}

#[test]
fn ranks_under_a_tracer_meet_and_are_missed() {
    let dog = Watchdog::new("ranks_under_a_tracer_meet_and_are_missed");
    let directory = Directory::new();
    if !Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED: there is no strace here, or it may not trace");
        return;
    }
    let member = member().to_str().unwrap();
    let traced = |options: &[&str], what: &[&str]| {
        let tracer = ["strace", "-f", "-o", "/dev/null", member];
        towpath(&dog, &directory, &[options, &tracer, what].concat())
    };
    let (status, output, errors) = traced(&["-n", "2"], &["hello"]).finish();
    assert!(status.success() && output.lines().count() == 2, "{output} {errors}");
    let (status, output, errors) =
        traced(&["-n", "3", "--on-death", "report"], &["crash", "2", "kill"]).finish();
    assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2"], "{errors}");
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{errors}");
    // Some tracers block SIGTERM, others let their tracee go. Neither stays.
    let mut run = traced(&["-n", "2", "--grace", "0.3"], &["wait"]);
    let pids: Vec<u32> = (0..2).map(|_| run.line().rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    signal(run.pid(), libc::SIGTERM);
    let code = run.wait().code().unwrap() - 128;
    assert!([libc::SIGTERM, libc::SIGKILL].contains(&code), "{code}");
    assert!(pids.iter().all(|&pid| is_gone(pid)));
}
