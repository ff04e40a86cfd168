//! Files with names of worlds, as `run`, `doctor` and `clean` meet them: none that is no
//! world is removed, and none reaches a terminal raw.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::launching::command as towpath;
use crate::launching::common::{Directory, Watchdog, member};

fn path_of(directory: &Path, name: &[u8]) -> PathBuf {
    let prefix = format!("towpath.{}.", rustix::process::geteuid().as_raw());
    directory.join(OsStr::from_bytes(&[prefix.as_bytes(), name].concat()))
}

fn private_file(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

/// The bytes of a dead world.
fn dead_world(dog: &Watchdog, directory: &Directory, name: &str) -> Vec<u8> {
    let mut dead = dog.start(&directory.0, &["create", name]);
    assert_eq!(dead.line(), "created");
    dead.kill();
    dead.wait();
    fs::read(path_of(&directory.0, name.as_bytes())).unwrap()
}

#[test]
fn run_at_a_taken_name_names_the_file_and_leaves_it() {
    let dog = Watchdog::new("run_at_a_taken_name_names_the_file_and_leaves_it");
    let directory = Directory::new();
    let thesis = path_of(&directory.0, b"thesis");
    private_file(&thesis, b"chapter 1");
    let pipe = path_of(&directory.0, b"pipe");
    fifo(&pipe);
    for (name, path, why) in
        [("thesis", &thesis, "does not begin like a world"), ("pipe", &pipe, "it is a FIFO")]
    {
        let (code, _, errors) = towpath(&dog, &directory, &["run", "-n", "1", "--world", name, "true"]);
        assert_eq!(code, 125, "{errors}");
        assert!(errors.contains(path.to_str().unwrap()) && errors.contains(why), "{errors}");
        assert!(errors.contains("remove it, or choose another name"), "{errors}");
    }
    assert_eq!(fs::read(&thesis).unwrap(), b"chapter 1");
    assert!(pipe.exists());
}

#[test]
fn clean_and_doctor_name_what_is_no_world_and_leave_it() {
    let dog = Watchdog::new("clean_and_doctor_name_what_is_no_world_and_leave_it");
    let directory = Directory::new();
    private_file(&path_of(&directory.0, b"thesis"), b"chapter 1");
    private_file(&path_of(&directory.0, b"empty"), b"");
    fifo(&path_of(&directory.0, b"pipe"));
    dead_world(&dog, &directory, "dead");
    let others = [("empty", "it is empty"), ("pipe", "it is a FIFO"), ("thesis", "it does not begin like")];

    let (code, output, _) = towpath(&dog, &directory, &["doctor"]);
    assert_eq!(code, 0);
    let (_, json, _) = towpath(&dog, &directory, &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["worlds"].as_array().unwrap().len(), 1);
    let listed = report["others"].as_array().unwrap();
    assert_eq!(listed.len(), others.len());
    let (code, said, errors) = towpath(&dog, &directory, &["clean"]);
    assert_eq!((code, said.lines().count()), (0, 1), "{said}");
    for ((name, why), entry) in others.iter().zip(listed) {
        let path = path_of(&directory.0, name.as_bytes());
        let path = path.to_str().unwrap();
        assert!(output.contains(&format!("named like a world, but none: {path} ({why}")), "{output}");
        assert!(errors.contains(&format!("{path} stays: {why}")), "{errors}");
        assert_eq!(entry["path"], path);
        assert!(entry["why"].as_str().unwrap().starts_with(why), "{entry}");
        assert!(Path::new(path).exists());
    }
    assert_eq!(directory.files().len(), others.len());
}

#[test]
fn strange_names_are_shown_escaped_and_removed() {
    let dog = Watchdog::new("strange_names_are_shown_escaped_and_removed");
    let directory = Directory::new();
    let bytes = dead_world(&dog, &directory, "model");
    let strange = [(&b"\x1b[2Jred"[..], r"\u{1b}[2Jred"), (b"\xffbyte", r"\xffbyte"), (b"a\nb", r"a\nb")];
    for (name, _) in strange {
        private_file(&path_of(&directory.0, name), &bytes);
        private_file(&path_of(&directory.0, &[name, b"-none"].concat()), b"no world");
    }
    let quiet = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control());
    let (_, listed, _) = towpath(&dog, &directory, &["doctor"]);
    let (_, json, _) = towpath(&dog, &directory, &["doctor", "--json"]);
    let (_, planned, _) = towpath(&dog, &directory, &["clean", "--dry-run"]);
    let (code, removed, remarks) = towpath(&dog, &directory, &["clean"]);
    assert_eq!((code, removed.lines().count()), (0, 4), "{removed}");
    for text in [&listed, &json, &planned, &removed, &remarks] {
        assert!(quiet(text), "{text:?}");
    }
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let shown: Vec<&str> =
        report["worlds"].as_array().unwrap().iter().map(|w| w["shown"].as_str().unwrap()).collect();
    for (name, escaped) in strange {
        for text in [&listed, &planned, &removed] {
            assert!(text.contains(escaped), "{escaped}: {text}");
        }
        assert!(remarks.contains(&format!("{escaped}-none stays")), "{remarks}");
        assert!(shown.iter().any(|s| s.ends_with(escaped)), "{shown:?}");
        assert!(!path_of(&directory.0, name).exists());
        fs::remove_file(path_of(&directory.0, &[name, b"-none"].concat())).unwrap();
    }
    assert_eq!(directory.files(), [""; 0]);
}

#[test]
fn directory_with_a_strange_name_is_shown_escaped() {
    let dog = Watchdog::new("directory_with_a_strange_name_is_shown_escaped");
    let directory = Directory::new();
    let place = directory.0.join(OsStr::from_bytes(b"\x1b[31m\xff"));
    for arguments in [&["doctor"][..], &["clean"], &["run", "-n", "1", "--world", "w", "true"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(arguments).env("TOWPATH_SHM_DIR", &place);
        let (_, output, errors) = dog.spawn(command).finish();
        let said = output + &errors;
        assert!(said.contains(r"\u{1b}[31m\xff") && !said.contains('\x1b'), "{arguments:?}: {said:?}");
    }
    let strange = "x\x1b[2J";
    for arguments in [&["sim", strange, "locks"][..], &["sim", "--machine", strange, "locks"]] {
        let (code, _, errors) = towpath(&dog, &directory, arguments);
        assert!(code == 2 && !errors.contains('\x1b'), "{errors:?}");
    }
}

#[test]
fn relative_directory_is_the_launchers_wherever_ranks_go() {
    let dog = Watchdog::new("relative_directory_is_the_launchers_wherever_ranks_go");
    let directory = Directory::new();
    fs::create_dir(directory.0.join("worlds")).unwrap();
    let script = format!("cd / && exec {} hello", member().display());
    for world in [&["--world", "w"][..], &[]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(["run", "-n", "2"]).args(world).args(["sh", "-c", &script]);
        command.current_dir(&directory.0).env("TOWPATH_SHM_DIR", "worlds");
        let (status, output, errors) = dog.spawn(command).finish();
        assert_eq!(status.code(), Some(0), "{errors}");
        assert_eq!(output.lines().count(), 2, "{output}");
    }
    assert_eq!(fs::read_dir(directory.0.join("worlds")).unwrap().count(), 0);
    // The message names the directory as it is, not as it was written.
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("clean").current_dir(&directory.0).env("TOWPATH_SHM_DIR", "elsewhere");
    let (status, _, errors) = dog.spawn(command).finish();
    let absolute = directory.0.join("elsewhere");
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains(absolute.to_str().unwrap()), "{errors}");
}
