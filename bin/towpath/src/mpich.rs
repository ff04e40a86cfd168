//! Files of MPICH's own in /dev/shm.
//!
//! MPICH makes them while it starts and removes them once its ranks have met; a rank that is killed
//! in between leaves them there. `towpath doctor` lists them; Towpath removes none.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use towpath_shm::shown;

use crate::CommandFailure;

/// The variable that names another directory than /dev/shm to look into.
const DIRECTORY: &str = "TOWPATH_MPICH_DIR";

/// Beginnings of the names: of `ch4` (one file for all ranks, one for its virtual
/// interfaces), and of windows in shared memory.
const PREFIXES: [&[u8]; 3] = [b"mpich_shm_", b"mpich_vci_", b"mpich_shar_tmp"];

/// A file of this user with a name that MPICH gives.
#[derive(Debug)]
pub struct MpichFile {
    pub path: PathBuf,
    /// The memory that it occupies.
    pub bytes: u64,
    /// The processes that map it, of those whose mappings may be read.
    pub mapped_by: Vec<u32>,
    /// The processes of this user whose mappings may not be read.
    pub unread: Vec<u32>,
    /// Device and inode, as in `/proc/PID/maps`.
    place: (String, String),
}

impl MpichFile {
    /// Returns whether a process maps it; `None` if a process's mappings can't be read.
    pub fn mapped(&self) -> Option<bool> {
        match (self.mapped_by.is_empty(), self.unread.is_empty()) {
            (false, _) => Some(true),
            (true, true) => Some(false),
            (true, false) => None,
        }
    }

    /// The processes that map it, for people.
    pub fn users(&self) -> String {
        let numbers = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match self.mapped() {
            Some(true) => format!("mapped by {}", numbers(&self.mapped_by)),
            Some(false) => "no process maps it".to_owned(),
            None => format!("the mappings of {} can't be read", numbers(&self.unread)),
        }
    }

    /// The command that removes it. `None` while a process maps it.
    pub fn remedy(&self) -> Option<String> {
        (self.mapped() != Some(true)).then(|| format!("rm {}", shell_word(&self.path)))
    }
}

/// All such files, by path.
pub fn files() -> Result<Vec<MpichFile>, CommandFailure> {
    let named = std::env::var_os(DIRECTORY).filter(|d| !d.is_empty());
    let directory = PathBuf::from(named.unwrap_or_else(|| OsString::from("/dev/shm")));
    let unread = |e: std::io::Error| {
        let place = shown(&directory);
        CommandFailure::new(format!(
            "reading {place}, where MPICH's own files are, failed: {e}; make it readable, or name another directory in {DIRECTORY}"
        ))
    };
    let entries = match fs::read_dir(&directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(unread)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(unread)?.file_name();
        if !PREFIXES.iter().any(|prefix| name.as_bytes().starts_with(prefix)) {
            continue;
        }
        let path = directory.join(&name);
        // Removed since it was listed, perhaps: MPICH does that.
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let device = format!("{:02x}:{:02x}", major(meta.dev()), minor(meta.dev()));
        found.push(MpichFile {
            path,
            bytes: meta.blocks() * 512,
            mapped_by: Vec::new(),
            unread: Vec::new(),
            place: (device, meta.ino().to_string()),
        });
    }
    if !found.is_empty() {
        look_for_users(&mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Notes which processes map the files.
fn look_for_users(files: &mut [MpichFile]) {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = processes.filter_map(|p| p.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        match fs::read(format!("/proc/{pid}/maps")) {
            Ok(maps) => {
                let maps = String::from_utf8_lossy(&maps);
                for file in files.iter_mut() {
                    if maps.lines().any(|line| place(line) == Some((&file.place.0, &file.place.1))) {
                        file.mapped_by.push(pid);
                    }
                }
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied && is_ours(pid) => {
                files.iter_mut().for_each(|file| file.unread.push(pid));
            }
            // Another user's, or it has ended.
            Err(_) => {}
        }
    }
}

/// Device and inode of a line of `/proc/PID/maps`: `addresses permissions offset device
/// inode path`.
fn place(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_ascii_whitespace().skip(3);
    Some((words.next()?, words.next()?))
}

/// Returns whether a process runs as this user.
///
/// Its status says so; its directory in /proc may belong to root all the same.
fn is_ours(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().nth(1));
    uid.and_then(|uid| uid.parse().ok()) == Some(rustix::process::geteuid().as_raw())
}

/// A path as a word for a shell: as it is, or within `$'…'` (POSIX.1-2024; bash, ksh,
/// zsh).
fn shell_word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"/._-+".contains(b)) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let escaped = bytes.iter().map(|&b| match b {
        b'\'' | b'\\' => format!("\\{}", char::from(b)),
        b' '..=b'~' => char::from(b).to_string(),
        _ => format!("\\{b:03o}"),
    });
    format!("$'{}'", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_path_as_a_word_of_a_shell() {
        let word = |bytes: &[u8]| shell_word(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(word(b"/dev/shm/mpich_shm_2f67d47a_0"), "/dev/shm/mpich_shm_2f67d47a_0");
        assert_eq!(word(b"/a b'c\\;$(d)"), r"$'/a b\'c\\;$(d)'");
        assert_eq!(word(b"/\x1b1\xff"), r"$'/\0331\377'");
    }

    #[test]
    fn a_line_of_mappings_says_where_its_file_is() {
        let line = "7f00-7f10 rw-s 00000000 00:1a 4711                 /dev/shm/mpich_shm_1_0 (deleted)";
        assert_eq!(place(line), Some(("00:1a", "4711")));
        assert_eq!(place("7f00-7f10 rw-p 00000000 00:00 0"), Some(("00:00", "0")));
        assert_eq!(place(""), None);
    }
}
