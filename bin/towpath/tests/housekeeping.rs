//! `towpath doctor` and `towpath clean`.

mod launching;

use std::process::Command;

use launching::common::{Directory, Watchdog};
use launching::{command as towpath, own_address, until, with_default_signals};

#[test]
fn clean_removes_the_dead_and_only_the_dead() {
    let dog = Watchdog::new("clean_removes_the_dead_and_only_the_dead");
    let directory = Directory::new();
    let clean = |arguments: &[&str]| towpath(&dog, &directory, &[&["clean"], arguments].concat());
    assert_eq!(clean(&[]), (0, "nothing is left behind\n".into(), String::new()));

    let mut alive = dog.start(&directory.0, &["create", "alive"]);
    assert_eq!(alive.line(), "created");
    let mut joined = dog.start(&directory.0, &["create", "joined"]);
    assert_eq!(joined.line(), "created");
    let mut member = dog.start(&directory.0, &["stay", "joined"]);
    assert_eq!(member.line(), "entered as 0");
    // Its creator is dead, a member lives.
    joined.kill();
    joined.wait();
    for name in ["dead-1", "dead-2"] {
        let mut dead = dog.start(&directory.0, &["create", name]);
        assert_eq!(dead.line(), "created");
        dead.kill();
        dead.wait();
    }
    // Whatever else lies there.
    let prefix = format!("towpath.{}.", rustix::process::geteuid().as_raw());
    std::fs::write(directory.0.join("towpath.4711.other"), "of another user, says the name").unwrap();
    std::fs::write(directory.0.join("something-else"), "").unwrap();
    std::os::unix::fs::symlink("something-else", directory.0.join(format!("{prefix}link"))).unwrap();
    std::fs::create_dir(directory.0.join(format!("{prefix}directory"))).unwrap();
    let before = directory.files();

    let (code, output, _) = clean(&["--dry-run"]);
    assert_eq!(code, 0);
    let mentioned: Vec<&str> =
        output.lines().map(|l| l.split(' ').nth(2).unwrap().rsplit_once('.').unwrap().1).collect();
    assert_eq!(mentioned, ["dead-1", "dead-2"], "{output}");
    assert_eq!(directory.files(), before, "a dry run changes nothing");

    let (code, output, _) = clean(&[]);
    assert_eq!((code, output.lines().count()), (0, 2), "{output}");
    assert!(output.lines().all(|l| l.starts_with("removed ") && l.contains("KiB")), "{output}");
    let after = directory.files();
    let expected: Vec<&String> = before.iter().filter(|name| !name.contains("dead")).collect();
    assert_eq!(after.iter().collect::<Vec<_>>(), expected);
    assert!(after.contains(&format!("{prefix}alive")) && after.contains(&format!("{prefix}joined")));
    assert_eq!(clean(&[]).1, "nothing is left behind\n");
    assert!(member.finish().0.success());
    assert!(alive.finish().0.success());
    assert!(!directory.files().iter().any(|f| f.ends_with("alive") || f.ends_with("joined")));
}

/// Starts `towpath bench mplocks`, waits until it has made its folder, and kills it.
#[cfg(feature = "lab")]
fn kill_bench(dog: &Watchdog, directory: &Directory) {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_towpath"));
    bench.args(["bench", "mplocks", "--algorithms", "hosts", "--procs", "2", "--kills", "1"]);
    bench.arg("--report").arg(directory.0.join("report")).env("TOWPATH_SHM_DIR", &directory.0);
    let mut bench = dog.spawn(bench);
    let made = format!("towpath-bench-locks.{}.{}", rustix::process::geteuid().as_raw(), bench.pid());
    until(|| directory.files().contains(&made));
    bench.kill();
    bench.wait();
}

#[test]
#[cfg(feature = "lab")]
fn folder_of_a_killed_bench_is_removed_by_clean_or_the_next() {
    let dog = Watchdog::new("folder_of_a_killed_bench_is_removed_by_clean_or_the_next");
    let directory = Directory::new();
    let folders = || {
        let files = directory.files().into_iter().filter(|file| file.starts_with("towpath-bench-locks."));
        files.collect::<Vec<_>>()
    };
    kill_bench(&dog, &directory);
    let first = folders();
    assert_eq!(first.len(), 1);
    // A folder that is in use stays.
    let used = directory.0.join(format!("{}1", first[0]));
    std::fs::create_dir(&used).unwrap();
    let user = std::fs::File::open(&used).unwrap();
    user.lock().unwrap();
    // The next one removes it, as soon as its processes are gone.
    until(|| {
        kill_bench(&dog, &directory);
        !folders().contains(&first[0])
    });
    assert_eq!(folders().len(), 2);
    let mut output = String::new();
    until(|| {
        output += &towpath(&dog, &directory, &["clean"]).1;
        folders().len() == 1
    });
    assert!(output.contains("removed ") && output.contains("towpath-bench-locks."), "{output}");
    drop(user);
    // A child that another test is starting may still have the lock.
    let mut output = String::new();
    until(|| {
        output += &towpath(&dog, &directory, &["clean"]).1;
        folders().is_empty()
    });
    assert_eq!(output.matches("towpath-bench-locks.").count(), 1, "{output}");
}

#[test]
fn clean_that_cannot_say_so_removes_all_the_same() {
    let dog = Watchdog::new("clean_that_cannot_say_so_removes_all_the_same");
    let directory = Directory::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let gone = || std::io::pipe().unwrap().1;
    for (output, code) in [(std::process::Stdio::from(full()), 1), (gone().into(), 141)] {
        for name in ["dead-1", "dead-2", "dead-3"] {
            let mut dead = dog.start(&directory.0, &["create", name]);
            assert_eq!(dead.line(), "created");
            dead.kill();
            dead.wait();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.arg("clean").env("TOWPATH_SHM_DIR", &directory.0).env("TOWPATH_MPICH_DIR", &directory.0);
        let status = command.stdout(output).status();
        assert_eq!(status.unwrap().code(), Some(code));
        assert_eq!(directory.files(), [""; 0], "{code}");
    }
}

#[test]
fn doctor_reports() {
    let dog = Watchdog::new("doctor_reports");
    let directory = Directory::new();
    let mut dead = dog.start(&directory.0, &["create", "dead"]);
    assert_eq!(dead.line(), "created");
    dead.kill();
    dead.wait();
    let mut alive = dog.start(&directory.0, &["create", "alive"]);
    assert_eq!(alive.line(), "created");

    let (code, output, errors) = towpath(&dog, &directory, &["doctor"]);
    assert_eq!(code, 0, "{errors}");
    for part in
        ["cores", "memfd", "pidfd", "futex_waitv", "rseq", "huge pages", "single copy", "hardware counters"]
    {
        assert!(output.contains(part), "{output}");
    }
    assert!(
        output.contains("left behind by a dead world:") && output.contains("world alive is alive"),
        "{output}"
    );

    let (code, output, _) = towpath(&dog, &directory, &["doctor", "--json"]);
    assert_eq!(code, 0);
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["works"], true);
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() >= 12);
    let memfd = findings.iter().find(|f| f["key"] == "memfd").unwrap();
    assert_eq!((&memfd["available"], &memfd["needed"]), (&true.into(), &true.into()));
    let worlds = report["worlds"].as_array().unwrap();
    let state: Vec<_> =
        worlds.iter().map(|w| (w["name"].as_str().unwrap(), w["alive"].as_bool().unwrap())).collect();
    assert_eq!(state, [("alive", true), ("dead", false)]);
    assert!(worlds.iter().all(|w| w["bytes"].as_u64().unwrap() > 65_536));
    assert!(alive.finish().0.success());
}

#[test]
fn a_missing_directory_is_an_error() {
    let dog = Watchdog::new("a_missing_directory_is_an_error");
    let directory = Directory::new();
    std::fs::remove_dir(&directory.0).unwrap();
    let (code, _, errors) = towpath(&dog, &directory, &["clean"]);
    assert_eq!(code, 1);
    assert!(errors.contains("directory of named worlds"), "{errors}");
    std::fs::create_dir(&directory.0).unwrap();
}

/// A cluster of three hosts, of which the first is this one, with its key.
fn hosts_file(dog: &Watchdog, directory: &Directory, name: &str, address: &str, port: u16) {
    let folder = directory.0.join("etc");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "key = key-{name}\nstate = state-{name}\na {address}:{port}\nb {address}:{}\nc {address}:{}\n",
        port + 1,
        port + 2
    );
    std::fs::write(folder.join(name), text).unwrap();
    let key = folder.join(format!("key-{name}"));
    assert_eq!(towpath(dog, directory, &["key", key.to_str().unwrap()]).0, 0);
}

#[test]
fn killed_agents_leave_sockets_that_are_removed() {
    let dog = Watchdog::new("killed_agents_leave_sockets_that_are_removed");
    let directory = Directory::new();
    let address = own_address();
    let serve = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(["lock", "--serve", "--as", "a", "--hosts"]).arg(directory.0.join("etc").join(name));
        let sockets = || directory.files().into_iter().filter(|file| file.starts_with("towpath-agent."));
        let before: Vec<String> = sockets().collect();
        let agent = dog.spawn(with_default_signals({
            command.env("TOWPATH_SHM_DIR", &directory.0);
            command
        }));
        until(|| sockets().any(|socket| !before.contains(&socket) && !socket.ends_with(".new")));
        let own = sockets().find(|socket| !before.contains(socket)).unwrap();
        (agent, own)
    };
    hosts_file(&dog, &directory, "one", &address, 7301);
    hosts_file(&dog, &directory, "two", &address, 7304);
    let has = |socket: &String| directory.files().contains(socket);
    // The next agent removes it, also that of another cluster.
    let (mut one, first) = serve("one");
    one.kill();
    one.wait();
    assert!(has(&first));
    let (mut two, second) = serve("two");
    until(|| !has(&first));
    assert!(has(&second));
    // `towpath clean` leaves one at which an agent listens.
    let clean = |arguments: &[&str]| towpath(&dog, &directory, &[&["clean"], arguments].concat());
    assert_eq!(clean(&[]).1, "nothing is left behind\n");
    two.kill();
    two.wait();
    let (code, output, _) = clean(&["--dry-run"]);
    assert!(code == 0 && output.starts_with("would remove ") && output.contains(&second), "{output}");
    assert!(has(&second));
    let (code, output, _) = clean(&[]);
    assert!(code == 0 && output.starts_with("removed ") && output.contains(&second), "{output}");
    assert_eq!(directory.files(), ["etc"]);
    // A file with such a name that is no socket stays.
    let strange = format!("{first}.x");
    std::fs::write(directory.0.join(&strange), "").unwrap();
    assert_eq!(clean(&[]).1, "nothing is left behind\n");
    assert!(has(&strange));
}
