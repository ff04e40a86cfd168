//! Named worlds: their lives, their leftovers, trust in files, and places without room.

use crate::common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;

use crate::common::{Directory, Watchdog, unique};
use towpath_shm::{Error, LAYOUT_VERSION, World, WorldSpec, leftovers};

fn spec(name: &str) -> WorldSpec {
    WorldSpec {
        name: Some(name.to_owned()),
        processes: 4,
        area_bytes: 1 << 16,
        object_bytes: 0,
        params: [3; 16],
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/towpath.{}.{name}", rustix::process::geteuid().as_raw()))
}

#[test]
fn a_named_world_lives_as_long_as_a_process_has_it() {
    let name = unique("life");
    assert!(matches!(World::open(&name), Err(Error::NoSuchWorld { .. })));
    let first = World::create(&spec(&name)).unwrap();
    let meta = fs::metadata(path(&name)).unwrap();
    assert_eq!(meta.mode() & 0o777, 0o600);
    assert_eq!(meta.len(), first.segment_bytes());
    assert!(meta.blocks() * 512 >= meta.len(), "reserved");
    let second = World::open(&name).unwrap();
    assert_eq!((second.name(), second.params()), (Some(name.as_str()), [3; 16]));
    assert!(matches!(World::create(&spec(&name)), Err(Error::NameTaken { .. })));
    assert!(leftovers().unwrap().iter().any(|w| w.name == name && w.alive));
    drop(first);
    second.enter(None).unwrap();
    assert!(path(&name).exists());
    drop(second);
    assert!(!path(&name).exists());
    assert!(matches!(World::open(&name), Err(Error::NoSuchWorld { .. })));
}

#[test]
fn a_name_can_be_given_up_early() {
    let name = unique("early");
    let world = World::create(&spec(&name)).unwrap();
    world.unlink().unwrap();
    assert!(!path(&name).exists());
    // The name is free for another, which dropping the first does not harm.
    let other = World::create(&spec(&name)).unwrap();
    world.unlink().unwrap();
    drop(world);
    assert!(path(&name).exists());
    drop(other);
    assert!(!path(&name).exists());
}

#[test]
fn what_a_killed_process_leaves_behind_is_found_and_removed() {
    let dog = Watchdog::new("what_a_killed_process_leaves_behind_is_found_and_removed");
    let name = unique("killed");
    let mut creator = dog.start("/dev/shm".as_ref(), &["create", &name]);
    assert_eq!(creator.line(), "created");
    let find = || leftovers().unwrap().into_iter().find(|w| w.name == name);
    let found = find().unwrap();
    assert!(found.alive);
    assert!(matches!(found.remove(), Err(Error::NameTaken { .. })), "alive");
    creator.kill();
    creator.wait();
    let found = find().unwrap();
    assert!(!found.alive && found.bytes >= 1 << 16);
    assert!(matches!(found.remove(), Ok(true)));
    assert!(matches!(found.remove(), Ok(false)));
    assert!(!path(&name).exists());

    // A new world of the name of a dead one needs no cleaning.
    let mut creator = dog.start("/dev/shm".as_ref(), &["create", &name]);
    assert_eq!(creator.line(), "created");
    creator.kill();
    creator.wait();
    let world = World::create(&spec(&name)).unwrap();
    assert_eq!(world.deaths(), 0);
    assert_eq!(find().map(|w| w.alive), Some(true));
}

#[test]
fn relative_directory_stays_the_one_it_was_at_first() {
    let dog = Watchdog::new("relative_directory_stays_the_one_it_was_at_first");
    let directory = Directory::new();
    fs::create_dir(directory.0.join("worlds")).unwrap();
    let mut command = std::process::Command::new(common::member());
    command.args(["move", "moving"]).current_dir(&directory.0).env("TOWPATH_SHM_DIR", "worlds");
    let (status, output, errors) = dog.spawn(command).finish();
    assert!(status.success(), "{errors}");
    assert_eq!(output, "1 true\n0 left\n");
}

#[test]
fn sweeping_never_touches_the_living() {
    let dog = Watchdog::new("sweeping_never_touches_the_living");
    let directory = Directory::new();
    let sweepers: Vec<_> = (0..2).map(|_| dog.start(&directory.0, &["sweep"])).collect();
    let busy: Vec<_> =
        ["a", "b", "c"].iter().map(|n| dog.start(&directory.0, &["hurry", n, "300"])).collect();
    for member in busy {
        let (status, _, errors) = member.finish();
        assert!(status.success(), "{errors}");
    }
    // And it takes the dead.
    let mut dead = dog.start(&directory.0, &["create", "dead"]);
    assert_eq!(dead.line(), "created");
    dead.kill();
    dead.wait();
    while !directory.files().is_empty() {
        thread::yield_now();
    }
    let removed: u32 = sweepers
        .into_iter()
        .map(|s| s.finish().1.trim().strip_prefix("removed ").unwrap().parse::<u32>().unwrap())
        .sum();
    assert_eq!(removed, 1);
}

#[test]
fn files_that_others_could_have_made_are_not_trusted() {
    let name = unique("trust");
    let world = World::create(&spec(&name)).unwrap();
    let path = path(&name);
    for mode in [0o644, 0o660, 0o602] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = World::open(&name).unwrap_err();
        assert!(matches!(error, Error::NotTrusted { .. }), "{error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    drop(World::open(&name).unwrap());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
        let error = World::open(&name).unwrap_err();
        assert!(matches!(&error, Error::NotTrusted { why, .. } if why.contains("4711")), "{error}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    let link = unique("link");
    symlink(&path, self::path(&link)).unwrap();
    let error = World::open(&link).unwrap_err();
    fs::remove_file(self::path(&link)).unwrap();
    assert!(matches!(error, Error::NotTrusted { .. }), "{error}");
    drop(world);
}

#[test]
fn other_files_are_no_worlds() {
    let name = unique("other");
    let make = |bytes: &[u8], sparse: u64| {
        let _ = fs::remove_file(path(&name));
        fs::write(path(&name), bytes).unwrap();
        fs::set_permissions(path(&name), fs::Permissions::from_mode(0o600)).unwrap();
        if sparse > 0 {
            fs::OpenOptions::new().write(true).open(path(&name)).unwrap().set_len(sparse).unwrap();
        }
        let error = World::open(&name).unwrap_err();
        fs::remove_file(path(&name)).unwrap();
        error
    };
    assert!(matches!(make(b"", 0), Error::NotAWorld { why: "it is too short", .. }));
    assert!(matches!(make(b"Towpath\x01", 0), Error::NotAWorld { .. }));
    assert!(matches!(make(b"", 1 << 20), Error::NotAWorld { why: "its memory is not reserved", .. }));
    assert!(matches!(make(&vec![0; 1 << 20], 0), Error::NotAWorld { why: "it does not begin like one", .. }));
    fs::create_dir(path(&name)).unwrap();
    let error = World::open(&name).unwrap_err();
    fs::remove_dir(path(&name)).unwrap();
    assert!(matches!(error, Error::System { .. } | Error::NotTrusted { .. }), "{error}");
}

#[test]
fn another_version_is_named() {
    let name = unique("version");
    let world = World::create(&spec(&name)).unwrap();
    // The layout version is the 32 bits after the magic word.
    let file = fs::OpenOptions::new().write(true).open(path(&name)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &(LAYOUT_VERSION + 1).to_le_bytes(), 8).unwrap();
    let error = World::open(&name).unwrap_err();
    assert!(
        matches!(error, Error::OtherLayout { here: LAYOUT_VERSION, there } if there == LAYOUT_VERSION + 1)
    );
    assert!(error.to_string().contains("rebuild"));
    drop(world);
}

#[test]
fn a_limit_for_files_is_an_error_with_a_remedy() {
    let dog = Watchdog::new("a_limit_for_files_is_an_error_with_a_remedy");
    let directory = Directory::new();
    let (status, output, errors) = dog.start(&directory.0, &["file-limit"]).finish();
    assert!(status.success(), "{status}: {errors}");
    assert!(output.contains("1048576") && output.contains("ulimit -f"), "{output}");
}

#[test]
fn a_full_file_system_is_an_error_with_a_remedy() {
    let dog = Watchdog::new("a_full_file_system_is_an_error_with_a_remedy");
    let directory = Directory::new();
    let place = directory.0.to_str().unwrap().to_owned();
    let (status, output, errors) = dog.start(&directory.0, &["small-tmpfs", &place]).finish();
    assert!(status.success(), "{status}: {errors}");
    if output.starts_with("unsupported") {
        // Only root may mount. The remaining limit is the one for files, which has a test of its
        // own.
        assert_ne!(rustix::process::geteuid().as_raw(), 0, "{output}");
        eprintln!("{output}");
        return;
    }
    for remedy in [&place, "--size", "towpath clean", "remount,size=", "--shm-size"] {
        assert!(output.contains(remedy), "{output}");
    }
    assert!(output.ends_with("0 left\n"), "{output}");
}

/// The directory of this process's own group, if it is one in which a group with a memory
/// limit can be made.
fn memory_group() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = |line: &str| line.splitn(3, ':').nth(2).map(|p| p.trim_start_matches('/').to_owned());
    let v1 = own.lines().find(|l| l.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == "memory")));
    let v2 = own.lines().find(|l| l.starts_with("0::"));
    let candidates = [
        v1.and_then(path).map(|p| PathBuf::from("/sys/fs/cgroup/memory").join(p)),
        v2.and_then(path).map(|p| PathBuf::from("/sys/fs/cgroup").join(p)),
    ];
    candidates.into_iter().flatten().find_map(|own| {
        let group = own.join(unique("group"));
        fs::create_dir(&group).ok()?;
        if group.join("memory.max").exists() || group.join("memory.limit_in_bytes").exists() {
            return Some(group);
        }
        let _ = fs::remove_dir(&group);
        None
    })
}

#[test]
fn a_memory_limit_is_an_error_with_a_remedy() {
    let dog = Watchdog::new("a_memory_limit_is_an_error_with_a_remedy");
    let Some(group) = memory_group() else {
        // Not root, or no memory controller: the arithmetic is tested in `limits.rs`.
        eprintln!("unsupported: making a control group with a memory limit");
        return;
    };
    let directory = Directory::new();
    let (status, output, errors) =
        dog.start(&directory.0, &["memory-limit", group.to_str().unwrap()]).finish();
    while fs::remove_dir(&group).is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY)) {
        thread::yield_now();
    }
    assert!(status.success(), "{status}: {errors}");
    if output.starts_with("unsupported") {
        eprintln!("{output}");
        return;
    }
    assert!(output.contains(group.to_str().unwrap()) && output.contains("MemoryMax"), "{output}");
}
