//! `towpath lock` on one host.

use std::collections::HashSet;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use crate::HOLDER;
use crate::launching::common::{Directory, Member, Watchdog};
use crate::launching::{is_gone, signal, until, with_default_signals};

/// Script of a holder that must be told of a dead one, and then does as [`HOLDER`].
fn told_holder() -> String {
    let told =
        r#"[ ! -s in ] || [ "$TOWPATH_PREVIOUS_OWNER_DIED" = 1 ] || echo "$$ was not told" >> violations"#;
    format!("{told}\n{HOLDER}")
}

/// `towpath lock` with these arguments.
fn lock(dog: &Watchdog, directory: &Directory, arguments: &[&str]) -> Member {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("lock").args(arguments).env("TOWPATH_SHM_DIR", &directory.0).env("SHELL", "/bin/sh");
    command.current_dir(&directory.0);
    dog.spawn(with_default_signals(command))
}

/// Exit code and output of `towpath lock`, which writes no errors.
fn locked(dog: &Watchdog, directory: &Directory, arguments: &[&str]) -> (i32, String) {
    let (status, output, errors) = lock(dog, directory, arguments).finish();
    assert_eq!(errors, "", "{arguments:?}");
    (status.code().unwrap(), output)
}

/// A holder of the lock `x`, whose command is a shell that reads further commands.
fn holder(dog: &Watchdog, directory: &Directory, options: &[&str]) -> Member {
    let script = "echo $$ $TOWPATH_TOKEN; while read line; do eval \"$line\"; done";
    let arguments = [&["x"], options, &["--", "sh", "-c", script]].concat();
    lock(dog, directory, &arguments)
}

/// Process of a holder's command, and its token.
fn told(holder: &mut Member) -> (u32, u64) {
    let line = holder.line();
    let (pid, token) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    (pid.parse().unwrap(), token.parse().unwrap())
}

fn status(dog: &Watchdog, directory: &Directory) -> serde_json::Value {
    let (code, text) = locked(dog, directory, &["--status", "--json"]);
    assert_eq!(code, 0);
    serde_json::from_str(&text).unwrap()
}

fn waits_for(dog: &Watchdog, directory: &Directory, waiters: usize) {
    until(|| status(dog, directory)[0]["waiters"].as_array().unwrap().len() == waiters);
}

/// Files of locks that are there.
fn lock_files(directory: &Directory) -> Vec<String> {
    directory.files().into_iter().filter(|name| name.starts_with("towpath-lock.")).collect()
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn kill(pid: u32) {
    // SAFETY: a process of this test's own; one that is gone was its child's child.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
}

/// Checks the notes of all holders, and returns the number of grants.
fn check_history(directory: &Directory) -> usize {
    let read = |name: &str| std::fs::read_to_string(directory.0.join(name)).unwrap_or_default();
    assert_eq!(read("violations"), "");
    let tokens: Vec<u64> = read("tokens").lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    tokens.len()
}

#[test]
fn many_shells_exclude_each_other() {
    let dog = Watchdog::new("many_shells_exclude_each_other");
    let directory = Directory::new();
    let mut shells: Vec<Member> =
        (0..40).map(|_| lock(&dog, &directory, &["any name/ä", "-c", &told_holder()])).collect();
    for shell in &mut shells {
        assert!(shell.wait().success());
    }
    assert_eq!(check_history(&directory), 40);
    assert_eq!(lock_files(&directory), [""; 0], "nothing is left behind");
}

#[test]
fn command_sees_its_lock_and_its_code_is_returned() {
    let dog = Watchdog::new("command_sees_its_lock_and_its_code_is_returned");
    let directory = Directory::new();
    let run = |arguments: &[&str]| locked(&dog, &directory, arguments);
    assert_eq!(run(&["a/b", "--", "sh", "-c", "echo $TOWPATH_LOCK; exit 7"]), (7, "a/b\n".into()));
    assert_eq!(run(&["a", "sh", "-c", "kill -TERM $$"]), (128 + libc::SIGTERM, String::new()));
    assert_eq!(run(&["a", "-c", "echo $TOWPATH_PREVIOUS_OWNER_DIED; exit 3"]), (3, "1\n".into()));
    assert_eq!(run(&["a", "-c", "echo $TOWPATH_PREVIOUS_OWNER_DIED"]), (0, "1\n".into()));
    assert_eq!(run(&["a", "-c", "echo $TOWPATH_PREVIOUS_OWNER_DIED"]), (0, "\n".into()));
    assert_eq!(run(&["a", "-x", "-n", "--", "cat"]), (0, String::new()));
    for (arguments, code) in [
        (&["a", "--", "./no such program"][..], 69),
        (&["a", "--", "/dev/null"], 69),
        (&["a"], 2),
        (&["--", "a"], 2),
        (&[], 2),
        (&["", "true"], 73),
        (&["a", "-s", "-x", "true"], 2),
        (&["a", "-c", "true", "--", "true"], 2),
        (&["a", "-w", "5 parsecs", "true"], 2),
        (&["a", "-E", "256", "true"], 2),
    ] {
        let (status, output, errors) = lock(&dog, &directory, arguments).finish();
        assert_eq!((status.code(), output.as_str()), (Some(code), ""), "{arguments:?}: {errors}");
        assert!(!errors.is_empty(), "{arguments:?}");
    }
    for (arguments, code, says) in [
        (&["a", "--", "/dev"][..], 69, "it is a directory"),
        (&["a", "--json", "--", "echo", "ran"], 2, "--json is for --status"),
        (&["-u", "a", "true"], 2, "the lock ends with the command"),
        (&["-o", "a", "true"], 2, "leave it out"),
        (&["a", "-w", "-1", "true"], 2, "not a time that can be waited for"),
        (&["a", "-E", "-1", "true"], 2, "-1 is not in 0..=255"),
    ] {
        let (status, output, errors) = lock(&dog, &directory, arguments).finish();
        assert_eq!((status.code(), output.as_str()), (Some(code), ""), "{arguments:?}: {errors}");
        assert!(errors.contains(says), "{arguments:?}: {errors}");
    }
    assert_eq!(lock_files(&directory), [""; 0]);
}

#[test]
fn lock_that_is_held_fails_or_is_waited_for() {
    let dog = Watchdog::new("lock_that_is_held_fails_or_is_waited_for");
    let directory = Directory::new();
    let run = |arguments: &[&str]| locked(&dog, &directory, arguments);
    let mut held = holder(&dog, &directory, &[]);
    let (pid, token) = told(&mut held);
    for (options, code) in [
        (&["-n"][..], 1),
        (&["--nb"], 1),
        (&["--nonblock", "-E", "9"], 9),
        (&["-w", "0"], 1),
        (&["--timeout", "20ms"], 1),
        (&["--wait", "0.02", "-E", "0"], 0),
        (&["-n", "--shared"], 1),
    ] {
        let arguments = [&["x"], options, &["--", "echo", "ran"]].concat();
        assert_eq!(run(&arguments), (code, String::new()), "{options:?}");
    }
    assert_eq!(run(&["y", "-n", "echo", "another lock"]).1, "another lock\n");
    let waiter = lock(&dog, &directory, &["x", "-w", "1h", "-c", "echo $TOWPATH_TOKEN"]);
    waits_for(&dog, &directory, 1);

    let rows = status(&dog, &directory);
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert_eq!((&rows[0]["name"], &rows[0]["token"]), (&"x".into(), &token.into()));
    let (user, waits) = (&rows[0]["holders"][0], &rows[0]["waiters"][0]);
    assert_eq!((&user["pid"], &user["token"], &user["shared"]), (&pid.into(), &token.into(), &false.into()));
    assert_eq!(waits["pid"], waiter.pid());
    assert!(user["command"].as_str().unwrap().starts_with("sh -c 'echo $$"));
    let (_, text) = run(&["--status", "x"]);
    assert!(text.starts_with("x: held, 1 waiting"), "{text}");
    assert!(text.contains(&format!("holder  process {pid}, exclusive, token {token}")), "{text}");
    assert_eq!(run(&["--status", "y"]).1, "y: free\n");

    assert!(held.finish().0.success());
    let (status, output, _) = waiter.finish();
    assert!(status.success() && output.trim().parse::<u64>().unwrap() > token);
    assert_eq!(run(&["--status"]).1, "no lock is held\n");
    assert_eq!(lock_files(&directory), [""; 0]);
}

#[test]
fn readers_share_and_writers_wait_for_them() {
    let dog = Watchdog::new("readers_share_and_writers_wait_for_them");
    let directory = Directory::new();
    let mut readers = [holder(&dog, &directory, &["-s"]), holder(&dog, &directory, &["--shared"])];
    let tokens: HashSet<u64> = readers.iter_mut().map(|reader| told(reader).1).collect();
    assert_eq!(tokens.len(), 2);
    let writer = lock(&dog, &directory, &["x", "-c", "echo writes"]);
    waits_for(&dog, &directory, 1);
    assert_eq!(locked(&dog, &directory, &["x", "-sn", "true"]).0, 1, "a reader does not overtake a writer");
    assert_eq!(status(&dog, &directory)[0]["holders"].as_array().unwrap().len(), 2);
    for reader in readers {
        assert!(reader.finish().0.success());
    }
    assert_eq!(writer.finish().1, "writes\n");
    assert_eq!(lock_files(&directory), [""; 0]);
}

#[test]
fn stopped_holder_keeps_the_lock() {
    let dog = Watchdog::new("stopped_holder_keeps_the_lock");
    let directory = Directory::new();
    let mut held = holder(&dog, &directory, &[]);
    let (pid, _) = told(&mut held);
    let supervisor = children(held.pid())[0];
    for stopped in [pid, held.pid(), supervisor] {
        signal(stopped, libc::SIGSTOP);
        assert_eq!(locked(&dog, &directory, &["x", "-w", "100ms", "true"]).0, 1);
        signal(stopped, libc::SIGCONT);
    }
    assert!(held.finish().0.success());
    assert_eq!(locked(&dog, &directory, &["x", "-n", "true"]).0, 0);
}

#[test]
fn kill_of_any_process_gives_the_lock_on_and_ends_the_rest() {
    let dog = Watchdog::new("kill_of_any_process_gives_the_lock_on_and_ends_the_rest");
    let directory = Directory::new();
    for which in ["command", "lock", "supervisor", "all", "command and lock"] {
        let mut held = holder(&dog, &directory, &[]);
        let (pid, token) = told(&mut held);
        // A process that the command leaves running when it is killed.
        use std::io::Write;
        writeln!(held.stdin.as_mut().unwrap(), "sleep 1000 & echo $! 0").unwrap();
        let (orphan, _) = told(&mut held);
        let supervisor = children(held.pid())[0];
        let waiter = lock(&dog, &directory, &["x", "-c", "echo $TOWPATH_PREVIOUS_OWNER_DIED $TOWPATH_TOKEN"]);
        waits_for(&dog, &directory, 1);
        let victims = match which {
            "command" => vec![pid],
            "lock" => vec![held.pid()],
            "supervisor" => vec![supervisor],
            "command and lock" => vec![pid, held.pid()],
            _ => vec![held.pid(), supervisor, pid, orphan],
        };
        victims.into_iter().for_each(kill);
        let output = waiter.finish().1;
        let (died, next) = output.trim().split_once(' ').unwrap();
        assert!(died == "1" && next.parse::<u64>().unwrap() > token, "{which}: {output}");
        assert!(is_gone(pid), "{which}");
        let code = held.wait();
        assert!(code.code() == Some(128 + libc::SIGKILL) || code.signal() == Some(libc::SIGKILL), "{which}");
        match which {
            "command" => assert!(!is_gone(orphan), "an end of the command alone leaves its children"),
            // The supervisor may have seen the one death and not the other.
            "command and lock" => {}
            _ => assert!(is_gone(orphan), "{which}"),
        }
        kill(orphan);
        assert_eq!(lock_files(&directory), [""; 0], "{which}");
    }
}

#[test]
fn holder_whose_file_is_removed_is_told() {
    let dog = Watchdog::new("holder_whose_file_is_removed_is_told");
    let directory = Directory::new();
    for (options, code) in [(&[][..], 0), (&["--on-loss", "term"], 128 + libc::SIGTERM)] {
        let mut held = holder(&dog, &directory, options);
        told(&mut held);
        let [file] = &lock_files(&directory)[..] else { panic!("one lock") };
        std::fs::remove_file(directory.0.join(file)).unwrap();
        if code != 0 {
            assert_eq!(held.wait().code(), Some(code));
        } else {
            std::thread::sleep(std::time::Duration::from_millis(1500));
        }
        let (status, _, errors) = held.finish();
        assert_eq!(status.code(), Some(code), "{errors}");
        assert!(errors.contains("may be given to others: its file was removed"), "{errors}");
        assert!(errors.contains("towpath clean"), "{errors}");
    }
}

#[test]
fn children_left_running_do_not_keep_the_lock() {
    let dog = Watchdog::new("children_left_running_do_not_keep_the_lock");
    let directory = Directory::new();
    let (code, output) = locked(&dog, &directory, &["x", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"]);
    let child = output.trim().parse().unwrap();
    assert_eq!((code, is_gone(child)), (0, false));
    assert_eq!(locked(&dog, &directory, &["x", "-n", "true"]).0, 0);
    kill(child);
}

#[test]
fn signals_reach_the_command_and_end_waiters() {
    let dog = Watchdog::new("signals_reach_the_command_and_end_waiters");
    let directory = Directory::new();
    let script =
        "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut held = lock(&dog, &directory, &["x", "-c", script]);
    assert_eq!(held.line(), "ready");
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
        let waiter = lock(&dog, &directory, &["x", "true"]);
        waits_for(&dog, &directory, 1);
        signal(waiter.pid(), number);
        assert_eq!(waiter.finish().0.code(), Some(128 + number));
        assert_eq!(status(&dog, &directory)[0]["waiters"].as_array().unwrap().len(), 0);
    }
    signal(held.pid(), libc::SIGUSR1);
    assert_eq!(held.line(), "usr1");
    signal(held.pid(), libc::SIGTERM);
    assert_eq!(held.line(), "term");
    assert_eq!(held.wait().code(), Some(5));
    assert_eq!(lock_files(&directory), [""; 0]);
}

#[test]
fn clean_removes_only_locks_that_no_process_uses() {
    let dog = Watchdog::new("clean_removes_only_locks_that_no_process_uses");
    let directory = Directory::new();
    let mut held = holder(&dog, &directory, &[]);
    told(&mut held);
    assert_eq!(locked(&dog, &directory, &["dead", "-c", "kill -KILL $$"]).0, 128 + libc::SIGKILL);
    let (_, text) = locked(&dog, &directory, &["--status"]);
    assert!(text.starts_with("dead: free, 0 waiting") && text.contains("an owner died"), "{text}");
    let clean = |arguments: &[&str]| crate::launching::command(&dog, &directory, arguments);
    assert!(clean(&["clean", "--dry-run"]).1.contains("would remove"));
    assert_eq!(lock_files(&directory).len(), 2);
    assert!(clean(&["clean"]).1.starts_with("removed "));
    assert_eq!(lock_files(&directory).len(), 1);
    assert!(held.finish().0.success());
}

#[test]
fn users_do_not_disturb_each_other() {
    let dog = Watchdog::new("users_do_not_disturb_each_other");
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can be another user");
    }
    let directory = Directory::new();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&directory.0, mode).unwrap();
    let program = directory.0.join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_towpath"), &program).unwrap();
    let mut held = holder(&dog, &directory, &[]);
    told(&mut held);
    let mut other = Command::new(&program);
    other.args(["lock", "x", "-n", "true"]).env("TOWPATH_SHM_DIR", &directory.0).uid(65534).gid(65534);
    let (status, _, errors) = dog.spawn(other).finish();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
    // A file in the way is named.
    let file = directory.0.join("towpath-lock.65534.x");
    std::fs::write(&file, "").unwrap();
    let mut other = Command::new(&program);
    other.args(["lock", "x", "-n", "true"]).env("TOWPATH_SHM_DIR", &directory.0).uid(65534).gid(65534);
    let (status, _, errors) = dog.spawn(other).finish();
    assert!(status.code() == Some(73) && errors.contains("towpath-lock.65534.x"), "{errors}");
}

#[test]
#[ignore = "a measurement: see docs/mplocks.md"]
fn next_grant_after_a_kill_is_measured() {
    let dog = Watchdog::with("next_grant_after_a_kill_is_measured", Duration::from_secs(600));
    let directory = Directory::new();
    for which in ["the command", "`towpath lock`", "all"] {
        let mut times: Vec<f64> = Vec::new();
        let mut held = holder(&dog, &directory, &[]);
        for _ in 0..1000 {
            let (pid, _) = told(&mut held);
            let mut next = holder(&dog, &directory, &[]);
            waits_for(&dog, &directory, 1);
            let supervisor = children(held.pid())[0];
            let start = std::time::Instant::now();
            match which {
                "the command" => kill(pid),
                "all" => [pid, supervisor, held.pid()].into_iter().for_each(kill),
                _ => kill(held.pid()),
            }
            // The next command's first word.
            use std::io::Write;
            let line = next.line();
            times.push(start.elapsed().as_secs_f64() * 1000.0);
            writeln!(next.stdin.as_mut().unwrap(), "echo {line}").unwrap();
            held.wait();
            held = next;
        }
        times.sort_by(f64::total_cmp);
        let [median, p99, max] = [500, 990, 999].map(|at| times[at]);
        println!(
            "kill -9 of {which}: next command after {median:.2} ms (median), {p99:.2} ms (p99), {max:.2} ms (max)"
        );
    }
}

/// Kills processes of holders and waiters at random, `rounds` times.
fn random_kills(dog: &Watchdog, rounds: u64) {
    let directory = Directory::new();
    let mut random = towpath_machine::Random::new(7);
    let mut shells: Vec<Member> = Vec::new();
    for _ in 0..rounds {
        while shells.len() < 6 {
            shells.push(lock(dog, &directory, &["x", "-c", &told_holder()]));
        }
        std::thread::sleep(Duration::from_micros(random.below(6000)));
        let victim = random.below(shells.len() as u64) as usize;
        let front = shells[victim].pid();
        let mut family = vec![front];
        for generation in 0..2 {
            family.extend(family.get(generation).map(|&pid| children(pid)).unwrap_or_default());
        }
        if random.below(4) == 0 {
            family.into_iter().for_each(kill);
        } else {
            kill(family[random.below(family.len() as u64) as usize]);
        }
        shells.retain_mut(|shell| {
            let over = is_gone(shell.pid());
            if over {
                shell.wait();
            }
            !over
        });
    }
    for shell in &mut shells {
        shell.wait();
    }
    let (code, _) = locked(dog, &directory, &["x", "-w", "5", "-c", &told_holder()]);
    assert_eq!(code, 0);
    assert!(check_history(&directory) > 1);
    assert_eq!(lock_files(&directory), [""; 0]);
}

#[test]
fn random_kills_break_neither_exclusion_nor_order() {
    let dog = Watchdog::new("random_kills_break_neither_exclusion_nor_order");
    random_kills(&dog, 150);
}

#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
fn thousand_random_kills() {
    let dog = Watchdog::with("thousand_random_kills", Duration::from_secs(600));
    random_kills(&dog, 3000);
}
