//! `towpath run`, with shell scripts and with the example `member` of shm.

use std::io::Write;
use std::process::Command;

use crate::launching::common::{Directory, Watchdog, member};
use crate::launching::{lines, signal, towpath, with_member};

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
        ("[ $TOWPATH_RANK = 2 ] && exit 9; exit 0", 9),
        // The first failure in time counts.
        ("[ $TOWPATH_RANK = 0 ] && { trap 'exit 7' TERM; sleep 1000 & wait; }; exit 8", 8),
        ("[ $TOWPATH_SIZE = 3 ]", 0),
    ] {
        let (status, _, errors) = towpath(&dog, &directory, &["-n", "3", "sh", "-c", script]).finish();
        assert_eq!(status.code(), Some(code), "{script}: {errors}");
        // One failure is said, whatever others follow.
        let said = errors.lines().filter(|l| l.contains(&format!("ended with code {code}"))).count();
        assert_eq!((said, errors.lines().count()), (usize::from(code != 0), said), "{script}: {errors}");
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
        (&["-n", "0", "true"][..], 2, "1..=4096"),
        (&["-n", "4097", "true"], 2, "1..=4096"),
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
    // Codes after a signal that asks them to end are no failures.
    for (name, number, code) in [
        ("USR1", libc::SIGUSR1, 0),
        ("USR2", libc::SIGUSR2, 0),
        ("INT", libc::SIGINT, 4),
        ("TERM", libc::SIGTERM, 4),
        ("HUP", libc::SIGHUP, 4),
    ] {
        let script =
            format!("trap 'echo caught; exit {code}' {name}; echo ready; while :; do sleep 0.02; done");
        let mut run = towpath(&dog, &directory, &["-n", "3", "sh", "-c", &script]);
        for _ in 0..3 {
            assert_eq!(run.line(), "ready");
        }
        signal(run.pid(), number);
        let (status, output, errors) = run.finish();
        assert_eq!(output, "caught\n".repeat(3), "{name}: {errors}");
        assert_eq!((status.code(), errors.as_str()), (Some(code), ""), "{name}");
    }
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
fn world_made_again_under_its_name_is_not_joined() {
    let dog = Watchdog::new("world_made_again_under_its_name_is_not_joined");
    let directory = Directory::new();
    let (member, place) = (member().display(), directory.0.display());
    let script = format!("echo ready; while ! [ -e {place}/go ]; do sleep 0.01; done; exec {member} hello");
    let mut run = towpath(&dog, &directory, &["-n", "2", "--world", "again", "sh", "-c", &script]);
    for _ in 0..2 {
        assert_eq!(run.line(), "ready");
    }
    let [file] = &directory.files()[..] else { panic!("{:?}", directory.files()) };
    std::fs::remove_file(directory.0.join(file)).unwrap();
    // Its ranks are free: nothing but its identity keeps the others out.
    let not_yet = "echo ready; exec sleep 1000";
    let mut second = towpath(&dog, &directory, &["-n", "2", "--world", "again", "sh", "-c", not_yet]);
    for _ in 0..2 {
        assert_eq!(second.line(), "ready");
    }
    std::fs::write(directory.0.join("go"), "").unwrap();
    let (status, output, errors) = run.finish();
    assert_eq!((status.code(), output.as_str()), (Some(70), ""), "{errors}");
    assert!(errors.contains("another one was made under its name"), "{errors}");
    // The second world has not noticed, and the first one's end has not taken its name away.
    assert!(directory.files().contains(file));
    signal(second.pid(), libc::SIGTERM);
    assert_eq!(second.finish().0.code(), Some(128 + libc::SIGTERM));
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
        // Only rank 0 has the input.
        &format!(
            "trap '' CHLD HUP; exec {towpath} run -n 2 sh -c \
            'echo ready; [ \"$TOWPATH_RANK\" = 0 ] || exec sleep 60; read x; exit 3'"
        ),
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
    assert_eq!(status.code(), Some(3), "{errors}");
}
