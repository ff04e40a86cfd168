//! Files of MPICH's own: `doctor` lists them with the command that removes them, `clean`
//! names and leaves them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::launching::command as towpath;
use crate::launching::common::{Directory, Watchdog, member};
use serde_json::{Value, json};

fn mpich(dog: &Watchdog, directory: &Directory) -> Vec<Value> {
    let (code, output, errors) = towpath(dog, directory, &["doctor", "--json"]);
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&output).unwrap();
    report["mpich"].as_array().unwrap().clone()
}

#[test]
fn mpichs_files_are_listed_with_the_command_that_removes_them() {
    let dog = Watchdog::new("mpichs_files_are_listed_with_the_command_that_removes_them");
    let directory = Directory::new();
    assert_eq!(mpich(&dog, &directory), [Value::Null; 0]);
    let file = |name: &[u8]| {
        let path = directory.0.join(OsStr::from_bytes(name));
        fs::write(&path, [1; 8192]).unwrap();
        path
    };
    let plain = file(b"mpich_shm_2f67d47a_0");
    let strange = file(b"mpich_shm_\x1b[2J'\xff");
    file(b"mpich_vci_2f67d47a_0");
    file(b"mpich_shar_tmpAbCdEf");
    file(b"mpich");
    fs::create_dir(directory.0.join("mpich_shm_directory")).unwrap();
    symlink(&plain, directory.0.join("mpich_shm_link")).unwrap();

    let listed = mpich(&dog, &directory);
    assert_eq!(listed.len(), 4, "{listed:?}");
    let of = |path: &Path| listed.iter().find(|f| f["path"] == *path.to_string_lossy()).unwrap();
    assert_eq!((&of(&plain)["bytes"], &of(&plain)["shown"]), (&json!(8192), &json!(plain)));
    let (code, text, _) = towpath(&dog, &directory, &["doctor"]);
    assert_eq!(code, 0);
    assert!(!text.contains('\x1b') && text.contains(r"mpich_shm_\u{1b}[2J'\xff (8 KiB"), "{text}");
    let (code, said, remarks) = towpath(&dog, &directory, &["clean"]);
    assert_eq!((code, &*said), (0, "no dead world has left anything behind\n"), "{remarks}");
    assert_eq!(remarks.lines().count(), 4, "{remarks}");
    assert!(!remarks.contains('\x1b'), "{remarks:?}");
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 7, "clean leaves them");
    for path in [&plain, &strange] {
        let remedy = of(path)["remedy"].as_str().unwrap();
        assert!(text.lines().any(|line| line.ends_with(remedy)), "{remedy}: {text}");
        assert!(remarks.lines().any(|line| line.ends_with(remedy)), "{remedy}: {remarks}");
        // Not every `sh` knows `$'…'` yet.
        if let Ok(status) = Command::new("bash").args(["-c", remedy]).status() {
            assert!(status.success() && !path.exists(), "{remedy}");
        }
    }
}

#[test]
fn file_that_a_process_maps_has_no_remedy() {
    let dog = Watchdog::new("file_that_a_process_maps_has_no_remedy");
    let directory = Directory::new();
    // A process that maps a file and goes on: the creator of a world, whose file gets a second
    // name.
    let mut command = Command::new(member());
    command.args(["create", "mapped"]).env("TOWPATH_SHM_DIR", &directory.0);
    let mut creator = dog.spawn(command);
    assert_eq!(creator.line(), "created");
    let world = directory.files().remove(0);
    let path = directory.0.join("mpich_shm_1_0");
    fs::hard_link(directory.0.join(world), &path).unwrap();

    let listed = mpich(&dog, &directory);
    let expected = (json!(true), json!([creator.pid()]), Value::Null);
    assert_eq!(
        (&listed[0]["mapped"], &listed[0]["mapped_by"], &listed[0]["remedy"]),
        (&expected.0, &expected.1, &expected.2)
    );
    let (_, text, _) = towpath(&dog, &directory, &["doctor"]);
    assert!(text.contains(&format!("mapped by {}", creator.pid())) && !text.contains(": rm "), "{text}");
    let (code, said, remarks) = towpath(&dog, &directory, &["clean"]);
    assert_eq!((code, &*said, &*remarks), (0, "nothing is left behind\n", ""));

    creator.kill();
    creator.wait();
    let listed = mpich(&dog, &directory);
    assert_eq!(listed[0]["mapped_by"], json!([]));
    assert_eq!(listed[0]["remedy"], format!("rm {}", path.display()));
}
