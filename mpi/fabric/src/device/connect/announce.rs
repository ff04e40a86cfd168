//! Announcement that a process has opened an endpoint, for the launcher
//! (`TOWPATH_ANNOUNCE`).

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// The variable that names the file (`towpath mpirun`, `towpath bench mpi`).
const VARIABLE: &str = "TOWPATH_ANNOUNCE";

/// Adds a line with this process's number to the file that the environment names, if it
/// names one and the file is there.
pub fn announce() {
    if let Some(file) = std::env::var_os(VARIABLE) {
        announce_in(file.as_ref());
    }
}

fn announce_in(file: &Path) {
    // If it can't be written there is no announcement: no reason not to carry messages. Never made
    // anew: its maker knows its place.
    if let Ok(mut file) = OpenOptions::new().append(true).open(file) {
        let _ = writeln!(file, "{}", std::process::id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_added_to_a_file_that_is_there() {
        let file = std::env::temp_dir().join(format!("towpath-announce-{}", std::process::id()));
        announce_in(&file);
        assert!(!file.exists());
        std::fs::write(&file, "").unwrap();
        announce_in(&file);
        announce_in(&file);
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
        std::fs::remove_file(file).unwrap();
    }
}
