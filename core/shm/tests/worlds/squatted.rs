//! Names of worlds that lead to something else: it stays, is never waited for, and every
//! error names it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use crate::common::{Watchdog, unique};
use towpath_shm::{Error, World, WorldSpec, named_files, shown};

fn spec(name: &str) -> WorldSpec {
    WorldSpec {
        name: Some(name.to_owned()),
        processes: 2,
        area_bytes: 1 << 14,
        object_bytes: 0,
        params: [7; 16],
    }
}

fn path(name: impl AsRef<OsStr>) -> PathBuf {
    let mut file = format!("/dev/shm/towpath.{}.", rustix::process::geteuid().as_raw()).into_bytes();
    file.extend_from_slice(name.as_ref().as_bytes());
    PathBuf::from(OsStr::from_bytes(&file))
}

/// Something at the name of a world. Removed when dropped.
struct Squatter {
    name: String,
    path: PathBuf,
}

impl Squatter {
    fn new(kind: &str) -> Self {
        let name = unique(kind);
        Squatter { path: path(&name), name }
    }

    /// Neither making a world, nor opening one, nor sweeping removes it; each message
    /// names it and says why.
    fn stays(&self, why: &str) {
        let before = fs::symlink_metadata(&self.path).unwrap();
        let error = World::create(&spec(&self.name)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NotTrusted { .. }), "{text}");
        assert!(text.contains(why) && text.contains(&shown(&self.path)) && text.contains("remove"), "{text}");
        let text = World::open(&self.name).unwrap_err().to_string();
        assert!(text.contains(&shown(&self.path)), "{text}");
        let found = named_files().unwrap();
        assert!(!found.worlds.iter().any(|w| w.path == self.path), "{why}");
        let other = found.others.iter().find(|o| o.path == self.path).unwrap();
        assert!(other.why.contains(why), "{other:?}");
        let after = fs::symlink_metadata(&self.path).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!((after.ino(), after.len(), after.nlink()), (before.ino(), before.len(), before.nlink()));
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path).or_else(|_| fs::remove_dir(&self.path));
    }
}

fn private_file(path: &PathBuf, bytes: &[u8]) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn file_that_is_no_world_stays() {
    let _dog = Watchdog::new("file_that_is_no_world_stays");
    for bytes in [&b"chapter 1"[..], b"short", &vec![b'x'; 1 << 20], &vec![0; 1 << 20]] {
        let squatter = Squatter::new("thesis");
        private_file(&squatter.path, bytes);
        squatter.stays("it does not begin like a world");
        assert_eq!(fs::read(&squatter.path).unwrap(), bytes);
    }
}

#[test]
fn world_cut_to_nothing_stays() {
    let squatter = Squatter::new("cut");
    private_file(&squatter.path, b"");
    squatter.stays("it is empty");
}

#[test]
fn fifo_socket_and_directory_stay_unopened() {
    let _dog = Watchdog::new("fifo_socket_and_directory_stay_unopened");
    let fifo = Squatter::new("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo.path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fifo.stays("it is a FIFO");
    let socket = Squatter::new("socket");
    let _listener = UnixListener::bind(&socket.path).unwrap();
    socket.stays("it is a socket");
    let directory = Squatter::new("directory");
    fs::create_dir(&directory.path).unwrap();
    directory.stays("it is a directory");
}

#[test]
fn device_stays_unopened() {
    let device = Squatter::new("device");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    // The kernel's log: opening it for reading and writing is harmless, but it is no world.
    let number = rustix::fs::makedev(1, 11);
    let kind = rustix::fs::FileType::CharacterDevice;
    if let Err(e) = rustix::fs::mknodat(rustix::fs::CWD, &device.path, kind, mode, number) {
        eprintln!("SKIPPED device_stays_unopened: making a device takes root's rights: {e}");
        return;
    }
    device.stays("it is a device");
}

#[test]
fn file_of_another_user_stays() {
    let squatter = Squatter::new("other-user");
    // A whole world, so that only the owner tells.
    let world = World::create(&spec(&squatter.name)).unwrap();
    let bytes = fs::read(&squatter.path).unwrap();
    drop(world);
    private_file(&squatter.path, &bytes);
    if let Err(e) = std::os::unix::fs::chown(&squatter.path, Some(4711), None) {
        eprintln!("SKIPPED file_of_another_user_stays: giving a file away takes root's rights: {e}");
        return;
    }
    squatter.stays("it belongs to user 4711");
    // With the right owner the same file is a dead world, and goes.
    std::os::unix::fs::chown(&squatter.path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    assert!(named_files().unwrap().worlds.iter().any(|w| w.path == squatter.path && !w.alive));
    drop(World::create(&spec(&squatter.name)).unwrap());
    assert!(!squatter.path.exists());
}

#[test]
fn symbolic_link_to_a_dead_world_stays() {
    let dead = Squatter::new("linked");
    let world = World::create(&spec(&dead.name)).unwrap();
    let bytes = fs::read(&dead.path).unwrap();
    drop(world);
    private_file(&dead.path, &bytes);
    for target in [dead.path.clone(), PathBuf::from("/dev/shm/there-is-no-such-file-of-towpath")] {
        let link = Squatter::new("link");
        symlink(&target, &link.path).unwrap();
        link.stays("it is a symbolic link");
    }
    assert_eq!(fs::read(&dead.path).unwrap(), bytes);
}

#[test]
fn hard_link_at_a_name_costs_only_the_name() {
    // To a file that is no world: stays.
    let file = Squatter::new("hard-file");
    private_file(&file.path, b"chapter 2");
    let link = Squatter::new("hard-link");
    fs::hard_link(&file.path, &link.path).unwrap();
    link.stays("it does not begin like a world");
    // To a living world: it is alive under either name.
    let name = unique("hard-alive");
    let world = World::create(&spec(&name)).unwrap();
    let second = Squatter::new("hard-second");
    fs::hard_link(path(&name), &second.path).unwrap();
    assert!(matches!(World::create(&spec(&second.name)), Err(Error::NameTaken { .. })));
    let found = named_files().unwrap();
    assert!(found.worlds.iter().any(|w| w.path == second.path && w.alive));
    // Its end takes its own name; the other one is a dead world's by then.
    drop(world);
    assert!(!path(&name).exists() && second.path.exists());
    let find = || named_files().unwrap().worlds.into_iter().find(|w| w.path == second.path).unwrap();
    // Alive for as long as a child of another test, which inherits its descriptor, has not ended.
    let mut found = find();
    for _ in 0..2_000 {
        if !found.alive {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        found = find();
    }
    assert!(!found.alive);
    assert!(matches!(found.remove(), Ok(true)));
}

#[test]
fn dead_world_under_a_strange_name_is_found() {
    let name = unique("strange");
    let world = World::create(&spec(&name)).unwrap();
    let bytes = fs::read(path(&name)).unwrap();
    drop(world);
    for suffix in [&b"\xff\xfe"[..], b"\x1b[2J", b"two\nlines"] {
        let strange = path(OsStr::from_bytes(&[name.as_bytes(), suffix].concat()));
        private_file(&strange, &bytes);
        let found = named_files().unwrap().worlds.into_iter().find(|w| w.path == strange).unwrap();
        assert!(!found.alive && found.name.chars().all(|c| !c.is_control()), "{found:?}");
        assert!(matches!(found.remove(), Ok(true)));
        assert!(!strange.exists());
    }
}

#[test]
fn name_that_is_replaced_after_listing_stays() {
    let name = unique("replaced");
    let world = World::create(&spec(&name)).unwrap();
    let bytes = fs::read(path(&name)).unwrap();
    drop(world);
    private_file(&path(&name), &bytes);
    let found = named_files().unwrap().worlds.into_iter().find(|w| w.name == name).unwrap();
    fs::remove_file(path(&name)).unwrap();
    let squatter = Squatter { path: path(&name), name };
    private_file(&squatter.path, b"chapter 3");
    assert!(matches!(found.remove(), Err(Error::NotTrusted { .. })));
    squatter.stays("it does not begin like a world");
}

#[test]
fn errors_of_files_name_them() {
    let squatter = Squatter::new("mode");
    private_file(&squatter.path, b"Towpath\x01");
    fs::set_permissions(&squatter.path, fs::Permissions::from_mode(0o644)).unwrap();
    let text = World::open(&squatter.name).unwrap_err().to_string();
    assert!(text.contains(&shown(&squatter.path)) && text.contains("644"), "{text}");
}

#[test]
fn dead_world_is_dead_for_many_sweepers_at_once() {
    let _dog = Watchdog::new("dead_world_is_dead_for_many_sweepers_at_once");
    let name = unique("swept");
    let world = World::create(&spec(&name)).unwrap();
    let bytes = fs::read(path(&name)).unwrap();
    drop(world);
    private_file(&path(&name), &bytes);
    let look = || {
        for _ in 0..300 {
            let found = named_files().unwrap().worlds.into_iter().find(|w| w.name == name);
            assert!(found.is_some_and(|w| !w.alive), "another sweeper is no member");
        }
    };
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(look);
        }
    });
    // Nor does a sweeper keep the name from being used again.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                // Relaxed: nothing else depends on it.
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    named_files().unwrap();
                }
            });
        }
        let again = || {
            for _ in 0..100 {
                let world = World::create(&spec(&name))?;
                drop(world);
                // The remains if the last member was killed.
                let _ = fs::remove_file(path(&name));
                private_file(&path(&name), &bytes);
            }
            Ok::<(), Error>(())
        };
        let done = again();
        // Relaxed: it only ends the loops; the scope joins the threads.
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        done.unwrap();
    });
    fs::remove_file(path(&name)).unwrap();
}
