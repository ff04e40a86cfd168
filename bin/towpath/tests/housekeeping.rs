//! `towpath doctor` and `towpath clean`.

mod launching;

use std::process::Command;

use launching::command as towpath;
use launching::common::{Directory, Watchdog};

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
