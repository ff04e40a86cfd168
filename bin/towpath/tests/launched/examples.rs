//! The examples of the façade, under `towpath run` as their headers say.

use std::process::Command;

use crate::launching::common::{Directory, Watchdog};
use crate::launching::examples;

/// Runs an example. Returns its exit code, its output's lines in order, and its errors.
fn run(test: &'static str, options: &[&str], example: &str) -> (Option<i32>, Vec<String>, String) {
    let dog = Watchdog::new(test);
    let directory = Directory::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("run").args(options).arg(examples().join(example)).env("TOWPATH_SHM_DIR", &directory.0);
    let (status, output, errors) = dog.spawn(command).finish();
    let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(directory.files(), [""; 0], "nothing is left behind");
    (status.code(), lines, errors)
}

#[test]
fn hello_goes_round_the_ring() {
    for ranks in [1u32, 2, 5] {
        let (code, lines, errors) = run("hello_goes_round_the_ring", &["-n", &ranks.to_string()], "hello");
        assert_eq!(code, Some(0), "{errors}");
        let mut expected: Vec<String> = (0..ranks)
            .flat_map(|me| {
                let (before, after) = ((me + ranks - 1) % ranks, (me + 1) % ranks);
                [
                    format!("rank {me} of {ranks}: rank {before} says hello"),
                    format!("rank {me} of {ranks}: rank {after} has answered"),
                ]
            })
            .collect();
        expected.sort_unstable();
        assert_eq!(lines, expected);
    }
}

#[test]
fn main_without_a_launcher_prints_the_remedy() {
    let dog = Watchdog::new("main_without_a_launcher_prints_the_remedy");
    // Its main returns a `towpath::Error`.
    let mut command = Command::new(examples().join("hello"));
    command.env_remove("TOWPATH_RANK");
    let (status, output, errors) = dog.spawn(command).finish();
    assert_eq!((status.code(), &output[..]), (Some(1), ""));
    assert!(
        errors.starts_with("Error: this process was not started by `towpath run`: TOWPATH_RANK is not set")
            && errors.contains("start it with `towpath run -n ")
            && !errors.contains("NotLaunched"),
        "{errors}"
    );
}

#[test]
fn locks_by_message_keep_the_balance() {
    let (code, lines, errors) = run("locks_by_message_keep_the_balance", &["-n", "4"], "locks_by_message");
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(lines, [0, 1, 2, 3].map(|rank| format!("rank {rank}: the balance is 4000")));
}

#[test]
fn the_key_value_server_answers_every_client() {
    for algorithm in ["towpath", "lock-free", "mcs"] {
        let options = ["-n", "4", "--label", "--algorithm", algorithm];
        let (code, lines, errors) = run("the_key_value_server_answers_every_client", &options, "key_value");
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(
            lines,
            [
                "[0] the server holds 3000 pairs",
                "[1] rank 1: 1001 of 1001 answers are right",
                "[2] rank 2: 1001 of 1001 answers are right",
                "[3] rank 3: 1001 of 1001 answers are right"
            ]
        );
    }
}

#[test]
fn a_bulk_transfer_arrives_in_either_kind_of_segment() {
    for (size, kind) in [("4M", "private"), ("32M", "shared")] {
        let (code, lines, errors) = run(
            "a_bulk_transfer_arrives_in_either_kind_of_segment",
            &["-n", "2", "--size", size],
            "bulk_transfer",
        );
        assert_eq!(code, Some(0), "{errors}");
        assert!(lines[0].starts_with("64 MiB sent and checked"), "{lines:?}");
        assert_eq!(lines[1], format!("rank 1: receiving into a {kind} segment"));
    }
}

#[test]
fn broadcast_goes_on_without_a_dead_reader() {
    let (code, lines, errors) =
        run("broadcast_goes_on_without_a_dead_reader", &["-n", "4", "--on-death=report"], "broadcast");
    assert_eq!(code, Some(128 + 6), "{errors}");
    assert_eq!(
        lines,
        ["rank 0: sent 2000 batches, lost [Some(2)]", "rank 1: ran 2000 batches", "rank 3: ran 2000 batches"]
    );
}

#[test]
fn survivors_finish_and_get_their_requests_back() {
    let (code, lines, errors) =
        run("survivors_finish_and_get_their_requests_back", &["-n", "4", "--on-death=report"], "survivors");
    assert_eq!(code, Some(128 + 6), "{errors}");
    assert!(errors.contains("rank 1") && errors.contains("SIGABRT"), "{errors}");
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, rank) in lines.iter().zip([0, 2, 3]) {
        let numbers: Vec<u32> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect();
        let [me, results, back] = numbers[..] else { panic!("{line}") };
        assert_eq!(me, rank);
        assert!(results >= 20_000 && back > 0, "every request to the living is answered: {line}");
        assert_eq!(results + back, 30_000, "each request is answered or comes back: {line}");
    }
}

#[test]
fn run_queue_goes_on_without_a_dead_rank() {
    let test = "run_queue_goes_on_without_a_dead_rank";
    let (code, lines, errors) = run(test, &["-n", "4", "--on-death=report"], "run_queue");
    assert_eq!(code, Some(128 + 6), "{errors}");
    assert!(errors.contains("rank 1") && errors.contains("SIGABRT"), "{errors}");
    let has = |line: &str, rank: u32| line.starts_with(&format!("rank {rank}: ran "));
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().zip([0, 2, 3]).all(|(line, rank)| has(line, rank)), "{lines:?}");
}

#[test]
fn a_frame_of_a_killed_process_comes_in_again() {
    let test = "a_frame_of_a_killed_process_comes_in_again";
    let (code, lines, errors) = run(test, &["-n", "4", "--on-death=report"], "pool");
    assert_eq!(code, Some(128 + 6), "{errors}");
    assert_eq!(lines, ["1000 of 1000 frames came once; 1 process died"]);
}

#[test]
fn an_event_loop_goes_on_when_a_sender_is_killed() {
    let test = "an_event_loop_goes_on_when_a_sender_is_killed";
    let (code, lines, errors) = run(test, &["-n", "3", "--on-death=report"], "event_loop");
    assert_eq!(code, Some(128 + 6), "{errors}");
    let has = |begin: &str, word: &str| lines.iter().any(|l| l.starts_with(begin) && l.contains(word));
    assert!(has("100 and 200 values;", "the clock ticked") && has("100 values, then:", "died"), "{lines:?}");
}

#[test]
fn jobs_of_a_killed_worker_are_done_by_others() {
    let test = "jobs_of_a_killed_worker_are_done_by_others";
    let (code, lines, errors) = run(test, &["-n", "5", "--on-death=report"], "work_queue");
    assert_eq!(code, Some(128 + 6), "{errors}");
    assert_eq!(lines, ["2000 jobs: 0 are missing, 0 were answered twice; 1 of the workers died"]);
    // Without a launcher it starts its workers itself.
    let dog = Watchdog::new(test);
    let mut command = Command::new(examples().join("work_queue"));
    command.env_remove("TOWPATH_RANK");
    let (status, output, errors) = dog.spawn(command).finish();
    assert_eq!((status.code(), &output[..]), (Some(0), &*format!("{}\n", lines[0])), "{errors}");
}
