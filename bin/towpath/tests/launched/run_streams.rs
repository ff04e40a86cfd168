//! `towpath run`: the output of ranks and launcher, and readers that don't read.

use std::process::Command;
use std::time::Duration;

use crate::launching::common::{Directory, Member, Watchdog, member};
use crate::launching::{is_gone, lines, signal, towpath, until, with_member};

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

/// The pids that ranks have written to files, once all have.
fn pids(directory: &Directory, ranks: u32) -> Vec<u32> {
    let read = |rank| std::fs::read_to_string(directory.0.join(format!("pid.{rank}"))).unwrap_or_default();
    until(|| (0..ranks).all(|rank| read(rank).ends_with('\n')));
    (0..ranks).map(|rank| read(rank).trim().parse().unwrap()).collect()
}

/// Ranks that write without end after they have written their pid to a file, and of which
/// rank 1 kills itself when a file `go` is there.
fn writing_without_end(dog: &Watchdog, directory: &Directory, options: &[&str], to: &str) -> Member {
    let place = directory.0.display();
    let script = format!(
        "echo $$ > {place}/pid.$TOWPATH_RANK
         if [ $TOWPATH_RANK = 1 ]; then
             while ! [ -e {place}/go ]; do sleep 0.01; done; kill -KILL $$
         fi
         exec yes {to}"
    );
    let arguments = [options, &["-n", "3", "sh", "-c", &script]].concat();
    towpath(dog, directory, &arguments)
}

#[test]
fn reader_that_does_not_read_does_not_hold_up_signals() {
    let dog = Watchdog::new("reader_that_does_not_read_does_not_hold_up_signals");
    let directory = Directory::new();
    for options in [&["--label"][..], &[]] {
        let mut run = writing_without_end(&dog, &directory, options, "");
        let pids = pids(&directory, 3);
        // Time for all buffers to become full.
        std::thread::sleep(Duration::from_millis(300));
        signal(run.pid(), libc::SIGTERM);
        assert_eq!(run.wait().code(), Some(128 + libc::SIGTERM), "{options:?}");
        assert!(pids.iter().all(|&pid| is_gone(pid)));
        for rank in 0..3 {
            std::fs::remove_file(directory.0.join(format!("pid.{rank}"))).unwrap();
        }
    }
}

#[test]
fn reader_that_does_not_read_does_not_hide_a_death() {
    let dog = Watchdog::new("reader_that_does_not_read_does_not_hide_a_death");
    let directory = Directory::new();
    // Without labels the launcher's own remark finds a full pipe.
    for (options, to) in [(&["--label"][..], ""), (&[], ">&2")] {
        let run = writing_without_end(&dog, &directory, options, to);
        let pids = pids(&directory, 3);
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(directory.0.join("go"), "").unwrap();
        until(|| pids.iter().all(|&pid| is_gone(pid)));
        // The output is there for a reader that comes back.
        let (status, _, errors) = run.finish();
        assert_eq!(status.code(), Some(128 + libc::SIGKILL));
        assert!(
            errors.contains("rank 1 (sh, process ") && errors.contains("was killed by SIGKILL"),
            "{options:?}"
        );
        for file in directory.files() {
            std::fs::remove_file(directory.0.join(file)).unwrap();
        }
    }
}

#[test]
fn long_output_without_newlines_is_passed_on_whole() {
    let dog = Watchdog::new("long_output_without_newlines_is_passed_on_whole");
    let directory = Directory::new();
    let script = "head -c 20000000 /dev/zero | tr '\\0' x";
    let (status, output, errors) =
        towpath(&dog, &directory, &["-n", "3", "--label", "sh", "-c", script]).finish();
    assert!(status.success(), "{errors}");
    assert_eq!(output.bytes().filter(|&b| b == b'x').count(), 60_000_000);
    assert!(output.lines().all(|l| l.starts_with('[') && l.len() < 2 << 20));
}

#[test]
fn launcher_without_a_voice_goes_on() {
    let dog = Watchdog::new("launcher_without_a_voice_goes_on");
    let directory = Directory::new();
    let (towpath, member) = (env!("CARGO_BIN_EXE_towpath"), member().display());
    for closed in ["2>/dev/full", "2>&-", "2> >(true)"] {
        // A moment, so that a reader that goes away at once has gone.
        let script = format!(
            "{towpath} run -n 4 --on-death report sh -c 'sleep 0.2; exec {member} crash 2 kill' {closed}"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("TOWPATH_SHM_DIR", &directory.0);
        let (status, output, _) = dog.spawn(command).finish();
        assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{closed}");
        assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{closed}");
    }
}

#[test]
fn labelled_output_that_cannot_be_written_is_a_failure() {
    let dog = Watchdog::new("labelled_output_that_cannot_be_written_is_a_failure");
    let directory = Directory::new();
    let mut command = Command::new("sh");
    let towpath = env!("CARGO_BIN_EXE_towpath");
    command.args(["-c", &format!("{towpath} run -n 1 --label echo x > /dev/full")]);
    command.env("TOWPATH_SHM_DIR", &directory.0);
    let (status, _, errors) = dog.spawn(command).finish();
    assert_eq!(status.code(), Some(125), "{errors}");
    assert!(errors.contains("writing to standard output: No space left on device"), "{errors}");
}
